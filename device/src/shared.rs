//! Words that kernels, the agent and the NIC share, as values that safe code reads and writes.
//!
//! # The safety argument of this crate
//! Device code works on memory whose addresses it finds in a `DeviceState`. Every access of it is sound because:
//!
//! 1. **The tables are valid.** [`Device::attach`](crate::Device::attach) is `unsafe`. Its caller, the host's upload,
//!    promises that the root is written, and that each table it names is mapped here, aligned, as long as the root says
//!    and outlives `'s`.
//! 2. **Every address lies in a table.** Addresses are made in four files only. `state_ptr.rs` takes rows below the row
//!    count and slots from ticket words, which hold no others; `send_queue.rs` and `completion_queue.rs` take positions
//!    under the ring's mask; `switch/record.rs` takes numbers modulo the length of its rings. Offsets of the heap are
//!    compared with its length before a key is looked up for them.
//! 3. **Concurrent accesses are atomic.** All go through [`Platform`], no reference to this memory is ever made, and
//!    the agent follows the same rule. What is not atomic (a WQE before it is published) belongs to one caller; the
//!    protocol's rules say to whom.
//!
//! A [`Shared`] is the proof of 1 and 2 for one address: [`Shared::new`] is `unsafe`, what it is good for is not. Its
//! users decide who may touch a word by where they declare it: see `fields!`.

use crate::platform::Platform;
use core::marker::PhantomData;
use shunt_layout::mlx5::wqe::Wqebb;

/// A `T` in the device state: a word, an array of words, or a row of a table.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'s, P, T> {
    at: *mut T,
    platform: P,
    life: PhantomData<&'s T>,
}

impl<'s, P: Platform, T> Shared<'s, P, T> {
    /// The `T` at this address.
    ///
    /// # Safety
    /// The address lies in a table of the device state (points 1 and 2 of the module documentation).
    #[inline(always)]
    pub(crate) const unsafe fn new(at: *mut T, platform: P) -> Self {
        Self { at, platform, life: PhantomData }
    }

    #[inline(always)]
    pub(crate) const fn address(self) -> *mut T {
        self.at
    }

    #[inline(always)]
    pub(crate) const fn platform(self) -> P {
        self.platform
    }
}

/// Declares fields of a row, each with who may see it. A field is declared once, in the module that owns it.
macro_rules! fields {
    ($row:ty { $($vis:vis $field:ident: $type:ty),+ $(,)? }) => {
        #[allow(clippy::wrong_self_convention, reason = "named as the fields are: some begin with `from`")]
        impl<'s, P: $crate::platform::Platform> $crate::shared::Shared<'s, P, $row> {
            $(
                #[inline(always)]
                $vis fn $field(self) -> $crate::shared::Shared<'s, P, $type> {
                    // SAFETY: a field of a row that lies in a table (`Shared::new`); no reference is made.
                    unsafe {
                        let field = core::ptr::addr_of_mut!((*self.address()).$field);
                        $crate::shared::Shared::new(field, self.platform())
                    }
                }
            )+
        }
    };
}
pub(crate) use fields;

impl<'s, P: Platform, T, const N: usize> Shared<'s, P, [T; N]> {
    /// One of them. `index` is below their number.
    #[inline(always)]
    pub(crate) fn element(self, index: usize) -> Shared<'s, P, T> {
        debug_assert!(index < N);
        // SAFETY: inside the array, which lies in a table (`Shared::new`).
        unsafe { Shared::new(self.at.cast::<T>().add(index), self.platform) }
    }
}

/// Accesses by the names and with the meanings of [`Platform`].
macro_rules! accesses {
    ($type:ty { $($name:ident: $method:ident($($arg:ident: $of:ty),*) $(-> $out:ty)?;) + }) => {
        impl<P: Platform> Shared<'_, P, $type> {
            $(
                #[inline(always)]
                pub(crate) fn $name(self $(, $arg: $of)*) $(-> $out)? {
                    // SAFETY: a word of a table (`Shared::new`), aligned to its type, that all access atomically: the
                    // three points of the module documentation are what `Platform` requires.
                    unsafe { self.platform.$method(self.at $(, $arg)*) }
                }
            )+
        }
    };
}

accesses!(u64 {
    load: load() -> u64;
    load_acquire: load_acquire() -> u64;
    load_base: load_base() -> u64;
    store: store(value: u64);
    store_release: store_release(value: u64);
    fetch_add: fetch_add(value: u64) -> u64;
    fetch_add_acquire: fetch_add_acquire(value: u64) -> u64;
    fetch_or: fetch_or(value: u64) -> u64;
    fetch_and: fetch_and(value: u64) -> u64;
    compare_swap: compare_swap(expected: u64, new: u64) -> u64;
    compare_swap_behind_barrier: compare_swap_behind_barrier(expected: u64, new: u64) -> u64;
    compare_swap_acquire: compare_swap_acquire(expected: u64, new: u64) -> u64;
});

accesses!(u32 {
    load: load32() -> u32;
    store: store32(value: u32);
    try_lock: try_lock() -> bool;
    try_lock_for: try_lock_for(tries: u32) -> bool;
    unlock: unlock();
    load_key: load_key() -> u32;
    load_cqe: load_cqe() -> u32;
    poll_cqe: poll_cqe(due: u32, mask: u32, tries: u32) -> u32;
});

accesses!(Wqebb { load: load_wqe() -> Wqebb; });

impl<P: Platform> Shared<'_, P, Wqebb> {
    /// One of the four segments of a block.
    #[inline(always)]
    pub(crate) fn store_segment(self, number: usize, segment: [u32; 4]) {
        debug_assert!(number < 4);
        // SAFETY: inside a block of a send queue (`Shared::new`). It belongs to this caller until it is published: a
        // poster that found room for it, or the switcher that enters the path.
        unsafe { self.platform.store_segment(self.at.cast::<u32>().add(number * 4), segment) }
    }

    /// One 32-bit word of a block.
    #[inline(always)]
    pub(crate) fn load_word(self, number: usize) -> u32 {
        debug_assert!(number < 16);
        // SAFETY: inside a block of a send queue (`Shared::new`).
        unsafe { self.platform.load32(self.at.cast::<u32>().add(number)) }
    }
}
