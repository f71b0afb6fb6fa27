//! The working directory. One in a tree of ours is shown as the directory it stands for, and paths relative to it are
//! taken as if they began with that: a file found so is no other than the one found by its whole path.
//!
//! A program started from such a directory has its parent's tree for it, so trees are known by their names.

use super::path::{self, Buffer, Place};
use super::raw::{self, Next};
use super::{fails, set_errno};
use crate::sysfs::{is_ours, shown};
use libc::{c_char, c_int, size_t};
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const ELSEWHERE: u8 = 1;
const IN_TREE: u8 = 2;

/// Whether the working directory is in a tree. Another thread may be about to change it; that is the program's race.
static WHERE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The directory that the working directory stands for, if it lies in a tree.
pub fn current() -> Option<Buffer> {
    if WHERE.load(Ordering::Relaxed) == ELSEWHERE {
        return None;
    }
    let before = super::errno();
    let mut whole = Buffer::new();
    let found = raw::getcwd(&mut whole);
    set_errno(before);
    let shown = if found { shown(whole.as_bytes()) } else { None };
    WHERE.store(if shown.is_some() { IN_TREE } else { ELSEWHERE }, Ordering::Relaxed);
    let mut buffer = Buffer::new();
    buffer.push(shown?).then_some(buffer)
}

/// A relative path with the shown working directory in front. `None` if that lies in no tree, as most do.
pub fn joined(path: &[u8]) -> Option<Buffer> {
    let mut buffer = current()?;
    (buffer.push(b"/") && buffer.push(path)).then_some(buffer)
}

/// Goes to the directory of that name in a tree, from another tree.
pub fn settle(root: &[u8], shown: &Buffer) {
    let mut whole = Buffer::new();
    if whole.push(root) && whole.push(shown.as_bytes()) {
        // SAFETY: a path that ends with zero.
        unsafe { raw::chdir(whole.as_ptr()) };
    }
}

/// After a change of the working directory. A `..` may have led up in the tree, to where the machine's own is meant.
fn moved(result: c_int) -> c_int {
    if result == 0 {
        WHERE.store(UNKNOWN, Ordering::Relaxed);
        if let Some(directory) = current().filter(|directory| !is_ours(directory.as_bytes())) {
            // SAFETY: a path that ends with zero.
            unsafe { raw::chdir(directory.as_ptr()) };
            WHERE.store(ELSEWHERE, Ordering::Relaxed);
        }
    }
    result
}

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
