//! An engine whose lanes execute at once, and the two phases of a transfer.

use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::domain::{Batch, Domain, Event, LaneFacts};
use shunt_transfer_engine::engine::{Engine, OnDone, Paged, Policy};
use shunt_transfer_engine::ids::{LaneId, PeerId};
use shunt_transfer_engine::region::{Mr, MrDesc, Rights};
use shunt_transfer_engine::shard::Pages;

const LANES: usize = 4;
const PAGE: u64 = 65_536;

/// Lanes that execute at once: they only count.
pub struct AtOnce {
    posted: [u64; LANES],
    opened: Vec<Event>,
    /// Calls since the last look, the opening among them.
    calls: u32,
}

impl Domain for AtOnce {
    fn post(&mut self, _now: Nanos, lane: LaneId, batch: &Batch<'_>) {
        self.posted[lane.0 as usize % LANES] += batch.count() as u64;
        self.calls += 1;
    }

    fn close(&mut self, _now: Nanos, _lane: LaneId) {}

    fn leave(&mut self, _now: Nanos, _peer: PeerId) {}

    fn poll(&mut self, _now: Nanos, events: &mut Vec<Event>) {
        if std::mem::take(&mut self.calls) == 0 {
            return;
        }
        events.append(&mut self.opened);
        for (lane, posted) in (0..).zip(&mut self.posted) {
            if *posted > 0 {
                events.push(Event::Sent(LaneId(lane), std::mem::take(posted)));
            }
        }
    }
}

/// The engine, and what it writes.
pub struct Rig {
    engine: Engine<AtOnce>,
    source: Mr,
    target: MrDesc,
    pages: Pages,
}

impl Rig {
    /// One that writes so many pages of 64 KiB at once. All lanes are open.
    pub fn new(pages: u32) -> Self {
        let facts = |rail| LaneFacts {
            peer: PeerId(1),
            local: rail,
            remote: rail,
            depth: 128,
            rate: 1,
            lands_late: true,
        };
        let opened = (0..LANES as u64).map(|lane| Event::Opened(LaneId(lane), facts(lane as u32))).collect();
        let domain = AtOnce { posted: [0; LANES], opened, calls: 1 };
        let mut engine = Engine::new(domain, Policy::of_rails(LANES as u32));
        engine.step(Nanos::ZERO);
        let source = Mr::new(0, 1 << 40, &[1, 2, 3, 4]).expect("a region");
        let pages = Pages { indices: (0..pages).collect(), stride: PAGE, offset: 0 };
        Self { engine, target: source.describe(Rights::Write), source, pages }
    }

    /// Submission, and the step that gives pages to the domain, if one waits.
    #[inline(never)]
    pub fn until_the_doorbell(&mut self) {
        let (from, to) = ((&self.source, &self.pages), (&self.target, &self.pages));
        let paged = Paged { peer: PeerId(1), page_len: PAGE, imm: Some(7), from, to };
        self.engine.submit_paged(Nanos::ZERO, &paged, OnDone::None).expect("it fits");
        if self.engine.domain.calls == 0 {
            self.engine.step(Nanos::ZERO);
        }
    }

    /// The steps that take the completions and tell the end.
    #[inline(never)]
    pub fn until_the_end(&mut self) {
        while self.engine.step(Nanos::ZERO) {}
    }
}
