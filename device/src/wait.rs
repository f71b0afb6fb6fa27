//! Receive-side waits, which also look after this PE's own channels: a PE that only receives for a while must still
//! notice that its own sends fail.

use crate::access::Device;
use crate::patience::Patience;
use crate::platform::{Lanes, Platform};
use crate::root::root;
use crate::types::{Deadline, Fault, FaultKind, HeapOffset};
use shunt_layout::state::Step;

/// A round over the channels: one is watched for a stall, another gets a passing look. A wait keeps one from its first
/// look to its last: only so does it come to all channels, and see one stand still.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    watched: u32,
    roving: u32,
    patience: Patience,
}

impl<'s, P: Platform> Device<'s, P> {
    /// A round that starts now.
    #[inline(always)]
    pub fn rounds(self) -> Rounds {
        Rounds { watched: 0, roving: 0, patience: Patience::new(self.platform.now_ns()) }
    }

    /// Looks after two channels: notices failures, carries switches on.
    #[inline(always)]
    pub fn look_after(self, rounds: &mut Rounds) {
        let now = self.platform.now_ns();
        let roving = self.row(rounds.roving + 1);
        rounds.roving = roving.row();
        self.attend_to(rounds.roving, &mut Patience::new(now));
        // Only what stands still is watched on: a busy channel must not hide a silent one.
        let before = rounds.patience.done;
        self.attend_to(rounds.watched, &mut rounds.patience);
        let watched = self.row(rounds.watched);
        let busy = watched.load_ready().index() > watched.load_done().index();
        // A dead channel stands still for ever, one that asks its owner until he answers: neither is to be found out.
        let moved = before != u64::MAX && rounds.patience.done != before;
        if !busy || moved || matches!(watched.load_step(), Step::Dead | Step::Uncertain) {
            rounds.watched = rounds.roving;
            rounds.patience = Patience::new(now);
        }
    }

    /// One look at one channel, by its row of the channel table. The agent calls this, so that a switch needs no
    /// kernel. That a channel is dead is its callers' business.
    #[inline(always)]
    pub fn attend_to(self, row: u32, patience: &mut Patience) {
        let channel = self.row(row);
        if channel.peer() != root!(self, my_pe) {
            let _ = channel.attend(patience);
        }
    }

    /// [`Channel::touch`](crate::Channel::touch) on one channel, by its row of the channel table.
    pub fn touch(self, row: u32) -> bool {
        let channel = self.row(row);
        channel.peer() != root!(self, my_pe) && channel.touch()
    }

    /// Waits until the heap word at `word` is at least `value`, and answers with what it is then. All that
    /// was put before the signal that wrote it is visible.
    ///
    /// # Errors
    /// `Overdue` when the deadline passes, `BadAddress` for a word that is not one of the heap's.
    #[inline(always)]
    pub fn wait_until_ge<L: Lanes>(
        self,
        lanes: L,
        word: HeapOffset,
        value: u64,
        deadline: Deadline,
    ) -> Result<u64, Fault> {
        if !word.0.is_multiple_of(8) || !self.heap_contains(word, 8) {
            return Err(self.channel(root!(self, my_pe), 0).fault(FaultKind::BadAddress));
        }
        let mut seen = self.load(word);
        if lanes.rank() == 0 && seen < value {
            seen = self.wait_slow(word.0, value, deadline.at_ns);
        }
        // The other lanes did not load what the leader saw: make what it covers visible to them as well. A broadcast
        // need not order anything, so the barrier does.
        lanes.sync();
        let seen = lanes.broadcast(seen, 0);
        self.platform.cqe_before_data();
        if seen >= value {
            Ok(seen)
        } else {
            Err(self.channel(root!(self, my_pe), 0).fault(FaultKind::Overdue))
        }
    }
    /// Answers with what the word holds when it is enough or when time is up: one register, no stack on a
    /// GPU.
    #[inline(never)]
    fn wait_slow(self, word: u64, value: u64, until_ns: u64) -> u64 {
        let mut rounds = self.rounds();
        loop {
            self.look_after(&mut rounds);
            let seen = self.load(HeapOffset(word));
            if seen >= value || self.platform.now_ns() > until_ns {
                return seen;
            }
            self.platform.relax();
        }
    }
}

impl Rounds {
    /// Words that hold it: for a kernel whose registers are others', and who keeps it in memory between two looks.
    #[inline(always)]
    pub const fn words(&self) -> [u64; Self::WORDS] {
        let [done, looked_ns, silence_ns, counts, usual_ns] = self.patience.words();
        [(self.watched as u64) << 32 | self.roving as u64, done, looked_ns, silence_ns, counts, usual_ns]
    }

    /// How many.
    pub const WORDS: usize = 6;

    /// From such words.
    #[inline(always)]
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [rows, done, looked_ns, silence_ns, counts, usual_ns] = words;
        let patience = Patience::from_words([done, looked_ns, silence_ns, counts, usual_ns]);
        Self { watched: (rows >> 32) as u32, roving: rows as u32, patience }
    }
}
