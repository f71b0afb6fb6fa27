//! Objects by address, without a lock: a table in which each address has one place. Who finds its place taken is found
//! another way.

use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Bits of a place.
const BITS: u32 = 15;

/// The table. A place is two words, the address and its object, and begins at any word: so a place is found without one
/// more shift. Null: the word is free.
///
/// Invariant: a word that is an address is followed by its object. No object lies at the address of another's.
pub struct Near<T> {
    words: [AtomicPtr<T>; (1 << BITS) + 1],
}

/// Which place an address has. Fibonacci hashing: objects lie far apart, at multiples of some power of two. The lower
/// half of an address is enough, and its factor needs no register.
#[inline(always)]
const fn place(address: usize) -> usize {
    ((address as u32).wrapping_mul(0x9e37_79b9) >> (u32::BITS - BITS)) as usize
}

impl<T> Near<T> {
    /// An empty one.
    pub const fn empty() -> Self {
        Self { words: [const { AtomicPtr::new(null_mut()) }; (1 << BITS) + 1] }
    }

    /// The words of an address: its own and its object's.
    #[inline(always)]
    const fn of(&self, address: usize) -> [&AtomicPtr<T>; 2] {
        let at = place(address);
        [&self.words[at], &self.words[at + 1]]
    }

    /// Gives an object its place, unless another address has a part of that. One caller at a time.
    ///
    /// An address that has its place already is that of an object just destroyed, which is not removed yet.
    pub fn put(&self, address: usize, object: &Arc<T>) {
        let [at, beside] = self.of(address);
        let taken = at.load(Ordering::Relaxed);
        let free = taken.is_null() && beside.load(Ordering::Relaxed).is_null();
        if free || taken.addr() == address {
            beside.store(Arc::as_ptr(object).cast_mut(), Ordering::Relaxed);
            // Who sees the address sees the object.
            at.store(without_provenance_mut(address), Ordering::Release);
        }
    }

    /// Takes its place back. One caller at a time.
    pub fn remove(&self, address: usize) {
        let [at, beside] = self.of(address);
        if at.load(Ordering::Relaxed).addr() == address {
            at.store(null_mut(), Ordering::Release);
            beside.store(null_mut(), Ordering::Relaxed);
        }
    }

    /// What is done with the object at an address, or without one that has its place.
    ///
    /// # Safety
    /// As long as what is done lasts, and its answer, the object is kept, if it was put, and not removed.
    #[inline(always)]
    pub unsafe fn find<'a, R>(
        &self,
        address: usize,
        here: impl FnOnce(&'a T) -> R,
        far: impl FnOnce() -> R,
    ) -> R
    where
        T: 'a,
    {
        let [at, beside] = self.of(address);
        let (there, object) = (at.load(Ordering::Acquire), beside.load(Ordering::Relaxed));
        if there.addr() != address {
            return far();
        }
        // SAFETY: nobody else has this address, so the object beside it is its own, and lives by the caller. It was
        // written before its address.
        here(unsafe { &*object })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_finds_its_own_object_or_none() {
        static NEAR: Near<usize> = Near::empty();
        let near = &NEAR;
        let objects: Vec<Arc<usize>> = (1..=30_000).map(|n| Arc::new(n * 64)).collect();
        objects.iter().for_each(|object| near.put(**object, object));
        // SAFETY: the objects are kept until the end.
        let found = |address: usize| unsafe { near.find(address, |object| Some(*object), || None) };
        let here = |address: &usize| found(*address) == Some(*address);
        let placed: Vec<usize> = objects.iter().map(|object| **object).filter(here).collect();
        assert!(placed.len() > 8000 && placed.len() <= 1 << BITS, "{}", placed.len());
        assert!(objects.iter().all(|object| here(object) || found(**object).is_none()));
        let again = Arc::new(7);
        near.put(placed[0], &again);
        assert_eq!(found(placed[0]), Some(7), "the object that has the address now");
        near.remove(placed[0]);
        assert_eq!(found(placed[0]), None);
        near.remove(placed[0]);
        assert!(placed[1..].iter().all(here), "others stay");
    }
}
