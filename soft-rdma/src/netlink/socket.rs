//! The sockets of `NETLINK_RDMA` that this process has open.
//!
//! Such a socket is a Unix datagram socket connected to itself: answers are sent into it by its own descriptor and wait
//! there until the program receives them, so polling, peeking, timeouts and duplicates are the kernel's, and nobody
//! else can send to it. It is known by its identity, as an open uverbs file is.

use super::answers;
use crate::hooks::raw;
use rustix::io::Errno;
use shunt_soft_machine::devices::Nic;
use shunt_soft_machine::log::Level;
use shunt_soft_machine::machine::Machine;
use shunt_soft_machine::sysfs::Device;
use shunt_soft_uverbs::ioctl::{FileId, descriptors_of};
use shunt_soft_uverbs::user::last_error;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Sockets open at once. Programs have one, for as long as it takes to find devices.
const MOST: usize = 64;
/// Bits of a process's number: a further socket's port has its place in the table above them.
const PROCESS_BITS: u32 = 22;

struct Slot {
    device: AtomicU64,
    /// 0: free.
    inode: AtomicU64,
    /// 0: not bound yet.
    port: AtomicU32,
    /// Who opened it.
    process: AtomicU32,
}

static SLOTS: [Slot; MOST] = [const {
    let (device, inode) = (AtomicU64::new(0), AtomicU64::new(0));
    Slot { device, inode, port: AtomicU32::new(0), process: AtomicU32::new(0) }
}; MOST];

/// Slots that are taken: while there are none, nothing is looked for.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// True if no such socket is open.
pub fn none() -> bool {
    TAKEN.load(Ordering::Acquire) == 0
}

/// The slot of a descriptor, if it is one of these sockets. `errno` stays as it is.
pub fn slot_of(fd: RawFd) -> Option<usize> {
    if none() {
        return None;
    }
    let (device, inode) = FileId::of(fd).ok()?.numbers();
    SLOTS.iter().position(|slot| {
        slot.inode.load(Ordering::Acquire) == inode && slot.device.load(Ordering::Acquire) == device
    })
}

/// Makes a socket; `kind` is as for `socket`.
pub fn open(kind: i32) -> Result<RawFd, Errno> {
    let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    if !matches!(kind & !flags, libc::SOCK_RAW | libc::SOCK_DGRAM) {
        return Err(Errno::SOCKTNOSUPPORT);
    }
    let fd = checked(raw::socket(libc::AF_UNIX, libc::SOCK_DGRAM | flags, 0))?;
    // SAFETY: a new descriptor, nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    connect_to_itself(fd.as_raw_fd())?;
    let (device, inode) = FileId::of(fd.as_raw_fd())?.numbers();
    // Sockets that were closed past us leave their slots behind.
    if TAKEN.load(Ordering::Acquire) == MOST {
        sweep_all();
    }
    let take =
        |slot: &&Slot| slot.inode.compare_exchange(0, inode, Ordering::AcqRel, Ordering::Acquire).is_ok();
    let slot = SLOTS.iter().find(take).ok_or(Errno::MFILE)?;
    slot.port.store(0, Ordering::Release);
    slot.process.store(std::process::id(), Ordering::Release);
    slot.device.store(device, Ordering::Release);
    TAKEN.fetch_add(1, Ordering::AcqRel);
    Ok(fd.into_raw_fd())
}

fn checked(result: i32) -> Result<i32, Errno> {
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

fn connect_to_itself(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: numbers, of which zero is one.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let at = (&raw mut address).cast::<libc::sockaddr>();
    let mut bytes = size_of::<libc::sockaddr_un>() as u32;
    // SAFETY: an address of that length; one of a family alone has the kernel choose a name.
    unsafe {
        checked(raw::bind(fd, at, size_of::<libc::sa_family_t>() as u32))?;
        checked(raw::getsockname(fd, at, &mut bytes))?;
        checked(raw::connect(fd, at, bytes)).map(drop)
    }
}

/// The port of a slot's socket; 0 if it has none yet.
pub fn port(at: usize) -> u32 {
    SLOTS[at].port.load(Ordering::Acquire)
}

/// Gives a slot's socket this port, or with 0 one that is free. It keeps the one it has.
pub fn bind(at: usize, wanted: u32) -> Result<(), Errno> {
    let process = std::process::id();
    let is_taken = |port: u32| {
        let of_open = |slot: &&Slot| slot.inode.load(Ordering::Acquire) != 0;
        SLOTS.iter().filter(of_open).any(|slot| slot.port.load(Ordering::Acquire) == port)
    };
    let port = match (port(at), wanted) {
        (0, 0) if is_taken(process) => process + ((at as u32 + 1) << PROCESS_BITS),
        (0, 0) => process,
        (0, wanted) if is_taken(wanted) => return Err(Errno::ADDRINUSE),
        (0, wanted) => wanted,
        (_, 0) => return Ok(()),
        (now, wanted) => return if now == wanted { Ok(()) } else { Err(Errno::INVAL) },
    };
    SLOTS[at].port.store(port, Ordering::Release);
    Ok(())
}

/// Answers a datagram that the program sends by `fd`, a socket of this slot.
pub fn request(at: usize, fd: RawFd, request: &[u8]) -> Result<(), Errno> {
    bind(at, 0)?;
    // Without devices the lists are empty; the log says why.
    let devices: Vec<Device> =
        Machine::get().map(|machine| machine.nics().iter().map(Nic::describe).collect()).unwrap_or_default();
    let connects = Machine::made().is_some_and(Machine::connects);
    let answers = answers(request, port(at), &devices, connects);
    shunt_soft_machine::log!(
        Level::Debug,
        "netlink: {} bytes asked, {} answers",
        request.len(),
        answers.len()
    );
    for answer in answers {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the answer's own bytes; the socket is connected.
        let sent =
            unsafe { raw::sendto(fd, answer.as_ptr().cast(), answer.len(), flags, std::ptr::null(), 0) };
        if sent < 0 {
            return Err(if last_error() == Errno::AGAIN { Errno::NOBUFS } else { last_error() });
        }
    }
    Ok(())
}

/// Frees a slot if no descriptor of its socket is left. A child leaves it alone: it may share our memory, as after
/// `vfork`, but has descriptors of its own.
pub fn sweep(at: usize) {
    let slot = &SLOTS[at];
    if slot.process.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    let inode = slot.inode.load(Ordering::Acquire);
    let id = FileId::new(slot.device.load(Ordering::Acquire), inode);
    // Of two that see it gone, one frees it.
    if inode != 0
        && descriptors_of(id) == Ok(0)
        && slot.inode.compare_exchange(inode, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    {
        TAKEN.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Frees all slots of which no descriptor is left.
pub fn sweep_all() {
    (0..MOST).for_each(sweep);
}
