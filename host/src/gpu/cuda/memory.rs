//! A GPU's memory, and memory of the host that the GPU's kernels reach.

use super::driver::{Cuda, done};
use super::error::CudaError;
use super::split_heap::SplitHeap;
use crate::error::GpuError;
use crate::gpu::{DmaBuf, GpuMemory, Placement, Span, Split, copy_in, copy_out};
use cudarc::driver::sys;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

/// Where something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In memory of the GPU: NICs reach it, the host copies.
    Gpu,
    /// In memory of the host, pinned and mapped: kernels, NICs and soft NICs reach it at one address.
    Host,
}

/// Who moves the data: it decides what may lie where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// Threads of this process, which load and store.
    SoftNic,
    /// Hardware that reads the GPU's memory by itself.
    Hardware,
}

/// Where a span of a placement lies if the heap is asked to lie in `heap`. Control memory is the host's as well as the
/// kernels': agents and switchers load and store it, so it stays where both can.
///
/// # Errors
/// A heap in the GPU's memory, for NICs that cannot reach there.
pub fn home_of(placement: Placement, heap: Home, mover: Mover) -> Result<Home, CudaError> {
    match (placement, heap, mover) {
        (Placement::Control, _, _) | (_, Home::Host, _) => Ok(Home::Host),
        (Placement::Heap | Placement::Queues, Home::Gpu, Mover::Hardware) => Ok(Home::Gpu),
        (Placement::Heap | Placement::Queues, Home::Gpu, Mover::SoftNic) => Err(CudaError::HeapOutOfReach),
    }
}

/// Memory for kernels on one GPU.
pub struct CudaMemory {
    cuda: Arc<Cuda>,
    heap: Home,
    mover: Mover,
    live: Mutex<BTreeMap<u64, (u64, Home)>>,
    /// Heaps in two memories, by address; each of those is in `live`.
    splits: Mutex<BTreeMap<u64, SplitHeap>>,
    /// Pages of registers that kernels reach; true if they do because of this object.
    pages: Mutex<BTreeMap<u64, bool>>,
}

/// Pages of what is passed on as a dma-buf.
const PAGE: u64 = 64 << 10;

