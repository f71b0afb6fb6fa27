//! Numbers that name things.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

macro_rules! number {
    ($name:ident, $of:ty, $what:literal) => {
        #[doc = $what]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $of);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(PeerId, u32, "Another engine, as this one numbers it.");
number!(LaneId, u64, "One incarnation of a connection to a peer over one pair of rails. Never used twice.");
number!(TransferId, u64, "A transfer of this engine. Never used twice.");

impl TransferId {
    /// Of pieces that are left of a transfer which has ended.
    pub(crate) const ENDED: Self = Self(u64::MAX);
}

number!(WatcherId, u64, "A watcher of this engine. Never used twice.");
number!(ExpectationId, u64, "An expectation of this engine. Never used twice.");

/// Things by a number of this engine, which nobody else chooses.
pub(crate) type ByNumber<N, T> = HashMap<N, T, BuildHasherDefault<Spread>>;

/// Spreads numbers that are counted: those of neighbours differ in every bit that a table looks at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
