//! Which directory the working directory stands for.

use super::buffer::Buffer;
use super::errno::{errno, set_errno};
use super::raw;
use libc::c_int;
use shunt_soft_machine::sysfs::{is_ours, shown};
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
    let before = errno();
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
pub fn moved(result: c_int) -> c_int {
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
