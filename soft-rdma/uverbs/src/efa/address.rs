//! Address handles.

use super::kept::refused;
use super::pd::Pd;
use crate::abi::Plain;
use crate::abi::efa::CreateAhResponse;
use crate::abi::ids::HANDLE;
use crate::abi::uverbs::CreateAh;
use crate::ioctl::{Call, Context, Resource};
use crate::verbs::address::{PORT, mac};
use crate::verbs::invocation::Core;
use rustix::io::Errno;
use std::sync::Arc;

/// An address handle.
struct Ah {
    number: u16,
}

impl Resource for Ah {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        context.nic().with_srd(|device| device.remove_handle(self.number))?.map_err(refused)
    }
}

/// CREATE_AH: the library puts its number into WQEs.
pub fn create(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let request: CreateAh = core.request()?;
    core.check_room::<u32>()?;
    if request.is_global == 0 || request.port != PORT {
        return Err(Errno::INVAL);
    }
    let pd = context.get::<Pd>(request.pd)?.number();
    let mac = mac(context.nic(), request.gid)?.iter().fold(0, |mac, byte| mac << 8 | u64::from(*byte));
    let gid = u128::from_be_bytes(request.gid);
    let number = context.nic().with_srd(|device| device.add_handle(pd, gid, mac))?.ok_or(Errno::NOMEM)?;
    let handle = context.insert(Arc::new(Ah { number }));
    core.driver_reply(CreateAhResponse { number, ..CreateAhResponse::default() }.bytes())?;
    core.reply(&handle)
}

/// Destroy.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    context.destroy::<Ah>(call.handle(HANDLE)?).map(|_| ())
}
