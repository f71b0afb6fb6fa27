//! How host code reads and writes the heap and the program's own memory, which may be a GPU's: one interface, and a
//! body for each memory. What lies in the heap's control area is the host's, whatever the heap is ([`super::memory`]).

use super::memory;
use shunt::DeviceHeap;
use shunt_host::error::GpuError;
use shunt_host::gpu::cuda::Copies;
use std::sync::{Arc, Mutex, PoisonError};

/// Copies, and words of at most eight bytes.
pub trait Access: Send + Sync {
    /// Copies bytes. Both ranges may be the same; other overlaps copy upwards.
    ///
    /// # Safety
    /// Both ranges are valid, and what else reaches them meanwhile does so atomically.
    ///
    /// # Errors
    /// The GPU's driver refused.
    unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError>;

    /// The low bytes of a word, at most eight: at once, where they are a word of the machine.
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    unsafe fn load(&self, at: u64, bytes: u64) -> Result<u64, GpuError> {
        let mut value = 0u64;
        // SAFETY: the caller vouches for `at`; the word is this call's, and has room for eight bytes.
        unsafe { self.copy((&raw mut value).expose_provenance() as u64, at, bytes.min(8)) }?;
        Ok(value)
    }

    /// Stores the low bytes of a word, at most eight.
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    unsafe fn store(&self, at: u64, value: u64, bytes: u64) -> Result<(), GpuError> {
        // SAFETY: the caller vouches for `at`; the word is this call's.
        unsafe { self.copy(at, (&raw const value).expose_provenance() as u64, bytes.min(8)) }
    }

    /// A call of the library begins (`true`) or ends: a simulated device's memory is closed meanwhile.
    fn host_runs(&self, _runs: bool) {}
}

/// The host loads and stores.
pub struct ByPointer;

impl Access for ByPointer {
    unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError> {
        // SAFETY: forwarded to the caller.
        unsafe { memory::copy(to, from, bytes) };
        Ok(())
    }

    unsafe fn load(&self, at: u64, bytes: u64) -> Result<u64, GpuError> {
        // SAFETY: forwarded to the caller.
        Ok(unsafe { memory::load(at, bytes) })
    }

    unsafe fn store(&self, at: u64, value: u64, bytes: u64) -> Result<(), GpuError> {
        // SAFETY: forwarded to the caller.
        unsafe { memory::store(at, value, bytes) };
        Ok(())
    }
}

/// CUDA's driver copies, the program's memory as well as the heap.
pub struct ByDriver(pub Copies);

impl Access for ByDriver {
    unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError> {
        // SAFETY: forwarded to the caller.
        Ok(unsafe { self.0.copy(to, from, bytes) }?)
    }
}

/// The second mapping of a simulated device's memory.
pub struct Simulated {
    heap: Arc<DeviceHeap>,
    /// Calls that run.
    calls: Mutex<u32>,
}

impl Simulated {
    /// Copies of that heap.
    pub fn new(heap: Arc<DeviceHeap>) -> Self {
        Self { heap, calls: Mutex::new(0) }
    }
}

impl Access for Simulated {
    unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError> {
        let (to, from) = (self.heap.for_copies(to), self.heap.for_copies(from));
        // SAFETY: the caller's ranges, or the same memory elsewhere.
        unsafe { ByPointer.copy(to, from, bytes) }
    }

    unsafe fn load(&self, at: u64, bytes: u64) -> Result<u64, GpuError> {
        // SAFETY: as above.
        unsafe { ByPointer.load(self.heap.for_copies(at), bytes) }
    }

    unsafe fn store(&self, at: u64, value: u64, bytes: u64) -> Result<(), GpuError> {
        // SAFETY: as above.
        unsafe { ByPointer.store(self.heap.for_copies(at), value, bytes) }
    }

    fn host_runs(&self, runs: bool) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = match (runs, *calls) {
            (true, 0) => self.heap.close(),
            (false, 1) => self.heap.open(),
            _ => Ok(()),
        };
        *calls = if runs { *calls + 1 } else { *calls - 1 };
        if let Err(error) = changed {
            shunt_host::complain!("shunt: simulated memory: {error}");
        }
    }
}

/// A call of the library that runs.
pub struct Running<'a>(&'a dyn Access);

impl<'a> Running<'a> {
    /// It begins.
    pub fn new(access: &'a dyn Access) -> Self {
        access.host_runs(true);
        Self(access)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.host_runs(false);
    }
}
