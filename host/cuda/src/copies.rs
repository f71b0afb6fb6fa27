//! Copies between any two memories that the driver knows, the program's among them, on a stream of their own: a copy on
//! the default stream would wait for kernels, and a kernel may wait for the host.

use super::driver::{Cuda, done};
use super::error::CudaError;
use cudarc::driver::sys;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

/// The driver's handle of a stream.
struct Handle(sys::CUstream);

// SAFETY: a handle, which any thread may use.
unsafe impl Send for Handle {}

/// Copies of one GPU.
pub struct Copies {
    cuda: Arc<Cuda>,
    stream: Mutex<Handle>,
}

impl Copies {
    /// On a new stream.
    ///
    /// # Errors
    /// What the driver refused.
    pub fn new(cuda: Arc<Cuda>) -> Result<Self, CudaError> {
        let mut stream = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: an out parameter of ours.
        let answer = cuda.within(|| unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        done("cuStreamCreate", answer)?;
        Ok(Self { cuda, stream: Mutex::new(Handle(stream)) })
    }

    /// Copies bytes; done when it returns. The context of the calling thread stays.
    ///
    /// # Safety
    /// Both ranges are valid, of the host or of a GPU.
    ///
    /// # Errors
    /// What the driver refused.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), CudaError> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.cuda.within(|| {
            // SAFETY: the caller's promise; unified addressing says which memory an address is of.
            match unsafe { sys::cuMemcpyAsync(to, from, bytes as usize, stream.0) } {
                // SAFETY: a stream of this object.
                sys::CUresult::CUDA_SUCCESS => unsafe { sys::cuStreamSynchronize(stream.0) },
                refused => refused,
            }
        })?;
        done("cuMemcpyAsync", answer)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner).0;
        // SAFETY: made by `new` and given back here only; a refusal leaves nothing to be done.
        let _ = self.cuda.within(|| unsafe { sys::cuStreamDestroy_v2(stream) });
    }
}
