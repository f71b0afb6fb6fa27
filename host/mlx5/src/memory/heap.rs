//! Plain host memory as device memory: for the simulator, for kernels on a CPU, and for the host's own rings.

use super::{GpuMemory, Placement, Span};
use crate::error::GpuError;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

const ALIGN: usize = 4096;
/// What the allocator is asked for: more than it aligns by itself would have it write the zeros, and touch every page.
const ALIGN_ASKED: usize = 16;

/// What one allocation is: bytes from its aligned start on, and what the allocator gave.
struct Live {
    bytes: u64,
    given: u64,
    layout: Layout,
}

impl Live {
    /// Gives it back.
    ///
    /// # Safety
    /// Taken out of the table, and nobody uses it any more.
    unsafe fn free(self) {
        // SAFETY: `alloc` made it with this layout, and taking it out of the table makes this the only free.
        unsafe { dealloc(with_exposed_provenance_mut(self.given as usize), self.layout) }
    }
}

/// Zeroed host memory, 4 KiB aligned. Pages of large allocations are the system's zeros until somebody touches them.
///
/// All copies are made of relaxed atomics, because NICs and device code use the same memory at the same time.
#[derive(Default)]
pub struct HeapMemory {
    live: Mutex<BTreeMap<u64, Live>>,
}

impl HeapMemory {
    /// No allocation yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Frees what is still allocated. Objects whose NIC did not say that it let go of them leave their memory behind,
    /// because that NIC may still write to it: where the NIC itself is no more, this takes it back.
    ///
    /// # Safety
    /// Nobody uses any of it any more, NICs included.
    pub unsafe fn free_all(&self) {
        let live = std::mem::take(&mut *self.live.lock().expect("no panic under this lock"));
        for live in live.into_values() {
            // SAFETY: out of the table, and the caller vouches for its users.
            unsafe { live.free() }
        }
    }

    /// True if all of these bytes lie in one allocation.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        let live = self.live.lock().expect("no panic under this lock");
        live.range(..=address).next_back().is_some_and(|(start, live)| {
            let offset = address - start;
            offset <= live.bytes && bytes <= live.bytes - offset
        })
    }

    fn check(&self, address: u64, bytes: u64) -> Result<(), GpuError> {
        if self.holds(address, bytes) { Ok(()) } else { Err(GpuError::OutOfBounds { address, bytes }) }
    }
}

impl GpuMemory for HeapMemory {
    fn alloc(&self, bytes: u64, _placement: Placement) -> Result<Span, GpuError> {
        let size = usize::try_from(bytes.max(1)).ok().and_then(|size| size.checked_add(ALIGN));
        let layout = size.and_then(|size| Layout::from_size_align(size, ALIGN_ASKED).ok());
        let layout = layout.ok_or(GpuError::NoMemory { bytes })?;
        // SAFETY: the layout's size is at least 1.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() {
            return Err(GpuError::NoMemory { bytes });
        }
        let given = at.expose_provenance() as u64;
        let address = given.next_multiple_of(ALIGN as u64);
        let live = Live { bytes: bytes.max(1), given, layout };
        self.live.lock().expect("no panic under this lock").insert(address, live);
        Ok(Span { address, bytes })
    }

    unsafe fn free(&self, span: Span) {
        let live = self.live.lock().expect("no panic under this lock").remove(&span.address);
        let live = live.expect("freed once, by the object that allocated it");
        // SAFETY: out of the table, and the caller vouches for its users.
        unsafe { live.free() }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.check(address, bytes.len() as u64)?;
        // SAFETY: inside a live allocation (checked); shared accesses are atomic on all sides.
        unsafe { copy_in(address, bytes) }
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.check(address, bytes.len() as u64)?;
        // SAFETY: as above.
        unsafe { copy_out(address, bytes) }
        Ok(())
    }
}

/// Cuts a copy into pieces that are aligned to their size: where and how long. Words of eight, four and two bytes that
/// are aligned stay whole: completions and doorbell records are.
fn pieces(address: u64, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let fits = |size: &usize| {
            *size <= bytes - at && address.wrapping_add(at as u64).is_multiple_of(*size as u64)
        };
        let size = [8, 4, 2, 1].into_iter().find(fits)?;
        at += size;
        Some((at - size, size))
    })
}

