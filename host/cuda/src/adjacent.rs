//! Memory of the host directly behind a range of addresses that is the GPU's: so a heap in two memories is one range.
//!
//! CUDA takes the wanted address of a reservation as a hint. A range of the host's is found first and its end is kept;
//! the beginning is given free and asked of the driver, which may place its reservation elsewhere: then another range
//! is tried.

use super::error::CudaError;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// Ranges that are tried.
const TRIES: usize = 8;

/// Who reserves addresses of the GPU's.
pub(super) trait Reserve {
    /// Reserves `bytes`, at `wanted` if it can; answers with where.
    ///
    /// # Errors
    /// What the driver refused.
    fn reserve(&self, bytes: u64, wanted: u64) -> Result<u64, CudaError>;
    /// Gives a reservation back.
    fn release(&self, at: u64, bytes: u64);
}

/// Memory of the host, page-aligned and zero; given back when it is dropped.
struct HostRange {
    at: u64,
    bytes: u64,
}

impl HostRange {
    fn map(bytes: u64, protect: ProtFlags) -> Result<Self, CudaError> {
        let refused = |error: rustix::io::Errno| CudaError::Host { bytes, what: error.to_string() };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the system chooses the place, so that nothing is mapped over.
        let at = unsafe { mmap_anonymous(null_mut(), bytes as usize, protect, flags) }.map_err(refused)?;
        Ok(Self { at: at.expose_provenance() as u64, bytes })
    }

    /// Gives all of it free but a range, which becomes usable.
    fn keep(self, from: u64, bytes: u64) -> Result<Self, CudaError> {
        let end = self.at + self.bytes;
        let before = Self { at: self.at, bytes: from - self.at };
        let behind = Self { at: from + bytes, bytes: end - from - bytes };
        std::mem::forget(self);
        drop((before, behind));
        let kept = Self { at: from, bytes };
        let protect = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
        // SAFETY: whole pages of `kept`, which nobody else knows.
        let answer = unsafe { rustix::mm::mprotect(kept.pointer(), bytes as usize, protect) };
        answer.map_err(|error| CudaError::Host { bytes, what: error.to_string() })?;
        Ok(kept)
    }

    fn pointer(&self) -> *mut std::ffi::c_void {
        with_exposed_provenance_mut(self.at as usize)
    }
}

impl Drop for HostRange {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: mapped by `map`, and each page is in one object. A failure leaves it mapped.
            let _ = unsafe { munmap(self.pointer(), self.bytes as usize) };
        }
    }
}

/// A reservation of the GPU's and the host's memory behind it. The reservation is its user's to give back.
pub(super) struct Adjacent {
    /// Where the GPU's addresses begin.
    pub at: u64,
    host: HostRange,
}

impl Adjacent {
    /// Finds addresses for `device` bytes of the GPU's, and behind them memory of the host. All of it are multiples of
    /// `align`, a power of two of whole pages.
    ///
    /// # Errors
    /// The system or the driver refuse, or the driver places every reservation elsewhere.
    pub fn find(driver: &dyn Reserve, device: u64, host: u64, align: u64) -> Result<Self, CudaError> {
        // Those that were tried stay mapped meanwhile, so that the next one is another.
        let mut tried = Vec::new();
        for _ in 0..TRIES {
            let range = HostRange::map(device + host + align, ProtFlags::empty())?;
            let at = range.at.next_multiple_of(align);
            let kept = range.keep(at + device, host)?;
            let met = driver.reserve(device, at)?;
            if met == at {
                return Ok(Self { at, host: kept });
            }
            driver.release(met, device);
            tried.push(kept);
        }
        Err(CudaError::NotAdjacent { tries: TRIES })
    }

    /// The host's memory.
    pub fn host(&self) -> (u64, u64) {
        (self.host.at, self.host.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const ALIGN: u64 = 2 << 20;

    /// A driver that follows a hint after it has not followed some.
    struct Driver {
        elsewhere: Cell<usize>,
        held: Cell<u64>,
    }

    impl Reserve for Driver {
        fn reserve(&self, bytes: u64, wanted: u64) -> Result<u64, CudaError> {
            self.held.set(self.held.get() + bytes);
            match self.elsewhere.get() {
                0 => Ok(wanted),
                left => {
                    self.elsewhere.set(left - 1);
                    Ok(wanted + ALIGN)
                }
            }
        }

        fn release(&self, _at: u64, bytes: u64) {
            self.held.set(self.held.get() - bytes);
        }
    }

    #[test]
    fn the_hosts_memory_lies_behind_the_gpus_addresses() {
        let driver = Driver { elsewhere: Cell::new(3), held: Cell::new(0) };
        let made = Adjacent::find(&driver, 4 * ALIGN, ALIGN, ALIGN).unwrap();
        assert_eq!((made.host(), driver.held.get()), ((made.at + 4 * ALIGN, ALIGN), 4 * ALIGN));
        assert!(made.at.is_multiple_of(ALIGN));
        let last = with_exposed_provenance_mut::<u8>((made.host().0 + ALIGN - 1) as usize);
        // SAFETY: the last byte of memory that is this test's.
        let was = unsafe {
            let was = last.read();
            last.write(7);
            was
        };
        assert_eq!(was, 0);
    }

    #[test]
    fn a_driver_that_places_heaps_elsewhere_is_refused_with_a_sentence() {
        let driver = Driver { elsewhere: Cell::new(usize::MAX), held: Cell::new(0) };
        let error = Adjacent::find(&driver, ALIGN, ALIGN, ALIGN).map(|_| ()).unwrap_err().to_string();
        assert_eq!(driver.held.get(), 0, "what was reserved is given back");
        assert_eq!(
            error,
            "cuMemAddressReserve: expected the GPU's heap in front of its part in the host's memory, got another \
             address at 8 tries; set SHUNT_HEAP=host"
        );
    }
}
