//! Memory that both the device and the NICs reach: the seam between a GPU and a plain heap.

mod heap;
pub use heap::{HeapMemory, copy_in, copy_out};

use crate::error::GpuError;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A range of device-visible memory. Addresses are the device's, and the host's where the host reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Span {
    /// A part of this span.
    ///
    /// # Panics
    /// If the part does not lie inside: offsets come from a plan that was checked against the span.
    pub fn part(self, offset: u64, bytes: u64) -> Span {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "part outside its span");
        Span { address: self.address + offset, bytes }
    }
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Rings, tables, mailboxes: the host loads and stores it through its address, too.
    Control,
    /// The symmetric heap: only device and NICs touch it directly.
    Heap,
}

/// Memory of another device as the kernel passes it on: a span that NICs reach through a dma-buf.
#[derive(Debug)]
pub struct DmaBuf {
    /// The dma-buf.
    pub file: OwnedFd,
    /// Where in it the span begins.
    pub offset: u64,
}

/// Device-visible memory. Accesses are bounds-checked, so none of them is unsafe but freeing.
pub trait GpuMemory: Send + Sync {
    /// Allocates zeroed memory, aligned to 4 KiB at least.
    fn alloc(&self, bytes: u64, placement: Placement) -> Result<Span, GpuError>;
    /// Frees an allocation.
    ///
    /// # Safety
    /// `span` came from `alloc` of this object, was not freed, and neither device nor NIC uses it any more.
    unsafe fn free(&self, span: Span);
    /// Whether the host loads and stores the heap through its address.
    fn host_reaches_heap(&self) -> bool {
        true
    }
    /// The dma-buf behind a span, for memory that the kernel cannot pin by its address.
    fn dmabuf(&self, _span: Span) -> Result<Option<DmaBuf>, GpuError> {
        Ok(None)
    }
    /// Lets kernels reach a page of a NIC's doorbell registers at its own address.
    fn map_registers(&self, _page: u64, _bytes: u64) -> Result<(), GpuError> {
        Ok(())
    }
    /// Copies bytes in.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GpuError>;
    /// Copies bytes out.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError>;
    /// Fills a span with one byte.
    fn fill(&self, span: Span, byte: u8) -> Result<(), GpuError> {
        let block = [byte; 4096];
        let mut at = 0;
        while at < span.bytes {
            let part = (span.bytes - at).min(block.len() as u64);
            self.write(span.address + at, &block[..part as usize])?;
            at += part;
        }
        Ok(())
    }
}

/// An allocation that frees itself. The one that lends it to a NIC holds an `Arc` of it until the NIC let go.
pub struct OwnedSpan {
    memory: Arc<dyn GpuMemory>,
    span: Span,
}

impl OwnedSpan {
    /// Allocates.
    pub fn alloc(
        memory: &Arc<dyn GpuMemory>,
        bytes: u64,
        placement: Placement,
    ) -> Result<Arc<Self>, GpuError> {
        let span = memory.alloc(bytes, placement)?;
        Ok(Arc::new(Self { memory: memory.clone(), span }))
    }

    /// Where it lies.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The memory it is of.
    pub fn memory(&self) -> &Arc<dyn GpuMemory> {
        &self.memory
    }
}

impl Drop for OwnedSpan {
    fn drop(&mut self) {
        // SAFETY: `span` came from `memory.alloc` and is freed here only. Each umem over it holds an `Arc` of
        // this object and leaks it if the NIC does not let go, so no NIC uses it any more.
        unsafe { self.memory.free(self.span) }
    }
}
