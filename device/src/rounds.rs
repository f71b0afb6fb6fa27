//! Rounds over this PE's channels, for waits that wait for something else: a PE that only receives for a while must
//! still notice that its own sends fail.

use crate::platform::Platform;
use crate::stall::StallDetector;
use crate::state_ptr::{ChannelPtr, StatePtr};
use crate::switch::Switch;
use crate::waiter::Waiter;
use shunt_layout::state::Step;

/// A round over the channels: one is watched for a stall, another gets a passing look. A wait keeps one from its first
/// look to its last: only so does it come to all channels, and see one stand still.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    watched: u32,
    roving: u32,
    stall: StallDetector,
}

impl Rounds {
    /// A round that starts now.
    #[inline(always)]
    pub(crate) const fn new(now_ns: u64) -> Self {
        Self { watched: 0, roving: 0, stall: StallDetector::new(now_ns) }
    }

    /// Looks after two channels: notices failures, carries switches on.
    #[inline(always)]
    pub(crate) fn look_after<P: Platform>(&mut self, state: StatePtr<'_, P>) {
        let now = state.platform.now_ns();
        let (roving, watched) = (state.attended(self.roving + 1), state.attended(self.watched));
        self.roving = roving.row();
        attend_to(roving, &mut StallDetector::new(now));
        // Only what stands still is watched on: a busy channel must not hide a silent one.
        let before = self.stall.done;
        attend_to(watched, &mut self.stall);
        let busy = watched.load_ready().index() > watched.load_done().index();
        // A dead channel stands still for ever, one that asks its owner until he answers: neither is to be found out.
        let moved = before != u64::MAX && self.stall.done != before;
        if !busy || moved || matches!(Switch::of(watched).step(), Step::Dead | Step::Uncertain) {
            self.watched = self.roving;
            self.stall = StallDetector::new(now);
        }
    }

    /// Words that hold it: for a kernel whose registers are others', and who keeps it in memory between two looks.
    #[inline(always)]
    pub const fn words(&self) -> [u64; Self::WORDS] {
        let [done, looked_ns, silence_ns, counts, usual_ns] = self.stall.words();
        [(self.watched as u64) << 32 | self.roving as u64, done, looked_ns, silence_ns, counts, usual_ns]
    }

    /// The length of [`words`](Self::words).
    pub const WORDS: usize = 6;

    /// From such words.
    #[inline(always)]
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [rows, done, looked_ns, silence_ns, counts, usual_ns] = words;
        let stall = StallDetector::from_words([done, looked_ns, silence_ns, counts, usual_ns]);
        Self { watched: (rows >> 32) as u32, roving: rows as u32, stall }
    }
}

/// One look at one channel, unless it leads to this PE itself. That a channel is dead is its callers' business.
#[inline(always)]
pub(crate) fn attend_to<P: Platform>(channel: ChannelPtr<'_, P>, stall: &mut StallDetector) {
    if !channel.is_loopback() {
        let _ = Waiter::of(channel).attend(stall);
    }
}
