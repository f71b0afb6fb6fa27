//! Writes whose fate is not known, with a receiver that counts: every immediate comes once, and no count is whole
//! before all bytes are there.

use proptest::prelude::*;
use shunt_moe_proxy::failure::Failure;
use shunt_moe_proxy::plan::{Part, What};
use shunt_moe_proxy::settle::{Act, Deliveries, Fate};
use std::collections::{BTreeMap, BTreeSet};

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Something that may happen next.
enum Next {
    /// What was posted under a number ends. With immediates: whether each part arrives, and whether that is known.
    End(u64, Vec<Part>, Vec<(bool, bool)>),
    /// A repetition under a number ends.
    Repeated(u64, Vec<Part>),
    /// A rank counts, for a question.
    Count(u32, What, u64),
    /// An answer arrives: question, count.
    Answer(u64, u64),
    /// More parts are posted.
    Post(Vec<Part>),
}

struct World {
    deliveries: Deliveries,
    chance: Chance,
    nexts: Vec<Next>,
    number: u64,
    /// Faults that are left.
    faults: u32,
    /// Parts of all, and immediates that came.
    all: Vec<Part>,
    counts: BTreeMap<(u32, What), usize>,
    landed: BTreeSet<u64>,
    settled: usize,
}

impl World {
    fn post(&mut self, parts: Vec<Part>) {
        self.deliveries.posted(self.number, &parts);
        let draw = |_: &Part| {
            let is_known = self.faults == 0 || self.chance.below(2) == 0;
            self.faults -= u32::from(!is_known);
            (is_known || self.chance.below(2) == 0, is_known)
        };
        let fates = parts.iter().map(draw).collect();
        self.nexts.push(Next::End(self.number, parts, fates));
        self.number += 1;
    }

    fn happens(&mut self, next: Next) {
        let acts = match next {
            Next::End(number, parts, fates) => {
                let arrive = parts.iter().zip(&fates).filter(|(_, (arrives, _))| *arrives);
                let arrived: Vec<Part> = arrive.map(|(part, _)| *part).collect();
                arrived.iter().for_each(|part| self.arrives(part));
                let fate = |(_, is_known): &(bool, bool)| if *is_known { Fate::Sent } else { Fate::Unsure };
                self.deliveries.ended(number, &fates.iter().map(fate).collect::<Vec<_>>())
            }
            Next::Repeated(number, parts) => {
                self.landed.extend(parts.iter().map(|part| part.from));
                self.deliveries.ended(number, &vec![Fate::Sent; parts.len()])
            }
            Next::Count(to, what, question) => {
                let counted = self.counts.get(&(to, what)).map_or(0, |count| *count as u64);
                self.nexts.push(Next::Answer(question, counted));
                Ok(Vec::new())
            }
            Next::Answer(question, counted) => self.deliveries.answered(question, counted),
            Next::Post(parts) => {
                self.post(parts);
                Ok(Vec::new())
            }
        };
        for act in acts.expect("nothing fails") {
            match act {
                Act::Settled(parts) => self.settled += parts,
                Act::Ask(to, what, question) => self.nexts.push(Next::Count(to, what, question)),
                Act::Repeat(parts) => {
                    assert!(parts.iter().all(|part| part.len > 0), "{parts:?}");
                    self.deliveries.repeated(self.number, &parts);
                    self.nexts.push(Next::Repeated(self.number, parts));
                    self.number += 1;
                }
                Act::Write(parts) => self.post(parts),
            }
        }
    }

    fn arrives(&mut self, part: &Part) {
        if part.len > 0 {
            self.landed.insert(part.from);
        }
        let count = self.counts.entry((part.to, part.what)).or_default();
        *count += 1;
        let alike = || self.all.iter().filter(|one| (one.to, one.what) == (part.to, part.what));
        assert!(*count <= alike().count(), "{part:?}: one too many");
        let is_there = |one: &Part| one.len == 0 || self.landed.contains(&one.from);
        assert!(
            *count < alike().count() || alike().all(is_there),
            "{part:?}: whole before all bytes are there"
        );
    }
}

