//! Memory lent to a NIC.

use crate::devx::Devx;
use crate::error::NicError;
use crate::gpu::OwnedSpan;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// A registered allocation. Objects name places in it by offset.
pub struct Umem {
    devx: Arc<dyn Devx>,
    id: u32,
    memory: ManuallyDrop<Arc<OwnedSpan>>,
}

impl Umem {
    /// Registers a whole allocation.
    pub fn register(devx: &Arc<dyn Devx>, memory: &Arc<OwnedSpan>) -> Result<Self, NicError> {
        // SAFETY: this object holds the allocation until the NIC gave it back (see `Drop`), and everybody in
        // this crate and in device code touches such memory atomically.
        let id = unsafe { devx.register_umem(memory.span())? };
        Ok(Self { devx: devx.clone(), id, memory: ManuallyDrop::new(memory.clone()) })
    }

    /// The umem's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The memory behind it.
    pub fn memory(&self) -> &Arc<OwnedSpan> {
        &self.memory
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        if self.devx.deregister_umem(self.id).is_ok() {
            // SAFETY: dropped here only. If the NIC did not let go, the memory is leaked on purpose: the NIC
            // may still write to it.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
    }
}