/// Copies to memory that others use at the same time, atomically word by word.
///
/// # Safety
/// The memory is mapped and as long; all that others do to it is atomic.
pub unsafe fn copy_in(address: u64, bytes: &[u8]) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    for (at, size) in pieces(address, bytes.len()) {
        let piece = &bytes[at..at + size];
        let mut word = [0; 8];
        word[..size].copy_from_slice(piece);
        let word = u64::from_le_bytes(word);
        // SAFETY: inside the memory, by the caller's promise; `pieces` made it aligned.
        unsafe {
            let to = to.add(at);
            match size {
                8 => AtomicU64::from_ptr(to.cast()).store(word, Ordering::Relaxed),
                4 => AtomicU32::from_ptr(to.cast()).store(word as u32, Ordering::Relaxed),
                2 => AtomicU16::from_ptr(to.cast()).store(word as u16, Ordering::Relaxed),
                _ => AtomicU8::from_ptr(to).store(word as u8, Ordering::Relaxed),
            }
        }
    }
}

/// The other way.
///
/// # Safety
/// As [`copy_in`].
pub unsafe fn copy_out(address: u64, bytes: &mut [u8]) {
    let from = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    for (at, size) in pieces(address, bytes.len()) {
        // SAFETY: as above.
        let word = unsafe {
            let from = from.add(at);
            match size {
                8 => AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed),
                4 => AtomicU32::from_ptr(from.cast()).load(Ordering::Relaxed).into(),
                2 => AtomicU16::from_ptr(from.cast()).load(Ordering::Relaxed).into(),
                _ => AtomicU8::from_ptr(from).load(Ordering::Relaxed).into(),
            }
        };
        bytes[at..at + size].copy_from_slice(&word.to_le_bytes()[..size]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_at_every_edge() {
        let memory = HeapMemory::new();
        let span = memory.alloc(64, Placement::Control).unwrap();
        assert_eq!(span.address % ALIGN as u64, 0);
        for (offset, bytes) in [(0, 64), (1, 6), (3, 20), (7, 1), (8, 8), (5, 0)] {
            memory.fill(span, 0).unwrap();
            let data: Vec<u8> = (1..=bytes).map(|b| b as u8).collect();
            memory.write(span.address + offset, &data).unwrap();
            let mut all = [0xaa; 64];
            memory.read(span.address, &mut all).unwrap();
            let mut want = [0; 64];
            want[offset as usize..offset as usize + bytes].copy_from_slice(&data);
            assert_eq!(all, want, "offset {offset}, {bytes} bytes");
        }
        // SAFETY: nothing else knows the span.
        unsafe { memory.free(span) }
    }

    /// A NIC may write a completion while its word is copied.
    #[test]
    fn words_that_are_aligned_are_copied_whole() {
        let cut = |address, bytes| pieces(address, bytes).collect::<Vec<_>>();
        assert_eq!([cut(4092, 4), cut(4092, 12)], [vec![(0, 4)], vec![(0, 4), (4, 8)]]);
        assert_eq!(cut(4089, 11), [(0, 1), (1, 2), (3, 4), (7, 4)]);
        assert_eq!([cut(8, 0), cut(8, 2)], [vec![], vec![(0, 2)]]);
    }

    /// A job with a heap of many GiB does not write them at its start.
    #[test]
    fn pages_that_nobody_touches_take_no_room() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let (memory, before) = (HeapMemory::new(), resident());
        let span = memory.alloc(1 << 30, Placement::Heap).unwrap();
        let taken = resident().saturating_sub(before);
        assert!(taken < 256 << 20, "{taken} bytes of {} are resident", span.bytes);
        let mut last = [1; 8];
        memory.read(span.address + span.bytes - 8, &mut last).unwrap();
        assert_eq!((last, span.address % ALIGN as u64), ([0; 8], 0));
        // SAFETY: nothing else knows the span.
        unsafe { memory.free(span) }
    }

    #[test]
    fn access_outside_is_refused() {
        let memory = HeapMemory::new();
        let span = memory.alloc(64, Placement::Heap).unwrap();
        let beyond = GpuError::OutOfBounds { address: span.address + 60, bytes: 5 };
        assert_eq!(memory.write(span.address + 60, &[0; 5]), Err(beyond));
        assert!(memory.read(span.address - 1, &mut [0; 2]).is_err());
        // SAFETY: nothing else knows the span.
        unsafe { memory.free(span) }
        assert!(memory.read(span.address, &mut [0; 2]).is_err());
    }
}
