//! The working directory. One in a tree of ours is shown as the directory it stands for, and paths relative to it are
//! taken as if they began with that: a file found so is no other than the one found by its whole path.
//!
//! A program started from such a directory has its parent's tree for it, so trees are known by their names.

use super::directory::{current, moved};
use super::errno::{fails, set_errno};
use super::path::{self, Place};
use super::raw::{self, Next};
use libc::{c_char, c_int, size_t};
use std::ptr;

/// `chdir`.
///
/// # Safety
/// As for the C library's function; so for all below.
pub unsafe fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the arguments are the caller's.
    unsafe {
        match path::place(path) {
            Place::Elsewhere => moved(raw::chdir(path)),
            Place::Tree(path) => moved(raw::chdir(path.as_ptr())),
            Place::Device(_) => fails(libc::ENOTDIR),
            Place::Nowhere => fails(libc::ENOENT),
        }
    }
}

/// `fchdir`.
pub fn fchdir(fd: c_int) -> c_int {
    moved(raw::fchdir(fd))
}

/// `getcwd`.
///
/// # Safety
/// As above.
pub unsafe fn getcwd(to: *mut c_char, room: size_t) -> *mut c_char {
    static NEXT: Next = Next::new(c"getcwd");
    type Function = unsafe extern "C" fn(*mut c_char, size_t) -> *mut c_char;
    // SAFETY: as above.
    unsafe {
        let Some(directory) = current() else {
            return NEXT.get::<Function>().map_or(ptr::null_mut(), |next| next(to, room));
        };
        let bytes = directory.as_bytes().len() + 1;
        let wrong = match (to.is_null(), room) {
            (true, 0) => None,
            (false, 0) => Some(libc::EINVAL),
            _ if room < bytes => Some(libc::ERANGE),
            _ => None,
        };
        if let Some(wrong) = wrong {
            set_errno(wrong);
            return ptr::null_mut();
        }
        let to = if to.is_null() { libc::malloc(room.max(bytes)).cast() } else { to };
        if !to.is_null() {
            ptr::copy_nonoverlapping(directory.as_ptr(), to, bytes);
        }
        to
    }
}

/// `get_current_dir_name`.
///
/// # Safety
/// As above.
pub unsafe fn get_current_dir_name() -> *mut c_char {
    static NEXT: Next = Next::new(c"get_current_dir_name");
    type Function = unsafe extern "C" fn() -> *mut c_char;
    // SAFETY: as above.
    unsafe {
        if current().is_some() {
            return getcwd(ptr::null_mut(), 0);
        }
        NEXT.get::<Function>().map_or(ptr::null_mut(), |next| next())
    }
}
