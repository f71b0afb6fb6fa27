//! The table of all methods, and the way of a call to its method.

use crate::ioctl::{Call, Context, Method};
use crate::{devx, efa, verbs};
use rustix::io::Errno;
use shunt_soft_machine::kind::Kind;
use shunt_soft_machine::log::Level;

/// All methods of a kind of device.
fn tables(kind: Kind) -> &'static [&'static [Method]] {
    match kind {
        Kind::Mlx5 => &[verbs::METHODS, devx::METHODS],
        Kind::Efa => &[efa::METHODS],
    }
}

fn find(kind: Kind, object: u16, method: u16) -> Option<&'static Method> {
    let all = tables(kind).iter().copied().flatten();
    all.into_iter().find(|entry| entry.object == object && entry.method == method)
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
    let method = find(context.nic().kind(), call.object(), call.method()).ok_or(Errno::PROTONOSUPPORT)?;
    call.check_known(method.attributes)?;
    (method.run)(context, call)
}
