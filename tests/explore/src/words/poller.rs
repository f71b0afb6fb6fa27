//! The poller and the NICs of model W.

use shunt_layout::state::Word;

use super::setup::{Break, Setup};
use super::state::{EMPTY, PollAt, Poller, System, words};

impl Setup {
    pub(super) fn step_nic(&self, s: &mut System, path: usize) -> Result<(), String> {
        let ring = &mut s.rings[path];
        let block = ring.blocks[(ring.executed % self.depth) as usize];
        let wanted = ring.base.wrapping_add(ring.executed);
        ring.executed += 1;
        if block == EMPTY || u64::from(block.ticket) != wanted {
            let met = block.words();
            return Err(format!("one switcher: a NIC fetches {met} where ticket {wanted} should be"));
        }
        if !block.placeholder {
            s.executions[usize::from(block.ticket)] += 1;
        }
        Ok(())
    }

    /// A poller: `done`, then the completion queue it names, then a swap from what was read (rule 4).
    pub(super) fn poller_can_go(&self, s: &System) -> bool {
        let done = Word(s.done);
        match s.poller.at {
            PollAt::Rest => {
                let ring = &s.rings[done.slot() as usize];
                !done.flag() && ring.base.wrapping_add(ring.executed) > done.index()
            }
            PollAt::Completions | PollAt::Swap => true,
        }
    }

    pub(super) fn step_poller(&self, s: &mut System) {
        let seen = Word(s.poller.seen);
        match s.poller.at {
            PollAt::Rest => s.poller = Poller { at: PollAt::Completions, seen: s.done, found: 0 },
            PollAt::Completions => {
                let ring = &s.rings[seen.slot() as usize];
                let found = ring.base.wrapping_add(ring.executed);
                s.poller = match found > seen.index() {
                    true => Poller { at: PollAt::Swap, found, ..s.poller },
                    false => Poller::AT_REST,
                };
            }
            PollAt::Swap => {
                let found = s.poller.found;
                if self.lacks(Break::DoneWithoutGeneration) {
                    let done = Word(s.done);
                    if !done.flag() && found > done.index() {
                        s.done = done.with_index(found).0;
                    }
                } else if s.done == seen.0 {
                    s.done = seen.with_index(found).0;
                }
                s.poller = Poller::AT_REST;
            }
        }
    }

    pub(super) fn poller_words(&self, s: &System) -> String {
        match s.poller.at {
            PollAt::Rest => format!("poller reads done: {}", words(Word(s.done))),
            PollAt::Completions => {
                format!("poller reads the completions of path {}", Word(s.poller.seen).slot())
            }
            PollAt::Swap => format!("poller raises done to {} if it still stands", s.poller.found),
        }
    }
}
