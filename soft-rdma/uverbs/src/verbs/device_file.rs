//! Memory of a simulated device (`SHUNT_HEAP=simulated`), which comes as a file: a dma-buf to this NIC, which maps it.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::RawFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// What such a file is called, as the system tells it.
const NAME: &str = "/memfd:shunt-device";

/// A part of the file, mapped.
pub struct DeviceFile {
    start: u64,
    length: usize,
    skip: u64,
}

impl DeviceFile {
    /// Maps `bytes` from `offset` on.
    ///
    /// # Errors
    /// No such file: this NIC reaches no other device's memory.
    pub fn map(fd: RawFd, offset: u64, bytes: u64) -> Result<Self, Errno> {
        let name = std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::BADF)?;
        if !name.to_string_lossy().starts_with(NAME) {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: open, as its link was just read; who closes it meanwhile gets an error, or another file mapped.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let skip = offset & (crate::user::page_bytes() - 1);
        let length = usize::try_from(bytes + skip).map_err(|_| Errno::INVAL)?;
        let (protect, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: the system chooses the place, so that nothing is mapped over.
        let at = unsafe { mmap(null_mut(), length, protect, flags, file, offset - skip) }?;
        Ok(Self { start: at.expose_provenance() as u64, length, skip })
    }

    /// Where the part begins.
    pub fn address(&self) -> u64 {
        self.start + self.skip
    }
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        let at = with_exposed_provenance_mut(self.start as usize);
        // SAFETY: mapped by `map` with this length, and unmapped here only: the NIC let go of it.
        let _ = unsafe { munmap(at, self.length) };
    }
}
