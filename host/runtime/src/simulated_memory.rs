//! A device's memory in software, for machines without a GPU: a heap in two memories whose first part the host cannot
//! touch at the heap's addresses while it is closed. Who does ends by SIGSEGV, as on a GPU that the host does not map.
//!
//! The heap is a file without a name that is mapped twice. The first mapping has the heap's addresses: kernels that are
//! compiled for the processor, and the program itself, use it while it is open. The second is what copies go through;
//! NICs map the file themselves ([`DmaBuf`]).

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};
use shunt_host::error::GpuError;
use shunt_host::gpu::{DmaBuf, GpuMemory, HeapMemory, Placement, Span, Split, copy_in, copy_out};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Arc, Mutex, PoisonError};

/// One mapping of the heap's file.
struct Mapped {
    span: Span,
}

impl Mapped {
    fn of(file: &OwnedFd, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let (protect, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: the system chooses the place, so that nothing is mapped over; all accesses are atomic.
        let at = unsafe { mmap(null_mut(), length, protect, flags, file, 0) }?;
        Ok(Self { span: Span { address: at.expose_provenance() as u64, bytes } })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let at = with_exposed_provenance_mut(self.span.address as usize);
        // SAFETY: mapped by `of` with this length, and unmapped here only. A failure leaves it mapped.
        let _ = unsafe { munmap(at, self.span.bytes as usize) };
    }
}

/// A heap in two memories, the first of them a device's.
pub struct DeviceHeap {
    device: Mapped,
    copies: Mapped,
    file: OwnedFd,
    split: Split,
}

impl DeviceHeap {
    fn create(bytes: u64, split: Split) -> io::Result<Self> {
        let file = memfd_create("shunt-device", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes)?;
        let (device, copies) = (Mapped::of(&file, bytes)?, Mapped::of(&file, bytes)?);
        let heap = Self { device, copies, file, split };
        heap.close()?;
        Ok(heap)
    }

    fn protect(&self, how: MprotectFlags) -> io::Result<()> {
        let at = with_exposed_provenance_mut(self.device.span.address as usize);
        // SAFETY: whole pages of a mapping of this object; who reaches them by references of Rust does not exist.
        Ok(unsafe { mprotect(at, self.split.host as usize, how) }?)
    }

    /// From here on who loads or stores the device's memory at the heap's addresses ends by SIGSEGV: the host's code
    /// runs, kernels do not.
    ///
    /// # Errors
    /// The system's word.
    pub fn close(&self) -> io::Result<()> {
        self.protect(MprotectFlags::empty())
    }

    /// Kernels and the program run.
    ///
    /// # Errors
    /// The system's word.
    pub fn open(&self) -> io::Result<()> {
        self.protect(MprotectFlags::READ | MprotectFlags::WRITE)
    }

    /// Where the host copies what lies at an address: elsewhere for the device's memory, there for any other.
    pub fn for_copies(&self, address: u64) -> u64 {
        match address.checked_sub(self.device.span.address) {
            Some(offset) if offset < self.split.host => self.copies.span.address + offset,
            _ => address,
        }
    }

    fn holds(&self, address: u64, bytes: u64) -> bool {
        let Span { address: start, bytes: all } = self.device.span;
        address.checked_sub(start).is_some_and(|offset| offset <= all && bytes <= all - offset)
    }
}

/// Host memory whose heap is such a one; all else is this process's own.
#[derive(Default)]
pub struct SimulatedMemory {
    own: HeapMemory,
    heap: Mutex<Option<Arc<DeviceHeap>>>,
}

impl SimulatedMemory {
    /// The heap, once it is there.
    pub fn heap(&self) -> Option<Arc<DeviceHeap>> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn heap_with(&self, address: u64, bytes: u64) -> Option<Arc<DeviceHeap>> {
        self.heap().filter(|heap| heap.holds(address, bytes))
    }
}

impl GpuMemory for SimulatedMemory {
    fn host_reaches_heap(&self) -> bool {
        false
    }

    fn alloc(&self, bytes: u64, placement: Placement) -> Result<Span, GpuError> {
        self.own.alloc(bytes, placement)
    }

    fn alloc_split(&self, bytes: u64, split: Split) -> Result<Span, GpuError> {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        let made = DeviceHeap::create(bytes, split);
        let made = made.map_err(|error| GpuError::Driver { detail: format!("simulated memory: {error}") })?;
        let span = made.device.span;
        *heap = Some(Arc::new(made));
        Ok(Span { bytes, ..span })
    }

    unsafe fn free(&self, span: Span) {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        if heap.as_ref().is_some_and(|made| made.device.span.address == span.address) {
            *heap = None;
        } else {
            // SAFETY: the caller's promise; what is not the heap is this process's own.
            unsafe { self.own.free(span) }
        }
    }

    fn dmabuf(&self, span: Span) -> Result<Option<DmaBuf>, GpuError> {
        let Some(heap) = self.heap_with(span.address, span.bytes) else { return Ok(None) };
        let file = heap.file.try_clone();
        let file = file.map_err(|error| GpuError::Driver { detail: format!("simulated memory: {error}") })?;
        Ok(Some(DmaBuf { file, offset: span.address - heap.device.span.address }))
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
        let Some(heap) = self.heap_with(address, bytes.len() as u64) else {
            return self.own.write(address, bytes);
        };
        // SAFETY: inside the mapping (checked), which `heap` keeps; all accesses are atomic.
        unsafe { copy_in(heap.for_copies(address), bytes) }
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        let Some(heap) = self.heap_with(address, bytes.len() as u64) else {
            return self.own.read(address, bytes);
        };
        // SAFETY: as above.
        unsafe { copy_out(heap.for_copies(address), bytes) }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What this process may do to the page at an address, as the system says it: "rw-s".
    fn rights(address: u64) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let covers = |line: &&str| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            (number(start)..number(end)).contains(&address)
        };
        maps.lines().find(covers).and_then(|line| line.split(' ').nth(1)).unwrap().to_owned()
    }

    #[test]
    fn the_host_touches_the_devices_part_by_copies_alone() {
        let memory = SimulatedMemory::default();
        let split = Split::new(6000, 12);
        let span = memory.alloc_split(3 * 4096, split).unwrap();
        let (device, host) = (span.address, span.address + split.host);
        assert_eq!([rights(device), rights(device + 4096), rights(host)], ["---s", "---s", "rw-s"]);
        memory.write(device + 4090, &[1, 2, 3]).unwrap();
        memory.write(host, &[4]).unwrap();
        let heap = memory.heap().unwrap();
        heap.open().unwrap();
        assert_eq!(rights(device), "rw-s");
        let mut seen = [0; 3];
        // SAFETY: inside the mapping, which is open.
        unsafe { copy_out(device + 4090, &mut seen) };
        assert_eq!(seen, [1, 2, 3]);
        heap.close().unwrap();
        assert_eq!(rights(device), "---s");
        assert_eq!((heap.for_copies(host), heap.for_copies(device - 1)), (host, device - 1));
        let buf = memory.dmabuf(span.part(4096, 4096)).unwrap().unwrap();
        assert_eq!(buf.offset, 4096);
        assert!(memory.write(host + 4095, &[0; 2]).is_err());
        let control = memory.alloc(64, Placement::Control).unwrap();
        assert!(memory.dmabuf(control).unwrap().is_none());
        // SAFETY: nothing else knows the spans.
        unsafe {
            memory.free(control);
            memory.free(span);
        }
        assert!(memory.heap().is_none());
    }
}
