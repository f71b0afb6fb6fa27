//! Copies and atomics in this PE's own memory, which NICs reach at the same time: all of them atomic accesses.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Copies bytes. Both ranges may be the same; other overlaps copy upwards.
///
/// # Safety
/// Both ranges are valid, and what else reaches them meanwhile does so atomically.
pub unsafe fn copy(to: u64, from: u64, bytes: u64) {
    let word = |at: u64| std::ptr::with_exposed_provenance_mut::<u64>(at as usize);
    let byte = |at: u64| std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
    let mut at = 0;
    let words = to.is_multiple_of(8) && from.is_multiple_of(8);
    while words && at + 8 <= bytes {
        // SAFETY: inside both ranges (the caller), aligned (checked).
        unsafe {
            let value = AtomicU64::from_ptr(word(from + at)).load(Ordering::Relaxed);
            AtomicU64::from_ptr(word(to + at)).store(value, Ordering::Relaxed);
        }
        at += 8;
    }
    while at < bytes {
        // SAFETY: inside both ranges (the caller).
        unsafe {
            let value = AtomicU8::from_ptr(byte(from + at)).load(Ordering::Relaxed);
            AtomicU8::from_ptr(byte(to + at)).store(value, Ordering::Relaxed);
        }
        at += 1;
    }
    fence(Ordering::SeqCst);
}

/// The low bytes of a word, at most eight: at once, where they are a word of the machine.
///
/// # Safety
/// As [`copy`].
pub unsafe fn load(from: u64, bytes: u64) -> u64 {
    let mut value = 0u64;
    let to = (&raw mut value).expose_provenance() as u64;
    match bytes {
        // SAFETY: as the caller says; aligned.
        2 if from.is_multiple_of(2) => unsafe { word16(from) }.load(Ordering::SeqCst).into(),
        // SAFETY: as above.
        4 if from.is_multiple_of(4) => unsafe { word32(from) }.load(Ordering::SeqCst).into(),
        // SAFETY: as above.
        8 if from.is_multiple_of(8) => unsafe { word64(from) }.load(Ordering::SeqCst),
        // SAFETY: the caller vouches for `from`; the word is this call's, and has room for eight bytes.
        _ => unsafe {
            copy(to, from, bytes.min(8));
            value
        },
    }
}

/// Stores the low bytes of a word, at most eight: at once, where they are a word of the machine.
///
/// # Safety
/// As [`copy`].
pub unsafe fn store(to: u64, value: u64, bytes: u64) {
    let from = (&raw const value).expose_provenance() as u64;
    match bytes {
        // SAFETY: as the caller says; aligned.
        2 if to.is_multiple_of(2) => unsafe { word16(to) }.store(value as u16, Ordering::SeqCst),
        // SAFETY: as above.
        4 if to.is_multiple_of(4) => unsafe { word32(to) }.store(value as u32, Ordering::SeqCst),
        // SAFETY: as above.
        8 if to.is_multiple_of(8) => unsafe { word64(to) }.store(value, Ordering::SeqCst),
        // SAFETY: as above; the word is this call's.
        _ => unsafe { copy(to, from, bytes.min(8)) },
    }
}

/// An atomic word.
///
/// # Safety
/// Valid, aligned, and reached atomically only.
pub unsafe fn word16<'a>(at: u64) -> &'a AtomicU16 {
    // SAFETY: forwarded to the caller.
    unsafe { AtomicU16::from_ptr(std::ptr::with_exposed_provenance_mut(at as usize)) }
}

/// An atomic word.
///
/// # Safety
/// Valid, aligned, and reached atomically only.
pub unsafe fn word32<'a>(at: u64) -> &'a AtomicU32 {
    // SAFETY: forwarded to the caller.
    unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(at as usize)) }
}

/// An atomic word.
///
/// # Safety
/// Valid, aligned, and reached atomically only.
pub unsafe fn word64<'a>(at: u64) -> &'a AtomicU64 {
    // SAFETY: forwarded to the caller.
    unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at as usize)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_at_every_edge() {
        let from: Vec<u8> = (0..64).collect();
        for (a, b, bytes) in [(0, 0, 64), (0, 8, 40), (3, 5, 20), (1, 1, 7), (8, 0, 0), (16, 24, 9)] {
            let mut to = [0xffu8; 64];
            let (source, target) = (from.as_ptr() as u64 + a, to.as_mut_ptr() as u64 + b);
            // SAFETY: both lie inside the arrays.
            unsafe { copy(target, source, bytes) };
            let (a, b, bytes) = (a as usize, b as usize, bytes as usize);
            assert_eq!(to[b..b + bytes], from[a..a + bytes]);
            assert!(to[..b].iter().chain(&to[b + bytes..]).all(|byte| *byte == 0xff));
        }
    }

    #[test]
    fn words_of_all_lengths() {
        let mut word = [0u64; 2];
        let at = word.as_mut_ptr() as u64;
        for bytes in [1, 2, 4, 8] {
            // SAFETY: inside the array.
            unsafe { store(at, 0x1122_3344_5566_7788, bytes) };
            // SAFETY: as above.
            assert_eq!(unsafe { load(at, bytes) }, 0x1122_3344_5566_7788 & (u64::MAX >> (64 - 8 * bytes)));
        }
    }
}
