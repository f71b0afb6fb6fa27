//! The switcher of model W: close, freeze, settle, fence and truth, replay, open in the order of rule 15.

use shunt_layout::state::{CLOSED, FROZEN, INDEX_MASK, ReadyWord, Word};

use super::setup::{Break, Setup};
use super::state::{Block, EMPTY, Ring, Stage, Switcher, System};

impl Setup {
    pub(super) fn switcher_can_go(&self, s: &System) -> bool {
        let active = Word(s.ticket).slot() as usize;
        match s.switcher.stage {
            Stage::Idle => !s.rings[active].alive,
            Stage::Settle => self.limit(s).is_some(),
            Stage::Lock => !s.locked || self.lacks(Break::LateDoorbell),
            _ => true,
        }
    }

    /// L, once it is known.
    fn limit(&self, s: &System) -> Option<u64> {
        let ready = ReadyWord(s.ready).index();
        if self.lacks(Break::LimitByDepth) {
            let sure = s.switcher.close.min(s.switcher.done + self.depth);
            return (ready >= sure).then_some(sure);
        }
        (ready == s.switcher.close || s.is_blocked()).then_some(ready)
    }

    pub(super) fn step_switcher(&self, s: &mut System) -> Result<(), String> {
        let slot = Word(s.ticket).slot() as usize;
        match s.switcher.stage {
            Stage::Idle => {
                s.switcher.close = Word(s.ticket).index();
                s.ticket |= CLOSED;
                s.switcher.stage = Stage::Freeze;
            }
            Stage::Freeze => {
                s.switcher.done = Word(s.done).index();
                s.done |= FROZEN;
                s.switcher.stage = Stage::Settle;
            }
            Stage::Settle => {
                s.switcher.limit = self.limit(s).unwrap_or(0);
                s.switcher.stage = Stage::Lock;
            }
            Stage::Lock => s.switcher.stage = Stage::Truth,
            Stage::Truth => {
                s.switcher.executed = s.rings[slot].base.wrapping_add(s.rings[slot].executed);
                s.switcher.stage = Stage::Replay;
            }
            Stage::Replay => {
                self.replay(s, slot)?;
                s.switcher.stage = Stage::OpenTicket;
            }
            Stage::OpenTicket => {
                let ticket = Word(s.ticket);
                let (to, generation) = (1 - ticket.slot(), ticket.generation() + 1);
                s.ticket = if self.lacks(Break::OpenByStore) {
                    Word::new(to, generation, s.switcher.close).0
                } else {
                    // The swap that succeeds: one from an older word changes nothing, and is tried again.
                    Word::new(to, generation, 0).with_index(ticket.index()).0
                };
                s.switcher.stage = Stage::OpenReady;
            }
            Stage::OpenReady => {
                s.ready &= INDEX_MASK;
                s.switcher.stage = Stage::OpenDone;
            }
            Stage::OpenDone => {
                let ticket = Word(s.ticket);
                s.done = Word::new(ticket.slot(), ticket.generation(), s.switcher.done).0;
                s.switcher = Switcher::AT_REST;
            }
        }
        Ok(())
    }

    /// `[D, L)` into the other path, recreated: what was executed becomes a placeholder (rule 14).
    fn replay(&self, s: &mut System, slot: usize) -> Result<(), String> {
        let (old, switch) = (s.rings[slot], s.switcher);
        let mut new = Ring { base: switch.done, rung: switch.limit.saturating_sub(switch.done), ..Ring::NEW };
        for ticket in switch.done..switch.limit {
            let block = old.blocks[(ticket.wrapping_sub(old.base) % self.depth) as usize];
            if block == EMPTY || u64::from(block.ticket) != ticket {
                let met = block.words();
                return Err(format!("no loss: the journal holds {met} where ticket {ticket} should be"));
            }
            let placeholder = block.placeholder || ticket < switch.executed;
            new.blocks[((ticket - new.base) % self.depth) as usize] = Block { placeholder, ..block };
        }
        s.posted = switch.limit;
        s.rings[1 - slot] = new;
        Ok(())
    }

    pub(super) fn switcher_words(&self, s: &System) -> String {
        let switch = &s.switcher;
        match switch.stage {
            Stage::Idle => format!("closes at {}", Word(s.ticket).index()),
            Stage::Freeze => format!("freezes done at {}", Word(s.done).index()),
            Stage::Settle => format!("all is published or blocked: journal up to {:?}", self.limit(s)),
            Stage::Lock => "has been through the post lock".into(),
            Stage::Truth => "fence, truth".into(),
            Stage::Replay => {
                format!("replays {}..{}, executed {}", switch.done, switch.limit, switch.executed)
            }
            Stage::OpenTicket => "opens the ticket word".into(),
            Stage::OpenReady => "clears BLOCKED".into(),
            Stage::OpenDone => "opens done".into(),
        }
    }
}
