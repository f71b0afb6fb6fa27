//! One GPU through CUDA's driver, loaded when it is asked for: nothing of CUDA is needed to build or to run without.

use super::error::CudaError;
use cudarc::driver::sys;
use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

/// The driver's library, by the name that its package installs.
pub const LIBRARY: &str = "libcuda.so.1";

/// The answer of a call of the driver.
pub(super) fn done(call: &'static str, answer: sys::CUresult) -> Result<(), CudaError> {
    if answer == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Refused { call, code: answer as u32, what: words_of(answer) })
}

/// What the driver says of an answer of its own.
fn words_of(answer: sys::CUresult) -> String {
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: the driver is loaded, or there would be no answer; it points `text` to text of its own that stays.
    let named = unsafe { sys::cuGetErrorString(answer, &raw mut text) } == sys::CUresult::CUDA_SUCCESS;
    match named && !text.is_null() {
        // SAFETY: as above; it ends in a zero.
        true => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        false => "unknown to the driver".to_owned(),
    }
}

/// A GPU that is in use: its primary context is held.
#[derive(Debug)]
pub struct Cuda {
    device: sys::CUdevice,
    context: sys::CUcontext,
    name: String,
    capability: (u32, u32),
    /// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING`.
    writes: c_int,
}

// SAFETY: handles of the driver, which any thread may use; a context is made current on each thread that does.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

