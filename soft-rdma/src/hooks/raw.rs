//! The C library's own functions, reached past our symbols: by system call where one does, by name otherwise.

use super::buffer::Buffer;
use libc::{c_char, c_int, c_long, c_uint, c_void, mode_t, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use std::ffi::CStr;
use std::mem::transmute_copy;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A symbol of the library behind us, looked up once.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    /// Not looked up yet.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function; `None`, and `errno` ENOSYS, if there is none.
    ///
    /// # Safety
    /// `F` is the type of a pointer to that function.
    pub unsafe fn get<F>(&self) -> Option<F> {
        assert!(size_of::<F>() == size_of::<*mut c_void>(), "a pointer to a function");
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: a name that ends with zero. Looked up twice by two threads, it is found twice.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Relaxed);
        }
        if found.is_null() {
            super::errno::set_errno(libc::ENOSYS);
            return None;
        }
        // SAFETY: a pointer to a function of that type, says the caller.
        Some(unsafe { transmute_copy(&found) })
    }
}

/// # Safety
/// As for the C library's function of that name; so for all below.
pub unsafe fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the arguments are the caller's.
    unsafe { libc::syscall(libc::SYS_openat, directory, path, flags, mode as c_uint) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn fstatat(directory: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
    // SAFETY: as above. The C library's structure is the kernel's on 64-bit machines.
    unsafe { libc::syscall(libc::SYS_newfstatat, directory, path, to, flags) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn fstat(fd: c_int, to: *mut libc::stat) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_fstat, fd, to) as c_int }
}

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
    unsafe { libc::syscall(libc::SYS_statx, directory, path, flags, mask, to) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn faccessat(directory: c_int, path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_faccessat, directory, path, mode) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn readlinkat(directory: c_int, path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_readlinkat, directory, path, to, room) as ssize_t }
}

/// # Safety
/// As above.
pub unsafe fn ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
}

/// The C library's own, which is a point where `pthread_cancel` ends a thread, and that without a look-up: programs
/// write in signal handlers.
///
/// # Safety
/// As above.
pub unsafe fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
    unsafe extern "C-unwind" {
        fn __write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t;
    }
    // SAFETY: as above.
    unsafe { __write(fd, from, bytes) }
}

/// Closes a descriptor.
pub fn close(fd: c_int) -> c_int {
    // SAFETY: closing what is not a descriptor fails.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

/// Duplicates a descriptor to a number.
pub fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: numbers that are no descriptors make it fail.
    unsafe { libc::syscall(libc::SYS_dup3, old, new, flags) as c_int }
}

/// Closes descriptors, or has them closed.
pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int }
}

/// Opens a socket.
pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
}

/// # Safety
/// As for the C library's function of that name; so for all with a path below.
pub unsafe fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the arguments are the caller's.
    unsafe { libc::syscall(libc::SYS_chdir, path) as c_int }
}

/// Goes to an open directory.
pub fn fchdir(fd: c_int) -> c_int {
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_fchdir, fd) as c_int }
}

/// The working directory, if it has a path.
pub fn getcwd(to: &mut Buffer) -> bool {
    to.fill(|to, room| {
        // SAFETY: as much room as is said.
        let bytes = unsafe { libc::syscall(libc::SYS_getcwd, to, room) };
        usize::try_from(bytes - 1).ok()
    })
}

/// # Safety
/// As above.
pub unsafe fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_unlinkat, directory, path, flags) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn mkdirat(directory: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_mkdirat, directory, path, mode as c_uint) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn renameat2(
    old_at: c_int,
    old: *const c_char,
    new_at: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_renameat2, old_at, old, new_at, new, flags) as c_int }
}

/// By the number of `getxattr` or `lgetxattr`.
///
/// # Safety
/// As above.
pub unsafe fn getxattr(
    number: c_long,
    path: *const c_char,
    name: *const c_char,
    to: *mut c_void,
    room: size_t,
) -> ssize_t {
    // SAFETY: as above.
    unsafe { libc::syscall(number, path, name, to, room) as ssize_t }
}

/// By the number of `listxattr` or `llistxattr`.
///
/// # Safety
/// As above.
pub unsafe fn listxattr(number: c_long, path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: as above.
    unsafe { libc::syscall(number, path, to, room) as ssize_t }
}

/// # Safety
/// As above. The C library's structure is the kernel's on 64-bit machines.
pub unsafe fn statfs(path: *const c_char, to: *mut libc::statfs) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_statfs, path, to) as c_int }
}

/// The flags of a descriptor: fails if it is none.
pub fn is_open(fd: c_int) -> bool {
    // SAFETY: numbers only.
    let flags: c_long = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) };
    flags >= 0
}

/// # Safety
/// As above.
pub unsafe fn bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_bind, fd, address, bytes) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_connect, fd, address, bytes) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn getsockname(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_getsockname, fd, address, bytes) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: socklen_t,
) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, value, bytes) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, bytes) as c_int }
}

/// # Safety
/// As above.
pub unsafe fn sendto(
    fd: c_int,
    from: *const c_void,
    bytes: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_bytes: socklen_t,
) -> ssize_t {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_sendto, fd, from, bytes, flags, to, to_bytes) as ssize_t }
}

/// # Safety
/// As above.
pub unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as above. The C library's structure is the kernel's on 64-bit machines.
    unsafe { libc::syscall(libc::SYS_sendmsg, fd, message, flags) as ssize_t }
}

/// # Safety
/// As above.
pub unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_recvmsg, fd, message, flags) as ssize_t }
}

/// # Safety
/// As above.
pub unsafe fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_recvfrom, fd, to, room, flags, from, from_bytes) as ssize_t }
}
