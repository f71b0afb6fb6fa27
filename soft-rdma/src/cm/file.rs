//! Open files of connections.
//!
//! Such a file is one end of a pair of sockets; a byte waits in it while there are events, so that polling is the
//! kernel's. It is known by its identity, as an open uverbs file is. A child that was forked has descriptors of its
//! parent's files, and its calls on them fail with EIO.

use super::answers::EVENT_LEAST;
use super::commands::{self, Body, Caller, HEADER, Header, LONGEST, number};
use super::core::{Core, NicInfo};
use super::links::Links;
use rustix::event::poll;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use shunt_soft_machine::devices::Nic;
use shunt_soft_machine::log::Level;
use shunt_soft_machine::machine::Machine;
use shunt_soft_machine::per_process::PerProcess;
use shunt_soft_machine::thread::in_thread;
use shunt_soft_uverbs::ioctl::{FileId, descriptors_of};
use shunt_soft_uverbs::user;
use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files open at once: a program may have one for each connection.
const MOST: usize = 1024;

/// Descriptors of our own lie above those that programs count on.
const HIGH_FD: i32 = 200;

/// What others may look at without a lock: every `write`, `fstat` and `close` does.
struct Slot {
    device: AtomicU64,
    /// 0: free. It is the file's number, too.
    inode: AtomicU64,
    process: AtomicU32,
}

static SLOTS: [Slot; MOST] = [const {
    let (device, inode) = (AtomicU64::new(0), AtomicU64::new(0));
    Slot { device, inode, process: AtomicU32::new(0) }
}; MOST];

/// Slots that are taken: while there are none, nothing is looked for.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The end of each file that is ours, and whether a byte waits in the program's.
type Ends = HashMap<u64, (OwnedFd, bool)>;

/// All of one process.
struct Manager {
    links: Links,
    ends: Ends,
}

/// The manager of each process. A child gets its own: the lock may have been held when it was forked.
static CURRENT: PerProcess<Result<Arc<Mutex<Manager>>, Errno>> = PerProcess::new();

/// The manager of this process, made at the first opening.
fn made(machine: &'static Machine) -> Result<Arc<Mutex<Manager>>, Errno> {
    CURRENT.get().get_or_init(|| start(machine)).clone()
}

/// The manager of this process; EIO in a child that has opened none.
fn manager() -> Result<Arc<Mutex<Manager>>, Errno> {
    CURRENT.get().get().ok_or(Errno::IO)?.clone()
}

fn lock(manager: &Mutex<Manager>) -> MutexGuard<'_, Manager> {
    manager.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(machine: &'static Machine) -> Result<Arc<Mutex<Manager>>, Errno> {
    let nic = |nic: &Nic| {
        let gid = nic.gid(0).map_or([0; 16], |entry| entry.gid);
        let ip = Ipv6Addr::from(gid).to_ipv4_mapped()?;
        let mtu = nic.port().mtu as u16;
        Some(NicInfo { ip, guid: nic.guid(), index: nic.index(), mtu })
    };
    let nics: Option<Vec<NicInfo>> = machine.nics().iter().map(nic).collect();
    let core = Core::new(nics.ok_or(Errno::NODEV)?, std::process::id().wrapping_mul(0x9e37_79b1));
    let links = Links::new(core, machine.directory())?;
    let manager = Arc::new(Mutex::new(Manager { links, ends: HashMap::new() }));
    let for_thread = manager.clone();
    in_thread("soft-rdma cm", move || run(&for_thread)).map_err(|_| Errno::AGAIN)?;
    // SAFETY: the handler takes no arguments and touches only what lives as long as the process.
    unsafe { libc::atexit(leave) };
    Ok(manager)
}

/// At the process's end.
extern "C" fn leave() {
    if let Ok(manager) = manager() {
        // Without waiting: a thread may have ended in the midst of a call.
        if let Ok(mut manager) = manager.try_lock() {
            manager.links.leave();
        }
    }
}

