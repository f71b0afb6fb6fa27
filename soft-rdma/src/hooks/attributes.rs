//! Extended attributes and file systems, asked for by path.

use super::errno::fails;
use super::path::{self, Place};
use super::raw::{self, Next};
use libc::{c_char, c_int, c_long, c_void, size_t, ssize_t};

/// Where device files are.
const DEV: *const c_char = c"/dev".as_ptr();

/// Whether a link at the end of a path is followed.
#[derive(Clone, Copy)]
pub enum Links {
    /// To what it leads to.
    Followed,
    /// It is meant itself.
    Taken,
}

/// `getxattr` and `lgetxattr`.
///
/// # Safety
/// As for the C library's function; so for all below.
pub unsafe fn getxattr(
    links: Links,
    path: *const c_char,
    name: *const c_char,
    to: *mut c_void,
    room: size_t,
) -> ssize_t {
    let number: c_long = match links {
        Links::Followed => libc::SYS_getxattr,
        Links::Taken => libc::SYS_lgetxattr,
    };
    // SAFETY: the arguments are the caller's.
    unsafe {
        match path::place(path) {
            Place::Elsewhere => raw::getxattr(number, path, name, to, room),
            Place::Tree(path) => raw::getxattr(number, path.as_ptr(), name, to, room),
            Place::Device(_) => fails(libc::ENODATA) as ssize_t,
            Place::Nowhere => fails(libc::ENOENT) as ssize_t,
        }
    }
}

/// `listxattr` and `llistxattr`.
///
/// # Safety
/// As above.
pub unsafe fn listxattr(links: Links, path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
    let number: c_long = match links {
        Links::Followed => libc::SYS_listxattr,
        Links::Taken => libc::SYS_llistxattr,
    };
    // SAFETY: as above.
    unsafe {
        match path::place(path) {
            Place::Elsewhere => raw::listxattr(number, path, to, room),
            Place::Tree(path) => raw::listxattr(number, path.as_ptr(), to, room),
            Place::Device(_) => 0,
            Place::Nowhere => fails(libc::ENOENT) as ssize_t,
        }
    }
}

/// `statfs`, which is `statfs64` on 64-bit machines.
///
/// # Safety
/// As above.
pub unsafe fn statfs(path: *const c_char, to: *mut libc::statfs) -> c_int {
    // SAFETY: as above.
    unsafe {
        match path::place(path) {
            Place::Elsewhere => raw::statfs(path, to),
            Place::Tree(path) => raw::statfs(path.as_ptr(), to),
            Place::Device(_) => raw::statfs(DEV, to),
            Place::Nowhere => fails(libc::ENOENT),
        }
    }
}

/// `statvfs`, which is `statvfs64` on 64-bit machines.
///
/// # Safety
/// As above.
pub unsafe fn statvfs(path: *const c_char, to: *mut libc::statvfs) -> c_int {
    static NEXT: Next = Next::new(c"statvfs");
    type Function = unsafe extern "C" fn(*const c_char, *mut libc::statvfs) -> c_int;
    // SAFETY: as above.
    unsafe {
        let Some(next) = NEXT.get::<Function>() else { return -1 };
        match path::place(path) {
            Place::Elsewhere => next(path, to),
            Place::Tree(path) => next(path.as_ptr(), to),
            Place::Device(_) => next(DEV, to),
            Place::Nowhere => fails(libc::ENOENT),
        }
    }
}
