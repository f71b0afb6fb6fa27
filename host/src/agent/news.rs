//! What the agent tells: its own events, and the records of device code, in one log.

use super::Agent;
use super::board::{Board, fault_of};
use super::message::SideTruth;
use super::pair::Verdict;
use super::reader::Cursor;
use super::words::Place;
use super::worker::FenceTimes;
use crate::events::{Event, Log, Route, Sink, Told, of_step, of_switch};
use crate::rail::Rail;
use shunt_device::health::{Health, Observation};
use shunt_layout::state::{AnswerStatus, SwitchKind};
use shunt_layout::status::StatusFault;
use std::sync::Arc;

/// Time between two looks whether all is well again, and at the links to the other agents.
const LOOK_NS: u64 = 5_000_000;

/// What was told so far, and of whom.
pub(super) struct News {
    pub(super) log: Log,
    pub(super) board: Option<Box<Board>>,
    /// Records and steps that were overwritten before they were read.
    pub(super) lost: u64,
    /// The last switch that a fault made, by the PE's clock.
    pub(super) last_fault: Option<StatusFault>,
    records_told: Cursor,
    steps_told: Cursor,
    next_look_ns: u64,
    /// By peer: since when its agent is out of reach.
    link_lost: Vec<Option<u64>>,
    /// By peer: it was said that it is lost.
    peer_lost: Vec<bool>,
    /// A channel ended.
    dead: bool,
}

impl News {
    pub(super) fn new(pe: u32, pes: u32) -> Self {
        Self {
            log: Log::new(pe),
            board: None,
            lost: 0,
            last_fault: None,
            records_told: Cursor::default(),
            steps_told: Cursor::default(),
            next_look_ns: 0,
            link_lost: vec![None; pes as usize],
            peer_lost: vec![false; pes as usize],
            dead: false,
        }
    }
}

impl News {
    /// True once any channel has ended.
    pub(super) fn has_dead(&self) -> bool {
        self.dead
    }

    /// True once every channel to a peer has ended.
    pub(super) fn is_lost(&self, peer: u32) -> bool {
        self.peer_lost.get(peer as usize).is_some_and(|said| *said)
    }
}

impl Agent {
    /// Tells an event that happens now.
    pub(super) fn report(&mut self, event: Event) {
        let now = self.now();
        self.news.log.take(now, event);
    }

    /// Everything told since the last call, in order, and how many were dropped because nobody asked in time.
    pub fn take_events(&mut self) -> (Vec<Told>, u64) {
        self.news.log.fetch()
    }

