//! Memory that both the device and the NICs reach: the seam between a GPU and a plain heap.

mod heap;
mod lent;
pub use heap::{HeapMemory, copy_in, copy_out};
pub use lent::lend;

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

/// In whose memory something lies that kernels, host and NICs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// The host's: it loads and stores it through its address.
    Host,
    /// The device's: kernels and NICs do, the host copies.
    Device,
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Rings, tables, mailboxes: the host loads and stores it through its address, too.
    Control,
    /// Rings and tables that kernels and NICs alone touch directly: the host copies.
    Queues,
    /// The symmetric heap: only device and NICs touch it directly.
    Heap,
}

/// A heap in two memories: a GPU's, and behind it, at addresses that go on, a part of the host's. So an offset, an
/// address and a key mean the same whatever is there, and the host never touches more than its own part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Bytes at the start that lie in memory of the device. Up to `host` nothing lies behind them.
    pub device: u64,
    /// Offset from which on memory is the host's: `device`, rounded up to what one key covers.
    pub host: u64,
}

impl Split {
    /// So many bytes in the device's memory, where a key covers `1 << log2_chunk`.
    pub fn new(device: u64, log2_chunk: u32) -> Self {
        Self { device, host: device.next_multiple_of(1 << log2_chunk) }
    }

    /// What of a range of offsets has memory behind it.
    pub fn there(self, range: std::ops::Range<u64>) -> std::ops::Range<u64> {
        let end = if range.start < self.host { range.end.min(self.device) } else { range.end };
        range.start..end.max(range.start)
    }
}

/// Memory of another device as the kernel passes it on: a span that NICs reach through a dma-buf. A soft NIC maps the
/// file, and reaches the memory by a mapping of its own.
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
    /// The same for a heap in two memories. Memory that the host reaches as a whole is one of them alone.
    fn alloc_split(&self, bytes: u64, _split: Split) -> Result<Span, GpuError> {
        self.alloc(bytes, Placement::Heap)
    }
    /// Frees an allocation.
    ///
    /// # Safety
    /// `span` came from `alloc` or `alloc_split` of this object, was not freed, and neither device nor NIC uses it any
    /// more.
    unsafe fn free(&self, span: Span);
    /// Whether the host loads and stores the heap through its address.
    fn host_reaches_heap(&self) -> bool {
        true
    }
    /// Whether [`Placement::Queues`] is memory of the device.
    fn has_queues(&self) -> bool {
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

    /// Allocates a heap, in two memories where it is split.
    pub fn alloc_heap(
        memory: &Arc<dyn GpuMemory>,
        bytes: u64,
        split: Option<Split>,
    ) -> Result<Arc<Self>, GpuError> {
        let span = match split {
            Some(split) => memory.alloc_split(bytes, split)?,
            None => memory.alloc(bytes, Placement::Heap)?,
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_covers_both_memories_or_what_is_in_between() {
        let split = Split::new(5000, 12);
        assert_eq!(split, Split { device: 5000, host: 8192 });
        assert_eq!([split.there(0..4096), split.there(4096..8192)], [0..4096, 4096..5000]);
        assert_eq!(split.there(8192..9000), 8192..9000);
        assert_eq!(Split::new(8192, 12).there(4096..8192), 4096..8192);
    }
}
