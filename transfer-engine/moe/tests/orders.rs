//! The machines of all ranks, with everything between them in any order.

use crate::pure::{Drawn, drawn};
use proptest::prelude::*;
use shunt_layout::moe::Shape;
use shunt_moe_proxy::buffers::Buffers;
use shunt_moe_proxy::failure::Failure;
use shunt_moe_proxy::machine::{Input, Machine, Output};
use shunt_moe_proxy::plan::What;
use shunt_moe_proxy::routes::{count, rows};
use shunt_moe_proxy::words::{Step, number, step};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::ZERO;

/// Something that may happen next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The kernel of a rank asks.
    Ask(usize),
    /// An immediate arrives: at, of, what, layer.
    Imm(usize, u32, What, u64),
    /// So many parts of a rank have ended.
    Written(usize, usize),
}

/// What a rank expects: of which rank, what, in which layer.
type Key = (usize, u32, What, u64);

struct World<'a> {
    drawn: &'a Drawn,
    machines: Vec<Machine>,
    asked: Vec<u64>,
    answered: Vec<u64>,
    nexts: Vec<Next>,
    arrived: BTreeMap<Key, u64>,
    expected: BTreeMap<Key, u64>,
}

impl<'a> World<'a> {
    fn new(drawn: &'a Drawn) -> Self {
        let ranks = drawn.buffers.shape.ranks as usize;
        let machine = |rank| Machine::new(drawn.buffers, rank as u32, PATIENCE);
        Self {
            drawn,
            machines: (0..ranks).map(machine).collect(),
            asked: vec![0; ranks],
            answered: vec![0; ranks],
            nexts: (0..ranks).map(Next::Ask).collect(),
            arrived: BTreeMap::new(),
            expected: BTreeMap::new(),
        }
    }

    /// The routes of a rank in a layer: others in each.
    fn counts(&self, rank: usize, layer: u64) -> Vec<u32> {
        let Buffers { shape, topk, .. } = self.drawn.buffers;
        let ranks = self.machines.len();
        let routes = &self.drawn.routes[(rank + layer as usize) % ranks];
        count(&shape, &rows(&shape, topk, routes).expect("routes"))
    }

    fn happens(&mut self, next: Next) {
        match next {
            Next::Ask(rank) => {
                self.asked[rank] += 1;
                let counts = self.counts(rank, step(self.asked[rank]).0);
                self.tell(rank, Input::Asked(self.asked[rank], counts));
            }
            Next::Imm(at, of, what, layer) => {
                *self.arrived.entry((at, of, what, layer)).or_default() += 1;
                self.reach((at, of, what, layer));
            }
            Next::Written(rank, parts) => self.tell(rank, Input::Written(parts)),
        }
    }

    fn reach(&mut self, key: Key) {
        let (at, of, what, layer) = key;
        let met = self.arrived.get(&key).copied().unwrap_or(0);
        if self.expected.get(&key).is_none_or(|want| met < *want) {
            return;
        }
        assert_eq!(self.expected.remove(&key), self.arrived.remove(&key), "{key:?}: one too many");
        let input = match what {
            What::Counts => Input::Counts(of, self.counts(of as usize, layer)),
            _ => Input::Arrived(of, what),
        };
        self.tell(at, input);
    }

    fn tell(&mut self, rank: usize, input: Input) {
        self.machines[rank].take(SOON, input);
        while let Some(output) = self.machines[rank].next_output() {
            self.does(rank, output);
        }
    }

    fn does(&mut self, rank: usize, output: Output) {
        let layer = self.machines[rank].layer();
        match output {
            Output::Expect(of, what, count) => {
                let key = (rank, of, what, layer);
                assert_eq!(self.expected.insert(key, count), None, "{key:?} twice");
                self.reach(key);
            }
            Output::Write(parts) => {
                self.nexts.push(Next::Written(rank, parts.len()));
                for part in parts {
                    let to = part.to as usize;
                    // Nothing of a layer goes to a rank that has not read all of the one before.
                    let read = part.what == What::Free || self.asked[to] >= number(layer, Step::Dispatch) - 1;
                    assert!(read, "{part:?} of layer {layer}, rank {to} is at {}", self.asked[to]);
                    self.nexts.push(Next::Imm(to, rank as u32, part.what, layer));
                }
            }
            Output::Answer(number) => {
                assert_eq!((number, self.answered[rank]), (self.asked[rank], number - 1));
                let expects = self.expected.keys().any(|(at, ..)| *at == rank);
                assert!(!expects, "{number} is answered while something is expected");
                let writes = |next: &Next| matches!(next, Next::Written(of, _) if *of == rank);
                let is_end = step(number).1 == Step::End;
                assert!(
                    !is_end || !self.nexts.iter().any(writes),
                    "{number} is answered while something is sent"
                );
                self.answered[rank] = number;
                self.nexts.push(Next::Ask(rank));
            }
            Output::Fail(failure, _) => panic!("rank {rank}: {failure}"),
        }
    }
}

