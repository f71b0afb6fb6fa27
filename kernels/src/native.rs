//! The library's functions on the host: a kernel that was compiled for the processor is one thread that calls them, a
//! warp and a block of its own. Nothing here knows how the soft NICs are woken: like a GPU's, doorbells are words in
//! memory, and NICs find them.

use shunt_device::platform::host::{Host, World};
use shunt_device::{AbiMismatch, Device, Solo};
use shunt_layout::state::DeviceState;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

/// What runs the functions.
pub type Gpu = Host<'static>;
/// A warp: the thread.
pub type Warp = Solo;
/// A block: the thread.
pub type Block = Solo;

/// A clock that shows what no other in the process does, as a GPU's: a caller that takes times of both has to set one
/// by the other.
const AHEAD: Duration = Duration::from_secs(1 << 20);
/// Sleep between looks: soft NICs and other PEs are threads of the same processors.
const NAP: Duration = Duration::from_micros(20);

static ROOT: AtomicPtr<DeviceState> = AtomicPtr::new(std::ptr::null_mut());
static WORLD: Kernels = Kernels;
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

struct Kernels;

impl World for Kernels {
    fn now_ns(&self) -> u64 {
        (AHEAD + START.elapsed()).as_nanos() as u64
    }

    fn relax(&self) {
        std::thread::sleep(NAP);
    }

    fn doorbell(&self) {}
}

/// The device of the state that was given, if it is one of this version.
pub(crate) fn here() -> Result<Device<'static, Gpu>, AbiMismatch> {
    let root = ROOT.load(Ordering::Acquire);
    if root.is_null() {
        return Err(AbiMismatch { magic: 0, abi_version: 0, bytes: 0 });
    }
    // SAFETY: its owner keeps it, and all it names, until the functions are called no more
    // (`shunt_native_root`).
    unsafe { Device::attach(root, Host::new(&WORLD)) }
}

/// Gives the functions the root of a device state, or with null none.
///
/// # Safety
/// Bytes of a device state or of zeros, which stay while functions of the library are called, with all they name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shunt_native_root(root: *const DeviceState) {
    ROOT.store(root.cast_mut(), Ordering::Release);
}

/// What the clock of the functions shows, in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn shunt_native_now() -> u64 {
    WORLD.now_ns()
}
