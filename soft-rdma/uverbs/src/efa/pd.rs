//! Protection domains.

use super::kept::refused;
use crate::abi::Plain;
use crate::abi::efa::PdResponse;
use crate::abi::ids::HANDLE;
use crate::ioctl::{Call, Context, Resource};
use crate::verbs::invocation::Core;
use rustix::io::Errno;
use std::sync::Arc;

/// A protection domain.
pub struct Pd {
    number: u16,
}

impl Pd {
    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Resource for Pd {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        context.nic().with_srd(|device| device.remove_pd(self.number))?.map_err(refused)
    }
}

/// ALLOC_PD.
pub fn alloc(context: &Context, core: &mut Core) -> Result<(), Errno> {
    core.check_room::<u32>()?;
    let number = context.nic().with_srd(|device| device.add_pd())?.ok_or(Errno::NOMEM)?;
    let handle = context.insert(Arc::new(Pd { number }));
    core.driver_reply(PdResponse { pdn: number, ..PdResponse::default() }.bytes())?;
    core.reply(&handle)
}

/// Destroys.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    context.destroy::<Pd>(call.handle(HANDLE)?).map(|_| ())
}
