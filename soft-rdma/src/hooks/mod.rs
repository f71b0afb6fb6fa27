//! What the preloaded symbols do.
//!
//! Whatever does not concern soft devices goes on to the kernel at once: by a system call, with nothing allocated, no
//! lock taken, and `errno` as the kernel sets it, so that it works before constructors ran and in signal handlers.
//! Files the library itself opens come by here, too; none of their paths is one of soft devices.

pub mod attributes;
mod buffer;
pub mod cwd;
mod directory;
mod errno;
mod files;
mod path;
pub(crate) mod raw;
pub mod readonly;
mod sockets;

use crate::cm::file as cm;
use crate::netlink::socket as netlink;
use errno::{fails, guard, returned, set_errno};
use libc::{c_char, c_int, c_uint, c_void, mode_t, size_t, ssize_t};
use path::{Node, Place};
use raw::Next;
use shunt_soft_uverbs::ioctl::{FileId, REQUEST};
use std::ffi::CStr;
use std::ptr;

pub use sockets::{
    bind, connect, getsockname, getsockopt, recvfrom, recvmsg, sendmsg, sendto, setsockopt, socket,
};

/// Major number of uverbs devices, and the first minor.
const MAJOR: u32 = 231;
const FIRST_MINOR: u32 = 192;
/// Major and minor number of the device of connections, as the kernel gives to a miscellaneous one.
const CONNECTIONS_NUMBER: (u32, u32) = shunt_soft_machine::sysfs::CONNECTIONS_NUMBER;

/// `openat`, and with `AT_FDCWD` `open`.
///
/// # Safety
/// As for the C library's function; so for all below.
pub unsafe fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the arguments are the caller's.
    unsafe {
        match path::place_at(directory, path) {
            Place::Elsewhere => raw::openat(directory, path, flags, mode),
            Place::Tree(path) => readonly::open(&path, flags),
            Place::Device(Node::Uverbs(index)) => returned(guard(|| files::open(index, flags))),
            Place::Device(Node::Connections) => returned(guard(|| cm::open(flags))),
            Place::Nowhere => fails(libc::ENOENT),
        }
    }
}

/// The status of a device file.
fn device_status(node: Node) -> libc::stat {
    let (inode, (major, minor)) = match node {
        Node::Uverbs(index) => (u64::from(index), (MAJOR, FIRST_MINOR + index)),
        Node::Connections => (u64::from(u16::MAX), CONNECTIONS_NUMBER),
    };
    // SAFETY: numbers, of which zero is one.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    status.st_mode = libc::S_IFCHR | 0o666;
    status.st_nlink = 1;
    status.st_ino = 0x5348 + inode;
    status.st_rdev = libc::makedev(major, minor);
    status.st_blksize = 4096;
    status
}

/// `fstatat`, and with `AT_FDCWD` `stat` and `lstat`.
///
/// # Safety
/// As above.
pub unsafe fn fstatat(directory: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe {
        match path::place_at(directory, path) {
            Place::Elsewhere => as_device(raw::fstatat(directory, path, to, flags), to),
            Place::Tree(path) => raw::fstatat(libc::AT_FDCWD, path.as_ptr(), to, flags),
            Place::Device(_) if to.is_null() => fails(libc::EFAULT),
            Place::Device(node) => {
                to.write(device_status(node));
                0
            }
            Place::Nowhere => fails(libc::ENOENT),
        }
    }
}

/// `fstat`.
///
/// # Safety
/// As above.
pub unsafe fn fstat(fd: c_int, to: *mut libc::stat) -> c_int {
    // SAFETY: as above.
    unsafe { as_device(raw::fstat(fd, to), to) }
}

/// A status that turns out to be that of an open uverbs file becomes that of a device.
///
/// # Safety
/// `to` holds a status if `result` is zero.
unsafe fn as_device(result: c_int, to: *mut libc::stat) -> c_int {
    if result != 0 || files::none() && cm::none() {
        return result;
    }
    // SAFETY: the call filled it.
    let status = unsafe { &mut *to };
    let id = FileId::of_status(status);
    let node = match status.st_mode & libc::S_IFMT {
        libc::S_IFREG => files::device_of(id).map(Node::Uverbs),
        libc::S_IFSOCK => cm::is_one(id).then_some(Node::Connections),
        _ => None,
    };
    if let Some(node) = node {
        *status = device_status(node);
    }
    result
}

