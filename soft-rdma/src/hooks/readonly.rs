//! Nothing in the tree can be written, made or removed, no matter who the user is: attributes of a kernel's devices
//! that are only read refuse it to root, too.

use super::buffer::Buffer;
use super::errno::fails;
use super::path::{self, Place};
use super::raw;
use libc::{c_char, c_int, c_uint, mode_t};

/// Opens a file or directory of the tree.
///
/// # Safety
/// `path` ends with zero.
pub unsafe fn open(path: &Buffer, flags: c_int) -> c_int {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    let creates = flags & libc::O_CREAT != 0;
    let plain = flags & libc::O_PATH != 0 || !writes && !creates;
    // SAFETY: the caller's promise.
    unsafe {
        if plain {
            return raw::openat(libc::AT_FDCWD, path.as_ptr(), flags, 0);
        }
        if raw::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::F_OK) != 0 {
            return if creates { fails(libc::EACCES) } else { -1 };
        }
        match (creates && flags & libc::O_EXCL != 0, writes) {
            (true, _) => fails(libc::EEXIST),
            (_, true) => fails(libc::EACCES),
            _ => raw::openat(libc::AT_FDCWD, path.as_ptr(), flags & !libc::O_CREAT, 0),
        }
    }
}

/// Whether a file or directory of the tree may be accessed.
///
/// # Safety
/// As above.
pub unsafe fn access(path: &Buffer, mode: c_int) -> c_int {
    // SAFETY: as above.
    match unsafe { raw::faccessat(libc::AT_FDCWD, path.as_ptr(), mode & !libc::W_OK) } {
        0 if mode & libc::W_OK != 0 => fails(libc::EACCES),
        result => result,
    }
}

/// True, and `errno` EACCES, if the path is one of soft devices.
///
/// # Safety
/// As for the C library's functions; so for all below.
unsafe fn refused(directory: c_int, path: *const c_char) -> bool {
    // SAFETY: the arguments are the caller's.
    let ours = !matches!(unsafe { path::place_at(directory, path) }, Place::Elsewhere);
    if ours {
        fails(libc::EACCES);
    }
    ours
}

/// `unlinkat`, and with `AT_FDCWD` `unlink` and `rmdir`.
///
/// # Safety
/// As above.
pub unsafe fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { if refused(directory, path) { -1 } else { raw::unlinkat(directory, path, flags) } }
}

/// `mkdirat`, and with `AT_FDCWD` `mkdir`.
///
/// # Safety
/// As above.
pub unsafe fn mkdirat(directory: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: as above.
    unsafe { if refused(directory, path) { -1 } else { raw::mkdirat(directory, path, mode) } }
}

/// `renameat2`, and without flags `rename` and `renameat`.
///
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
    unsafe {
        let refused = refused(old_at, old) || refused(new_at, new);
        if refused { -1 } else { raw::renameat2(old_at, old, new_at, new, flags) }
    }
}
