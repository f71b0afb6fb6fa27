//! Ports: events of this PE's NICs, words of the peers about theirs, and the damping of flaps.

use super::Agent;
use super::message::Message;
use super::rails::Reach;
use super::worker::Urgency;
use crate::error::DevxError;
use crate::events::Event;
use shunt_device::health::{Health, backoff_ns};
use shunt_layout::mlx5::eqe;
use shunt_layout::mutant::Mutant;

/// A port that has been up this long starts over with a clean record.
pub(super) const CALM_NS: u64 = 10_000_000_000;
/// Extra wait after the second flap in a row, doubled by each further one.
const FLAP_NS: u64 = 50_000_000;

/// How much longer than the recovery window a path must be ready, after so many failures beyond the first in a row.
pub(super) fn penalty_ns(repeated: u32) -> u64 {
    if repeated == 0 || Mutant::NoDamping.on() { 0 } else { backoff_ns(FLAP_NS, repeated - 1) }
}

/// True when news of `changed_ns` are to be told once more: what was said may have got lost. The pauses are as long as
/// the change is past: a word said in vain for long is said more seldom.
pub(super) fn is_told_again(changed_ns: u64, again_ns: &mut u64, now: u64, first_ns: u64) -> bool {
    if now < again_ns.saturating_add(first_ns) {
        return false;
    }
    let past_ns = now.saturating_sub(changed_ns);
    // With the first pause on top, as after the change.
    *again_ns = now.saturating_add(past_ns.min(CALM_NS).saturating_sub(first_ns));
    true
}

/// What is known of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Port {
    down: bool,
    /// Times it went down without a calm time in between.
    flaps: u32,
    changed_ns: u64,
    /// When its PE says that it changed, on that PE's clock.
    said_ns: u64,
    /// Times it went down since the start.
    downs: u32,
    /// When its last change is told once more.
    again_ns: u64,
}

impl Port {
    fn change(&mut self, down: bool, now: u64) -> bool {
        if self.down == down {
            return false;
        }
        if down {
            let calm = self.flaps > 0 && now.saturating_sub(self.changed_ns) >= CALM_NS;
            self.flaps = if calm { 1 } else { self.flaps + 1 };
            self.downs = self.downs.saturating_add(1);
        }
        self.down = down;
        self.changed_ns = now;
        self.again_ns = now;
        true
    }

    /// True when its last change is to be told once more.
    fn is_told_again(&mut self, now: u64, first_ns: u64) -> bool {
        self.changed_ns > 0 && is_told_again(self.changed_ns, &mut self.again_ns, now, first_ns)
    }

    /// How much longer than the recovery window this port must stay up: nothing after its first failure.
    fn penalty_ns(&self) -> u64 {
        penalty_ns(self.flaps.saturating_sub(1))
    }
}

/// All ports this PE knows of: its own, and each peer's.
pub(super) struct Ports {
    local: Vec<Port>,
    remote: Vec<Vec<Port>>,
    /// By rail: its NIC's events cannot be read.
    silent: Vec<bool>,
    next_poll_ns: u64,
}

impl Ports {
    pub(super) fn new(pes: u32, rails: u32) -> Self {
        let row = vec![Port::default(); rails as usize];
        let silent = vec![false; rails as usize];
        Self { local: row.clone(), remote: vec![row; pes as usize], silent, next_poll_ns: 0 }
    }

    /// A port as an earlier agent knew it. One that was down is asked about, and told of, like one that has just gone;
    /// one of this PE that was up is told of like one that has just come: the word before may have been lost.
    pub(super) fn remember(&mut self, pe: Option<u32>, rail: u32, down: bool, now: u64) {
        let port = match pe {
            None => &mut self.local[rail as usize],
            Some(pe) => &mut self.remote[pe as usize][rail as usize],
        };
        if !port.change(down, now) && pe.is_none() {
            (port.changed_ns, port.again_ns) = (now, now);
        }
    }

