//! The program's kernels: that it has any is known by `libnvshmem_device.a`, which says so when the program is loaded,
//! and by what it says they run on one GPU, on none, or as functions of the processor.

use crate::failure::InitError;
use crate::session::kernel_map::{DeviceWords, VERSION};
use crate::stream_call::StreamCall;
use shunt_device::platform::host::World;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

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
    follow: extern "C" fn() -> c_int,
    quiet: extern "C" fn(timeout_ns: u64) -> u64,
    drain: extern "C" fn(stream: *mut c_void) -> c_int,
    launch: extern "C" fn(call: *const StreamCall, stream: *mut c_void) -> c_int,
    settle: extern "C" fn(timeout_ns: u64) -> u64,
    down: extern "C" fn(),
    module: extern "C" fn(of: *mut c_void, is_library: c_int, enter: c_int) -> c_int,
}

/// No kernel could be started.
const NO_ANSWER: u64 = u64::MAX;
/// No clock shows more: overdue and unanswered kernels do.
const LATEST_NS: u64 = 1 << 62;

/// What has said that it is this program's device library.
#[derive(Clone, Copy)]
enum Joined {
    None,
    One(DeviceLibrary),
    /// Of another version, or more than one: whose functions would do nothing, and nobody would know.
    Wrong(&'static str),
}

static JOINED: Mutex<Joined> = Mutex::new(Joined::None);

/// Called when a program is loaded that has one.
///
/// # Safety
/// `library` is null, or begins with a version, behind which stands what that version has.
#[unsafe(no_mangle)]
unsafe extern "C" fn shunt_nvshmem_join_device(library: *const DeviceLibrary) -> c_int {
    // SAFETY: the version is the first word of every version (the caller).
    let version = if library.is_null() { 0 } else { unsafe { library.cast::<u64>().read() } };
    let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
    *joined = match *joined {
        Joined::None if version == VERSION => {
            // SAFETY: of this version (just seen), so it is as long, and all of it is there.
            Joined::One(unsafe { library.read() })
        }
        Joined::None => Joined::Wrong(
            "libnvshmem_device.a in this program speaks another version than libnvshmem_host.so.3: link the one of the \
             same prefix",
        ),
        _ => Joined::Wrong(
            "libnvshmem_device.a is in this process more than once: link it into one program or library alone",
        ),
    };
    matches!(*joined, Joined::Wrong(_)).into()
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
    ///
    /// # Errors
    /// It has them in a way in which they would do nothing.
    pub fn of_program() -> Result<Self, InitError> {
        let library = match *JOINED.lock().unwrap_or_else(PoisonError::into_inner) {
            Joined::None => None,
            Joined::One(library) => Some(library),
            Joined::Wrong(why) => return Err(InitError::Unsupported(why)),
        };
        let place = match library.map_or(NO_GPU, |library| (library.place)()) {
            ON_HOST => Place::Host,
            gpu => u32::try_from(gpu).map_or(Place::Nowhere, Place::Gpu),
        };
        Ok(Self { library, place })
    }

    /// Whether the program has device functions, whatever they run on: all PEs of a job have, or none.
    pub fn are_there(&self) -> bool {
        self.library.is_some()
    }

    /// Gives a module (or library, in CUDA's sense) of its driver what the program's own kernels have, or takes it back
    /// (`enter` is false). `None`: the program has no device library; else 0, or a status.
    pub fn module(&self, of: *mut c_void, is_library: bool, enter: bool) -> Option<c_int> {
        self.library.as_ref().map(|library| (library.module)(of, is_library.into(), enter.into()))
    }

    /// Where they run.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The library, where its functions can do anything.
    fn running(&self) -> Option<&DeviceLibrary> {
        self.library.as_ref().filter(|_| self.place != Place::Nowhere)
    }

    /// By how much their clock is ahead of that one. The first call loads code, so the second is taken.
    ///
    /// # Errors
    /// No kernel can be started.
    pub fn ahead_of(&self, world: &dyn World) -> Result<u64, InitError> {
        let Some(library) = self.running() else { return Ok(0) };
        let first = (library.clock)();
        let before = world.now_ns();
        let shown = (library.clock)();
        // Either: a GPU that is full of other kernels, or one without code for it.
        if first >= LATEST_NS || shown >= LATEST_NS {
            return Err(InitError::Unsupported(
                "no kernel of libnvshmem_device.a can be started on this GPU",
            ));
        }
        Ok(shown.saturating_sub(before + (world.now_ns() - before) / 2))
    }

    /// Tells them where everything is.
    ///
    /// # Errors
    /// They cannot be told.
    pub fn tell(&self, root: *const c_void, words: &DeviceWords) -> Result<(), InitError> {
        match self.running().map_or(0, |library| (library.up)(root, words)) {
            0 => Ok(()),
            _ => Err(InitError::Unsupported("libnvshmem_device.a could not be told where its state is")),
        }
    }

    /// Tells a GPU that has become current since. False if that failed.
    pub fn follow(&self) -> bool {
        self.running().is_none_or(|library| (library.follow)() == 0)
    }

    /// Waits until kernels have ended that run now, for so long: GPUs on which some still run.
    pub fn settle(&self, timeout_ns: u64) -> Vec<u32> {
        let running = self.running().map_or(0, |library| (library.settle)(timeout_ns));
        (0..u64::BITS).filter(|gpu| running >> gpu & 1 == 1).collect()
    }

    /// There is nothing any more.
    pub fn forget(&self) {
        if let Some(library) = self.running() {
            (library.down)();
        }
    }

    /// What their channels have under way is waited for, for so long: 0, or a fault and its PE; `None`: none of them
    /// could be started to find out.
    pub fn quiet(&self, timeout_ns: u64) -> Option<u64> {
        let answer = self.running().map_or(0, |library| (library.quiet)(timeout_ns));
        (answer != NO_ANSWER).then_some(answer)
    }

    /// Puts a kernel on a stream that does what the call says; where kernels are functions of the processor it is done
    /// when this returns. `None`: there are no kernels here; false: it could not be launched.
    pub fn launch(&self, call: &StreamCall, stream: *mut c_void) -> Option<bool> {
        self.running().map(|library| (library.launch)(call, stream) == 0)
    }

    /// One look at what a stream holds. `None`: there are no streams here.
    pub fn drain(&self, stream: *mut c_void) -> Option<Drained> {
        let Place::Gpu(_) = self.place else { return None };
        self.running().map(|library| match (library.drain)(stream) {
            0 => Drained::Done,
            1 => Drained::NotYet,
            2 => Drained::Captured,
            _ => Drained::Broken,
        })
    }
}

/// What a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing.
    Done,
    /// Something.
    NotYet,
    /// It is being captured.
    Captured,
    /// What it held went wrong.
    Broken,
}
