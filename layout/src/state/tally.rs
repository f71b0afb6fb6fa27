//! What device code counts, and the records of single steps. All of it is written on slow paths only.

use super::SLOTS_MAX;

/// Counters of one channel: always on, written by the owner of its switch, never reset. Failovers and switch-backs
/// stand in [`super::Switch`].
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Switches begun because a path was silent: suspicion, not proof.
    pub suspicions: u64,
    /// Fences asked of the agent.
    pub fences_asked: u64,
    /// Operations of journals that were sent again.
    pub replayed: u64,
    /// Operations of journals that had been executed: a message of no bytes stood in for each.
    pub placeholders: u64,
    /// Tickets reserved while the channel was closed: they waited for a switch.
    pub late_tickets: u64,
    /// Cuts that came from the ledger, for want of truth.
    pub ledger_cuts: u64,
    /// Times no path was usable.
    pub pathless: u64,
    /// Operations that may or may not have been applied.
    pub uncertain: u64,
    /// By slot: generations opened on the path.
    pub entered: [u32; SLOTS_MAX],
    /// By slot: generations that left the path, switch-backs included.
    pub left: [u32; SLOTS_MAX],
}

/// Entries of the ring of step records.
pub const STEP_RECORDS: usize = 1024;

/// One step of a switch, when it was entered. Written only where [`super::DeviceState::step_records`] is set;
/// `sequence` is written last and is the record's number plus one.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Number of the record plus one; 0 while never written or being written.
    pub sequence: u64,
    /// When the step was entered, nanoseconds.
    pub at_ns: u64,
    /// Row of the channel table.
    pub row: u32,
    /// [`super::Step`].
    pub step: u32,
    /// Slot that is left.
    pub from: u32,
    /// Slot that is entered, [`super::NO_SLOT`] before one is chosen.
    pub to: u32,
    /// [`super::CauseKind`].
    pub cause: u32,
    /// Incarnation of the path that is left.
    pub from_incarnation: u32,
    /// D, as it stands.
    pub done: u64,
    /// X, as it stands.
    pub executed: u64,
    /// L, as it stands.
    pub journal_end: u64,
}

const _: () = {
    assert!(size_of::<Tally>() == 128 && align_of::<Tally>() == 128);
    assert!(size_of::<StepRecord>() == 64 && align_of::<StepRecord>() == 64);
};