fn part(to: u32, what: What, number: u64, len: u64) -> Part {
    Part { to, what, from: 1 + number, at: number, len }
}

proptest! {
    #[test]
    fn every_immediate_comes_once(
        kinds in proptest::collection::vec((0..3u32, 0..3usize, 0..2u64, any::<bool>()), 1..12),
        faults in 0..12u32,
        chance in any::<u64>(),
    ) {
        let one = |(number, (to, what, len, later)): (u64, (u32, usize, u64, bool))| {
            (part(to, What::ALL[what], number, 100 * len), later)
        };
        let parts: Vec<(Part, bool)> = (0..).zip(kinds).map(one).collect();
        let batch = |late: bool| parts.iter().filter(|(_, later)| *later == late).map(|(part, _)| *part).collect();
        let mut world = World {
            deliveries: Deliveries::default(),
            chance: Chance(chance),
            nexts: vec![Next::Post(batch(false)), Next::Post(batch(true))],
            number: 0,
            faults,
            all: parts.iter().map(|(part, _)| *part).collect(),
            counts: BTreeMap::new(),
            landed: BTreeSet::new(),
            settled: 0,
        };
        for _ in 0..10_000 {
            if world.nexts.is_empty() {
                break;
            }
            let at = world.chance.below(world.nexts.len());
            let next = world.nexts.swap_remove(at);
            world.happens(next);
        }
        prop_assert!(world.nexts.is_empty() && world.settled == parts.len());
        prop_assert_eq!(world.counts.values().sum::<usize>(), parts.len());
        prop_assert_eq!(world.deliveries.awaited().count(), 0);
    }
}

#[test]
fn what_cannot_be_is_told() {
    let parts = [part(1, What::Rows, 0, 100)];
    let asked = || {
        let mut deliveries = Deliveries::default();
        deliveries.posted(7, &parts);
        assert_eq!(deliveries.ended(7, &[Fate::Unsure]), Ok(vec![Act::Ask(1, What::Rows, 1)]));
        assert_eq!((deliveries.awaited().collect::<Vec<_>>(), deliveries.asked()), (vec![1], 1));
        deliveries
    };
    let why = |result: Result<Vec<Act>, Failure>| result.expect_err("a failure").why;
    let mut deliveries = asked();
    assert_eq!(why(deliveries.ended(7, &[])), "a write: expected one that was posted, got number 7");
    assert_eq!(deliveries.answered(9, 5), Ok(Vec::new()), "another question");
    assert_eq!(why(deliveries.answered(1, 2)), "Rows at rank 1: expected 0 to 1 immediates, got 2");
    let mut deliveries = asked();
    assert_eq!(deliveries.answered(1, 1), Ok(vec![Act::Settled(1)]), "it had arrived");
    let mut deliveries = asked();
    assert_eq!(deliveries.answered(1, 0), Ok(vec![Act::Repeat(parts.to_vec())]));
    deliveries.repeated(8, &parts);
    let failed = deliveries.clone().ended(8, &[Fate::Failed(Failure::lost("no rail"))]);
    assert_eq!(failed, Err(Failure::lost("no rail")));
    assert!(deliveries.clone().ended(8, &[Fate::Unsure]).expect_err("a failure").is_uncertain);
    let bare = Part { from: 0, at: 0, len: 0, ..parts[0] };
    assert_eq!(deliveries.ended(8, &[Fate::Sent]), Ok(vec![Act::Write(vec![bare])]));
    let mut lost = Deliveries::default();
    lost.posted(0, &parts);
    assert_eq!(lost.ended(0, &[Fate::Failed(Failure::lost("no rail"))]), Err(Failure::lost("no rail")));
}