proptest! {
    /// Whatever comes first, every step is answered, once all of it is there, and nothing is left over.
    #[test]
    fn every_order_ends(drawn in drawn(), mut chance in any::<u64>()) {
        const LAYERS: u64 = 4;
        let mut world = World::new(&drawn);
        let is_over = |next: &Next, world: &World<'_>| {
            matches!(next, Next::Ask(rank) if world.asked[*rank] == 3 * LAYERS)
        };
        for _ in 0..100_000 {
            let open: Vec<usize> =
                (0..world.nexts.len()).filter(|at| !is_over(&world.nexts[*at], &world)).collect();
            if open.is_empty() {
                break;
            }
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = open[(chance >> 33) as usize % open.len()];
            let next = world.nexts.swap_remove(at);
            world.happens(next);
        }
        prop_assert!(world.answered.iter().all(|answered| *answered == 3 * LAYERS), "{:?}", world.answered);
        prop_assert!(world.arrived.is_empty() && world.expected.is_empty());
    }
}

#[test]
fn what_is_missing_is_of_a_rank_that_is_lost() {
    let missing = TransferError::Missing { imm: 9, got: 1, want: 2, peer: PeerId(3) };
    let failure = Failure::not_arrived(missing, 3, What::Rows);
    assert_eq!(failure, Failure::lost("rank 3 is lost: expected 2 immediates of Rows, got 1"));
    let uncertain = TransferError::Uncertain { peer: PeerId(3), pieces: 1 };
    let failure = Failure::not_arrived(uncertain, 3, What::Rows);
    assert_eq!((failure.is_lost, failure.is_uncertain), (false, true));
}

fn machine() -> Machine {
    let shape = Shape::new(3, 3, 4, 512).expect("a shape");
    Machine::new(Buffers { shape, topk: 2, private: 1, rails: 1, piece_min: 1 << 20 }, 0, PATIENCE)
}

fn failure(machine: &mut Machine) -> Option<(Failure, bool)> {
    let outputs = std::iter::from_fn(|| machine.next_output());
    let failures = outputs.filter_map(|output| match output {
        Output::Fail(failure, is_new) => Some((failure, is_new)),
        _ => None,
    });
    failures.last()
}

#[test]
fn what_is_late_or_makes_no_sense_ends_it_once_with_a_reason() {
    let asked = |machine: &mut Machine| {
        machine.take(SOON, Input::Asked(1, vec![1, 2, 0]));
        assert_eq!((failure(machine), machine.awaited()), (None, BTreeSet::from([1, 2])));
    };
    let why = |machine: &mut Machine| failure(machine).expect("a failure").0.why;
    let mut late = machine();
    asked(&mut late);
    late.take(SOON, Input::Counts(1, vec![1, 0, 0]));
    late.tick(PATIENCE - Duration::from_nanos(1));
    assert_eq!(failure(&mut late), None);
    late.tick(PATIENCE);
    let text =
        "layer 1, Dispatch: expected its end within 1s, still waiting for Counts of rank 2, Rows of rank 1";
    assert_eq!(why(&mut late), text);
    late.take(SOON, Input::Failed(Failure::broken("another")));
    late.tick(2 * PATIENCE);
    assert_eq!(failure(&mut late), None, "it has failed");
    for (input, reason) in [
        (Input::Asked(3, Vec::new()), "a kernel's word: expected step 2, once 1 is answered, got 3"),
        (Input::Asked(2, Vec::new()), "a kernel's word: expected step 2, once 1 is answered, got 2"),
        (Input::Arrived(2, What::Made), "Made of rank 2: expected nothing, got it"),
        (Input::Counts(0, vec![0; 3]), "Counts of rank 0: expected nothing, got it"),
        (Input::Counts(7, vec![0; 3]), "counts of rank 7: expected a rank below 3, got 7"),
        (Input::Counts(1, vec![9; 3]), "counts of rank 1: expected at most 4 rows of an expert, got 9"),
        (Input::Failed(Failure::lost("no rail")), "no rail"),
    ] {
        let mut bad = machine();
        asked(&mut bad);
        bad.take(SOON, input);
        let (failure, is_new) = failure(&mut bad).expect("a failure");
        assert_eq!((failure.why.as_str(), is_new), (reason, true));
    }
    let mut told = machine();
    asked(&mut told);
    told.take(SOON, Input::Heard(2, Failure::lost("no rail")));
    assert_eq!(failure(&mut told), Some((Failure::lost("rank 2: no rail"), false)), "the others know");
    let mut written = machine();
    written.take(SOON, Input::Written(2));
    assert_eq!(why(&mut written), "ends of parts: expected at most 0, got 2");
}