/// `statx`.
///
/// # Safety
/// As above.
pub unsafe fn statx(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut libc::statx,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        match path::place_at(directory, path) {
            Place::Elsewhere => raw::statx(directory, path, flags, mask, to),
            Place::Tree(path) => raw::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, to),
            Place::Device(_) if to.is_null() => fails(libc::EFAULT),
            Place::Device(node) => {
                let known = device_status(node);
                let mut status: libc::statx = std::mem::zeroed();
                status.stx_mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK | libc::STATX_INO;
                status.stx_mode = (libc::S_IFCHR | 0o666) as u16;
                status.stx_nlink = 1;
                status.stx_ino = known.st_ino;
                status.stx_blksize = 4096;
                (status.stx_rdev_major, status.stx_rdev_minor) =
                    (libc::major(known.st_rdev), libc::minor(known.st_rdev));
                to.write(status);
                0
            }
            Place::Nowhere => fails(libc::ENOENT),
        }
    }
}

/// `faccessat`, and with `AT_FDCWD` `access`.
///
/// # Safety
/// As above.
pub unsafe fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    static NEXT: Next = Next::new(c"faccessat");
    // SAFETY: as above.
    unsafe {
        match path::place_at(directory, path) {
            Place::Elsewhere if flags == 0 => raw::faccessat(directory, path, mode),
            Place::Elsewhere => {
                type Function = unsafe extern "C" fn(c_int, *const c_char, c_int, c_int) -> c_int;
                NEXT.get::<Function>().map_or(-1, |next| next(directory, path, mode, flags))
            }
            Place::Tree(path) => readonly::access(&path, mode),
            Place::Device(_) if mode & libc::X_OK != 0 => fails(libc::EACCES),
            Place::Device(_) => 0,
            Place::Nowhere => fails(libc::ENOENT),
        }
    }
}

/// `readlinkat`, and with `AT_FDCWD` `readlink`.
///
/// # Safety
/// As above.
pub unsafe fn readlinkat(directory: c_int, path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        match path::place_at(directory, path) {
            Place::Elsewhere => raw::readlinkat(directory, path, to, room),
            Place::Tree(path) => {
                let length = raw::readlinkat(libc::AT_FDCWD, path.as_ptr(), to, room);
                if length <= 0 {
                    return length;
                }
                path::mapped_back(std::slice::from_raw_parts_mut(to.cast(), length as usize)) as ssize_t
            }
            Place::Device(_) => fails(libc::EINVAL) as ssize_t,
            Place::Nowhere => fails(libc::ENOENT) as ssize_t,
        }
    }
}

/// `realpath`.
///
/// # Safety
/// As above.
pub unsafe fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    static NEXT: Next = Next::new(c"realpath");
    type Function = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;
    // SAFETY: as above.
    unsafe {
        let Some(next) = NEXT.get::<Function>() else { return ptr::null_mut() };
        let path = match path::place(path) {
            Place::Elsewhere => return next(path, to),
            Place::Tree(path) => path,
            // A device file is its own real path, if it is spelled as it should be.
            Place::Device(node) => return device_path(node, to),
            Place::Nowhere => {
                set_errno(libc::ENOENT);
                return ptr::null_mut();
            }
        };
        let found = next(path.as_ptr(), to);
        if !found.is_null() {
            let length = libc::strlen(found);
            let length = path::mapped_back(std::slice::from_raw_parts_mut(found.cast(), length));
            *found.add(length) = 0;
        }
        found
    }
}

/// # Safety
/// `to` is null or has room for a path.
unsafe fn device_path(node: Node, to: *mut c_char) -> *mut c_char {
    let text = match node {
        Node::Uverbs(index) => format!("/dev/infiniband/uverbs{index}\0"),
        Node::Connections => "/dev/infiniband/rdma_cm\0".to_owned(),
    };
    // SAFETY: memory of the C library's, which the program frees, or the program's own; both are long enough.
    unsafe {
        let to = if to.is_null() { libc::malloc(text.len()).cast() } else { to };
        if !to.is_null() {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        }
        to
    }
}

