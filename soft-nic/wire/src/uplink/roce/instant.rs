//! Time on the monotonic clock.

/// An instant in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Nanoseconds(pub(super) u64);
