//! Kernels on a GPU: the file that holds them, the module that the driver makes of it, launches, graphs.

use super::driver::{Cuda, done};
use super::error::CudaError;
use cudarc::driver::sys;
use shunt_layout::state::DeviceState;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;

/// The constant that a module's root lies in.
const ROOT: &str = "shunt_root";
/// The file's name, in a folder of the architecture's name.
const FILE: &str = "shunt_kernels.cubin";

/// Where kernels for an architecture are looked for: the file that was asked for, else the folder that the build leaves
/// them in, beside that of the running program (`target/release/shmem_put_bw`: `target/gpu/sm_90`).
pub fn candidates(asked: Option<&Path>, program: &Path, arch: &str) -> Vec<PathBuf> {
    if let Some(asked) = asked {
        return vec![asked.to_owned()];
    }
    let above = program.ancestors().skip(1).take(3);
    above.map(|folder| folder.join("gpu").join(arch).join(FILE)).collect()
}

/// The kernels of a file among `candidates`.
///
/// # Errors
/// None can be read: all that were looked at.
pub fn read_first(candidates: &[PathBuf], arch: &str) -> Result<Vec<u8>, CudaError> {
    let mut read = candidates.iter().filter_map(|path| std::fs::read(path).ok());
    read.next().ok_or_else(|| CudaError::NoKernels {
        arch: arch.to_owned(),
        looked: candidates.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

/// What one launch hands to a kernel: blocks, threads of each, and two parameters. The second is an address.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a, T> {
    /// Entry point.
    pub entry: &'a str,
    /// Blocks.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// First parameter, by value.
    pub call: T,
    /// Second parameter.
    pub out: u64,
}

/// A module with a root of its own: one for each PE.
pub struct Module {
    cuda: Arc<Cuda>,
    module: sys::CUmodule,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a cubin, a fatbin or PTX.
    ///
    /// # Errors
    /// What the driver refused.
    pub fn load(cuda: &Arc<Cuda>, image: &[u8]) -> Result<Self, CudaError> {
        // PTX is text, which ends in a zero.
        let mut image = image.to_vec();
        image.push(0);
        let mut module = null_mut();
        cuda.enter()?;
        // SAFETY: an image that is as long as it says itself, or text with its end.
        done("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) })?;
        Ok(Self { cuda: cuda.clone(), module })
    }

    /// Copies the root to the module's constant memory.
    ///
    /// # Safety
    /// The state was uploaded, stays while kernels of this module run, and none runs now.
    ///
    /// # Errors
    /// The constant has another size, or what the driver refused.
    pub unsafe fn set_root(&self, root: &DeviceState) -> Result<(), CudaError> {
        let (mut at, mut bytes, right) = (0, 0usize, size_of::<DeviceState>());
        let name = CString::new(ROOT).expect("no zero in it");
        self.cuda.enter()?;
        // SAFETY: out parameters of ours; the constant is as long as was just checked.
        unsafe {
            let answer = sys::cuModuleGetGlobal_v2(&raw mut at, &raw mut bytes, self.module, name.as_ptr());
            done("cuModuleGetGlobal", answer)?;
            if bytes != right {
                return Err(CudaError::RootSize { met: bytes as u64, right: right as u64 });
            }
            done("cuMemcpyHtoD", sys::cuMemcpyHtoD_v2(at, std::ptr::from_ref(root).cast(), bytes))
        }
    }

    /// Launches a kernel on a stream, or notes it there while a graph is made.
    ///
    /// # Safety
    /// The entry point's two parameters are of these types, and what they name outlives the launch.
    ///
    /// # Errors
    /// No such entry point, or what the driver refused.
    pub unsafe fn launch<T: Copy>(&self, stream: &Stream, launch: &Launch<'_, T>) -> Result<(), CudaError> {
        let unknown = || CudaError::NoEntry { entry: launch.entry.to_owned() };
        let name = CString::new(launch.entry).map_err(|_| unknown())?;
        let (mut call, mut out, mut function) = (launch.call, launch.out, null_mut());
        let mut parameters = [(&raw mut call).cast(), (&raw mut out).cast()];
        self.cuda.enter()?;
        // SAFETY: the driver copies the parameters before it returns; what they are is the caller's promise.
        unsafe {
            match sys::cuModuleGetFunction(&raw mut function, self.module, name.as_ptr()) {
                sys::CUresult::CUDA_ERROR_NOT_FOUND => return Err(unknown()),
                answer => done("cuModuleGetFunction", answer)?,
            }
            let (blocks, threads) = (launch.blocks, launch.threads);
            let parameters = parameters.as_mut_ptr();
            let answer = sys::cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.stream,
                parameters,
                null_mut(),
            );
            done("cuLaunchKernel", answer)
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.cuda.enter();
        // SAFETY: loaded once; a refusal leaves nothing to be done.
        let _ = unsafe { sys::cuModuleUnload(self.module) };
    }
}

/// Launches one after the other.
pub struct Stream {
    cuda: Arc<Cuda>,
    stream: sys::CUstream,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that waits for no other.
    ///
    /// # Errors
    /// What the driver refused.
    pub fn new(cuda: &Arc<Cuda>) -> Result<Self, CudaError> {
        let mut stream = null_mut();
        cuda.enter()?;
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: an out parameter of ours.
        done("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        Ok(Self { cuda: cuda.clone(), stream })
    }

    /// Waits until all of it is done.
    ///
    /// # Errors
    /// What the driver says of a kernel that failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.cuda.enter()?;
        // SAFETY: a stream of ours.
        done("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream) })
    }

    /// Copies from host to GPU memory with the copy engine, behind what was launched.
    ///
    /// # Safety
    /// Both ends are `bytes.len()` long and stay until the stream was synchronized.
    ///
    /// # Errors
    /// What the driver refused.
    pub unsafe fn copy_in(&self, to: u64, bytes: &[u8]) -> Result<(), CudaError> {
        self.cuda.enter()?;
        // SAFETY: the caller's promise.
        let answer =
            unsafe { sys::cuMemcpyHtoDAsync_v2(to, bytes.as_ptr().cast(), bytes.len(), self.stream) };
        done("cuMemcpyHtoDAsync", answer)
    }

    /// Makes a graph of what `launches` launches on this stream.
    ///
    /// # Errors
    /// Those of the launches, or what the driver refused.
    pub fn capture(&self, launches: impl FnOnce() -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        self.cuda.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a stream of ours.
        done("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) })?;
        let launched = launches();
        let (mut graph, mut ready) = (null_mut(), null_mut());
        // SAFETY: as above; out parameters of ours. A capture is ended whatever became of the launches.
        let ended =
            done("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.stream, &raw mut graph) });
        launched.and(ended)?;
        // SAFETY: the graph was just made, and is not needed once it is instantiated.
        let made = unsafe {
            let made = sys::cuGraphInstantiateWithFlags(&raw mut ready, graph, 0);
            let _ = sys::cuGraphDestroy(graph);
            made
        };
        done("cuGraphInstantiate", made)?;
        Ok(Graph { cuda: self.cuda.clone(), graph: ready })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.cuda.enter();
        // SAFETY: made once; a refusal leaves nothing to be done.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
    }
}

/// Launches that were noted once and are made again and again.
pub struct Graph {
    cuda: Arc<Cuda>,
    graph: sys::CUgraphExec,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Graph {}

impl Graph {
    /// Launches all of it on a stream.
    ///
    /// # Safety
    /// What was captured names memory that is still there.
    ///
    /// # Errors
    /// What the driver refused.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        self.cuda.enter()?;
        // SAFETY: handles of ours; the rest is the caller's promise.
        done("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.graph, stream.stream) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.cuda.enter();
        // SAFETY: made once; a refusal leaves nothing to be done.
        let _ = unsafe { sys::cuGraphExecDestroy(self.graph) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_looked_for_where_the_build_leaves_them() {
        let program = Path::new("/w/target/release/shmem_put_bw");
        let found = candidates(None, program, "sm_90");
        assert!(found.contains(&PathBuf::from("/w/target/gpu/sm_90/shunt_kernels.cubin")), "{found:?}");
        let asked = Path::new("/k/mine.cubin");
        assert_eq!(candidates(Some(asked), program, "sm_90"), [asked]);
    }

    #[test]
    fn kernels_that_are_not_there_are_named() {
        let looked = [PathBuf::from("/nowhere/sm_90/shunt_kernels.cubin")];
        let error = read_first(&looked, "sm_90").unwrap_err().to_string();
        for part in ["sm_90", "/nowhere/sm_90/shunt_kernels.cubin", "cargo xtask gpu"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
