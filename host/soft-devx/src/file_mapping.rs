//! Memory that is given as a file, mapped for the NIC alone: what a dma-buf is to hardware.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use shunt_mlx5::memory::DmaBuf;
use std::io;
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// A part of a file, mapped.
pub struct FileMapping {
    /// First address of the mapping, whole pages.
    start: u64,
    length: usize,
    /// Where in it the part begins.
    skip: u64,
}

/// A file is mapped by whole pages.
const PAGE: u64 = 4096;

impl FileMapping {
    /// Maps `bytes` of a file.
    ///
    /// # Errors
    /// The system's word.
    pub fn of(buf: &DmaBuf, bytes: u64) -> io::Result<Self> {
        let skip = buf.offset % PAGE;
        let length = usize::try_from(bytes + skip).map_err(io::Error::other)?;
        let (protect, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: the system chooses the place, so that nothing is mapped over; what others do to the file's memory is
        // atomic (`Devx::register_umem`).
        let at = unsafe { mmap(null_mut(), length, protect, flags, &buf.file, buf.offset - skip) }?;
        Ok(Self { start: at.expose_provenance() as u64, length, skip })
    }

    /// Where the part begins.
    pub fn address(&self) -> u64 {
        self.start + self.skip
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        let at = with_exposed_provenance_mut(self.start as usize);
        // SAFETY: mapped by `of` with this length, and unmapped here only: the NIC let go of it. A failure leaves it
        // mapped.
        let _ = unsafe { munmap(at, self.length) };
    }
}
