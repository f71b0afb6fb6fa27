//! The heaps of PEs that share a node, mapped into each other: what `nvshmem_ptr` answers, and `NVSHMEM_TEAM_SHARED`.
//!
//! A heap is a file without a name (`memfd_create`). Its PE tells the others where the descriptor is, and they map it
//! by `/proc/PID/fd/N`: that needs the same user and the same PID namespace. A node is shared if each of its PEs has
//! mapped all the others.

use rustix::fs::{MemfdFlags, Mode, OFlags, fstat, ftruncate, memfd_create, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use shunt_host::connect::bootstrap::Bootstrap;
use shunt_host::error::{BootstrapError, GpuError};
use shunt_host::gpu::{GpuMemory, HeapMemory, Placement, Span, copy_in, copy_out};
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Mutex, PoisonError};

/// Bytes of a [`HeapCard`] on its way.
const CARD_BYTES: usize = 40;

/// Where others find a heap. All zero: nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapCard {
    pid: u64,
    descriptor: u64,
    device: u64,
    inode: u64,
    bytes: u64,
}

impl HeapCard {
    /// For the wire: five words, little-endian.
    pub fn to_bytes(self) -> Vec<u8> {
        let Self { pid, descriptor, device, inode, bytes } = self;
        [pid, descriptor, device, inode, bytes].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// As it came. Anything else than 40 bytes is a card of no heap.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let Ok(bytes) = <[u8; CARD_BYTES]>::try_from(bytes) else { return Self::default() };
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
        Self { pid: word(0), descriptor: word(1), device: word(2), inode: word(3), bytes: word(4) }
    }
}

/// A file of memory in this process.
struct Mapping {
    span: Span,
    /// That it is mapped from, if it is this PE's own.
    file: Option<OwnedFd>,
}

impl Mapping {
    fn of(file: impl AsFd, bytes: u64) -> Option<Span> {
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, anywhere.
        let at = unsafe { mmap(null_mut(), usize::try_from(bytes).ok()?, flags.0, flags.1, file, 0) };
        Some(Span { address: at.ok()?.expose_provenance() as u64, bytes })
    }

    fn create(bytes: u64) -> Option<Self> {
        let file = memfd_create("shunt-heap", MemfdFlags::CLOEXEC).ok()?;
        ftruncate(&file, bytes).ok()?;
        Some(Self { span: Self::of(&file, bytes)?, file: Some(file) })
    }

    /// The heap of a process of this node: the file that the card means, or none.
    fn open(card: HeapCard) -> Option<Self> {
        let path = format!("/proc/{}/fd/{}", card.pid, card.descriptor);
        let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let found = fstat(&file).ok()?;
        let same =
            (found.st_dev, found.st_ino) == (card.device, card.inode) && found.st_size as u64 == card.bytes;
        let span = if same { Self::of(&file, card.bytes)? } else { return None };
        Some(Self { span, file: None })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let at = with_exposed_provenance_mut::<c_void>(self.span.address as usize);
        // SAFETY: mapped by `of` with these bytes, once. Of a heap nobody uses any of it (`GpuMemory::free`), of others
        // the program's pointers end with `nvshmem_finalize`. A failure leaves it mapped.
        let _ = unsafe { munmap(at, self.span.bytes as usize) };
    }
}

/// Host memory whose heap other processes of the node can map.
#[derive(Default)]
pub struct NodeMemory {
    /// All but the heap; the heap as well where there are no such files.
    plain: HeapMemory,
    heap: Mutex<Option<Mapping>>,
}

impl NodeMemory {
    /// Where the heap is.
    pub fn card(&self) -> HeapCard {
        let heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Mapping { span, file: Some(file) }) = &*heap else { return HeapCard::default() };
        let Ok(found) = fstat(file) else { return HeapCard::default() };
        HeapCard {
            pid: std::process::id().into(),
            descriptor: file.as_raw_fd() as u64,
            device: found.st_dev,
            inode: found.st_ino,
            bytes: span.bytes,
        }
    }

    fn in_heap(&self, address: u64, bytes: u64) -> bool {
        let heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        heap.as_ref().is_some_and(|Mapping { span, .. }| {
            let inside = address.checked_sub(span.address).filter(|offset| *offset <= span.bytes);
            inside.is_some_and(|offset| bytes <= span.bytes - offset)
        })
    }
}

impl GpuMemory for NodeMemory {
    fn alloc(&self, bytes: u64, placement: Placement) -> Result<Span, GpuError> {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        if placement == Placement::Heap && heap.is_none() {
            *heap = Mapping::create(bytes.max(1));
            if let Some(made) = &*heap {
                return Ok(made.span);
            }
        }
        self.plain.alloc(bytes, placement)
    }

