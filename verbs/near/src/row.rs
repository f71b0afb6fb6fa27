//! Entries by numbers that never restart, in memory that is used again. New ones are written in a row, by a pointer
//! that goes on: neither a number nor the size of the memory is looked at before the row ends. Pure.

use core::marker::PhantomData;
use core::ptr::NonNull;

/// The memory, and where the next entry goes. Its owner knows which numbers are in use.
///
/// Invariant: `base` leads to `room` entries, a power of two or none, that are this one's own. `at` and `stop` lie in
/// that memory or at its end, `at` not behind `stop`. `stop` is the place of number `stop_number`, or lies at the end.
pub struct Row<T> {
    at: NonNull<T>,
    stop: NonNull<T>,
    base: NonNull<T>,
    room: usize,
    stop_number: u64,
    /// So many are made at first.
    depth: usize,
    own: PhantomData<T>,
}

// SAFETY: the memory is its own.
unsafe impl<T: Send> Send for Row<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Row<T> {}

impl<T> Default for Row<T> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T> Row<T> {
    /// One for so many entries, whose memory is made when the first comes.
    pub const fn new(depth: usize) -> Self {
        let base = NonNull::dangling();
        Self { at: base, stop: base, base, room: 0, stop_number: 0, depth, own: PhantomData }
    }

    /// Entries that it has memory for.
    pub const fn room(&self) -> u64 {
        self.room as u64
    }

    /// Number that the next entry gets.
    pub const fn end(&self) -> u64 {
        // SAFETY: by the invariant both lie in the same memory, `at` not behind `stop`.
        self.stop_number - unsafe { self.stop.offset_from(self.at) } as u64
    }

    /// Writes the next entry. False if the row does not lead so far.
    #[inline(always)]
    pub fn put(&mut self, write: impl FnOnce(&mut T)) -> bool {
        if self.at == self.stop {
            return false;
        }
        // SAFETY: by the invariant an entry lies between `at` and `stop`, and it was written once.
        unsafe {
            write(self.at.as_mut());
            self.at = self.at.add(1);
        }
        true
    }

    /// Where the next entries go, as far as the row leads.
    #[inline(always)]
    pub const fn cursor(&mut self) -> Cursor<'_, T> {
        Cursor { at: self.at, stop: self.stop, row: self }
    }

    const fn place(&self, number: u64) -> usize {
        number as usize & self.room.wrapping_sub(1)
    }
}

impl<T: Copy + Default> Row<T> {
    /// The entry of a number; a default one if there is no memory yet.
    pub fn get(&self, number: u64) -> T {
        if self.room == 0 {
            return T::default();
        }
        // SAFETY: the place is below `room`, and all entries were written when the memory was made.
        unsafe { self.base.add(self.place(number)).read() }
    }

    /// The next entry gets this number; those from `first` on stay.
    pub fn go_to(&mut self, end: u64, first: u64) {
        if self.room == 0 {
            self.stop_number = end;
            return;
        }
        let place = self.place(end);
        let free = self.room - (end - first).min(self.room as u64) as usize;
        let count = free.min(self.room - place);
        // SAFETY: `place` is below `room`, and `place + count` is not above it.
        (self.at, self.stop) = unsafe { (self.base.add(place), self.base.add(place + count)) };
        self.stop_number = end + count as u64;
    }

    /// Makes room for more than the entries from `first` to the last, which stay.
    #[cold]
    pub fn grow(&mut self, first: u64) {
        let length = (self.room * 2).max(self.depth.next_power_of_two());
        let mut entries = vec![T::default(); length];
        let end = self.end();
        for number in first..end {
            entries[number as usize & (length - 1)] = self.get(number);
        }
        let depth = self.depth;
        // SAFETY: what a box leads to is not null.
        let base = unsafe { NonNull::new_unchecked(Box::into_raw(entries.into_boxed_slice()).cast::<T>()) };
        let stop_number = end;
        *self = Self { at: base, stop: base, base, room: length, stop_number, depth, own: PhantomData };
        self.go_to(end, first);
    }
}

impl<T> Drop for Row<T> {
    fn drop(&mut self) {
        if self.room > 0 {
            let all = core::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.room);
            // SAFETY: made from a box of so many entries, and this one's own.
            drop(unsafe { Box::from_raw(all) });
        }
    }
}

/// Where the next entries of a row go. What it wrote is forgotten unless it is kept.
pub struct Cursor<'a, T> {
    at: NonNull<T>,
    stop: NonNull<T>,
    row: &'a mut Row<T>,
}

impl<T: Copy> Cursor<'_, T> {
    /// The row leads to one more.
    pub fn has_room(&self) -> bool {
        self.at != self.stop
    }

    /// Writes the next entry. False if the row does not lead so far.
    #[inline(always)]
    pub fn put(&mut self, write: impl FnOnce(&mut T)) -> bool {
        if self.at == self.stop {
            return false;
        }
        // SAFETY: by the invariant of the row an entry lies between `at` and `stop`, and it was written once.
        unsafe {
            write(self.at.as_mut());
            self.at = self.at.add(1);
        }
        true
    }

    /// Keeps what was written.
    #[inline(always)]
    pub const fn keep(self) {
        self.row.at = self.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(row: &mut Row<u64>, entry: u64) -> bool {
        let mut cursor = row.cursor();
        let has = cursor.put(|to| *to = entry);
        cursor.keep();
        has
    }

    #[test]
    fn entries_keep_their_numbers_when_memory_is_used_again_and_grows() {
        let mut row = Row::new(4);
        assert!(!put(&mut row, 0) && row.end() == 0 && row.get(3) == 0, "made when it is needed");
        row.grow(0);
        for number in 0..4 {
            assert!(put(&mut row, number));
        }
        assert!(!put(&mut row, 4), "the row ends");
        row.go_to(4, 2);
        assert!(put(&mut row, 4) && put(&mut row, 5) && !put(&mut row, 6), "up to those that stay");
        row.go_to(5, 4);
        assert_eq!((row.end(), row.get(4)), (5, 4));
        assert!(
            put(&mut row, 50) && put(&mut row, 6) && put(&mut row, 7) && !put(&mut row, 8),
            "the memory ends"
        );
        assert_eq!((row.end(), row.room()), (8, 4));
        row.grow(4);
        assert_eq!(
            (row.room(), row.end(), [4, 5, 6, 7].map(|number| row.get(number))),
            (8, 8, [4, 50, 6, 7])
        );
        assert!((8..12).all(|number| put(&mut row, number)) && !put(&mut row, 12));
        assert!((4..12).all(|number| row.get(number) == number || number == 5));
    }

    #[test]
    fn what_is_not_kept_is_written_over() {
        let mut row = Row::new(2);
        row.grow(0);
        assert!(row.cursor().put(|to| *to = 7) && row.end() == 0);
        assert!(put(&mut row, 8) && row.get(0) == 8);
    }
}
