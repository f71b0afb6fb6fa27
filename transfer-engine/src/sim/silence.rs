//! Pieces that are lost and of which no NIC ever tells, while the lane goes on with others: whether their transfers end
//! in time.

use super::faults::{Fault, Kind};
use super::{Config, Rng, Sim, SimDomain, key};
use crate::engine::{Engine, OnDone, Policy, Write};
use crate::ids::PeerId;
use crate::region::{Mr, MrDesc, Rights};
use shunt_recovery::nanos::Nanos;
use std::sync::{Arc, Mutex, PoisonError};

/// A lane whose oldest piece is so old is suspected.
const SUSPECT: Nanos = Nanos::millis(4);
/// A transfer has ended after so long: the lane is looked at four times in [`SUSPECT`], and fenced in 0.7 ms. A network
/// of one rail opens it again after 3 ms more.
const IN_TIME: Nanos = Nanos::millis(11);
/// Transfers begin so often, and so many of them.
const PACE: Nanos = Nanos::micros(50);
const COUNT: usize = 600;
/// Bytes of a transfer.
const LEN: u64 = 64;

/// A transfer: when it began, and when it was written.
type Life = (Nanos, Option<Nanos>);

struct Run {
    sim: Sim,
    engines: Vec<Engine<SimDomain>>,
    source: Mr,
    target: MrDesc,
    written: Arc<Mutex<Vec<usize>>>,
    lives: Vec<Life>,
}

impl Run {
    /// On a network without an order, which loses some pieces of 2 ms and says nothing.
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5113_7ce0);
        let (from, rails) = (rng.between(500_000, 2_000_000), rng.between(1, 2) as u32);
        let fault = |rail| Fault { from, lasts: 2_000_000, node: 0, rail, kind: Kind::Silent };
        let memory = LEN * COUNT as u64;
        let (sim, domains) = Sim::new(Config {
            seed,
            nodes: 2,
            rails,
            memory: memory as usize,
            depth: 256,
            unordered: true,
            late: false,
            no_truth: 0,
            unproven: 0,
            // An engine with little to do may use one rail alone.
            faults: (0..rails).map(fault).collect(),
        });
        let policy = Policy { suspect: SUSPECT, ..Policy::of_rails(rails) };
        let keys = |node| (0..rails).map(|rail| key(node, rail)).collect::<Vec<_>>();
        let region = |node| Mr::new(0, memory, &keys(node)).expect("a region of this run");
        Self {
            sim,
            engines: domains.into_iter().map(|domain| Engine::new(domain, policy)).collect(),
            source: region(0),
            target: region(1).describe(Rights::Write),
            written: Arc::default(),
            lives: Vec::new(),
        }
    }

    /// When the next transfer begins.
    fn next(&self) -> Nanos {
        let number = self.lives.len();
        if number < COUNT { Nanos::new(PACE.get() * number as u64) } else { Nanos::MAX }
    }

    fn begin(&mut self, now: Nanos) {
        let (number, written) = (self.lives.len(), self.written.clone());
        let done = OnDone::Call(Box::new(move |ended| {
            if ended.result.is_ok() {
                written.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            }
        }));
        let at = LEN * number as u64;
        let (from, to) = ((&self.source, at), (&self.target, at));
        let write = Write { peer: PeerId(1), len: LEN, imm: Some(number as u32), from, to };
        // What is refused never ends, and is found so.
        let _ = self.engines[0].submit_write(now, &write, done);
        self.lives.push((now, None));
    }

    /// Does all that is to be done now. False if nothing was.
    fn step(&mut self, now: Nanos) -> bool {
        let busy = self.engines.iter_mut().fold(false, |busy, engine| engine.step(now) | busy);
        for number in self.written.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            self.lives[number].1 = Some(now);
        }
        busy
    }

    fn judge(&self) -> Vec<String> {
        let mut wrongs = Vec::new();
        for (number, (began, ended)) in self.lives.iter().enumerate() {
            let took = ended.map(|ended| ended - *began);
            if took.is_none_or(|took| took > IN_TIME) {
                let (most, took) = (IN_TIME.get(), took.map(Nanos::get));
                wrongs.push(format!("transfer {number}: expected its end within {most} ns, got {took:?}"));
            }
            let count = self.engines[1].counter(PeerId(0), number as u32);
            if count != 1 {
                wrongs.push(format!("transfer {number}: expected 1 immediate, got {count}"));
            }
        }
        wrongs
    }
}

/// What is wrong, and how many pieces were lost.
pub fn run(seed: u64) -> (Vec<String>, u64) {
    let mut run = Run::new(seed);
    let last = Nanos::new(PACE.get() * COUNT as u64) + IN_TIME + IN_TIME;
    loop {
        let now = run.sim.now();
        while run.next() <= now {
            run.begin(now);
        }
        if run.step(now) {
            continue;
        }
        let times = run.engines.iter().map(Engine::next_deadline);
        let next = times.chain([run.sim.next_time(), run.next()]).min().unwrap_or(Nanos::MAX);
        if next > last {
            break;
        }
        // What is due now was done.
        run.sim.advance(next.max(now + Nanos::new(1)));
    }
    (run.judge(), run.sim.counts().lost)
}
