//! The uverbs files this process has open.
//!
//! A file is known by its identity, not by its descriptors, so whatever a program does to those (dup, fcntl, passing
//! them on), it stays the same file. It ends when the last descriptor is closed.
//!
//! A child that was forked has descriptors of its parent's files, but not the threads behind them: calls on such a
//! file fail with EIO, closing it does nothing but that, and a file the child opens itself is its own.

use rustix::io::Errno;
use shunt_soft_machine::log::Level;
use shunt_soft_machine::machine::Machine;
use shunt_soft_uverbs::ioctl::{Context, FileId, descriptors_of};
use shunt_soft_uverbs::methods;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files open at once.
const MOST: usize = 256;

/// What others may look at without a lock: every `fstat` and `close` does.
struct Slot {
    device: AtomicU64,
    /// 0: free.
    inode: AtomicU64,
    /// N of uverbsN.
    index: AtomicU32,
    /// Who opened it.
    process: AtomicU32,
}

static SLOTS: [Slot; MOST] = [const {
    let (device, inode) = (AtomicU64::new(0), AtomicU64::new(0));
    Slot { device, inode, index: AtomicU32::new(0), process: AtomicU32::new(0) }
}; MOST];

/// Slots that are taken, this process's and those of its ancestors.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

type Contexts = Vec<Option<(FileId, Arc<Context>)>>;

/// The files of one process. A child gets its own: the lock may have been held when it was forked.
struct OfProcess {
    process: u32,
    contexts: Mutex<Contexts>,
}

static CURRENT: AtomicPtr<OfProcess> = AtomicPtr::new(ptr::null_mut());

fn contexts() -> MutexGuard<'static, Contexts> {
    let process = std::process::id();
    loop {
        let known = CURRENT.load(Ordering::Acquire);
        // SAFETY: what is stored was leaked below, so it is whole and stays.
        if let Some(known) = unsafe { known.as_ref() }
            && known.process == process
        {
            return known.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        }
        let contexts = Mutex::new(std::iter::repeat_with(|| None).take(MOST).collect());
        let fresh = Box::into_raw(Box::new(OfProcess { process, contexts }));
        if CURRENT.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: nobody saw it.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

/// True if no file is open, so that there is nothing to look for.
pub fn none() -> bool {
    TAKEN.load(Ordering::Acquire) == 0
}

/// The slot of a file, by its numbers.
fn find(id: FileId) -> Option<usize> {
    let (device, inode) = id.numbers();
    SLOTS.iter().position(|slot| {
        slot.inode.load(Ordering::Acquire) == inode && slot.device.load(Ordering::Acquire) == device
    })
}

/// N of uverbsN, if a file of that identity is a uverbs file.
pub fn device_of(id: FileId) -> Option<u32> {
    if none() { None } else { find(id).map(|at| SLOTS[at].index.load(Ordering::Acquire)) }
}

/// The slot of a descriptor.
pub fn slot_of(fd: RawFd) -> Option<usize> {
    if none() { None } else { find(FileId::of(fd).ok()?) }
}

/// Opens the device file of a NIC.
pub fn open(index: u32, flags: i32) -> Result<RawFd, Errno> {
    let machine = Machine::get().map_err(|_| Errno::NODEV)?;
    let nic = machine.nics().get(index as usize).ok_or(Errno::NXIO)?;
    machine.opened();
    let (context, fd) = Context::open(nic, flags & libc::O_CLOEXEC != 0)?;
    let id = FileId::of(fd.as_raw_fd())?;
    let mut contexts = contexts();
    // A slot may be free here and an ancestor's still.
    let free = |at: &usize| contexts[*at].is_none() && SLOTS[*at].inode.load(Ordering::Acquire) == 0;
    let Some(at) = (0..MOST).find(free) else {
        drop(contexts);
        context.close();
        return Err(Errno::MFILE);
    };
    contexts[at] = Some((id, Arc::new(context)));
    let (device, inode) = id.numbers();
    SLOTS[at].index.store(index, Ordering::Release);
    SLOTS[at].process.store(std::process::id(), Ordering::Release);
    SLOTS[at].device.store(device, Ordering::Release);
    SLOTS[at].inode.store(inode, Ordering::Release);
    TAKEN.fetch_add(1, Ordering::AcqRel);
    shunt_soft_machine::log!(Level::Debug, "uverbs{index} opened");
    Ok(fd.into_raw_fd())
}

/// Runs the call at `address` on the file of a slot.
pub fn call(at: usize, address: u64) -> Result<(), Errno> {
    let context = contexts()[at].as_ref().map(|(_, context)| context.clone());
    let Some(context) = context else {
        shunt_soft_machine::log!(
            Level::Warn,
            "a call on a file of the parent: a child has to open the device itself"
        );
        return Err(Errno::IO);
    };
    methods::run(&context, address)
}

/// Ends the file of a slot if no descriptor of it is left.
pub fn sweep(at: usize) {
    if SLOTS[at].process.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    let taken = {
        let mut contexts = contexts();
        let Some((id, _)) = &contexts[at] else { return };
        // One is our own.
        match descriptors_of(*id) {
            Ok(open) if open <= 1 => contexts[at].take(),
            _ => None,
        }
    };
    let Some((_, context)) = taken else { return };
    context.close();
    SLOTS[at].inode.store(0, Ordering::Release);
    TAKEN.fetch_sub(1, Ordering::AcqRel);
    shunt_soft_machine::log!(Level::Debug, "uverbs{} closed", context.nic().index());
}

/// Ends all files of which no descriptor is left.
pub fn sweep_all() {
    (0..MOST).filter(|at| SLOTS[*at].inode.load(Ordering::Acquire) != 0).for_each(sweep);
}
