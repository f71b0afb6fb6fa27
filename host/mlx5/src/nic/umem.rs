//! Memory lent to a NIC.

use crate::devx::Devx;
use crate::error::NicError;
use crate::memory::OwnedSpan;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Queues begin at multiples of this in their umem. Firmware deduces the page size from the umem, and NVSHMEM's shared
/// umems keep to the same: 64 KiB are the largest pages that such memory is given back in.
pub const QUEUE_ALIGN: u64 = 64 << 10;

/// An allocation that a NIC reaches. Objects name places in it by offset.
pub struct Umem {
    devx: Arc<dyn Devx>,
    /// None for memory that only has keys, of a NIC whose keys stand alone.
    id: Option<u32>,
    memory: ManuallyDrop<Arc<OwnedSpan>>,
}

impl Umem {
    /// Registers a whole allocation, for queues and keys.
    pub fn register(devx: &Arc<dyn Devx>, memory: &Arc<OwnedSpan>) -> Result<Self, NicError> {
        let dmabuf = memory.memory().dmabuf(memory.span())?;
        // SAFETY: this object holds the allocation until the NIC gave it back (see `Drop`), and everybody in
        // this crate and in device code touches such memory atomically.
        let id = unsafe { devx.register_umem(memory.span(), dmabuf)? };
        Ok(Self { devx: devx.clone(), id: Some(id), memory: ManuallyDrop::new(memory.clone()) })
    }

    /// The same for memory that will only have keys.
    pub fn for_keys(devx: &Arc<dyn Devx>, memory: &Arc<OwnedSpan>) -> Result<Self, NicError> {
        if devx.keys_need_umem() {
            return Self::register(devx, memory);
        }
        Ok(Self { devx: devx.clone(), id: None, memory: ManuallyDrop::new(memory.clone()) })
    }

    /// The umem's id; 0 if there is none.
    pub fn id(&self) -> u32 {
        self.id.unwrap_or_default()
    }

    /// The memory behind it.
    pub fn memory(&self) -> &Arc<OwnedSpan> {
        &self.memory
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        if self.id.is_none_or(|id| self.devx.deregister_umem(id).is_ok()) {
            // SAFETY: dropped here only. If the NIC did not let go, the memory is leaked on purpose: the NIC
            // may still write to it.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
    }
}
