//! What requests are, as runs of those that are alike. Pure.

use crate::record::Shape;
use std::collections::VecDeque;

/// Requests from this number on, up to the next run, are of one shape.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    shape: Shape,
}

/// The word of no shape: that opcode is not known.
const NOTHING: u64 = u64::MAX;

/// The runs, oldest first.
#[derive(Debug)]
pub struct Shapes {
    runs: VecDeque<Run>,
    usual: u64,
    open: bool,
}

impl Default for Shapes {
    fn default() -> Self {
        Self { runs: VecDeque::new(), usual: NOTHING, open: true }
    }
}

impl Shapes {
    /// Whether a request may be like the newest.
    pub fn set_open(&mut self, open: bool) {
        if self.open != open {
            self.open = open;
            self.see();
        }
    }

    /// The word of the newest shape if that is plain: another request with one buffer and that word is like the newest.
    #[inline(always)]
    pub const fn usual(&self) -> u64 {
        self.usual
    }

    fn see(&mut self) {
        let newest = self.runs.back().filter(|run| self.open && run.shape.is_plain());
        self.usual = newest.map_or(NOTHING, |run| run.shape.word());
    }

    /// The next request, of this number, is of this shape.
    #[inline]
    pub fn next(&mut self, number: u64, shape: Shape) {
        if self.runs.back().is_none_or(|run| run.shape != shape) {
            self.runs.push_back(Run { first: number, shape });
            self.see();
        }
    }

    /// There are no requests from this number on.
    pub fn take_back(&mut self, end: u64) {
        while self.runs.pop_back_if(|run| run.first >= end).is_some() {}
        self.see();
    }

    /// There are none before this number any more.
    pub fn forget(&mut self, first: u64) {
        while self.runs.get(1).is_some_and(|run| run.first <= first) {
            self.runs.pop_front();
        }
    }

    /// The shape of a request that is there.
    pub fn at(&self, number: u64) -> Shape {
        let behind = self.runs.partition_point(|run| run.first <= number);
        behind.checked_sub(1).map_or_else(Shape::default, |at| self.runs[at].shape)
    }

    /// The oldest shapes, each with the number behind its last request; the newest goes on.
    pub fn runs(&self) -> impl Iterator<Item = (Shape, u64)> {
        // By number: what the compiler makes of a chain and a zip takes three times as long.
        let end = |at: usize| self.runs.get(at).map_or(u64::MAX, |run| run.first);
        (0..self.runs.len()).map(move |at| (self.runs[at].shape, end(at + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(count: i32, opcode: u32, flags: u32) -> Shape {
        Shape { count, opcode, flags }
    }

    #[test]
    fn requests_that_are_alike_are_one_run() {
        let [write, quiet, two] = [of(1, 0, 2), of(1, 0, 0), of(2, 0, 2)];
        let mut shapes = Shapes::default();
        assert_eq!((shapes.usual(), shapes.at(0)), (NOTHING, Shape::default()));
        for (number, shape) in [write, write, quiet, write, two, write].into_iter().enumerate() {
            shapes.next(number as u64, shape);
            assert_eq!(shapes.usual(), if shape == two { NOTHING } else { shape.word() });
        }
        let ends = |shapes: &Shapes| shapes.runs().collect::<Vec<_>>();
        assert_eq!(ends(&shapes), [(write, 2), (quiet, 3), (write, 4), (two, 5), (write, u64::MAX)]);
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 9].map(|at| shapes.at(at)),
            [write, write, quiet, write, two, write, write]
        );
        shapes.set_open(false);
        shapes.next(6, quiet);
        assert_eq!(shapes.usual(), NOTHING, "it goes elsewhere");
        shapes.set_open(true);
        assert_eq!(shapes.usual(), quiet.word());
        shapes.forget(1);
        assert_eq!(shapes.at(1), write);
        shapes.forget(3);
        shapes.take_back(5);
        assert_eq!((ends(&shapes), shapes.usual()), (vec![(write, 4), (two, u64::MAX)], NOTHING));
        shapes.take_back(3);
        assert_eq!((ends(&shapes), shapes.usual()), (vec![], NOTHING));
    }
}