/// A function that takes a path first and returns a pointer.
///
/// # Safety
/// As above; `call` gets a path that lives as long as the call.
unsafe fn with_path<T>(path: *const c_char, call: impl FnOnce(*const c_char) -> *mut T) -> *mut T {
    // SAFETY: as above.
    match unsafe { path::place(path) } {
        Place::Elsewhere => call(path),
        Place::Tree(path) => call(path.as_ptr()),
        Place::Device(_) => {
            set_errno(libc::ENOTDIR);
            ptr::null_mut()
        }
        Place::Nowhere => {
            set_errno(libc::ENOENT);
            ptr::null_mut()
        }
    }
}

/// `opendir`.
///
/// # Safety
/// As above.
pub unsafe fn opendir(path: *const c_char) -> *mut libc::DIR {
    static NEXT: Next = Next::new(c"opendir");
    type Function = unsafe extern "C" fn(*const c_char) -> *mut libc::DIR;
    // SAFETY: as above.
    unsafe { NEXT.get::<Function>().map_or(ptr::null_mut(), |next| with_path(path, |path| next(path))) }
}

/// `fopen`, which is `fopen64` on 64-bit machines.
///
/// # Safety
/// As above.
pub unsafe fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    static NEXT: Next = Next::new(c"fopen");
    type Function = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;
    // SAFETY: as above.
    unsafe {
        let writes =
            !mode.is_null() && CStr::from_ptr(mode).to_bytes().iter().any(|byte| b"wa+".contains(byte));
        if writes && let Place::Tree(path) = path::place(path) {
            readonly::open(&path, libc::O_WRONLY | libc::O_CREAT);
            return ptr::null_mut();
        }
        NEXT.get::<Function>().map_or(ptr::null_mut(), |next| with_path(path, |path| next(path, mode)))
    }
}

/// `ioctl`.
///
/// # Safety
/// As above.
pub unsafe fn ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int {
    // The number is 32 bits; some callers extend its sign.
    if request as u32 as u64 == REQUEST
        && let Some(at) = files::slot_of(fd)
    {
        return returned(guard(|| files::call(at, argument as u64)).map(|()| 0));
    }
    // SAFETY: as above.
    unsafe { raw::ioctl(fd, request, argument) }
}

/// `write`.
///
/// # Safety
/// As above.
pub unsafe fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
    match cm::slot_of(fd) {
        Some(at) => match guard(|| cm::write(at, fd, from as u64, bytes)) {
            Ok(bytes) => bytes as ssize_t,
            Err(error) => fails(error.raw_os_error()) as ssize_t,
        },
        // SAFETY: the arguments are the caller's.
        None => unsafe { raw::write(fd, from, bytes) },
    }
}

/// What the descriptor is of that a call is about to close.
struct Closing {
    file: Option<usize>,
    netlink: Option<usize>,
    connections: Option<usize>,
}

impl Closing {
    fn of(fd: c_int) -> Self {
        Self { file: files::slot_of(fd), netlink: netlink::slot_of(fd), connections: cm::slot_of(fd) }
    }

    /// Ends it if the descriptor was the last; `errno` stays.
    fn done(self) {
        quietly(|| {
            self.file.into_iter().for_each(files::sweep);
            self.netlink.into_iter().for_each(netlink::sweep);
            self.connections.into_iter().for_each(cm::sweep);
        });
    }
}

/// Runs what the program did not ask for.
fn quietly(f: impl FnOnce()) {
    let before = errno::errno();
    let _ = guard(|| {
        f();
        Ok(())
    });
    set_errno(before);
}

/// `close`.
pub fn close(fd: c_int) -> c_int {
    let closing = Closing::of(fd);
    let result = raw::close(fd);
    closing.done();
    result
}

/// `dup2`.
pub fn dup2(old: c_int, new: c_int) -> c_int {
    if old == new {
        return if raw::is_open(old) { new } else { fails(libc::EBADF) };
    }
    dup3(old, new, 0)
}

/// `dup3`.
pub fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    let closing = Closing::of(new);
    let result = raw::dup3(old, new, flags);
    closing.done();
    result
}

/// `close_range`.
pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let result = raw::close_range(first, last, flags);
    if result == 0 && !files::none() {
        quietly(files::sweep_all);
    }
    if result == 0 && !netlink::none() {
        quietly(netlink::sweep_all);
    }
    if result == 0 && !cm::none() {
        quietly(cm::sweep_all);
    }
    result
}