    /// By peer and rail: when the last word of a port was said, by the clock of who said it.
    pub(super) fn words(&self) -> Vec<Vec<u64>> {
        self.remote.iter().map(|rails| rails.iter().map(|port| port.said_ns).collect()).collect()
    }

    /// What was said before stays so: older words are void to the next agent as well.
    pub(super) fn keep_words(&mut self, words: &[Vec<u64>]) {
        let ports = self.remote.iter_mut().flatten().zip(words.iter().flatten());
        if !Mutant::WordsForgotten.on() {
            ports.for_each(|(port, said_ns)| port.said_ns = *said_ns);
        }
    }

    /// True if neither port of a path is known to be down.
    pub(super) fn up(&self, local: u32, peer: u32, remote: u32) -> bool {
        !self.local[local as usize].down && !self.remote[peer as usize][remote as usize].down
    }

    /// Of a port of this PE: whether it is down, how often it went down, and when it last changed.
    pub(super) fn told(&self, rail: usize) -> (bool, u32, u64) {
        self.local.get(rail).map_or((false, 0, 0), |port| (port.down, port.downs, port.changed_ns))
    }

    /// True if no port that is known of is down.
    pub(super) fn all_up(&self) -> bool {
        self.local.iter().chain(self.remote.iter().flatten()).all(|port| !port.down)
    }

    /// True if a port of this PE is not known to be down.
    pub(super) fn own_up(&self, rail: u32) -> bool {
        !self.local[rail as usize].down
    }

    /// The instant from which a path's recovery window counts: in the future after repeated flaps.
    pub(super) fn calm_from(&self, now: u64, local: u32, peer: u32, remote: u32) -> u64 {
        let penalty = self.local[local as usize].penalty_ns();
        now.saturating_add(penalty.max(self.remote[peer as usize][remote as usize].penalty_ns()))
    }
}

impl Agent {
    /// Reads the NICs' events; asks ports that are down now and then, in case the event of their return was lost, and
    /// those whose NIC's events cannot be read.
    pub(super) fn poll_ports(&mut self) -> bool {
        let mut busy = false;
        for rail in 0..self.rails.len() {
            loop {
                match self.rails[rail].devx.next_event() {
                    Ok(Some(event)) => self.event(rail as u32, &event),
                    Ok(None) => {
                        self.ports.silent[rail] = false;
                        break;
                    }
                    Err(error) => {
                        self.unheard(rail as u32, &error);
                        break;
                    }
                }
                busy = true;
            }
        }
        let now = self.now();
        if now >= self.ports.next_poll_ns {
            self.ports.next_poll_ns = now.saturating_add(self.options.port_poll_ns);
            for rail in 0..self.rails.len() {
                if self.ports.local[rail].down || self.ports.silent[rail] {
                    self.ask_port(rail);
                }
                // Said twice it changes nothing.
                if self.ports.local[rail].is_told_again(now, self.options.port_poll_ns) {
                    self.tell_port(rail as u32, Reach::Link);
                }
                self.tell_rail_again(rail);
            }
        }
        busy
    }

    /// The events of a NIC cannot be read. It is told once, and the port counts as down until firmware says that it is
    /// up: events may have been lost, and a NIC that failed often shows in nothing else.
    fn unheard(&mut self, rail: u32, error: &DevxError) {
        if !std::mem::replace(&mut self.ports.silent[rail as usize], true) {
            self.report(Event::NicSilent { rail, error: error.to_string() });
            self.own_port(rail, true);
        }
    }

    /// What firmware said of a port at `asked_ns`. What happened since then is known better. That it is down is its
    /// word only where the NIC's events tell nothing.
    pub(super) fn port_answer(&mut self, rail: usize, up: bool, asked_ns: u64) {
        if self.ports.local[rail].changed_ns < asked_ns && (up || self.ports.silent[rail]) {
            self.own_port(rail as u32, !up);
        }
    }

