//! What the engine itself costs a page, on lanes that execute at once: `transfer_cost PAGES TRANSFERS`. To be run under
//! a counter of instructions.

use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::domain::{Domain, Event, LaneFacts, Piece};
use shunt_transfer_engine::engine::{Engine, OnDone, Paged, Policy};
use shunt_transfer_engine::ids::{LaneId, PeerId};
use shunt_transfer_engine::region::{Mr, Rights};
use shunt_transfer_engine::shard::Pages;

const LANES: u64 = 4;

#[derive(Default)]
struct AtOnce(Vec<Event>);

impl Domain for AtOnce {
    fn post(&mut self, _now: Nanos, lane: LaneId, pieces: &[Piece]) {
        self.0.push(Event::Sent(lane, pieces.len() as u64));
    }

    fn close(&mut self, _now: Nanos, _lane: LaneId) {}

    fn leave(&mut self, _now: Nanos, _peer: PeerId) {}

    fn poll(&mut self, _now: Nanos, events: &mut Vec<Event>) {
        events.append(&mut self.0);
    }
}

fn main() {
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    let (pages, transfers) = (number(1), number(2));
    let facts = |rail| LaneFacts { peer: PeerId(1), local: rail, remote: rail, depth: 128, rate: 1 };
    let opened = (0..LANES).map(|lane| Event::Opened(LaneId(lane), facts(lane as u32)));
    let mut engine = Engine::new(AtOnce(opened.collect()), Policy::of_rails(LANES as u32));
    let region = Mr::new(0, 1 << 30, &[1, 2, 3, 4]).expect("a region");
    let target = region.describe(Rights::Write);
    let all = Pages { indices: (0..pages).collect(), stride: 65536, offset: 0 };
    for _ in 0..transfers {
        let (from, to) = ((&region, &all), (&target, &all));
        let paged = Paged { peer: PeerId(1), page_len: 65536, imm: Some(7), from, to };
        engine.submit_paged(Nanos::ZERO, &paged, OnDone::None).expect("it fits");
        while engine.step(Nanos::ZERO) {}
    }
}
