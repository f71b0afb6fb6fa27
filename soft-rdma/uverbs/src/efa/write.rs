//! INVOKE_WRITE: commands that were once written to the file, in an ioctl.

use super::{address, device, memory, pd, qp};
use crate::abi::ids::{UHW_IN, UHW_OUT, command, write};
use crate::ioctl::{Call, Context};
use crate::verbs::channel;
use crate::verbs::invocation::Core;
use rustix::io::Errno;

/// Attributes it knows.
pub const ATTRIBUTES: &[u16] = &[write::CORE_IN, write::CORE_OUT, write::COMMAND, UHW_IN, UHW_OUT];

/// INVOKE_WRITE.
pub fn invoke(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let number: u32 = call.input(write::COMMAND)?;
    let core = &mut Core::of(call);
    if number & write::EXTENDED != 0 {
        return match number & !write::EXTENDED {
            command::QUERY_DEVICE => device::query_device_ex(context, core),
            command::MODIFY_QP => qp::modify_ex(context, core),
            _ => Err(Errno::OPNOTSUPP),
        };
    }
    match number {
        command::QUERY_DEVICE => device::query_device(context, core),
        command::ALLOC_PD => pd::alloc(context, core),
        command::REG_MR => memory::register(context, core),
        command::CREATE_AH => address::create(context, core),
        command::MODIFY_QP => qp::modify(context, core),
        command::QUERY_QP => qp::query(context, core),
        command::CREATE_COMP_CHANNEL => channel::create(context, core),
        _ => Err(Errno::OPNOTSUPP),
    }
}