impl CudaMemory {
    /// No allocation yet.
    ///
    /// # Errors
    /// A choice that cannot work.
    pub fn new(cuda: Arc<Cuda>, heap: Home, mover: Mover) -> Result<Self, CudaError> {
        if home_of(Placement::Heap, heap, mover)? == Home::Gpu {
            cuda.writes_in_order()?;
        }
        let (live, splits, pages) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { cuda, heap, mover, live, splits, pages })
    }

    /// Makes a small heap in two memories and gives it back: whether the driver has what that needs.
    ///
    /// # Errors
    /// It has not.
    pub fn try_split(&self) -> Result<(), CudaError> {
        const KEY: u32 = 21;
        SplitHeap::new(&self.cuda, (1 << KEY) + PAGE, Split::new(1 << KEY, KEY)).map(drop)
    }

    fn live(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (u64, Home)>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn splits(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, SplitHeap>> {
        self.splits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, bool>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where an access that lies in one allocation goes.
    fn find(&self, address: u64, bytes: u64) -> Result<Home, GpuError> {
        let live = self.live();
        let found = live.range(..=address).next_back().filter(|(start, (length, _))| {
            let offset = address - **start;
            offset <= *length && bytes <= *length - offset
        });
        found.map(|(_, (_, home))| *home).ok_or(GpuError::OutOfBounds { address, bytes })
    }

    fn take(&self, bytes: u64, home: Home) -> Result<u64, CudaError> {
        self.cuda.enter()?;
        let size = bytes as usize;
        match home {
            Home::Host => {
                let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
                let mut at = null_mut();
                // SAFETY: an out parameter of ours; the memory is `size` bytes long, all of which are written here.
                unsafe {
                    done("cuMemHostAlloc", sys::cuMemHostAlloc(&raw mut at, size, flags))?;
                    at.cast::<u8>().write_bytes(0, size);
                }
                Ok(at as u64)
            }
            Home::Gpu => {
                let mut at = 0;
                // SAFETY: as above.
                unsafe {
                    done("cuMemAlloc", sys::cuMemAlloc_v2(&raw mut at, size))?;
                    done("cuMemsetD8", sys::cuMemsetD8_v2(at, 0, size))?;
                }
                Ok(at)
            }
        }
    }
}

impl GpuMemory for CudaMemory {
    fn host_reaches_heap(&self) -> bool {
        self.heap == Home::Host
    }

    fn alloc(&self, bytes: u64, placement: Placement) -> Result<Span, GpuError> {
        let home = home_of(placement, self.heap, self.mover)?;
        // NICs register whole pages, and a dma-buf is of whole pages of the GPU's.
        let rounded = bytes.max(1).checked_next_multiple_of(PAGE).ok_or(GpuError::NoMemory { bytes })?;
        let address = self.take(rounded, home)?;
        self.live().insert(address, (rounded, home));
        Ok(Span { address, bytes })
    }

    fn alloc_split(&self, bytes: u64, split: Split) -> Result<Span, GpuError> {
        if home_of(Placement::Heap, self.heap, self.mover)? == Home::Host {
            return self.alloc(bytes, Placement::Heap);
        }
        let heap = SplitHeap::new(&self.cuda, bytes, split)?;
        let (device, host, address) = (heap.device(), heap.host(), heap.address());
        self.live().extend([(device.0, (device.1, Home::Gpu)), (host.0, (host.1, Home::Host))]);
        self.splits().insert(address, heap);
        Ok(Span { address, bytes })
    }

    unsafe fn free(&self, span: Span) {
        if let Some(heap) = self.splits().remove(&span.address) {
            let mut live = self.live();
            live.remove(&heap.device().0);
            live.remove(&heap.host().0);
            return;
        }
        let (_, home) = self.live().remove(&span.address).expect("freed once, by who allocated it");
        // A GPU that is gone took its memory along: a refusal leaves nothing to be done.
        let _ = self.cuda.enter();
        // SAFETY: `alloc` made it this way, and removing it from the table makes this the only free.
        let _ = unsafe {
            match home {
                Home::Host => sys::cuMemFreeHost(span.address as *mut _),
                Home::Gpu => sys::cuMemFree_v2(span.address),
            }
        };
    }

    fn dmabuf(&self, span: Span) -> Result<Option<DmaBuf>, GpuError> {
        if self.find(span.address, span.bytes)? == Home::Host {
            return Ok(None);
        }
        self.cuda.enter()?;
        let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        let (start, mut file) = (span.address & !(PAGE - 1), -1);
        let bytes = (span.address + span.bytes - start).next_multiple_of(PAGE) as usize;
        // SAFETY: pages of one allocation; the driver writes a descriptor that is ours from then on.
        let file = unsafe {
            let out = (&raw mut file).cast();
            let answer = sys::cuMemGetHandleForAddressRange(out, start, bytes, kind, 0);
            done("cuMemGetHandleForAddressRange", answer)?;
            OwnedFd::from_raw_fd(file)
        };
        Ok(Some(DmaBuf { file, offset: span.address - start }))
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
        match self.find(address, bytes.len() as u64)? {
            // SAFETY: inside a live allocation (just found); shared accesses are atomic on all sides.
            Home::Host => unsafe { copy_in(address, bytes) },
            Home::Gpu => {
                self.cuda.enter()?;
                // SAFETY: as above, and the source is as long.
                let answer = unsafe { sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()) };
                done("cuMemcpyHtoD", answer)?;
            }
        }
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        match self.find(address, bytes.len() as u64)? {
            // SAFETY: as for `write`.
            Home::Host => unsafe { copy_out(address, bytes) },
            Home::Gpu => {
                self.cuda.enter()?;
                // SAFETY: as for `write`.
                let answer = unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, bytes.len()) };
                done("cuMemcpyDtoH", answer)?;
            }
        }
        Ok(())
    }

    fn map_registers(&self, page: u64, bytes: u64) -> Result<(), GpuError> {
        // A recreated path stands on a page of one before it: then nothing is asked of the driver, which may wait for
        // kernels.
        let mut pages = self.pages();
        if let Entry::Vacant(new) = pages.entry(page) {
            let device = self.mover == Mover::Hardware;
            // SAFETY: pages of a NIC's registers outlive the queue pairs on them, and kernels ring no others.
            let ours = unsafe { self.cuda.reach(page, bytes, device) }?;
            new.insert(ours);
        }
        Ok(())
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        for (page, ours) in std::mem::take(&mut *self.pages()) {
            if ours {
                // A page that was unmapped meanwhile, or a GPU that is gone: a refusal leaves nothing to be done.
                let _ = self.cuda.forget(page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agents_touch_stays_where_they_reach_it() {
        for heap in [Home::Gpu, Home::Host] {
            for mover in [Mover::SoftNic, Mover::Hardware] {
                assert_eq!(home_of(Placement::Control, heap, mover), Ok(Home::Host));
            }
        }
    }

    #[test]
    fn a_heap_lies_where_its_nics_reach_it() {
        assert_eq!(home_of(Placement::Heap, Home::Gpu, Mover::Hardware), Ok(Home::Gpu));
        assert_eq!(home_of(Placement::Heap, Home::Host, Mover::Hardware), Ok(Home::Host));
        assert_eq!(home_of(Placement::Heap, Home::Host, Mover::SoftNic), Ok(Home::Host));
        let refused = home_of(Placement::Heap, Home::Gpu, Mover::SoftNic).unwrap_err().to_string();
        assert!(refused.contains("soft NIC") && refused.contains("host"), "{refused}");
    }
}
