//! Calls of several parts: what each part came to, and when the last one has ended. Pure.

use std::collections::BTreeMap;

/// A call of several parts. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JoinId(u64);

/// One part of a call: which call, and its place.
pub type Part = (JoinId, usize);

#[derive(Debug)]
struct Join<T, F> {
    parts: Vec<Option<T>>,
    open: usize,
    done: F,
}

/// Calls that have parts which have not ended. `T` is what a part comes to, `F` who is told.
#[derive(Debug)]
pub struct Joins<T, F> {
    next: u64,
    open: BTreeMap<JoinId, Join<T, F>>,
}

impl<T, F> Default for Joins<T, F> {
    fn default() -> Self {
        Self { next: 0, open: BTreeMap::new() }
    }
}

impl<T, F> Joins<T, F> {
    /// Begins a call of so many parts, one or more.
    pub fn begin(&mut self, parts: usize, done: F) -> JoinId {
        let id = JoinId(self.next);
        self.next += 1;
        let parts: Vec<Option<T>> = (0..parts).map(|_| None).collect();
        self.open.insert(id, Join { open: parts.len(), parts, done });
        id
    }

    /// A part has ended. The last one gives who is told, and all parts in order.
    pub fn ended(&mut self, (id, at): Part, value: T) -> Option<(F, Vec<T>)> {
        let join = self.open.get_mut(&id)?;
        let part = join.parts.get_mut(at).filter(|part| part.is_none())?;
        *part = Some(value);
        join.open -= 1;
        if join.open > 0 {
            return None;
        }
        let Join { parts, done, .. } = self.open.remove(&id)?;
        Some((done, parts.into_iter().flatten().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_ends_it_once_and_parts_keep_their_places() {
        let mut joins = Joins::default();
        let (first, second) = (joins.begin(2, "first"), joins.begin(1, "second"));
        assert_eq!(joins.ended((first, 1), 'b'), None);
        assert_eq!(joins.ended((first, 1), 'x'), None, "a part ends once");
        assert_eq!(joins.ended((first, 2), 'x'), None, "no such part");
        assert_eq!(joins.ended((second, 0), 'c'), Some(("second", vec!['c'])));
        assert_eq!(joins.ended((first, 0), 'a'), Some(("first", vec!['a', 'b'])));
        assert_eq!(joins.ended((first, 0), 'a'), None, "it is over");
    }
}
