//! A heap that other processes of the machine map: ranks of a node reach each other's memory by loads and stores.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, fstat, ftruncate, memfd_create, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use shunt_host::error::GpuError;
use shunt_host::gpu::{GpuMemory, HeapMemory, Placement, Span, copy_in, copy_out};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of a file without a name, mapped here.
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

    /// Memory that another process of this machine made: `number` is its descriptor there.
    ///
    /// # Errors
    /// There is no such process or descriptor, or of another length.
    pub fn open(process: u32, number: i32, bytes: u64) -> io::Result<Self> {
        let path = format!("/proc/{process}/fd/{number}");
        let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let met = fstat(&file)?.st_size;
        if u64::try_from(met) != Ok(bytes) {
            return Err(io::Error::other(format!("expected a heap of {bytes} bytes, got {met}")));
        }
        Self::of(file, bytes)
    }

    fn of(file: OwnedFd, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let (protect, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: the system chooses the place, so that nothing is mapped over. All accesses are atomic:
        // kernels', NICs' and those of the processes that map it as well.
        let at = unsafe { mmap(std::ptr::null_mut(), length, protect, flags, &file, 0) }?;
        Ok(Self { span: Span { address: at.expose_provenance() as u64, bytes }, file })
    }

    /// Where it lies here.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Its descriptor in this process.
    pub fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn holds(&self, address: u64, bytes: u64) -> bool {
        let end = self.span.address + self.span.bytes;
        address >= self.span.address && address.checked_add(bytes).is_some_and(|last| last <= end)
    }

    /// The word at an offset.
    ///
    /// # Panics
    /// If it lies outside.
    pub fn word(&self, offset: u64) -> u64 {
        assert!(self.holds(self.span.address + offset, 8), "a word outside its mapping");
        let mut bytes = [0; 8];
        // SAFETY: inside the mapping (checked), which lives while `self` does; all accesses are atomic.
        unsafe { copy_out(self.span.address + offset, &mut bytes) };
        u64::from_le_bytes(bytes)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.span.address as usize);
        // SAFETY: mapped by `of` with this length and unmapped here only. Whoever uses it holds it: the PE by
        // `SharedHeap`, lanes by their job.
        let _ = unsafe { munmap(at, self.span.bytes as usize) };
    }
}

/// Memory whose heap is such a mapping; all else is this process's own.
#[derive(Default)]
pub struct SharedHeap {
    own: HeapMemory,
    heap: Mutex<Option<Arc<Mapping>>>,
}

impl SharedHeap {
    /// The heap, once it is there.
    pub fn heap(&self) -> Option<Arc<Mapping>> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl GpuMemory for SharedHeap {
    fn alloc(&self, bytes: u64, placement: Placement) -> Result<Span, GpuError> {
        if placement == Placement::Control {
            return self.own.alloc(bytes, placement);
        }
        let mapping = Mapping::create(bytes.max(1)).map_err(|_| GpuError::NoMemory { bytes })?;
        let span = Span { bytes, ..mapping.span() };
        *self.heap.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(mapping));
        Ok(span)
    }

    unsafe fn free(&self, span: Span) {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        if heap.as_ref().is_some_and(|heap| heap.span().address == span.address) {
            *heap = None;
            return;
        }
        // SAFETY: the caller's promise; what is no heap came from there.
        unsafe { self.own.free(span) }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
        let Some(_heap) = self.heap().filter(|heap| heap.holds(address, bytes.len() as u64)) else {
            return self.own.write(address, bytes);
        };
        // SAFETY: inside the mapping (checked), which `_heap` keeps; all accesses are atomic.
        unsafe { copy_in(address, bytes) };
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        let Some(_heap) = self.heap().filter(|heap| heap.holds(address, bytes.len() as u64)) else {
            return self.own.read(address, bytes);
        };
        // SAFETY: as above.
        unsafe { copy_out(address, bytes) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let memory = SharedHeap::default();
        let heap = memory.alloc(8192, Placement::Heap).unwrap();
        let control = memory.alloc(64, Placement::Control).unwrap();
        let made = memory.heap().unwrap();
        let other = Mapping::open(std::process::id(), made.number(), 8192).unwrap();
        assert_ne!(other.span().address, heap.address);
        memory.write(heap.address + 4096, &7u64.to_le_bytes()).unwrap();
        assert_eq!((other.word(4096), other.word(0)), (7, 0));
        memory.write(control.address, &[1; 8]).unwrap();
        assert!(memory.write(heap.address + 8185, &[0; 8]).is_err());
        assert!(Mapping::open(std::process::id(), made.number(), 4096).is_err());
        // SAFETY: nobody else knows the spans.
        unsafe {
            memory.free(heap);
            memory.free(control);
        }
        assert!(memory.heap().is_none());
        assert_eq!(other.word(4096), 7, "it stays where a process maps it");
    }
}
