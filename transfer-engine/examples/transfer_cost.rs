//! What the engine itself costs a page, on lanes that execute at once: `transfer_cost PAGES TRANSFERS`. To be run under
//! a counter of instructions, which collects in one of the two functions that are named for what they measure:
//! `valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*to_the_doorbell*' transfer_cost 64 1000`.

use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::domain::{Batch, Domain, Event, LaneFacts};
use shunt_transfer_engine::engine::{Engine, OnDone, Paged, Policy};
use shunt_transfer_engine::ids::{LaneId, PeerId};
use shunt_transfer_engine::region::{Mr, Rights};
use shunt_transfer_engine::shard::Pages;

const LANES: u64 = 4;

/// Lanes that execute at once: they only count.
struct AtOnce {
    posted: [u64; LANES as usize],
    opened: Vec<Event>,
    /// Calls since the last look, the opening among them.
    count: u32,
}

impl Domain for AtOnce {
    fn post(&mut self, _now: Nanos, lane: LaneId, batch: &Batch<'_>) {
        self.posted[lane.0 as usize % LANES as usize] += batch.count() as u64;
        self.count += 1;
    }

    fn close(&mut self, _now: Nanos, _lane: LaneId) {}

    fn leave(&mut self, _now: Nanos, _peer: PeerId) {}

    fn poll(&mut self, _now: Nanos, events: &mut Vec<Event>) {
        if std::mem::take(&mut self.count) == 0 {
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

/// Submission, and the step that gives pages to the domain, if one waits.
#[inline(never)]
fn to_the_doorbell(engine: &mut Engine<AtOnce>, paged: &Paged<'_>) {
    engine.submit_paged(Nanos::ZERO, paged, OnDone::None).expect("it fits");
    if engine.domain.count == 0 {
        engine.step(Nanos::ZERO);
    }
}

/// The steps that take the completions and tell the end.
#[inline(never)]
fn to_the_end(engine: &mut Engine<AtOnce>) {
    while engine.step(Nanos::ZERO) {}
}

fn main() {
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    let (pages, transfers) = (number(1), number(2));
    let facts = |rail| LaneFacts { peer: PeerId(1), local: rail, remote: rail, depth: 128, rate: 1 };
    let opened = (0..LANES).map(|lane| Event::Opened(LaneId(lane), facts(lane as u32))).collect();
    let domain = AtOnce { posted: [0; LANES as usize], opened, count: 1 };
    let mut engine = Engine::new(domain, Policy::of_rails(LANES as u32));
    engine.step(Nanos::ZERO);
    let region = Mr::new(0, 1 << 30, &[1, 2, 3, 4]).expect("a region");
    let target = region.describe(Rights::Write);
    let all = Pages { indices: (0..pages).collect(), stride: 65536, offset: 0 };
    let (from, to) = ((&region, &all), (&target, &all));
    let paged = Paged { peer: PeerId(1), page_len: 65536, imm: Some(7), from, to };
    for _ in 0..transfers {
        to_the_doorbell(&mut engine, &paged);
        to_the_end(&mut engine);
    }
}
