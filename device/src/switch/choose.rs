//! The choice of the next path, or the wait for one. Rule 21.

use super::ledger::Ledger;
use super::record::count;
use super::state::{LEDGER_TO_READ, Next, State};
use super::uncertain::Uncertainty;
use super::words::words;
use crate::atomic_owner::AtomicOwner;
use crate::multi_block::MultiBlock;
use crate::part::part;
use crate::paths::Paths;
use crate::platform::Platform;
use crate::root::root;
use crate::send_queue::SendQueue;
use crate::types::FaultKind;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CauseKind, CqMap, NO_SLOT, PathState, Step, SwitchWord};

part! {
    /// Takes a path for the next generation, and gives the peer up where there is none for too long.
    pub(super) Choose {
        state: State, ledger: Ledger, uncertainty: Uncertainty,
        paths: Paths, owner: AtomicOwner, multi_block: MultiBlock,
    }
}

impl<P: Platform> Choose<'_, P> {
    /// Chooses the next path, or waits for one: the agents revive what they can. The peer is lost
    /// only when every path has stayed dead for the give-up time.
    pub(super) fn choose(self, mut at: SwitchWord, now: u64) -> Next {
        let (paths, words) = (self.paths(), words(self.ptr));
        let (from, back) = (words.from().load(), words.back().load() != 0);
        // The path being left counts again once it was recreated, and always when it was left by a drain.
        let remade = paths.incarnation(from) != words.from_incarnation().load();
        let leaving = if back || remade { NO_SLOT } else { from };
        if self.ledger().is_path_awaited(now) {
            return Next::Wait;
        }
        let next = paths.next(leaving, words.excluded().load());
        let Some(slot) = next.filter(|slot| self.is_worth_entering(*slot, now)) else {
            return self.no_path(at, now);
        };
        let announced = at.announced(slot);
        if !self.state().change_untold(at, announced) {
            return Next::Wait;
        }
        at = announced;
        if !Mutant::MirrorStoredLate.on() {
            self.state().show(at);
        }
        // Announce, then look again: the agent recreates a path only if nobody announced it (Dekker's
        // handshake). The same barrier stands between the close and the look at `bound`: see `atomic_owner.rs`.
        self.ptr.platform().announce_before_recheck();
        let home = if Mutant::AwayChosen.on() { None } else { self.owner().rail() };
        if paths.state(slot) != PathState::Ready || !self.owner().leads_to(slot, home) {
            self.state().change(at, at.announced(NO_SLOT));
            return Next::Wait;
        }
        if Mutant::MirrorStoredLate.on() {
            self.state().show(at);
        }
        if !self.state().stands_at(at) {
            return Next::Wait;
        }
        SendQueue::adopt(self.ptr.state, self.ptr.row(), slot);
        words.posted_reads().store(0);
        // Nobody has used the path since it was made or drained, so all wide WQEs on it are done.
        let generation = self.ptr.load_ticket().generation() + 1;
        let lag = self.multi_block().posted(slot) as u32;
        self.multi_block().set_map(slot, CqMap::new(0, lag, generation));
        if words.ledger().load() == LEDGER_TO_READ {
            self.state().enter(at, Step::Ledger, now)
        } else {
            self.uncertainty().proceed(at, now)
        }
    }

    /// The last resort: if it fails, too, nobody may be there to fence it, and that ends the channel. So the agents
    /// have half of the give-up time to make a better one.
    fn is_worth_entering(self, slot: u32, now: u64) -> bool {
        if !self.paths().is_last_resort(slot) {
            return true;
        }
        let since = self.ptr.mirror().dead_since_ns().load();
        let waited_ns = if since == 0 { 0 } else { now.saturating_sub(since) };
        waited_ns >= root!(self.ptr.state, policy.give_up_ns) / 2
    }

    fn no_path(self, at: SwitchWord, now: u64) -> Next {
        let words = words(self.ptr);
        let dead_since_ns = self.ptr.mirror().dead_since_ns();
        let since = dead_since_ns.load();
        if since == 0 {
            dead_since_ns.store(now.max(1));
            count(self.ptr.tally().pathless(), 1);
        }
        // What was tried in vain may have been recreated by now.
        words.excluded().store(0);
        let dead_ns = if since == 0 { 0 } else { now.saturating_sub(since) };
        if dead_ns >= root!(self.ptr.state, policy.give_up_ns) || Mutant::PeerLostAtOnce.on() {
            return self.lose_peer(at, now);
        }
        Next::Wait
    }

    /// Ends the channel and notes, for the report, why each path is unusable.
    fn lose_peer(self, at: SwitchWord, now: u64) -> Next {
        let mut slot = 0;
        while slot < root!(self.ptr.state, slots) {
            if self.paths().port_down(slot) {
                self.state().note_first_cause(slot, CauseKind::PortDown, 0);
            } else if self.paths().state(slot) != PathState::Ready {
                self.state().note_first_cause(slot, CauseKind::FencedByPeer, 0);
            }
            slot += 1;
        }
        self.state().die(at, FaultKind::PeerLost, now)
    }
}
