//! The program's kernels: that it has any is known by `libnvshmem_device.a`, which says so when the program is loaded,
//! and by what it says they run on one GPU, on none, or as functions of the processor.

use crate::failure::InitError;
use crate::session::kernel_map::{DeviceWords, VERSION};
use shunt_device::platform::host::World;
use shunt_host::gpu::cuda::{Cuda, CudaMemory, Home, Mover};
use shunt_host::gpu::{GpuMemory, HeapMemory};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// Answer of [`DeviceLibrary::place`]: the machine has no GPU.
const NO_GPU: c_int = -1;
/// The same: kernels are functions of the processor.
const ON_HOST: c_int = -2;

/// `shunt_nvshmem_device_library` in `include/shunt/device_link.h`: what the host library calls. All of it is called by
/// the thread that made the call of NVSHMEM, which has the program's GPU current.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceLibrary {
    version: u64,
    place: extern "C" fn() -> c_int,
    clock: extern "C" fn() -> u64,
    up: extern "C" fn(root: *const c_void, words: *const DeviceWords) -> c_int,
    quiet: extern "C" fn(timeout_ns: u64) -> u64,
    drain: extern "C" fn(stream: *mut c_void) -> c_int,
}

/// The device library of this program, and with which it was replaced if two were linked.
static LIBRARY: Mutex<Option<DeviceLibrary>> = Mutex::new(None);

/// Called when a program is loaded that has one.
///
/// # Safety
/// `library` is null, or begins with a version, behind which stands what that version has.
#[unsafe(no_mangle)]
unsafe extern "C" fn shunt_nvshmem_register_device(library: *const DeviceLibrary) -> c_int {
    // SAFETY: the version is the first word of every version (the caller).
    let version = if library.is_null() { 0 } else { unsafe { library.cast::<u64>().read() } };
    if version != VERSION {
        eprintln!(
            "shunt: libnvshmem_device.a speaks version {version}, libnvshmem_host.so.3 version {VERSION}: the program \
             was linked with one of another prefix"
        );
        return 1;
    }
    // SAFETY: of this version (just seen), so it is as long, and all of it is there.
    let library = unsafe { library.read() };
    *LIBRARY.lock().unwrap_or_else(PoisonError::into_inner) = Some(library);
    0
}

/// Where kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There are none, or no GPU for them.
    Nowhere,
    /// They are functions of the processor.
    Host,
    /// On the GPU of that number.
    Gpu(u32),
}

/// The program's kernels.
#[derive(Clone, Copy)]
pub struct Kernels {
    library: Option<DeviceLibrary>,
    place: Place,
}

impl Kernels {
    /// As the program has them now.
    pub fn of_program() -> Self {
        let library = *LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match library.map_or(NO_GPU, |library| (library.place)()) {
            ON_HOST => Place::Host,
            gpu => u32::try_from(gpu).map_or(Place::Nowhere, Place::Gpu),
        };
        Self { library, place }
    }

    /// Whether the program has device functions, whatever they run on: all PEs of a job have, or none.
    pub fn are_there(&self) -> bool {
        self.library.is_some()
    }

    /// Where they run.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The library, where its functions can do anything.
    fn running(&self) -> Option<&DeviceLibrary> {
        self.library.as_ref().filter(|_| self.place != Place::Nowhere)
    }

    /// Memory that host, NICs and they reach.
    ///
    /// # Errors
    /// The driver gives none.
    pub fn memory(&self) -> Result<Arc<dyn GpuMemory>, InitError> {
        let Place::Gpu(number) = self.place else { return Ok(Arc::new(HeapMemory::new())) };
        let memory = Cuda::open(number).and_then(|gpu| CudaMemory::new(gpu, Home::Host, Mover::SoftNic));
        Ok(Arc::new(memory.map_err(InitError::Gpu)?))
    }

    /// By how much their clock is ahead of that one. The first call loads code, so the second is taken.
    pub fn ahead_of(&self, world: &dyn World) -> u64 {
        let Some(library) = self.running() else { return 0 };
        (library.clock)();
        let before = world.now_ns();
        let shown = (library.clock)();
        shown.saturating_sub(before + (world.now_ns() - before) / 2)
    }

    /// Tells them where everything is, or with `None` that there is nothing any more.
    ///
    /// # Errors
    /// They cannot be told.
    pub fn tell(&self, state: Option<(*const c_void, &DeviceWords)>) -> Result<(), InitError> {
        let Some(library) = self.running() else { return Ok(()) };
        let (root, words) = state
            .map_or((std::ptr::null(), std::ptr::null()), |(root, words)| (root, std::ptr::from_ref(words)));
        match (library.up)(root, words) {
            0 => Ok(()),
            _ => Err(InitError::Unsupported("libnvshmem_device.a could not be told where its state is")),
        }
    }

    /// What their channels have under way is waited for, for so long: 0, or a fault and its PE.
    pub fn quiet(&self, timeout_ns: u64) -> u64 {
        self.running().map_or(0, |library| (library.quiet)(timeout_ns))
    }

    /// Waits for all that a stream holds. `None`: there are no streams here.
    pub fn drain(&self, stream: *mut c_void) -> Option<bool> {
        match self.place {
            Place::Gpu(_) => self.running().map(|library| (library.drain)(stream) == 0),
            Place::Nowhere | Place::Host => None,
        }
    }
}