    fn event(&mut self, rail: u32, event: &[u8; 64]) {
        let (kind, sub) = (eqe::EVENT_TYPE.get(event) as u8, eqe::SUB_TYPE.get(event) as u8);
        match (kind, sub) {
            (eqe::event::PORT_CHANGE, eqe::port::DOWN) => self.own_port(rail, true),
            (eqe::event::PORT_CHANGE, eqe::port::ACTIVE) => self.own_port(rail, false),
            // Nothing passes through a NIC that failed: as good as a port that is down, and looked at like one.
            (eqe::event::INTERNAL_ERROR, _) => {
                self.report(Event::NicError { rail });
                self.own_port(rail, true);
            }
            _ => {} // QP errors show in completions, which name the work request as well
        }
    }

    /// A port of this PE changed: kernels are hinted, the peers told at once (bilateral awareness).
    fn own_port(&mut self, rail: u32, down: bool) {
        let now = self.now();
        let before_ns = self.ports.local[rail as usize].changed_ns;
        if !self.ports.local[rail as usize].change(down, now) {
            return;
        }
        self.report(match down {
            true => Event::RailDown { rail },
            false => Event::RailUp { rail, down_ns: now.saturating_sub(before_ns) },
        });
        if !down {
            self.restart_windows(|pair_local, _, _| pair_local == rail);
            self.hasten_stops(rail);
        }
        self.forget_suspicion(None, rail);
        self.words.set_hint(None, rail, down);
        self.tell_port(rail, Reach::Both);
        if down {
            self.leave_port(|pair_local, _, _| pair_local == rail);
        }
    }

    pub(super) fn tell_port(&mut self, rail: u32, reach: Reach) {
        if Mutant::PortNotTold.on() {
            return;
        }
        let (pes, me) = (self.words.root().pe_count, self.words.root().my_pe);
        let Port { down, changed_ns: at_ns, .. } = self.ports.local[rail as usize];
        for peer in (0..pes).filter(|pe| *pe != me) {
            self.links.send(peer, Message::Port { rail, down, at_ns }.to_bytes(), reach, &self.ports);
        }
    }

    /// A port of a peer changed.
    pub(super) fn peer_port(&mut self, from: u32, rail: u32, down: bool, at_ns: u64) {
        if from >= self.words.root().pe_count || rail >= self.words.root().rails {
            return self.note(format!("PE {from} speaks of rail {rail}, which does not exist"));
        }
        let now = self.now();
        let port = &mut self.ports.remote[from as usize][rail as usize];
        let before_ns = port.changed_ns;
        // Copies travel over two links, some late.
        if at_ns < port.said_ns && !Mutant::OldPortWordBelieved.on() {
            return;
        }
        port.said_ns = at_ns;
        if !port.change(down, now) {
            return;
        }
        self.report(match down {
            true => Event::PeerRailDown { peer: from, rail },
            false => Event::PeerRailUp { peer: from, rail, down_ns: now.saturating_sub(before_ns) },
        });
        if !down {
            self.restart_windows(|_, peer, pair_remote| peer == from && pair_remote == rail);
        }
        self.forget_suspicion(Some(from), rail);
        self.words.set_hint(Some(from), rail, down);
        if down {
            self.leave_port(|_, peer, pair_remote| peer == from && pair_remote == rail);
        }
    }

    /// Rule 20: every pair on a dead port that has work outstanding is fenced now, behind those that a switcher waits
    /// for; an idle one when its channel leaves it. A channel with nowhere to go keeps its path: RC retries.
    /// Without fault tolerance nobody leaves a path, and the report is the transport's own error.
    fn leave_port(&mut self, concerned: impl Fn(u32, u32, u32) -> bool) {
        if Mutant::PortNotFenced.on() || self.words.root().policy.fault_tolerance == 0 {
            return;
        }
        for index in 0..self.pairs.len() {
            let at = self.place(index);
            let Some(pair) = &self.pairs[index] else { continue };
            let here = pair.health == Health::Ready && concerned(pair.local_rail, at.peer, pair.remote_rail);
            if here && self.words.has_work(at) && self.has_standby(index) {
                self.fence_asked(index, Urgency::Port);
            }
        }
    }

