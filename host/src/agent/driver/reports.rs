//! What is told of what the machines do. The log is in `reporter.rs`.

use super::Agent;
use crate::agent::health::{Health, Observation};
use crate::agent::message::SideTruth;
use crate::agent::nic_job::FenceTimes;
use crate::agent::pair::Pair;
use crate::events::{Event, Route, Sink, Told};
use crate::nanos::Nanos;
use crate::rail::Rail;
use std::sync::Arc;

impl Agent {
    /// Tells an event that happens now.
    pub(in crate::agent) fn report(&mut self, now: Nanos, event: Event) {
        self.reporter.emit(now, event);
    }

    /// Everything told since the last call, in order, and how many were dropped because nobody asked in time.
    pub fn take_events(&mut self) -> (Vec<Told>, u64) {
        self.reporter.take_events()
    }

    /// Adds somebody who is told of every event from here on.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>) {
        self.reporter.add_sink(sink);
    }

    /// A path as events name it.
    pub(in crate::agent) fn route(&self, index: usize) -> Route {
        let (place, pe) = (self.place(index), self.words.root().my_pe);
        let pair = self.pairs[index].as_ref();
        let of = |get: fn(&Pair) -> u32| pair.map_or(0, get);
        Route {
            pe,
            place,
            local_rail: of(|pair| pair.local_rail),
            remote_rail: of(|pair| pair.remote_rail),
            incarnation: of(|pair| pair.incarnation),
        }
    }

    /// The first event.
    pub(in crate::agent) fn introduce(&mut self, now: Nanos) {
        let (pes, rails) = (self.words.root().pe_count, self.rails.len() as u32);
        self.report(now, Event::AgentStarted { pes, rails });
        let refused = |rail: &Arc<Rail>| (!rail.truth_holds).then(|| (rail.index, rail.truth_detail.clone()));
        let refused: Vec<(u32, String)> = self.rails.iter().filter_map(refused).collect();
        for (rail, why) in refused {
            self.report(now, Event::CountRefused { rail, why });
        }
    }

    /// This half of a pair was fenced.
    pub(in crate::agent) fn report_half(
        &mut self,
        now: Nanos,
        index: usize,
        mine: SideTruth,
        times: FenceTimes,
    ) {
        let at = self.route(index);
        let (truth, executed) = match mine {
            SideTruth::Exact { executed, .. } => ("exact", executed),
            SideTruth::Fenced => ("fenced", 0),
            SideTruth::Dead => ("dead", 0),
            SideTruth::Unflushed => ("unflushed", 0),
            SideTruth::Unknown => ("unknown", 0),
        };
        let FenceTimes { error_ns, query_ns, flush_ns, again_ns } = times;
        self.report(now, Event::HalfFenced { at, truth, executed, error_ns, query_ns, flush_ns, again_ns });
    }

    /// A pair went on in the table of health.
    pub(in crate::agent) fn moved(
        &mut self,
        now: Nanos,
        index: usize,
        what: Observation,
        to: Health,
        before_ns: Nanos,
    ) {
        let at = self.route(index);
        let fenced_ns = self.pairs[index].as_ref().map_or(now, |pair| pair.fenced_ns);
        self.report(
            now,
            match to {
                Health::Fencing => {
                    let why = match what {
                        Observation::FenceAsked => "asked",
                        Observation::Retire => "retire",
                        _ => "failed",
                    };
                    Event::PathFencing { at, why }
                }
                Health::Fenced => Event::PathFenced { at, took_ns: (now - before_ns).get() },
                Health::Released => Event::PathReleased { at },
                // Said once it has its number.
                Health::Connecting => return,
                Health::Probing => Event::PathProbing { at },
                Health::Ready => Event::PathAdmitted { at, out_ns: (now - fenced_ns).get() },
                Health::Retired => Event::PathRetired { at },
            },
        );
    }

    /// Takes what device code recorded, and hands on what is ripe. With nothing new it reads two words. Comes after
    /// each step, which may have waited for locks of device code: read the clock again before.
    pub fn hand_on(&mut self, now: Nanos) {
        self.looked_ns = now;
        // In this order: a switch that ends in between is over before its record is missed. So is the one that made
        // all well: its record is there once it is over.
        let look = self.reporter.is_due(now);
        let calm = look && self.reporter.trouble_since().is_some() && self.is_calm();
        let switching = if self.reporter.is_waiting() { self.oldest_switch() } else { None };
        self.gather_records(now);
        if self.words.root().step_records != 0 {
            let steps = self.words.steps_since(&mut self.reporter.steps);
            self.reporter.tell_steps(now, steps, self.words.root().channels_per_pe);
        }
        if look {
            self.look_at_links(now);
            self.hear_operator(now);
            if calm {
                self.reporter.recovered(now);
            }
        }
        self.reporter.release(now, switching);
        self.refresh_board(now);
    }

    /// Which peers are lost follows from the channels that ended.
    pub(in crate::agent) fn gather_records(&mut self, now: Nanos) {
        let records = self.words.records_since(&mut self.reporter.records);
        let channels = self.words.root().channels_per_pe;
        let is_lost = |peer| (0..channels).all(|channel| self.words.is_dead(peer, channel));
        self.reporter.tell_records(now, records, is_lost);
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
        let ready = |pair: &Pair| matches!(pair.health, Health::Ready | Health::Retired);
        self.ports.all_up()
            && self.pairs.iter().flatten().all(ready)
            && self.rows().all(|row| self.words.is_settled(row))
    }

    fn look_at_links(&mut self, now: Nanos) {
        let (me, pes) = (self.words.root().my_pe, self.words.root().pe_count);
        for peer in (0..pes).filter(|peer| *peer != me) {
            self.reporter.tell_link(now, peer, self.links.own_reaches(peer));
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
            let now = self.looked_ns;
            self.gather_records(now);
            self.report(now, Event::AgentEnded {});
        }
        self.reporter.release_all();
    }
}
