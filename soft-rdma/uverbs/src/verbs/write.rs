//! INVOKE_WRITE: commands that were once written to the file, in an ioctl.

use super::invocation::Core;
use super::{address, channel, cq, device, modify, mr, pd, qp, srq};
use crate::abi::ids::{UHW_IN, UHW_OUT, command, write};
use crate::ioctl::{Call, Context};
use rustix::io::Errno;
use shunt_soft_machine::log::Level;

/// Attributes it knows.
pub const ATTRIBUTES: &[u16] = &[write::CORE_IN, write::CORE_OUT, write::COMMAND, UHW_IN, UHW_OUT];

/// INVOKE_WRITE.
pub fn invoke(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let number: u32 = call.input(write::COMMAND)?;
    shunt_soft_machine::log!(Level::Trace, "command {} by ioctl", number & !write::EXTENDED);
    let core = &mut Core(call);
    if number & write::EXTENDED != 0 {
        return match number & !write::EXTENDED {
            command::QUERY_DEVICE => device::query_device_ex(context, core),
            command::MODIFY_QP => modify::modify_ex(context, core),
            _ => Err(Errno::OPNOTSUPP),
        };
    }
    match number {
        command::QUERY_DEVICE => device::query_device(context, core),
        command::ALLOC_PD => pd::alloc(context, core),
        command::REG_MR => mr::register(context, core),
        command::REREG_MR => mr::register_again(context, core),
        command::RESIZE_CQ => cq::resize(context, core),
        command::CREATE_AH => address::create(context, core),
        command::MODIFY_QP => modify::modify(context, core),
        command::QUERY_QP => qp::query(context, core),
        command::MODIFY_SRQ => srq::modify(context, core),
        command::QUERY_SRQ => srq::query(context, core),
        command::CREATE_COMP_CHANNEL => channel::create(context, core),
        _ => Err(Errno::OPNOTSUPP),
    }
}
