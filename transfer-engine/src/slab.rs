//! Things by numbers that are never used twice, found without a search. Pure.
//!
//! A number has two halves: the place, and how often this place was used before. A place that was used 2^32 times is
//! not used again.

/// The place that a number names.
pub(crate) const fn place(number: u64) -> usize {
    (number & PLACE) as usize
}

const PLACE: u64 = u32::MAX as u64;
const TURN: u32 = 32;

#[derive(Debug)]
struct Slot<T> {
    /// The number of what is here, or comes here next.
    number: u64,
    value: Option<T>,
}

/// The things.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// None yet.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// One more: its number. No number is `u64::MAX`: memory ends before there are 2^32 places.
    #[inline]
    pub fn put(&mut self, value: T) -> u64 {
        let Some(at) = self.free.pop() else {
            let number = self.slots.len() as u64;
            self.slots.push(Slot { number, value: Some(value) });
            return number;
        };
        let slot = &mut self.slots[at as usize];
        slot.value = Some(value);
        slot.number
    }

    /// That of a number.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&T> {
        self.slots.get(place(number)).filter(|slot| slot.number == number)?.value.as_ref()
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.slots.get_mut(place(number)).filter(|slot| slot.number == number)?.value.as_mut()
    }

    /// Takes that of a number out. Its place is not used again before it is let go.
    pub fn take(&mut self, number: u64) -> Option<T> {
        let slot = self.slots.get_mut(place(number)).filter(|slot| slot.number == number)?;
        let value = slot.value.take()?;
        slot.number = slot.number.checked_add(1 << TURN).unwrap_or(slot.number);
        Some(value)
    }

    /// Lets the place of a number go, whose thing was taken out: once.
    pub fn let_go(&mut self, number: u64) {
        // One whose numbers are used up stays as it is.
        if self.slots.get(place(number)).is_some_and(|slot| slot.number > number) {
            self.free.push(place(number) as u32);
        }
    }

    /// All of them, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots.iter().filter_map(|slot| Some((slot.number, slot.value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_used_twice() {
        let mut slab = Slab::new();
        let (a, b) = (slab.put('a'), slab.put('b'));
        assert_eq!((slab.get(a), slab.get(b), slab.get(u64::MAX)), (Some(&'a'), Some(&'b'), None));
        assert_eq!((slab.take(a), slab.take(a)), (Some('a'), None));
        assert_eq!(place(slab.put('x')), 2, "the place was not let go");
        slab.let_go(a);
        let c = slab.put('c');
        assert_eq!((place(c), c == a), (place(a), false), "the same place, another number");
        assert!(slab.get(a).is_none() && slab.get_mut(a).is_none() && slab.take(a).is_none());
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(c, &'c'), (b, &'b'), (2, &'x')]);
    }

    #[test]
    fn a_place_is_given_up_when_its_numbers_are_used_up() {
        let mut slab = Slab::new();
        slab.put('a');
        slab.slots[0].number = PLACE << TURN;
        assert_eq!(slab.take(PLACE << TURN), Some('a'));
        slab.let_go(PLACE << TURN);
        assert_eq!(place(slab.put('b')), 1);
    }
}
