//! A GPU's memory, and memory of the host that the GPU's kernels reach.

use super::driver::{Cuda, done};
use super::error::CudaError;
use super::gdr::{Gdr, Mapped};
use super::split_heap::SplitHeap;
use cudarc::driver::sys;
use shunt_mlx5::error::GpuError;
use shunt_mlx5::memory::{DmaBuf, GpuMemory, Placement, Span, Split, copy_in, copy_out};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
/// kernels': agents and switchers load and store it, so it stays where both can; and so do queues where nothing maps
/// the GPU's memory ([`CudaMemory::take_in_queues`]).
///
/// # Errors
/// A heap in the GPU's memory, for NICs that cannot reach there.
pub fn home_of(placement: Placement, heap: Home, mover: Mover) -> Result<Home, CudaError> {
    match (placement, heap, mover) {
        (Placement::Control | Placement::Queues, _, _) | (_, Home::Host, _) => Ok(Home::Host),
        (Placement::Heap, Home::Gpu, Mover::Hardware) => Ok(Home::Gpu),
        (Placement::Heap, Home::Gpu, Mover::SoftNic) => Err(CudaError::HeapOutOfReach),
    }
}

/// Where an allocation lies, and how the host reaches it.
#[derive(Clone)]
enum Place {
    /// In the host's memory.
    Host,
    /// In the GPU's: by CUDA.
    Gpu,
    /// In the GPU's, mapped for the host; with the address that CUDA gave.
    Mapped(Arc<Mapped>, u64),
}

impl From<Home> for Place {
    fn from(home: Home) -> Self {
        match home {
            Home::Host => Self::Host,
            Home::Gpu => Self::Gpu,
        }
    }
}

/// Memory for kernels on one GPU.
pub struct CudaMemory {
    cuda: Arc<Cuda>,
    heap: Home,
    mover: Mover,
    /// What maps queues in the GPU's memory for the host, if they lie there.
    queues: OnceLock<Arc<Gdr>>,
    live: Mutex<BTreeMap<u64, (u64, Place)>>,
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
        Ok(Self { cuda, heap, mover, queues: OnceLock::new(), live, splits, pages })
    }

    /// From here on queues lie in the GPU's memory, which this library maps for the host. A page of it is tried.
    ///
    /// # Errors
    /// NICs do not reach there, a kernel would see a completion before its data, or there is no mapping.
    pub fn take_in_queues(&self, gdr: Arc<Gdr>) -> Result<(), CudaError> {
        if self.mover == Mover::SoftNic {
            return Err(CudaError::HeapOutOfReach);
        }
        self.cuda.writes_in_order()?;
        let (_, place) = self.take_queues(&gdr, PAGE)?;
        self.give_back(place);
        let _ = self.queues.set(gdr);
        Ok(())
    }

    /// Memory of the GPU for queues: its address, and how the host reaches it.
    fn take_queues(&self, gdr: &Arc<Gdr>, bytes: u64) -> Result<(u64, Place), CudaError> {
        // CUDA aligns to less than the pages that are mapped.
        let given = self.take(bytes + PAGE, Home::Gpu)?;
        let (address, all) = (given.next_multiple_of(PAGE), 1_u32);
        // SAFETY: an attribute of memory that was just allocated, from a word of ours. Then that memory is mapped; it
        // stays until `give_back` has dropped the mapping.
        let mapped = unsafe {
            let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
            let answer = sys::cuPointerSetAttribute((&raw const all).cast(), attribute, given);
            done("cuPointerSetAttribute", answer).and_then(|()| gdr.map(address, bytes))
        };
        match mapped {
            Ok(mapped) => Ok((address, Place::Mapped(Arc::new(mapped), given))),
            Err(error) => {
                // SAFETY: allocated above, known to nobody.
                let _ = unsafe { sys::cuMemFree_v2(given) };
                Err(error)
            }
        }
    }

    /// Frees memory for queues.
    fn give_back(&self, place: Place) {
        let Place::Mapped(mapped, given) = place else { return };
        drop(mapped);
        // A GPU that is gone took its memory along: a refusal leaves nothing to be done.
        let _ = self.cuda.enter();
        // SAFETY: `take_queues` allocated it; the mapping is gone.
        let _ = unsafe { sys::cuMemFree_v2(given) };
    }

    /// Makes a small heap in two memories and gives it back: whether the driver has what that needs.
    ///
    /// # Errors
    /// It has not.
    pub fn try_split(&self) -> Result<(), CudaError> {
        const KEY: u32 = 21;
        SplitHeap::new(&self.cuda, (1 << KEY) + PAGE, Split::new(1 << KEY, KEY)).map(drop)
    }

    fn live(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (u64, Place)>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn splits(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, SplitHeap>> {
        self.splits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, bool>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where an access that lies in one allocation goes.
    fn find(&self, address: u64, bytes: u64) -> Result<Place, GpuError> {
        let live = self.live();
        let found = live.range(..=address).next_back().filter(|(start, (length, _))| {
            let offset = address - **start;
            offset <= *length && bytes <= *length - offset
        });
        found.map(|(_, (_, place))| place.clone()).ok_or(GpuError::OutOfBounds { address, bytes })
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

    fn has_queues(&self) -> bool {
        self.queues.get().is_some()
    }

    fn alloc(&self, bytes: u64, placement: Placement) -> Result<Span, GpuError> {
        let home = home_of(placement, self.heap, self.mover)?;
        // NICs register whole pages, and a dma-buf is of whole pages of the GPU's.
        let rounded = bytes.max(1).checked_next_multiple_of(PAGE).ok_or(GpuError::NoMemory { bytes })?;
        let (address, place) = match (self.queues.get(), placement) {
            (Some(gdr), Placement::Queues) => self.take_queues(gdr, rounded)?,
            _ => (self.take(rounded, home)?, home.into()),
        };
        self.live().insert(address, (rounded, place));
        Ok(Span { address, bytes })
    }

    fn alloc_split(&self, bytes: u64, split: Split) -> Result<Span, GpuError> {
        if home_of(Placement::Heap, self.heap, self.mover)? == Home::Host {
            return self.alloc(bytes, Placement::Heap);
        }
        let heap = SplitHeap::new(&self.cuda, bytes, split)?;
        let (device, host, address) = (heap.device(), heap.host(), heap.address());
        self.live().extend([(device.0, (device.1, Place::Gpu)), (host.0, (host.1, Place::Host))]);
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
        let (_, place) = self.live().remove(&span.address).expect("freed once, by who allocated it");
        // A GPU that is gone took its memory along: a refusal leaves nothing to be done.
        let _ = self.cuda.enter();
        // SAFETY: `alloc` made it this way, and removing it from the table makes this the only free.
        let _ = unsafe {
            match place {
                Place::Host => sys::cuMemFreeHost(span.address as *mut _),
                Place::Gpu => sys::cuMemFree_v2(span.address),
                Place::Mapped(..) => return self.give_back(place),
            }
        };
    }

    fn dmabuf(&self, span: Span) -> Result<Option<DmaBuf>, GpuError> {
        if matches!(self.find(span.address, span.bytes)?, Place::Host) {
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
            Place::Host => unsafe { copy_in(address, bytes) },
            // SAFETY: as above.
            Place::Mapped(mapped, _) => unsafe { mapped.write(address, bytes) },
            Place::Gpu => {
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
            Place::Host => unsafe { copy_out(address, bytes) },
            // SAFETY: as for `write`.
            Place::Mapped(mapped, _) => unsafe { mapped.read(address, bytes) },
            Place::Gpu => {
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