    unsafe fn free(&self, span: Span) {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        if heap.as_ref().is_some_and(|made| made.span.address == span.address) {
            *heap = None;
        } else {
            // SAFETY: by the caller's promise; it is not the heap, so it is of the plain memory.
            unsafe { self.plain.free(span) }
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
        if !self.in_heap(address, bytes.len() as u64) {
            return self.plain.write(address, bytes);
        }
        // SAFETY: inside the heap's mapping (checked), which `free` ends; shared accesses are atomic on all sides.
        unsafe { copy_in(address, bytes) }
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        if !self.in_heap(address, bytes.len() as u64) {
            return self.plain.read(address, bytes);
        }
        // SAFETY: as above.
        unsafe { copy_out(address, bytes) }
        Ok(())
    }
}

/// The heaps of this PE's node, as this process maps them.
#[derive(Default)]
pub struct NodeHeaps {
    /// By PE.
    heaps: Vec<Option<Mapping>>,
}

impl NodeHeaps {
    /// Maps the heaps of PE `me`'s node, where PE i lives on node `nodes[i]`. Every PE calls it, with the card of its
    /// own heap. None: somebody of the node cannot map somebody.
    ///
    /// # Errors
    /// The exchange failed.
    pub fn share(
        me: u32,
        nodes: &[u32],
        card: HeapCard,
        exchange: &dyn Bootstrap,
    ) -> Result<Option<Self>, BootstrapError> {
        let cards = exchange.all_gather(&card.to_bytes())?;
        let cards: Vec<_> = cards.iter().map(|bytes| HeapCard::of_bytes(bytes)).collect();
        let heaps = Self::open(me, nodes, &cards);
        let mapped = exchange.all_gather(&[heaps.is_some().into()])?;
        let mates = nodes.iter().zip(&mapped).filter(|(node, _)| **node == nodes[me as usize]);
        let all = mates.into_iter().all(|(_, mapped)| mapped[..] == [1]);
        Ok(heaps.filter(|_| all))
    }

    /// Maps the heaps of all others of a node. None: one of them cannot be mapped.
    fn open(me: u32, nodes: &[u32], cards: &[HeapCard]) -> Option<Self> {
        let node = nodes[me as usize];
        let mut heaps = Vec::new();
        for (pe, card) in (0..).zip(cards) {
            let mate = pe != me && nodes[pe as usize] == node;
            heaps.push(if mate { Some(Mapping::open(*card)?) } else { None });
        }
        Some(Self { heaps })
    }

    /// The address at which a PE's heap begins here.
    pub fn base(&self, pe: u32) -> Option<u64> {
        Some(self.heaps.get(pe as usize)?.as_ref()?.span.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_that_is_mapped_twice_is_one() {
        let memory = NodeMemory::default();
        let heap = memory.alloc(3 * 4096 + 8, Placement::Heap).unwrap();
        let card = HeapCard::of_bytes(&memory.card().to_bytes());
        assert_eq!(card, memory.card());
        let heaps =
            NodeHeaps::open(1, &[0, 0, 2], &[card, HeapCard::default(), HeapCard::default()]).unwrap();
        let there = heaps.base(0).unwrap();
        assert_eq!((heaps.base(1), heaps.base(2), heaps.base(3)), (None, None, None));
        memory.write(heap.address + 4095, &[1, 2, 3]).unwrap();
        let mut seen = [0; 3];
        // SAFETY: inside the mapping of the same file.
        unsafe { copy_out(there + 4095, &mut seen) };
        assert_eq!(seen, [1, 2, 3]);
        assert!(memory.write(heap.address + heap.bytes - 1, &[0; 2]).is_err());
        let control = memory.alloc(64, Placement::Control).unwrap();
        memory.write(control.address, &[7; 64]).unwrap();
        // SAFETY: nothing else knows the spans.
        unsafe {
            memory.free(control);
            memory.free(heap);
        }
        assert_eq!(memory.card(), HeapCard::default());
        assert!(memory.read(heap.address, &mut [0; 1]).is_err());
    }

    #[test]
    fn what_is_not_the_heap_that_is_meant_is_not_mapped() {
        let memory = NodeMemory::default();
        let heap = memory.alloc(4096, Placement::Heap).unwrap();
        let card = memory.card();
        for wrong in [
            HeapCard { inode: card.inode + 1, ..card },
            HeapCard { bytes: 8192, ..card },
            HeapCard { descriptor: 1 << 20, ..card },
            HeapCard::default(),
        ] {
            assert!(NodeHeaps::open(1, &[0, 0], &[wrong, HeapCard::default()]).is_none(), "{wrong:?}");
        }
        // SAFETY: nothing else knows the span.
        unsafe { memory.free(heap) }
    }
}
