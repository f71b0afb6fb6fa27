//! What lies in a slot.

use super::spec::{SLOT, STEP};
use crate::oracle::{load, store};

/// What stands where a page was read, and where memory was taken back.
pub(super) const READ: u64 = u64::MAX - 1;
pub(super) const TAKEN: u64 = u64::MAX - 2;

/// What a word of a transfer is.
pub(super) const fn shape(transfer: usize, at: u64) -> u64 {
    ((transfer as u64) << 24 | at) ^ 0x5ec0
}

/// Writes a slot.
pub(super) fn fill(at: u64, of: impl Fn(u64) -> u64) {
    (0..SLOT / STEP).for_each(|word| store(at + STEP * word, of(word)));
}

/// True if a slot holds this.
pub(super) fn holds(at: u64, of: impl Fn(u64) -> u64) -> bool {
    (0..SLOT / STEP).all(|word| load(at + STEP * word) == of(word))
}
