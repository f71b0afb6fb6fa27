//! What the launcher waits for.

/// What the main loop hears of.
pub(super) enum Event {
    /// A rank's process is there to be reaped.
    Ended(u32),
    /// A stream of a rank came to its end.
    Drained,
    /// A signal came to the launcher.
    Signal(i32),
}
