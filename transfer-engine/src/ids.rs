//! Numbers that name things.

use std::fmt;

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