impl Cuda {
    /// Takes the GPU of a number into use.
    ///
    /// # Errors
    /// No driver, no such GPU, a GPU that cannot do what is needed, or what the driver refused.
    pub fn open(number: u32) -> Result<Arc<Self>, CudaError> {
        // SAFETY: loads the driver's library by its own name; its start-up code is NVIDIA's.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver { looked_for: LIBRARY });
        }
        // SAFETY: the driver's functions with what their reference asks for; out parameters are ours.
        unsafe {
            done("cuInit", sys::cuInit(0))?;
            let (mut count, mut device): (c_int, sys::CUdevice) = (0, 0);
            done("cuDeviceGetCount", sys::cuDeviceGetCount(&raw mut count))?;
            if i64::from(number) >= i64::from(count) {
                return Err(CudaError::NoGpu { asked: number, count: count.max(0) as u32 });
            }
            done("cuDeviceGet", sys::cuDeviceGet(&raw mut device, number as c_int))?;
            let mut name = [0 as c_char; 256];
            done("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), 256, device))?;
            let name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
            use sys::CUdevice_attribute as Attribute;
            let major = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            let minor = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
            let unified = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)?;
            let direct = Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
            let direct = attribute(device, direct)?;
            if unified == 0 || direct == 0 {
                return Err(CudaError::NoSharedAddresses { name });
            }
            let writes = Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING;
            // A driver that does not know the attribute promises no order.
            let writes = attribute(device, writes).unwrap_or(0);
            let mut context = null_mut();
            done("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&raw mut context, device))?;
            Ok(Arc::new(Self { device, context, name, capability: (major as u32, minor as u32), writes }))
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its architecture: `sm_90` for compute capability 9.0.
    pub fn arch(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }

    /// Whether kernels see what a NIC writes into this GPU's memory in the order in which it was written.
    ///
    /// # Errors
    /// They may not.
    pub(super) fn writes_in_order(&self) -> Result<(), CudaError> {
        ordered_writes(&self.name, self.writes)
    }

    /// Makes its context that of the calling thread: before each call of the driver that works in one.
    pub(super) fn enter(&self) -> Result<(), CudaError> {
        // SAFETY: the context is held while `self` lives.
        done("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Runs a call of the driver in its context; that of the calling thread stays.
    pub(super) fn within<R>(&self, call: impl FnOnce() -> R) -> Result<R, CudaError> {
        // SAFETY: the context is held while `self` lives.
        done("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.context) })?;
        let answer = call();
        let mut own = null_mut();
        // SAFETY: an out parameter of ours; the context was pushed above.
        done("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&raw mut own) })?;
        Ok(answer)
    }

    /// Where its memory lies, as the driver's functions for mappings say it.
    pub(super) fn location(&self) -> sys::CUmemLocation {
        let type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        sys::CUmemLocation { type_, id: self.device }
    }

    /// Lets kernels reach memory that lies in this process at its own address. Where it is a `device`'s, such as the
    /// doorbell registers of a NIC, that is said first: such pages have no memory behind them for the driver to pin.
    /// What pretends to be a NIC has registers in memory, which the driver then takes as such.
    ///
    /// True if it was made reachable here, and is to be given back by [`forget`](Self::forget).
    ///
    /// # Safety
    /// The memory stays mapped until [`forget`](Self::forget).
    ///
    /// # Errors
    /// What the driver refused, each way that was tried.
    pub unsafe fn reach(&self, address: u64, bytes: u64, device: bool) -> Result<bool, CudaError> {
        self.enter()?;
        let plain = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        let register = |flags| {
            // SAFETY: the caller's promise.
            unsafe { sys::cuMemHostRegister_v2(address as *mut _, bytes as usize, flags) }
        };
        first_taken(&ways(plain, device), register, words_of)
    }

    /// Takes back what [`reach`](Self::reach) gave.
    ///
    /// # Errors
    /// What the driver refused.
    pub fn forget(&self, address: u64) -> Result<(), CudaError> {
        self.enter()?;
        // SAFETY: the driver refuses an address that it does not know.
        done("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(address as *mut _) })
    }
}

/// Ways to register a page, by name and flags, those that fit best first.
fn ways(plain: u32, device: bool) -> Vec<(&'static str, u32)> {
    match device {
        true => vec![("as registers", plain | sys::CU_MEMHOSTREGISTER_IOMEMORY), ("as memory", plain)],
        false => vec![("as memory", plain)],
    }
}

/// Tries one after the other. True if one was taken, false if the page was there before: two queue pairs of one page.
/// The first refusal of registers is the one that counts, and the last one hides it: all are told.
fn first_taken(
    ways: &[(&'static str, u32)],
    mut register: impl FnMut(u32) -> sys::CUresult,
    words_of: impl Fn(sys::CUresult) -> String,
) -> Result<bool, CudaError> {
    let mut tries = Vec::new();
    for (name, flags) in ways {
        let answer = register(*flags);
        match answer {
            sys::CUresult::CUDA_SUCCESS => return Ok(true),
            sys::CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED => return Ok(false),
            refused => {
                tries.push(format!("{name}: {} (CUDA error {})", words_of(refused), refused as u32));
            }
        }
    }
    let tries = tries.join("; ");
    Err(match ways.len() {
        1 => CudaError::Memory { tries },
        _ => CudaError::Registers { tries },
    })
}

/// Whether NICs may write to a GPU's memory while its kernels wait for them there: `ordering` is the attribute
/// `GPU_DIRECT_RDMA_WRITES_ORDERING` of CUDA's driver. Without an order a kernel may see a flag before the data.
///
/// # Errors
/// No order.
fn ordered_writes(name: &str, ordering: c_int) -> Result<(), CudaError> {
    const NONE: c_int = sys::CUGPUDirectRDMAWritesOrdering::CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE as c_int;
    match ordering {
        NONE => Err(CudaError::WritesUnordered { name: name.into() }),
        _ => Ok(()),
    }
}

/// # Safety
/// The driver is started.
unsafe fn attribute(device: sys::CUdevice, of: sys::CUdevice_attribute) -> Result<c_int, CudaError> {
    let mut value = 0;
    // SAFETY: `value` is ours.
    done("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&raw mut value, of, device) })?;
    Ok(value)
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // SAFETY: held once by `open`; a refusal leaves nothing to be done.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::CUresult as Answer;

    /// What is tried in turn, and what came of it; answers in the order of the tries.
    fn tries(device: bool, answers: &[Answer]) -> (Vec<u32>, Result<bool, CudaError>) {
        let (mut tried, mut answers) = (Vec::new(), answers.iter());
        let taken = first_taken(
            &ways(1, device),
            |flags| {
                tried.push(flags);
                *answers.next().unwrap()
            },
            |answer| format!("{answer:?}"),
        );
        (tried, taken)
    }

    #[test]
    fn registers_of_a_device_are_said_to_be_that_first() {
        let device = 1 | sys::CU_MEMHOSTREGISTER_IOMEMORY;
        assert_eq!(tries(true, &[Answer::CUDA_SUCCESS]), (vec![device], Ok(true)));
        let refused = Answer::CUDA_ERROR_NOT_PERMITTED;
        assert_eq!(tries(true, &[refused, Answer::CUDA_SUCCESS]), (vec![device, 1], Ok(true)));
        assert_eq!(tries(false, &[Answer::CUDA_SUCCESS]), (vec![1], Ok(true)));
    }

    /// The driver's own refusal of registers was hidden by that of the second try, which says nothing of the cause.
    #[test]
    fn every_refusal_of_a_doorbell_page_is_told_with_its_cure() {
        let answers = [Answer::CUDA_ERROR_NOT_PERMITTED, Answer::CUDA_ERROR_INVALID_VALUE];
        let error = tries(true, &answers).1.unwrap_err().to_string();
        let want = "cuMemHostRegister of a doorbell page: expected one of two ways to be taken, got as registers: \
            CUDA_ERROR_NOT_PERMITTED (CUDA error 800); as memory: CUDA_ERROR_INVALID_VALUE (CUDA error 1); load the \
            nvidia kernel module with NVreg_RegistryDwords=\"PeerMappingOverride=1;\" (a line \"options nvidia ...\" \
            in /etc/modprobe.d, then reload the module or reboot)";
        assert_eq!(error, want);
        let error = tries(false, &answers[..1]).1.unwrap_err().to_string();
        assert!(
            error.contains("as memory: CUDA_ERROR_NOT_PERMITTED") && !error.contains("PeerMapping"),
            "{error}"
        );
    }

    #[test]
    fn a_gpu_without_an_order_of_writes_gets_no_heap() {
        assert_eq!(ordered_writes("H100", 100), Ok(()));
        assert_eq!(ordered_writes("H100", 200), Ok(()));
        let error = ordered_writes("A100", 0).unwrap_err().to_string();
        let want = "A100: expected GPUDirect RDMA writes to be ordered, got none (CUDA attribute \
            GPU_DIRECT_RDMA_WRITES_ORDERING is 0), so that a kernel may see a signal before its data; put the heap in \
            the host's memory (SHUNT_HEAP=host)";
        assert_eq!(error, want);
    }

    /// Its maker gives it back, nobody else.
    #[test]
    fn a_page_of_another_is_not_ours_to_give_back() {
        let there = Answer::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        assert_eq!(tries(true, &[there]).1, Ok(false));
        let refused = Answer::CUDA_ERROR_NOT_PERMITTED;
        assert_eq!(tries(true, &[refused, there]).1, Ok(false));
    }
}
