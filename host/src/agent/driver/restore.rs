//! The second life of an agent. It knows nothing: what its predecessor was told, had asked and was waiting for is lost.
//! What it finds are rows, mailboxes, hints, queue pairs, and the numbers used so far (`checkpoint.rs`).
//!
//! A path whose row says ready was never told of to anybody: it goes on if its queue pair does. Every other half may
//! have been fenced, and its truth told, taken or not: it is fenced once more, and what it executed is *unknown*. Then
//! it is released and made anew like any other. Rules 10, 17, 18; H8.

use super::Agent;
use crate::agent::health::Health;
use crate::agent::message::SideTruth;
use crate::agent::nic_job::{Job, Urgency};
use crate::agent::pair::{Pair, Task};
use crate::agent::port_table::PortTable;
use crate::agent::rails::Reach;
use crate::error::NicError;
use crate::events::Event;
use crate::nanos::Nanos;
use crate::nic::qp::QpTruth;
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::PathState;

impl Agent {
    /// Looks at what the last agent left.
    pub(in crate::agent) fn take_over(&mut self, now: Nanos) {
        self.ports = self.ports_by_hints(now);
        let (mut ready, mut again) = (0, 0);
        for index in 0..self.pairs.len() {
            match self.take_over_pair(now, index) {
                Some(Health::Ready) => ready += 1,
                Some(Health::Retired) | None => {}
                Some(_) => again += 1,
            }
        }
        let requests = self.requests_left();
        self.report(now, Event::AgentRestarted { lives: self.lives, ready, again, requests });
        for rail in 0..self.rails.len() as u32 {
            // The last word of its predecessor may have been another one.
            self.tell_port(now, rail, Reach::Both);
            self.tell_rail(now, rail as usize, Reach::Both);
        }
    }

    fn take_over_pair(&mut self, now: Nanos, index: usize) -> Option<Health> {
        let at = self.place(index);
        let state = self.words.path_state(at);
        let pair = self.pairs[index].as_mut()?;
        match state {
            PathState::Ready => {
                let half = pair.half.clone()?;
                let out = pair.is_out();
                pair.health = Health::Ready;
                let number = self.order(index, Urgency::Idle, Job::Look(half));
                self.set_task(index, Task::Look(number));
                if out {
                    self.leave(now, index, false); // it had nowhere to go so far
                }
            }
            PathState::Leaving => {
                pair.health = Health::Ready;
                self.leave(now, index, false);
            }
            PathState::Retired | PathState::Absent => {
                pair.health = Health::Retired;
                let was_made = state == PathState::Retired && !pair.is_fresh();
                if was_made {
                    self.take_over_retired(now, index);
                }
            }
            // Bring-up left it to the agents, and the last one had not begun.
            PathState::Released if pair.is_fresh() => pair.health = Health::Released,
            PathState::Fenced | PathState::Released | PathState::Probing => {
                pair.health = Health::Fencing;
                pair.unknown = true;
                if Mutant::IncarnationForgotten.on() {
                    pair.incarnation = self.words.read_row(at).incarnation;
                }
                if Mutant::RestartFencesNothing.on() {
                    self.half_fenced(now, index, SideTruth::Fenced);
                } else {
                    self.fence(now, index, Urgency::Idle);
                }
            }
        }
        self.pairs[index].as_ref().map(|pair| pair.health)
    }

    /// A pair that is out may have a peer that has not heard so. Its half was fenced, or could not be: its NIC says.
    fn take_over_retired(&mut self, now: Nanos, index: usize) {
        let rail = self.rail_at_work(index);
        let lost = self.destroys.holds(index, rail);
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.unknown = true;
        (pair.left_here, pair.left_there) = (true, true);
        if pair.half.is_none() {
            pair.mine = Some(if lost { SideTruth::Dead } else { SideTruth::Unknown });
        } else {
            self.fence_half(now, index, Urgency::Idle);
        }
    }

    /// What is known of the ports lies in the hints. Of what is suspected nothing is: the searches are gone.
    fn ports_by_hints(&self, now: Nanos) -> PortTable {
        let root = self.words.root();
        let me = root.my_pe;
        let mut ports = PortTable::new(root.pe_count, root.rails);
        ports.keep_words(&self.ports.words());
        for rail in 0..root.rails {
            for pe in std::iter::once(None).chain((0..root.pe_count).filter(|pe| *pe != me).map(Some)) {
                self.words.set_suspect(pe, rail, false);
                ports.remember(pe, rail, self.words.is_down(pe, rail), now);
            }
        }
        ports
    }

    /// Requests that were answered are not answered again; the others are new to this agent. Answers with how many.
    fn requests_left(&mut self) -> u64 {
        let (pes, per) = (self.words.root().pe_count, self.words.root().channels_per_pe);
        let mut left = 0;
        for row in 0..pes * per {
            let (peer, channel) = (row / per, row % per);
            let request = self.words.request(peer, channel).number;
            if self.words.answered(peer, channel) == request || Mutant::RequestsLostAtRestart.on() {
                self.requests_seen[row as usize] = request;
            } else {
                left += 1;
            }
        }
        left
    }

    /// The queue pair of a path that was found ready was read. One in ERR failed by itself: nobody was told of a fence,
    /// so this one is the first, and its truth is one.
    pub(in crate::agent) fn queried(&mut self, now: Nanos, index: usize, result: Result<QpTruth, NicError>) {
        let alive = match result {
            Ok(truth) => truth.state == Some(State::Rts),
            // It will show with the first work on it.
            Err(_) => true,
        };
        if !alive && self.pairs[index].as_ref().is_some_and(|pair| pair.health == Health::Ready) {
            self.fence_asked(now, index, Urgency::Idle);
        }
    }

    /// What this half may say of itself: a count that was read before, perhaps long ago, perhaps told and acted upon,
    /// is nobody's truth any more.
    pub(in crate::agent) fn said_of(pair: &Pair, mine: SideTruth) -> SideTruth {
        match mine {
            SideTruth::Exact { next_rcv_psn, .. } if pair.unknown && Mutant::RestartTruthZero.on() => {
                SideTruth::Exact { executed: 0, next_rcv_psn }
            }
            SideTruth::Exact { .. } | SideTruth::Fenced if pair.unknown => SideTruth::Unknown,
            known => known,
        }
    }
}
