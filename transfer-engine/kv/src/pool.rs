//! Which pages are free. Pure.

use std::collections::BTreeSet;

/// The pages of a decoder.
#[derive(Debug)]
pub struct Pool {
    /// In the order in which they became free: the one that was free longest is used first.
    free: std::collections::VecDeque<u32>,
    used: BTreeSet<u32>,
}

impl Pool {
    /// So many, all free.
    pub fn new(pages: u32) -> Self {
        Self { free: (0..pages).collect(), used: BTreeSet::new() }
    }

    /// So many of them; none if there are not as many.
    pub fn take(&mut self, count: usize) -> Option<Vec<u32>> {
        if self.free.len() < count {
            return None;
        }
        let taken: Vec<u32> = self.free.drain(..count).collect();
        self.used.extend(&taken);
        Some(taken)
    }

    /// They are free again. One that was free already stays so.
    pub fn put_back(&mut self, pages: &[u32]) {
        let back = pages.iter().filter(|page| self.used.remove(page));
        self.free.extend(back);
    }

    /// How many are in use.
    pub fn used(&self) -> usize {
        self.used.len()
    }

    /// Those that are free.
    pub fn free(&self) -> impl Iterator<Item = u32> {
        self.free.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_user_at_a_time() {
        let mut pool = Pool::new(5);
        let first = pool.take(3).expect("there are five");
        assert_eq!((pool.take(3), pool.used()), (None, 3));
        let second = pool.take(2).expect("two are left");
        assert!(first.iter().all(|page| !second.contains(page)));
        pool.put_back(&first);
        pool.put_back(&first);
        assert_eq!((pool.used(), pool.free().count()), (2, 3), "once each");
        assert_eq!(pool.take(3), Some(first));
    }
}
