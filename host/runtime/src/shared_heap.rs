//! A heap that other processes of the node map: PEs reach each other's memory by loads and stores.
//!
//! It is a file without a name (`memfd_create`). Its PE tells the others where the descriptor is, and they map it by
//! `/proc/PID/fd/N`: that needs the same user and the same PID namespace.

use rustix::fs::{MemfdFlags, Mode, OFlags, fstat, ftruncate, memfd_create, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use shunt_host::error::GpuError;
use shunt_host::gpu::{GpuMemory, HeapMemory, Placement, Span, copy_in, copy_out};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Arc, Mutex, PoisonError};

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

/// A heap that this process maps: its own or another's.
pub struct Mapping {
    span: Span,
    file: OwnedFd,
}

impl Mapping {
    /// Fresh memory, zeroed; pages that nobody touches take no room.
    ///
    /// # Errors
    /// The system's word.
    pub fn create(bytes: u64) -> io::Result<Self> {
        let file = memfd_create("shunt-heap", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes)?;
        Self::of(file, bytes)
    }

    /// The heap of a process of this node.
    ///
    /// # Errors
    /// It cannot be opened, or is not the file that the card means.
    pub fn open(card: HeapCard) -> io::Result<Self> {
        let path = format!("/proc/{}/fd/{}", card.pid, card.descriptor);
        let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&file)?;
        let same = (found.st_dev, found.st_ino) == (card.device, card.inode);
        if !same || found.st_size as u64 != card.bytes {
            let (inode, bytes) = (found.st_ino, found.st_size);
            let expected = format!("expected inode {} of {} bytes", card.inode, card.bytes);
            return Err(io::Error::other(format!("heap: {expected}, got inode {inode} of {bytes} bytes")));
        }
        Self::of(file, card.bytes)
    }

    fn of(file: OwnedFd, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let (protect, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: the system chooses the place, so that nothing is mapped over. All accesses are atomic: kernels',
        // NICs' and those of the processes that map it as well.
        let at = unsafe { mmap(null_mut(), length, protect, flags, &file, 0) }?;
        Ok(Self { span: Span { address: at.expose_provenance() as u64, bytes }, file })
    }

    /// Where it lies here.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Where others find it.
    ///
    /// # Errors
    /// The system's word.
    pub fn card(&self) -> io::Result<HeapCard> {
        let found = fstat(&self.file)?;
        Ok(HeapCard {
            pid: std::process::id().into(),
            descriptor: self.file.as_raw_fd() as u64,
            device: found.st_dev,
            inode: found.st_ino,
            bytes: self.span.bytes,
        })
    }

    fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.checked_sub(self.span.address).filter(|offset| *offset <= self.span.bytes);
        offset.is_some_and(|offset| bytes <= self.span.bytes - offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let at = with_exposed_provenance_mut(self.span.address as usize);
        // SAFETY: mapped by `of` with this length, and unmapped here only. Its users hold it: the PE by `SharedHeap`,
        // others beside what reaches it. A failure leaves it mapped.
        let _ = unsafe { munmap(at, self.span.bytes as usize) };
    }
}

/// Host memory whose heap is such a mapping; all else is this process's own.
#[derive(Default)]
pub struct SharedHeap {
    own: HeapMemory,
    heap: Mutex<Option<Arc<Mapping>>>,
}

impl SharedHeap {
    /// The heap, once it is there; none where there are no such files.
    pub fn heap(&self) -> Option<Arc<Mapping>> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn heap_with(&self, address: u64, bytes: u64) -> Option<Arc<Mapping>> {
        self.heap().filter(|heap| heap.holds(address, bytes))
    }
}

impl GpuMemory for SharedHeap {
    fn alloc(&self, bytes: u64, placement: Placement) -> Result<Span, GpuError> {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        if placement == Placement::Heap && heap.is_none() {
            *heap = Mapping::create(bytes.max(1)).ok().map(Arc::new);
            if let Some(made) = &*heap {
                return Ok(Span { bytes, ..made.span() });
            }
        }
        self.own.alloc(bytes, placement)
    }

    unsafe fn free(&self, span: Span) {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        if heap.as_ref().is_some_and(|made| made.span().address == span.address) {
            *heap = None;
        } else {
            // SAFETY: the caller's promise; what is not the heap is this process's own.
            unsafe { self.own.free(span) }
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
        let Some(_heap) = self.heap_with(address, bytes.len() as u64) else {
            return self.own.write(address, bytes);
        };
        // SAFETY: inside the mapping (checked), which `_heap` keeps; all accesses are atomic.
        unsafe { copy_in(address, bytes) }
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        let Some(_heap) = self.heap_with(address, bytes.len() as u64) else {
            return self.own.read(address, bytes);
        };
        // SAFETY: as above.
        unsafe { copy_out(address, bytes) }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let memory = SharedHeap::default();
        let heap = memory.alloc(3 * 4096 + 8, Placement::Heap).unwrap();
        let control = memory.alloc(64, Placement::Control).unwrap();
        let card = memory.heap().unwrap().card().unwrap();
        let other = Mapping::open(HeapCard::of_bytes(&card.to_bytes())).unwrap();
        assert_ne!(other.span().address, heap.address);
        memory.write(heap.address + 4095, &[1, 2, 3]).unwrap();
        memory.write(control.address, &[7; 64]).unwrap();
        assert!(memory.write(heap.address + heap.bytes - 1, &[0; 2]).is_err());
        // SAFETY: nothing else knows the spans.
        unsafe {
            memory.free(control);
            memory.free(heap);
        }
        assert!(memory.heap().is_none() && memory.read(heap.address, &mut [0; 1]).is_err());
        let mut seen = [0; 3];
        // SAFETY: inside the mapping, which stays where it is held.
        unsafe { copy_out(other.span().address + 4095, &mut seen) };
        assert_eq!(seen, [1, 2, 3]);
    }

    #[test]
    fn what_is_not_the_heap_that_is_meant_is_not_mapped() {
        let made = Mapping::create(4096).unwrap();
        let card = made.card().unwrap();
        for wrong in [
            HeapCard { inode: card.inode + 1, ..card },
            HeapCard { bytes: 8192, ..card },
            HeapCard { descriptor: 1 << 20, ..card },
            HeapCard::of_bytes(&[1; 39]),
        ] {
            assert!(Mapping::open(wrong).is_err(), "{wrong:?}");
        }
    }
}
