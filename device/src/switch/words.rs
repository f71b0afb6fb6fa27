//! The words of a switch in the channel's memory. Only the switch touches them, and only its owner writes them.

use crate::platform::Platform;
use crate::shared::{Shared, fields};
use crate::state_ptr::ChannelPtr;
use shunt_layout::state::{Channel, Mirror, PathRow, Switch};

fields!(Channel {
    switch: Switch,
    pub(super) uncertain_op: u32,
    pub(super) uncertain_address: u64,
});

fields!(PathRow {
    pub(super) first_cause: u32,
    pub(super) next_index: u64,
});

fields!(Switch {
    pub(super) owner: u64,
    pub(super) word: u64,
    pub(super) from: u32,
    pub(super) back: u32,
    pub(super) close: u64,
    pub(super) done_at_close: u64,
    pub(super) journal_end: u64,
    pub(super) executed: u64,
    pub(super) request: u64,
    pub(super) step_since_ns: u64,
    pub(super) cause: u32,
    pub(super) syndrome: u32,
    pub(super) cause_ticket: u64,
    pub(super) from_incarnation: u32,
    pub(super) ledger: u32,
    pub(super) posted_reads: u64,
    pub(super) stamps: [u64; 6],
    pub(super) fault: u32,
    pub(super) excluded: u32,
    pub(super) journal_queue: u64,
    pub(super) journal_base: u64,
    pub(super) opened_at: u64,
    pub(super) fruitless: u32,
    pub(super) rounds: u32,
    pub(super) unexecuted: u64,
    pub(super) asked: u64,
    pub(super) resolution: u64,
    pub(super) erred_seen_ns: u64,
    pub(super) erred_age_ns: u64,
});

// The agent only loads them. `bound` and `posted` are others'.
fields!(Mirror {
    pub(super) word: u64,
    pub(super) noticed_ns: u64,
    pub(super) opened_ns: u64,
    pub(super) dead_since_ns: u64,
    pub(super) journal_queue: u64,
    pub(super) executed: u64,
    pub(super) failovers: u64,
    pub(super) switchbacks: u64,
    pub(super) cause: u32,
});

/// The words of a channel's switch.
#[inline(always)]
pub(super) fn words<'s, P: Platform>(ptr: ChannelPtr<'s, P>) -> Shared<'s, P, Switch> {
    ptr.words().switch()
}