/// The thread: what other processes say, and what is late.
fn run(manager: &Mutex<Manager>) {
    loop {
        let waits = {
            let mut manager = lock(manager);
            let waits = manager.links.due();
            manager.show();
            waits
        };
        match waits {
            Ok(waits) => {
                let ready = waits.wait();
                drop(waits);
                let mut manager = lock(manager);
                manager.links.take(&ready);
                manager.show();
            }
            // No descriptors: they come back.
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
}

impl Manager {
    /// Puts a byte where there are events, and takes it where there are none.
    fn show(&mut self) {
        for (file, (end, shown)) in &mut self.ends {
            let has = self.links.core.has_event(*file);
            if has && !*shown {
                *shown = send(&*end, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok();
            }
        }
    }

    /// Takes the byte out of the program's end once there is no event left.
    fn unshow(&mut self, file: u64, fd: BorrowedFd<'_>) {
        let Some((_, shown)) = self.ends.get_mut(&file) else { return };
        if *shown && !self.links.core.has_event(file) {
            *shown = recv(fd, &mut [0; 1], RecvFlags::DONTWAIT).is_err();
        }
    }
}

/// True if no such file is open.
pub fn none() -> bool {
    TAKEN.load(Ordering::Acquire) == 0
}

/// True if a file of that identity is one of these.
pub fn is_one(id: FileId) -> bool {
    !none() && find(id).is_some()
}

fn find(id: FileId) -> Option<usize> {
    let (device, inode) = id.numbers();
    SLOTS.iter().position(|slot| {
        slot.inode.load(Ordering::Acquire) == inode && slot.device.load(Ordering::Acquire) == device
    })
}

/// The slot of a descriptor.
pub fn slot_of(fd: RawFd) -> Option<usize> {
    if none() { None } else { find(FileId::of(fd).ok()?) }
}

/// Opens a file; ENOENT where processes have no way to each other's connections.
pub fn open(flags: i32) -> Result<RawFd, Errno> {
    let machine = Machine::get().map_err(|_| Errno::NODEV)?;
    let manager = made(machine)?;
    let (program, ours) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let ours = rustix::io::fcntl_dupfd_cloexec(&ours, HIGH_FD)?;
    if flags & libc::O_CLOEXEC == 0 {
        rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::empty())?;
    }
    if flags & libc::O_NONBLOCK != 0 {
        rustix::fs::fcntl_setfl(&program, OFlags::NONBLOCK)?;
    }
    let (device, inode) = FileId::of(program.as_raw_fd())?.numbers();
    // Files that were closed past us leave their slots behind.
    if TAKEN.load(Ordering::Acquire) == MOST {
        sweep_all();
    }
    let take =
        |slot: &&Slot| slot.inode.compare_exchange(0, inode, Ordering::AcqRel, Ordering::Acquire).is_ok();
    let slot = SLOTS.iter().find(take).ok_or(Errno::MFILE)?;
    slot.process.store(std::process::id(), Ordering::Release);
    slot.device.store(device, Ordering::Release);
    TAKEN.fetch_add(1, Ordering::AcqRel);
    let mut manager = lock(&manager);
    manager.links.core.open(inode);
    manager.ends.insert(inode, (ours, false));
    shunt_soft_machine::log!(Level::Debug, "rdma_cm opened");
    Ok(program.into_raw_fd())
}

/// The number of the open file of a slot; EIO if it is the parent's.
fn number_of(at: usize) -> Result<u64, Errno> {
    if SLOTS[at].process.load(Ordering::Acquire) != std::process::id() {
        return Err(Errno::IO);
    }
    Ok(SLOTS[at].inode.load(Ordering::Acquire))
}

/// What commands need of this process.
struct Program {
    now: u64,
}

impl Caller for Program {
    fn file_of(&self, fd: u32) -> Result<u64, Errno> {
        let fd = RawFd::try_from(fd).map_err(|_| Errno::BADF)?;
        FileId::of(fd)?;
        number_of(slot_of(fd).ok_or(Errno::INVAL)?)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        user::read(address, into)
    }

    fn now(&self) -> u64 {
        self.now
    }
}

/// Runs the command that a program writes to descriptor `fd`, of the file in a slot: how many bytes it took.
pub fn write(at: usize, fd: RawFd, address: u64, bytes: usize) -> Result<usize, Errno> {
    let file = number_of(at)?;
    if bytes < HEADER {
        return Err(Errno::INVAL);
    }
    let mut header = [0; HEADER];
    user::read(address, &mut header)?;
    let header = Header::read(&header, bytes)?;
    let mut written = vec![0; header.input.min(LONGEST)];
    user::read(address + HEADER as u64, &mut written)?;
    let body = Body::new(&written);
    let manager = manager()?;
    if header.command == number::GET_EVENT {
        return get_event(&manager, (file, fd), header.room, body.response()).map(|()| bytes);
    }
    let mut manager = lock(&manager);
    let caller = Program { now: manager.links.now() };
    let answer = commands::run(&mut manager.links.core, file, header, &body, &caller);
    shunt_soft_machine::log!(
        Level::Trace,
        "rdma_cm: command {}: {}",
        header.command,
        answer.as_ref().map_or_else(|error| error.to_string(), |_| "done".to_owned())
    );
    manager.links.perform();
    manager.show();
    // SAFETY: borrowed for the call; the program has it open, or the call fails.
    manager.unshow(file, unsafe { BorrowedFd::borrow_raw(fd) });
    manager.links.wake();
    drop(manager);
    if let Some((address, answer)) = answer? {
        user::write(address, &answer)?;
    }
    Ok(bytes)
}

/// GET_EVENT, by the rules of the descriptor: at once, or when there is one.
fn get_event(
    manager: &Mutex<Manager>,
    (file, fd): (u64, RawFd),
    room: usize,
    address: u64,
) -> Result<(), Errno> {
    if room < EVENT_LEAST {
        return Err(Errno::NOSPC);
    }
    // SAFETY: borrowed for the call; the program has it open, or the calls fail.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    loop {
        let mut locked = lock(manager);
        if let Some(event) = locked.links.core.take_event(file) {
            let bytes = event.write();
            let told = user::write(address, &bytes[..bytes.len().min(room)]);
            if told.is_err() {
                locked.links.core.untake_event(file, event);
            }
            locked.unshow(file, fd);
            return told;
        }
        locked.unshow(file, fd);
        drop(locked);
        if fcntl_getfl(fd)?.contains(OFlags::NONBLOCK) {
            return Err(Errno::AGAIN);
        }
        // Waits until the byte is there, and leaves it there.
        match recv(fd, &mut [0; 1], RecvFlags::PEEK) {
            Ok((1.., _)) => {}
            // The file was closed under the call, which goes on until a signal comes: the kernel has it so, and
            // programs end with a thread that waits here.
            Ok((0, _)) => return Err(poll(&mut [], None).err().unwrap_or(Errno::INTR)),
            Err(error) => return Err(error),
        }
    }
}

/// Ends the file of a slot if no descriptor of it is left. A child leaves it alone.
pub fn sweep(at: usize) {
    let slot = &SLOTS[at];
    if slot.process.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    let inode = slot.inode.load(Ordering::Acquire);
    let id = FileId::new(slot.device.load(Ordering::Acquire), inode);
    // Of two that see it gone, one frees it.
    if inode == 0
        || descriptors_of(id) != Ok(0)
        || slot.inode.compare_exchange(inode, 0, Ordering::AcqRel, Ordering::Acquire).is_err()
    {
        return;
    }
    TAKEN.fetch_sub(1, Ordering::AcqRel);
    let Ok(manager) = manager() else { return };
    let mut manager = lock(&manager);
    manager.links.core.close(inode);
    manager.ends.remove(&inode);
    manager.links.perform();
    manager.show();
    manager.links.wake();
    shunt_soft_machine::log!(Level::Debug, "rdma_cm closed");
}

/// Ends all files of which no descriptor is left.
pub fn sweep_all() {
    (0..MOST).filter(|at| SLOTS[*at].inode.load(Ordering::Acquire) != 0).for_each(sweep);
}
