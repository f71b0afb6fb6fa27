//! Symbols of the C library that lead to soft RDMA devices. What they do is in `shunt-soft-rdma`.
//!
//! `open` and its like are variadic in C; on the machines this is for, an argument that is there lies where a fixed
//! one does, and one that is not there is not looked at.
#![allow(missing_docs, clippy::missing_safety_doc)] // the functions are the C library's, and so are their rules
#![allow(unused_unsafe)] // some of them need no promise

use libc::{
    AT_EACCESS, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW, DIR, FILE, c_char, c_int, c_uint, c_ulong,
    c_void, mode_t, msghdr, size_t, sockaddr, socklen_t, ssize_t,
};
use shunt_soft_rdma::hooks::attributes::Links::{Followed, Taken};
use shunt_soft_rdma::hooks::{self, attributes, cwd, readonly};

/// What `creat` is for `open`.
const CREATES: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

/// As below. The end of a thread by `pthread_cancel` unwinds through it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
    // SAFETY: the arguments are the caller's, who keeps to the rules of the C library's function.
    unsafe { hooks::write(fd, from, bytes) }
}

/// Functions of the C library, each with what it is here.
macro_rules! symbols {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty { $body:expr })*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the arguments are the caller's, who keeps to the rules of the C library's function.
            unsafe { $body }
        }
    )*};
}

