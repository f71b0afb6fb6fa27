//! Objects by address, without a lock: a table in which each address has one place. Who finds its place taken is found
//! another way.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Bits of a place.
const BITS: u32 = 14;

#[repr(C)]
struct Place<T> {
    /// The address; 0: none.
    address: AtomicUsize,
    object: AtomicPtr<T>,
}

impl<T> Place<T> {
    const fn empty() -> Self {
        Self { address: AtomicUsize::new(0), object: AtomicPtr::new(null_mut()) }
    }
}

/// The table.
pub struct Near<T> {
    places: [Place<T>; 1 << BITS],
}

/// Which place an address has. Fibonacci hashing: objects lie far apart, at multiples of some power of two.
#[inline(always)]
const fn place(address: usize) -> usize {
    ((address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS)) as usize
}

impl<T> Near<T> {
    /// An empty one.
    pub const fn empty() -> Self {
        Self { places: [const { Place::empty() }; 1 << BITS] }
    }

    /// Gives an object its place, unless another address has that. One caller at a time.
    ///
    /// An address that has its place already is that of an object just destroyed, which is not removed yet.
    pub fn put(&self, address: usize, object: &Arc<T>) {
        let at = &self.places[place(address)];
        let taken = at.address.load(Ordering::Relaxed);
        if taken == 0 || taken == address {
            at.object.store(Arc::as_ptr(object).cast_mut(), Ordering::Relaxed);
            // Who sees the address sees the object.
            at.address.store(address, Ordering::Release);
        }
    }

    /// Takes its place back. One caller at a time.
    pub fn remove(&self, address: usize) {
        let at = &self.places[place(address)];
        if at.address.load(Ordering::Relaxed) == address {
            at.address.store(0, Ordering::Release);
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
        let at = &self.places[place(address)];
        let (there, object) = (at.address.load(Ordering::Acquire), at.object.load(Ordering::Relaxed));
        if there != address {
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
