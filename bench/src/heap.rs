//! Where everything lies in the symmetric heap, and the heap as memory that a NIC writes while we look.

use crate::options::Options;
use shunt_device::HeapOffset;
use std::sync::atomic::AtomicU64;

/// Words of different writers are this far apart.
const LINE: u64 = 128;
/// Words of one channel.
const WORDS: u64 = 3;

/// Offsets, the same on every PE.
#[derive(Clone, Copy, Debug)]
pub struct HeapMap {
    channels: u64,
    window: u64,
    slot_bytes: u64,
    table_bytes: u64,
}

impl HeapMap {
    /// The map for a command line.
    pub fn new(options: &Options) -> Self {
        let slot_bytes = options.put_size();
        Self {
            channels: options.ctas as u64,
            window: options.window as u64,
            slot_bytes,
            table_bytes: options.table_bytes().next_multiple_of(LINE),
        }
    }

    /// A heap for programs of their own: at least `bytes` from [`HeapMap::table`] on, no streams.
    pub fn plain(bytes: u64) -> Self {
        Self { channels: 1, window: 1, slot_bytes: 8, table_bytes: bytes.next_multiple_of(LINE) }
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Bytes of the slots of one channel, up to a whole line.
    fn slots_bytes(&self) -> u64 {
        (self.window * self.slot_bytes).next_multiple_of(LINE)
    }

    /// The word that takes the number of the last put of `channel`.
    pub fn signal(&self, channel: u32) -> HeapOffset {
        HeapOffset(channel as u64 * WORDS * LINE)
    }

    /// The word that takes the number of slots given back on `channel`.
    pub fn credit(&self, channel: u32) -> HeapOffset {
        HeapOffset(channel as u64 * WORDS * LINE + LINE)
    }

    /// The word that ends a row of the table on `channel`.
    pub fn row_end(&self, channel: u32) -> HeapOffset {
        HeapOffset(channel as u64 * WORDS * LINE + 2 * LINE)
    }

    /// The signal words of the slots of `channel`, one each, for signals that their receiver clears.
    pub fn flags(&self, channel: u32) -> HeapOffset {
        HeapOffset(self.channels * WORDS * LINE + channel as u64 * self.flags_bytes())
    }

    fn flags_bytes(&self) -> u64 {
        (self.window * 8).next_multiple_of(LINE)
    }

    /// Slots of a channel, and signals in flight at most.
    pub fn window(&self) -> u64 {
        self.window
    }

    fn words_bytes(&self) -> u64 {
        self.channels * (WORDS * LINE + self.flags_bytes())
    }

    /// The slots a stream of `channel` arrives in.
    pub fn slots(&self, channel: u32) -> HeapOffset {
        HeapOffset(self.words_bytes() + channel as u64 * self.slots_bytes())
    }

    /// The slots a stream of `channel` is sent from.
    pub fn sources(&self, channel: u32) -> HeapOffset {
        HeapOffset(self.words_bytes() + (self.channels + channel as u64) * self.slots_bytes())
    }

    /// The buffer of the table: put from and to the same offset, as perftest does.
    pub fn table(&self) -> HeapOffset {
        HeapOffset(self.words_bytes() + 2 * self.channels * self.slots_bytes())
    }

    /// Bytes of the heap.
    pub fn bytes(&self) -> u64 {
        self.table().0 + self.table_bytes
    }

    /// The slots of one direction of a channel, as long as the window.
    pub fn window_words(&self) -> u64 {
        self.window * self.slot_bytes / 8
    }
}

/// A PE's heap.
#[derive(Clone, Copy, Debug)]
pub struct HeapView {
    base: u64,
    bytes: u64,
}

impl HeapView {
    /// # Safety `base..base + bytes` is mapped, 8-byte aligned and outlives the view; while the view is used,
    /// everybody reaches it with atomic accesses only.
    pub unsafe fn new(base: u64, bytes: u64) -> Self {
        assert!(base.is_multiple_of(8) && base != 0, "a heap at {base:#x} is not aligned to 8 bytes");
        Self { base, bytes }
    }

    /// `words` words from `at` on.
    pub fn words(&self, at: HeapOffset, words: u64) -> &[AtomicU64] {
        assert!(at.0.is_multiple_of(8) && at.0 + words * 8 <= self.bytes, "{at:?} + {words} words");
        // SAFETY: inside the heap (just checked), aligned, and shared atomically only: `new`'s caller.
        unsafe { std::slice::from_raw_parts((self.base + at.0) as *const AtomicU64, words as usize) }
    }

    /// Address of `at`.
    pub fn address(&self, at: HeapOffset) -> u64 {
        self.base + at.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_touch() {
        let map = HeapMap { channels: 3, window: 4, slot_bytes: 24, table_bytes: 4096 };
        let mut regions = vec![(map.table().0, 4096)];
        for channel in 0..3 {
            let words = [map.signal(channel), map.credit(channel), map.row_end(channel)];
            regions.extend(words.map(|at| (at.0, 8)));
            regions.push((map.flags(channel).0, 4 * 8));
            regions.extend([map.slots(channel), map.sources(channel)].map(|at| (at.0, 4 * 24)));
        }
        regions.sort_unstable();
        for pair in regions.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
            assert!(pair[1].0.is_multiple_of(LINE));
        }
        assert_eq!(map.bytes(), map.table().0 + 4096);
    }
}