    /// Adds somebody who is told of every event from here on.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>) {
        self.news.log.add_sink(sink);
    }

    /// A path as events name it.
    pub(super) fn route(&self, index: usize) -> Route {
        let (place, pe) = (self.place(index), self.words.root().my_pe);
        let pair = self.pairs[index].as_ref();
        let of = |get: fn(&super::Pair) -> u32| pair.map_or(0, get);
        Route {
            pe,
            place,
            local_rail: of(|pair| pair.local_rail),
            remote_rail: of(|pair| pair.remote_rail),
            incarnation: of(|pair| pair.incarnation),
        }
    }

    /// The first event.
    pub(super) fn introduce(&mut self) {
        let (pes, rails) = (self.words.root().pe_count, self.rails.len() as u32);
        self.report(Event::AgentStarted { pes, rails });
        let refused = |rail: &Arc<Rail>| (!rail.truth_holds).then(|| (rail.index, rail.truth_detail.clone()));
        let refused: Vec<(u32, String)> = self.rails.iter().filter_map(refused).collect();
        for (rail, why) in refused {
            self.report(Event::CountRefused { rail, why });
        }
    }

    /// Answers a switcher, and says so.
    pub(super) fn answer_request(&mut self, at: Place, incarnation: u32, request: u64, verdict: Verdict) {
        self.words.answer(at, incarnation, request, verdict);
        let status = match verdict.status {
            AnswerStatus::Truth => "truth",
            AnswerStatus::FencedNoTruth => "no-truth",
            AnswerStatus::Unprovable => "unprovable",
        };
        let (at, executed) = (self.route(self.index(at)), verdict.executed);
        self.report(Event::FenceAnswered { at, request, status, executed });
    }

    /// This half of a pair was fenced.
    pub(super) fn report_half(&mut self, index: usize, mine: SideTruth, times: FenceTimes) {
        let at = self.route(index);
        let (truth, executed) = match mine {
            SideTruth::Exact { executed, .. } => ("exact", executed),
            SideTruth::Fenced => ("fenced", 0),
            SideTruth::Dead => ("dead", 0),
            SideTruth::Unflushed => ("unflushed", 0),
            SideTruth::Unknown => ("unknown", 0),
        };
        let FenceTimes { error_ns, query_ns, flush_ns, again_ns } = times;
        self.report(Event::HalfFenced { at, truth, executed, error_ns, query_ns, flush_ns, again_ns });
    }

    /// A pair went on in the table of health.
    pub(super) fn moved(&mut self, index: usize, what: Observation, to: Health, before_ns: u64) {
        let (now, at) = (self.now(), self.route(index));
        let fenced_ns = self.pairs[index].as_ref().map_or(now, |pair| pair.fenced_ns);
        self.report(match to {
            Health::Fencing => {
                let why = match what {
                    Observation::FenceAsked => "asked",
                    Observation::Retire => "retire",
                    _ => "failed",
                };
                Event::PathFencing { at, why }
            }
            Health::Fenced => Event::PathFenced { at, took_ns: now.saturating_sub(before_ns) },
            Health::Released => Event::PathReleased { at },
            // Said once it has its number.
            Health::Connecting => return,
            Health::Probing => Event::PathProbing { at },
            Health::Ready => Event::PathAdmitted { at, out_ns: now.saturating_sub(fenced_ns) },
            Health::Retired => Event::PathRetired { at },
        });
    }

    /// Takes what device code recorded, and hands on what is ripe. With nothing new it reads two words.
    pub(super) fn gather(&mut self) {
        let now = self.now();
        // In this order: a switch that ends in between is over before its record is missed. So is the one that made
        // all well: its record is there once it is over.
        let look = now >= self.news.next_look_ns;
        let calm = look && self.news.log.trouble_since().is_some() && self.is_calm();
        let switching = if self.news.log.is_waiting() { self.oldest_switch() } else { None };
        self.gather_records();
        if self.words.root().step_records != 0 {
            self.gather_steps();
        }
        if look {
            self.news.next_look_ns = now.saturating_add(LOOK_NS);
            self.look_at_links(now);
            self.hear_operator();
            if calm {
                self.news.log.recovered(now);
            }
        }
        if self.news.log.is_waiting() {
            self.news.log.release(now, switching);
        }
        self.refresh_board();
    }

    fn gather_records(&mut self) {
        let (records, lost) = self.words.records_since(&mut self.news.records_told);
        self.count_lost("records", lost);
        let pe = self.words.root().my_pe;
        for record in &records {
            let log = &mut self.news.log;
            of_switch(pe, record, &mut |at_ns, event| log.take(at_ns, event));
            self.news.last_fault = fault_of(record).or(self.news.last_fault);
            if record.kind == SwitchKind::Dead as u32 {
                self.count_dead(record.peer);
            }
        }
    }

    fn gather_steps(&mut self) {
        let (steps, lost) = self.words.steps_since(&mut self.news.steps_told);
        self.count_lost("steps", lost);
        let channels = self.words.root().channels_per_pe;
        for step in &steps {
            self.news.log.take(step.at_ns, of_step(channels, step));
        }
    }

    fn count_lost(&mut self, from: &'static str, count: u64) {
        if count > 0 {
            self.news.lost += count;
            self.report(Event::EventsLost { from, count });
        }
    }

    /// A channel ended: was it the last one to its peer?
    fn count_dead(&mut self, peer: u32) {
        self.news.dead = true;
        let channels = self.words.root().channels_per_pe;
        let all = (0..channels).all(|channel| self.words.is_dead(peer, channel));
        if let Some(said) = self.news.peer_lost.get_mut(peer as usize)
            && all
            && !std::mem::replace(said, true)
        {
            self.report(Event::PeerLost { peer });
        }
    }

    /// Rows of channels that lead to other PEs.
    fn rows(&self) -> impl Iterator<Item = u32> + use<> {
        let root = self.words.root();
        let (me, channels) = (root.my_pe, root.channels_per_pe);
        (0..root.pe_count * channels).filter(move |row| row / channels != me)
    }

    /// When the oldest switch under way was noticed.
    fn oldest_switch(&self) -> Option<u64> {
        self.rows().filter_map(|row| self.words.switching_since(row)).min()
    }

    /// Every port up, every path ready, every channel on its primary.
    fn is_calm(&self) -> bool {
        let ready = |pair: &super::Pair| matches!(pair.health, Health::Ready | Health::Retired);
        self.ports.all_up()
            && self.pairs.iter().flatten().all(ready)
            && self.rows().all(|row| self.words.is_settled(row))
    }

    fn look_at_links(&mut self, now: u64) {
        let root = self.words.root();
        let (me, pes) = (root.my_pe, root.pe_count);
        for peer in (0..pes).filter(|peer| *peer != me) {
            let reachable = self.links.own_reaches(peer);
            let lost = &mut self.news.link_lost[peer as usize];
            match *lost {
                None if !reachable => {
                    *lost = Some(now);
                    self.report(Event::AgentLinkLost { peer });
                }
                Some(since) if reachable => {
                    *lost = None;
                    self.report(Event::AgentLinkBack { peer, lost_ns: now.saturating_sub(since) });
                }
                _ => {}
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // What is not handed on now never will be. A panic's own words come first.
        if self.ended {
            return;
        }
        if !std::thread::panicking() {
            self.gather_records();
            self.report(Event::AgentEnded {});
        }
        self.news.log.release_all();
    }
}