symbols! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { hooks::openat(AT_FDCWD, path, flags, mode) }
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { hooks::openat(AT_FDCWD, path, flags, mode) }
    __open_2(path: *const c_char, flags: c_int) -> c_int { hooks::openat(AT_FDCWD, path, flags, 0) }
    __open64_2(path: *const c_char, flags: c_int) -> c_int { hooks::openat(AT_FDCWD, path, flags, 0) }
    openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        hooks::openat(at, path, flags, mode)
    }
    openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        hooks::openat(at, path, flags, mode)
    }
    __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int { hooks::openat(at, path, flags, 0) }
    __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int { hooks::openat(at, path, flags, 0) }

    stat(path: *const c_char, to: *mut libc::stat) -> c_int { hooks::fstatat(AT_FDCWD, path, to, 0) }
    stat64(path: *const c_char, to: *mut libc::stat) -> c_int { hooks::fstatat(AT_FDCWD, path, to, 0) }
    __xstat(_v: c_int, path: *const c_char, to: *mut libc::stat) -> c_int { hooks::fstatat(AT_FDCWD, path, to, 0) }
    __xstat64(_v: c_int, path: *const c_char, to: *mut libc::stat) -> c_int { hooks::fstatat(AT_FDCWD, path, to, 0) }
    lstat(path: *const c_char, to: *mut libc::stat) -> c_int {
        hooks::fstatat(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW)
    }
    lstat64(path: *const c_char, to: *mut libc::stat) -> c_int {
        hooks::fstatat(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW)
    }
    __lxstat(_v: c_int, path: *const c_char, to: *mut libc::stat) -> c_int {
        hooks::fstatat(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW)
    }
    __lxstat64(_v: c_int, path: *const c_char, to: *mut libc::stat) -> c_int {
        hooks::fstatat(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW)
    }
    fstat(fd: c_int, to: *mut libc::stat) -> c_int { hooks::fstat(fd, to) }
    fstat64(fd: c_int, to: *mut libc::stat) -> c_int { hooks::fstat(fd, to) }
    __fxstat(_v: c_int, fd: c_int, to: *mut libc::stat) -> c_int { hooks::fstat(fd, to) }
    __fxstat64(_v: c_int, fd: c_int, to: *mut libc::stat) -> c_int { hooks::fstat(fd, to) }
    fstatat(at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
        hooks::fstatat(at, path, to, flags)
    }
    fstatat64(at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
        hooks::fstatat(at, path, to, flags)
    }
    __fxstatat(_v: c_int, at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
        hooks::fstatat(at, path, to, flags)
    }
    __fxstatat64(_v: c_int, at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
        hooks::fstatat(at, path, to, flags)
    }
    statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int {
        hooks::statx(at, path, flags, mask, to)
    }

    access(path: *const c_char, mode: c_int) -> c_int { hooks::faccessat(AT_FDCWD, path, mode, 0) }
    faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        hooks::faccessat(at, path, mode, flags)
    }
    readlink(path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
        hooks::readlinkat(AT_FDCWD, path, to, room)
    }
    readlinkat(at: c_int, path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
        hooks::readlinkat(at, path, to, room)
    }
    __readlink_chk(path: *const c_char, to: *mut c_char, room: size_t, _whole: size_t) -> ssize_t {
        hooks::readlinkat(AT_FDCWD, path, to, room)
    }
    __readlinkat_chk(at: c_int, path: *const c_char, to: *mut c_char, room: size_t, _whole: size_t) -> ssize_t {
        hooks::readlinkat(at, path, to, room)
    }
    realpath(path: *const c_char, to: *mut c_char) -> *mut c_char { hooks::realpath(path, to) }
    __realpath_chk(path: *const c_char, to: *mut c_char, _whole: size_t) -> *mut c_char { hooks::realpath(path, to) }
    canonicalize_file_name(path: *const c_char) -> *mut c_char { hooks::realpath(path, std::ptr::null_mut()) }
    opendir(path: *const c_char) -> *mut DIR { hooks::opendir(path) }
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE { hooks::fopen(path, mode) }
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE { hooks::fopen(path, mode) }

    creat(path: *const c_char, mode: mode_t) -> c_int { hooks::openat(AT_FDCWD, path, CREATES, mode) }
    creat64(path: *const c_char, mode: mode_t) -> c_int { hooks::openat(AT_FDCWD, path, CREATES, mode) }
    eaccess(path: *const c_char, mode: c_int) -> c_int { hooks::faccessat(AT_FDCWD, path, mode, AT_EACCESS) }
    euidaccess(path: *const c_char, mode: c_int) -> c_int { hooks::faccessat(AT_FDCWD, path, mode, AT_EACCESS) }
    unlink(path: *const c_char) -> c_int { readonly::unlinkat(AT_FDCWD, path, 0) }
    unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int { readonly::unlinkat(at, path, flags) }
    rmdir(path: *const c_char) -> c_int { readonly::unlinkat(AT_FDCWD, path, AT_REMOVEDIR) }
    mkdir(path: *const c_char, mode: mode_t) -> c_int { readonly::mkdirat(AT_FDCWD, path, mode) }
    mkdirat(at: c_int, path: *const c_char, mode: mode_t) -> c_int { readonly::mkdirat(at, path, mode) }
    rename(old: *const c_char, new: *const c_char) -> c_int {
        readonly::renameat2(AT_FDCWD, old, AT_FDCWD, new, 0)
    }
    renameat(old_at: c_int, old: *const c_char, new_at: c_int, new: *const c_char) -> c_int {
        readonly::renameat2(old_at, old, new_at, new, 0)
    }
    renameat2(old_at: c_int, old: *const c_char, new_at: c_int, new: *const c_char, flags: c_uint) -> c_int {
        readonly::renameat2(old_at, old, new_at, new, flags)
    }

    chdir(path: *const c_char) -> c_int { cwd::chdir(path) }
    fchdir(fd: c_int) -> c_int { cwd::fchdir(fd) }
    getcwd(to: *mut c_char, room: size_t) -> *mut c_char { cwd::getcwd(to, room) }
    __getcwd_chk(to: *mut c_char, room: size_t, _whole: size_t) -> *mut c_char { cwd::getcwd(to, room) }
    get_current_dir_name() -> *mut c_char { cwd::get_current_dir_name() }

    getxattr(path: *const c_char, name: *const c_char, to: *mut c_void, room: size_t) -> ssize_t {
        attributes::getxattr(Followed, path, name, to, room)
    }
    lgetxattr(path: *const c_char, name: *const c_char, to: *mut c_void, room: size_t) -> ssize_t {
        attributes::getxattr(Taken, path, name, to, room)
    }
    listxattr(path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
        attributes::listxattr(Followed, path, to, room)
    }
    llistxattr(path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
        attributes::listxattr(Taken, path, to, room)
    }
    statfs(path: *const c_char, to: *mut libc::statfs) -> c_int { attributes::statfs(path, to) }
    statfs64(path: *const c_char, to: *mut libc::statfs) -> c_int { attributes::statfs(path, to) }
    statvfs(path: *const c_char, to: *mut libc::statvfs) -> c_int { attributes::statvfs(path, to) }
    statvfs64(path: *const c_char, to: *mut libc::statvfs) -> c_int { attributes::statvfs(path, to) }

    ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int { hooks::ioctl(fd, request, argument) }
    close(fd: c_int) -> c_int { hooks::close(fd) }
    dup2(old: c_int, new: c_int) -> c_int { hooks::dup2(old, new) }
    dup3(old: c_int, new: c_int, flags: c_int) -> c_int { hooks::dup3(old, new, flags) }
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int { hooks::close_range(first, last, flags) }
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int { hooks::socket(domain, kind, protocol) }
    bind(fd: c_int, at: *const sockaddr, bytes: socklen_t) -> c_int { hooks::bind(fd, at, bytes) }
    connect(fd: c_int, at: *const sockaddr, bytes: socklen_t) -> c_int { hooks::connect(fd, at, bytes) }
    getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int { hooks::getsockname(fd, to, length) }
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, bytes: socklen_t) -> c_int {
        hooks::setsockopt(fd, level, name, value, bytes)
    }
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, bytes: *mut socklen_t) -> c_int {
        hooks::getsockopt(fd, level, name, value, bytes)
    }
    send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t {
        hooks::sendto(fd, from, bytes, flags, std::ptr::null(), 0)
    }
    sendto(
        fd: c_int, from: *const c_void, bytes: size_t, flags: c_int, to: *const sockaddr, to_bytes: socklen_t
    ) -> ssize_t {
        hooks::sendto(fd, from, bytes, flags, to, to_bytes)
    }
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t { hooks::sendmsg(fd, message, flags) }
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t { hooks::recvmsg(fd, message, flags) }
    recvfrom(
        fd: c_int, to: *mut c_void, room: size_t, flags: c_int, from: *mut sockaddr, from_bytes: *mut socklen_t
    ) -> ssize_t {
        hooks::recvfrom(fd, to, room, flags, from, from_bytes)
    }
    __recvfrom_chk(
        fd: c_int, to: *mut c_void, room: size_t, whole: size_t, flags: c_int, from: *mut sockaddr,
        from_bytes: *mut socklen_t
    ) -> ssize_t {
        if room > whole { libc::abort() } else { hooks::recvfrom(fd, to, room, flags, from, from_bytes) }
    }
}
