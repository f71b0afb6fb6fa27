//! What queues are made of.

use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_host::error::NicError;
use shunt_host::gpu::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt_host::nic::uar::Uar;
use shunt_host::nic::umem::QUEUE_ALIGN;
use shunt_host::rail::Rail;

use super::events::Events;

pub(super) fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

pub(super) fn memory(bytes: u64) -> Result<Arc<OwnedSpan>, NicError> {
    let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
    Ok(OwnedSpan::alloc(&memory, bytes.next_multiple_of(QUEUE_ALIGN), Placement::Control)?)
}

/// What queues are made of.
pub struct Place<'a> {
    /// The NIC.
    pub rail: &'a Arc<Rail>,
    /// The clock.
    pub world: &'a Arc<dyn World>,
    /// Where doorbells are rung.
    pub uar: &'a Arc<Uar>,
    /// What the NIC tells.
    pub events: &'a Arc<Events>,
}

/// Error numbers of Linux.
pub const ENOMEM: i32 = 12;
/// See [`ENOMEM`].
pub const EINVAL: i32 = 22;
/// See [`ENOMEM`].
pub const EIO: i32 = 5;