    /// True if another path of a pair's channel is ready and no port of it is down.
    pub(super) fn has_standby(&self, index: usize) -> bool {
        let (slots, at) = (self.words.root().slots as usize, self.place(index));
        let first = index - index % slots;
        let usable = |other: &super::Pair| {
            let ready = other.health == Health::Ready && other.leaving_ns.is_none();
            ready && self.ports.up(other.local_rail, at.peer, other.remote_rail)
        };
        (first..first + slots).any(|other| other != index && self.pairs[other].as_ref().is_some_and(usable))
    }

    /// A standby path whose port just came back waits its recovery window again; before the hint says it is up.
    fn restart_windows(&mut self, concerned: impl Fn(u32, u32, u32) -> bool) {
        let now = self.now();
        for index in 0..self.pairs.len() {
            let at = self.place(index);
            let Some(pair) = &self.pairs[index] else { continue };
            if pair.health == Health::Ready && concerned(pair.local_rail, at.peer, pair.remote_rail) {
                let calm = self.ports.calm_from(now, pair.local_rail, at.peer, pair.remote_rail);
                self.words.set_ready_since(at, calm.saturating_add(penalty_ns(pair.relapses)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_costs_nothing_extra_and_flaps_double() {
        let mut port = Port::default();
        assert!(port.change(true, 0));
        assert!(!port.change(true, 1), "said twice is not changed twice");
        assert!(port.change(false, 2));
        assert_eq!(port.penalty_ns(), 0);
        for (i, expected) in [FLAP_NS, 2 * FLAP_NS, 4 * FLAP_NS].into_iter().enumerate() {
            port.change(true, 10 + i as u64);
            port.change(false, 11 + i as u64);
            assert_eq!(port.penalty_ns(), expected);
        }
        port.change(true, 11 + CALM_NS + 100);
        assert_eq!(port.penalty_ns(), 0, "a calm time clears the record");
    }

    #[test]
    fn a_port_that_was_up_before_is_told_of_under_the_time_of_now() {
        const FIRST_NS: u64 = 100_000_000;
        let mut ports = Ports::new(2, 1);
        ports.remember(None, 0, false, 7_000);
        ports.remember(Some(1), 0, false, 7_000);
        assert_eq!(ports.told(0), (false, 0, 7_000));
        assert!(ports.local[0].is_told_again(7_000 + FIRST_NS, FIRST_NS));
        assert_eq!(ports.remote[1][0], Port::default(), "what a peer says next counts");
    }

    #[test]
    fn what_was_said_of_a_port_is_said_again_ever_more_seldom() {
        const FIRST_NS: u64 = 100_000_000;
        let mut port = Port::default();
        let told = |port: &mut Port, from: u64, until: u64| {
            (from..until).step_by(10_000_000).filter(|now| port.is_told_again(*now, FIRST_NS)).count()
        };
        assert_eq!(told(&mut port, 0, 60_000_000_000), 0, "nothing was said");
        let from = 60_000_000_000;
        port.change(true, from);
        let first = told(&mut port, from, from + CALM_NS);
        assert!((6..=9).contains(&first), "{first} times in the first ten seconds");
        let minute = told(&mut port, from + CALM_NS, from + CALM_NS + 60_000_000_000);
        assert!((5..=7).contains(&minute), "{minute} times in the minute after");
        port.change(false, from + 2 * 60_000_000_000);
        assert!(port.is_told_again(from + 2 * 60_000_000_000 + FIRST_NS, FIRST_NS), "a change begins anew");
    }
}
