//! Protection domains.

use super::firmware;
use super::invocation::Core;
use crate::abi::Plain;
use crate::abi::ids::HANDLE;
use crate::ioctl::{Call, Context, Resource};
use rustix::io::Errno;
use shunt_layout::mlx5::prm::cmd::Opcode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A protection domain.
pub struct Pd {
    number: u32,
    /// Address handles in it; the firmware counts everything else.
    handles: AtomicU32,
}

impl Pd {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// One more address handle.
    pub fn hold(&self) {
        self.handles.fetch_add(1, Ordering::AcqRel);
    }

    /// One less.
    pub fn release(&self) {
        self.handles.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Resource for Pd {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        if self.handles.load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        firmware::command(context.nic(), Opcode::DeallocPd, self.number)
    }
}

/// ALLOC_PD.
pub fn alloc(context: &Context, core: &mut Core) -> Result<(), Errno> {
    core.check_room::<u32>()?;
    let number = firmware::create(context.nic(), &firmware::short(Opcode::AllocPd, 0))?;
    let handle = context.insert(Arc::new(Pd { number, handles: AtomicU32::new(0) }));
    core.driver_reply(number.bytes())?;
    core.reply(&handle)
}

/// Destroys.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    context.destroy::<Pd>(call.handle(HANDLE)?).map(|_| ())
}
