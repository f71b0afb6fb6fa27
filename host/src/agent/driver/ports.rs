//! A port went down or came up: who is told, and what is fenced. The rules of ports are in `port_table.rs`.

use super::Agent;
use crate::agent::health::Health;
use crate::agent::message::Message;
use crate::agent::nic_job::Urgency;
use crate::agent::pair::Pair;
use crate::agent::port_table::penalty_ns;
use crate::agent::rails::Reach;
use crate::error::DevxError;
use crate::events::Event;
use crate::nanos::Nanos;
use shunt_layout::mlx5::eqe;
use shunt_layout::mutant::Mutant;

impl Agent {
    /// Takes the NICs' events; asks ports that are down now and then, in case the event of their return was lost, and
    /// those whose NIC's events cannot be read.
    pub(in crate::agent) fn poll_ports(&mut self, now: Nanos) -> bool {
        let mut busy = false;
        while let Some((rail, event)) = self.arrived.events.pop_front() {
            match event {
                Ok(Some(event)) => {
                    self.event(now, rail, &event);
                    busy = true;
                }
                Ok(None) => {
                    self.ports.set_silent(rail, false);
                }
                Err(error) => self.unheard(now, rail, &error),
            }
        }
        let pause = self.options.port_poll_ns;
        if self.ports.is_due(now, pause) {
            for rail in 0..self.rails.len() {
                if self.ports.is_in_question(rail) {
                    self.nics.ask_port(now, rail);
                }
                // Said twice it changes nothing.
                if self.ports.is_told_again(now, rail, pause) {
                    self.tell_port(now, rail as u32, Reach::Link);
                }
                self.tell_rail_again(now, rail);
            }
        }
        busy
    }

    /// The events of a NIC cannot be read. It is told once, and the port counts as down until firmware says that it is
    /// up: events may have been lost, and a NIC that failed often shows in nothing else.
    fn unheard(&mut self, now: Nanos, rail: u32, error: &DevxError) {
        if self.ports.set_silent(rail, true) {
            self.report(now, Event::NicSilent { rail, error: error.to_string() });
            self.own_port(now, rail, true);
        }
    }

    /// What firmware said of a port at `asked_ns`.
    pub(in crate::agent) fn port_answer(&mut self, now: Nanos, rail: usize, up: bool, asked_ns: Nanos) {
        if self.ports.believes_firmware(rail, up, asked_ns) {
            self.own_port(now, rail as u32, !up);
        }
    }

    fn event(&mut self, now: Nanos, rail: u32, event: &[u8; 64]) {
        let (kind, sub) = (eqe::EVENT_TYPE.get(event) as u8, eqe::SUB_TYPE.get(event) as u8);
        match (kind, sub) {
            (eqe::event::PORT_CHANGE, eqe::port::DOWN) => self.own_port(now, rail, true),
            (eqe::event::PORT_CHANGE, eqe::port::ACTIVE) => self.own_port(now, rail, false),
            // Nothing passes through a NIC that failed: as good as a port that is down, and looked at like one.
            (eqe::event::INTERNAL_ERROR, _) => {
                self.report(now, Event::NicError { rail });
                self.own_port(now, rail, true);
            }
            _ => {} // QP errors show in completions, which name the work request as well
        }
    }

    /// A port of this PE changed: kernels are hinted, the peers told at once (bilateral awareness).
    fn own_port(&mut self, now: Nanos, rail: u32, down: bool) {
        let Some(before_ns) = self.ports.own_changes(now, rail, down) else { return };
        self.report(
            now,
            match down {
                true => Event::RailDown { rail },
                false => Event::RailUp { rail, down_ns: (now - before_ns).get() },
            },
        );
        if !down {
            self.restart_windows(now, |pair_local, _, _| pair_local == rail);
            self.hasten_stops(rail);
        }
        self.forget_suspicion(now, None, rail);
        self.words.set_hint(None, rail, down);
        self.tell_port(now, rail, Reach::Both);
        if down {
            self.leave_port(now, |pair_local, _, _| pair_local == rail);
        }
    }

    pub(in crate::agent) fn tell_port(&mut self, now: Nanos, rail: u32, reach: Reach) {
        if Mutant::PortNotTold.on() {
            return;
        }
        let (pes, me) = (self.words.root().pe_count, self.words.root().my_pe);
        let (down, at_ns) = self.ports.own(rail);
        for peer in (0..pes).filter(|pe| *pe != me) {
            self.links.send(
                now,
                peer,
                Message::Port { rail, down, at_ns: at_ns.get() }.to_bytes(),
                reach,
                &self.ports,
            );
        }
    }

    /// A port of a peer changed.
    pub(in crate::agent) fn peer_port(&mut self, now: Nanos, from: u32, rail: u32, down: bool, at_ns: Nanos) {
        if from >= self.words.root().pe_count || rail >= self.words.root().rails {
            return self.note(now, format!("PE {from} speaks of rail {rail}, which does not exist"));
        }
        let Some(before_ns) = self.ports.peer_says(now, from, rail, down, at_ns) else { return };
        self.report(
            now,
            match down {
                true => Event::PeerRailDown { peer: from, rail },
                false => Event::PeerRailUp { peer: from, rail, down_ns: (now - before_ns).get() },
            },
        );
        if !down {
            self.restart_windows(now, |_, peer, pair_remote| peer == from && pair_remote == rail);
        }
        self.forget_suspicion(now, Some(from), rail);
        self.words.set_hint(Some(from), rail, down);
        if down {
            self.leave_port(now, |_, peer, pair_remote| peer == from && pair_remote == rail);
        }
    }

    /// Rule 20: every pair on a dead port that has work outstanding is fenced now, behind those that a switcher waits
    /// for; an idle one when its channel leaves it. A channel with nowhere to go keeps its path: RC retries.
    /// Without fault tolerance nobody leaves a path, and the report is the transport's own error.
    fn leave_port(&mut self, now: Nanos, concerned: impl Fn(u32, u32, u32) -> bool) {
        if Mutant::PortNotFenced.on() || self.words.root().policy.fault_tolerance == 0 {
            return;
        }
        for index in 0..self.pairs.len() {
            let at = self.place(index);
            let Some(pair) = &self.pairs[index] else { continue };
            let here = pair.health == Health::Ready && concerned(pair.local_rail, at.peer, pair.remote_rail);
            if here && self.words.has_work(at) && self.has_standby(index) {
                self.fence_asked(now, index, Urgency::Port);
            }
        }
    }

    /// True if another path of a pair's channel is ready and no port of it is down.
    pub(in crate::agent) fn has_standby(&self, index: usize) -> bool {
        let (slots, at) = (self.words.root().slots as usize, self.place(index));
        let first = index - index % slots;
        let usable = |other: &Pair| {
            let ready = other.health == Health::Ready && other.leaving_ns.is_none();
            ready && self.ports.up(other.local_rail, at.peer, other.remote_rail)
        };
        (first..first + slots).any(|other| other != index && self.pairs[other].as_ref().is_some_and(usable))
    }

    /// A standby path whose port just came back waits its recovery window again; before the hint says it is up.
    fn restart_windows(&mut self, now: Nanos, concerned: impl Fn(u32, u32, u32) -> bool) {
        for index in 0..self.pairs.len() {
            let at = self.place(index);
            let Some(pair) = &self.pairs[index] else { continue };
            if pair.health == Health::Ready && concerned(pair.local_rail, at.peer, pair.remote_rail) {
                let calm = self.ports.calm_from(now, pair.local_rail, at.peer, pair.remote_rail);
                self.words.set_ready_since(at, calm + penalty_ns(pair.relapses));
            }
        }
    }
}
