//! The table of all methods, and the way of a call to its method.

use crate::ioctl::{Call, Context, Method};
use crate::{devx, verbs};
use rustix::io::Errno;
use shunt_soft_machine::log::Level;

/// All methods.
const TABLES: &[&[Method]] = &[verbs::METHODS, devx::METHODS];

fn find(object: u16, method: u16) -> Option<&'static Method> {
    TABLES.iter().copied().flatten().find(|entry| entry.object == object && entry.method == method)
}

/// Reads the call at `address` of the program and runs it on an open file.
pub fn run(context: &Context, address: u64) -> Result<(), Errno> {
    let mut call = Call::read(address)?;
    let ended = dispatch(context, &mut call);
    let (object, method) = (call.object(), call.method());
    match ended {
        Ok(()) => shunt_soft_machine::log!(Level::Trace, "object {object:#x} method {method:#x}: done"),
        Err(error) => {
            shunt_soft_machine::log!(Level::Trace, "object {object:#x} method {method:#x}: {error}")
        }
    }
    ended
}

fn dispatch(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let method = find(call.object(), call.method()).ok_or(Errno::PROTONOSUPPORT)?;
    call.check_known(method.attributes)?;
    (method.run)(context, call)
}
