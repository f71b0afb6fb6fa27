//! Pages that a program maps from its uverbs file: the file is a memfd, and a doorbell page is a page of it.

use crate::user;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Descriptors of our own lie above those that programs count on.
const HIGH_FD: i32 = 200;

/// One page of a uverbs file, or some in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its offset in the file, for the program to map.
    pub offset: u64,
    /// Where it is mapped in here, for the NIC to read.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// The file and its pages.
pub(super) struct Pages {
    file: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes of the file.
    end: u64,
    all: Vec<Page>,
    free: Vec<Page>,
}

impl Pages {
    /// A new file, and the descriptor that the program gets.
    pub(super) fn new(name: &str, close_on_exec: bool) -> Result<(Self, OwnedFd), Errno> {
        let for_program = memfd_create(name, MemfdFlags::CLOEXEC)?;
        let file = fcntl_dupfd_cloexec(&for_program, HIGH_FD)?;
        if !close_on_exec {
            fcntl_setfd(&for_program, FdFlags::empty())?;
        }
        Ok((Self { file, state: Mutex::default() }, for_program))
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A page of zeros.
    pub(super) fn alloc(&self) -> Result<Page, Errno> {
        self.alloc_row(user::page_bytes())
    }

    /// Zeros, at least so many bytes of them, from the start of a page on.
    pub(super) fn alloc_row(&self, bytes: u64) -> Result<Page, Errno> {
        let bytes = bytes.max(1).checked_next_multiple_of(user::page_bytes()).ok_or(Errno::NOMEM)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = state.free.iter().rposition(|page| page.bytes == bytes) {
            let page = state.free.swap_remove(at);
            // SAFETY: mapped memory of that length that nobody holds: `free` gave it back.
            unsafe { std::ptr::write_bytes(page.address as *mut u8, 0, bytes as usize) };
            return Ok(page);
        }
        let offset = state.end;
        ftruncate(&self.file, offset + bytes)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the place, and the file is that long now.
        let address =
            unsafe { mmap(std::ptr::null_mut(), bytes as usize, access, flags, &self.file, offset)? } as u64;
        let page = Page { offset, address, bytes };
        state.end += bytes;
        state.all.push(page);
        Ok(page)
    }

    /// Takes a page back that the NIC reads no more.
    pub(super) fn free(&self, page: Page) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.all.contains(&page) && !state.free.contains(&page) {
            state.free.push(page);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // A page still held is leaked on purpose: the NIC may read it for as long as the process lives.
        for page in &state.free {
            // SAFETY: mapped by `alloc`, and held by nobody.
            let _ = unsafe { munmap(page.address as *mut _, page.bytes as usize) };
        }
    }
}
