//! A heap in two memories: the GPU's, and behind it the host's, pinned and mapped at its own addresses.

use super::adjacent::{Adjacent, Reserve};
use super::driver::{Cuda, done};
use super::error::CudaError;
use cudarc::driver::sys;
use shunt_mlx5::memory::Split;
use std::sync::Arc;

/// Pages of the host's part.
const PAGE: u64 = 64 << 10;

/// The driver's reservations of addresses.
struct Driver;

impl Reserve for Driver {
    fn reserve(&self, bytes: u64, wanted: u64) -> Result<u64, CudaError> {
        let mut at = 0;
        // SAFETY: an out parameter of ours.
        let answer = unsafe { sys::cuMemAddressReserve(&raw mut at, bytes as usize, 0, wanted, 0) };
        done("cuMemAddressReserve", answer)?;
        Ok(at)
    }

    fn release(&self, at: u64, bytes: u64) {
        // SAFETY: a reservation of `reserve`. A refusal leaves it reserved.
        let _ = unsafe { sys::cuMemAddressFree(at, bytes as usize) };
    }
}

/// Such a heap. What is there is given back in the order in which it was taken, reversed.
pub(super) struct SplitHeap {
    cuda: Arc<Cuda>,
    addresses: Adjacent,
    split: Split,
    memory: Option<sys::CUmemGenericAllocationHandle>,
    mapped: bool,
    registered: bool,
    /// Bytes that lie in the GPU's memory.
    device: u64,
}

impl SplitHeap {
    /// A heap of `bytes`, zeroed.
    ///
    /// # Errors
    /// What the driver refused.
    pub fn new(cuda: &Arc<Cuda>, bytes: u64, split: Split) -> Result<Self, CudaError> {
        cuda.enter()?;
        let location = cuda.location();
        let properties = properties(location);
        let mut granularity = 0;
        // SAFETY: in and out parameters of ours.
        let answer = unsafe {
            let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
            sys::cuMemGetAllocationGranularity(&raw mut granularity, &raw const properties, least)
        };
        done("cuMemGetAllocationGranularity", answer)?;
        let granularity = granularity as u64;
        if !split.host.is_multiple_of(granularity) {
            return Err(CudaError::Granularity { met: split.host, granularity });
        }
        let host = (bytes - split.host).next_multiple_of(PAGE);
        let addresses = Adjacent::find(&Driver, split.host, host, granularity.max(PAGE))?;
        let device = split.device.next_multiple_of(granularity);
        let (memory, mapped, registered) = (None, false, false);
        let mut heap = Self { cuda: cuda.clone(), addresses, split, memory, mapped, registered, device };
        heap.fill(&properties, location)?;
        Ok(heap)
    }

    fn fill(
        &mut self,
        properties: &sys::CUmemAllocationProp,
        location: sys::CUmemLocation,
    ) -> Result<(), CudaError> {
        let (at, size, mut memory) = (self.addresses.at, self.device as usize, 0);
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location, flags };
        // SAFETY: addresses that were reserved for this object, in and out parameters of ours.
        unsafe {
            done("cuMemCreate", sys::cuMemCreate(&raw mut memory, size, properties, 0))?;
            self.memory = Some(memory);
            done("cuMemMap", sys::cuMemMap(at, size, 0, memory, 0))?;
            self.mapped = true;
            done("cuMemSetAccess", sys::cuMemSetAccess(at, size, &raw const access, 1))?;
            done("cuMemsetD8", sys::cuMemsetD8_v2(at, 0, size))?;
            done("cuCtxSynchronize", sys::cuCtxSynchronize())?;
        }
        let (host, bytes) = self.addresses.host();
        // SAFETY: memory of this object, which forgets it before it gives it back.
        self.registered = unsafe { self.cuda.reach(host, bytes, false) }?;
        Ok(())
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.addresses.at
    }

    /// Address and bytes of its part in the GPU's memory.
    pub fn device(&self) -> (u64, u64) {
        (self.addresses.at, self.device)
    }

    /// The same of its part in the host's.
    pub fn host(&self) -> (u64, u64) {
        self.addresses.host()
    }
}

impl Drop for SplitHeap {
    fn drop(&mut self) {
        // A GPU that is gone took its memory along: a refusal leaves nothing to be done.
        let _ = self.cuda.enter();
        if self.registered {
            let _ = self.cuda.forget(self.addresses.host().0);
        }
        // SAFETY: made by `fill`, once each, and given back here only; who frees a heap vouches for its users.
        unsafe {
            if self.mapped {
                let _ = sys::cuMemUnmap(self.addresses.at, self.device as usize);
            }
            if let Some(memory) = self.memory.take() {
                let _ = sys::cuMemRelease(memory);
            }
        }
        Driver.release(self.addresses.at, self.split.host);
    }
}

/// Memory of the GPU that NICs may register.
fn properties(location: sys::CUmemLocation) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location,
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 1,
            usage: 0,
            reserved: [0; 4],
        },
    }
}
