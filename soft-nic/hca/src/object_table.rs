//! Objects by number.
//!
//! A number is handed out once. So a number is its own generation: what still names an object that is gone finds
//! nothing, never a stranger. Only a quirk hands numbers out again, through [`Table::put`].

/// The first number that is not handed out: numbers are 24 bits wide, and the last ones are reserved.
const END: u32 = 0xff_f000;

/// Objects of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    first: u32,
    slots: Vec<Option<T>>,
}

impl<T> Table<T> {
    /// An empty table whose first object will be number `first`.
    pub(crate) const fn starting_at(first: u32) -> Self {
        Self { first, slots: Vec::new() }
    }

    /// The number that the next object gets; `None` when all are used up.
    pub(crate) fn next_number(&self) -> Option<u32> {
        let number = u32::try_from(self.slots.len()).ok()?.checked_add(self.first)?;
        (number < END).then_some(number)
    }

    /// Adds an object under the next number, and returns that.
    pub(crate) fn add(&mut self, object: T) -> u32 {
        self.slots.push(Some(object));
        self.first + self.slots.len() as u32 - 1
    }

    /// Puts an object under a number whose last object is gone.
    pub(crate) fn put(&mut self, number: u32, object: T) {
        if let Some(slot) = self.slot_mut(number) {
            *slot = Some(object);
        }
    }

    #[inline]
    fn slot_mut(&mut self, number: u32) -> Option<&mut Option<T>> {
        self.slots.get_mut(number.wrapping_sub(self.first) as usize)
    }

    /// An object, to look at.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number.wrapping_sub(self.first) as usize)?.as_ref()
    }

    /// An object.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slot_mut(number)?.as_mut()
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.slot_mut(number)?.take()
    }

    /// All objects, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    /// All objects, by number.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    /// How many objects there are.
    pub(crate) fn live(&self) -> usize {
        self.iter().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_object_that_is_gone_finds_nothing() {
        let mut table = Table::starting_at(0x40);
        let (a, b) = (table.add('a'), table.add('b'));
        assert_eq!((a, b, table.next_number()), (0x40, 0x41, Some(0x42)));
        assert_eq!(table.remove(a), Some('a'));
        assert_eq!(table.remove(a), None);
        assert_eq!((table.live(), table.add('c')), (1, 0x42));
        assert_eq!((table.get(a), table.get(0x3f)), (None, None));
        table.put(a, 'd');
        assert_eq!(table.iter().collect::<String>(), "dbc");
    }

    #[test]
    fn numbers_end() {
        let mut table = Table::starting_at(END - 1);
        assert_eq!(table.add(()), END - 1);
        assert_eq!(table.next_number(), None);
    }
}
