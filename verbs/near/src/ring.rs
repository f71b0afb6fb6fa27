//! Entries by numbers that never restart, in memory that is used again. Pure.

/// A ring. Its owner knows which numbers are in use.
#[derive(Default)]
pub struct Ring<T> {
    /// As many as a power of two, or none.
    slots: Vec<T>,
    /// So many are made at first.
    depth: usize,
}

impl<T: Clone + Default> Ring<T> {
    /// One for so many entries, whose memory is made when the first comes.
    pub fn new(depth: usize) -> Self {
        Self { slots: Vec::new(), depth }
    }

    /// Entries that it has memory for.
    #[inline]
    pub const fn room(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        number as usize & self.slots.len().wrapping_sub(1)
    }

    /// The entry of a number.
    #[inline]
    pub fn get(&self, number: u64) -> &T {
        &self.slots[self.place(number)]
    }

    /// The same, to write.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> &mut T {
        let place = self.place(number);
        &mut self.slots[place]
    }

    /// Entries from this number on that lie in a row: one or more, and no more than so many.
    #[inline]
    pub fn run(&self, number: u64, most: u64) -> &[T] {
        let rest = &self.slots[self.place(number)..];
        &rest[..rest.len().min(most as usize)]
    }

    /// Makes room for more than the numbers from `first` to `end`, which stay, if it had any.
    #[cold]
    pub fn grow(&mut self, first: u64, end: u64) {
        let length = (self.slots.len() * 2).max(self.depth.next_power_of_two());
        let mut larger = Self { slots: vec![T::default(); length], depth: self.depth };
        for number in (first..end).take(self.slots.len()) {
            *larger.get_mut(number) = std::mem::take(self.get_mut(number));
        }
        *self = larger;
    }
}
