//! Layers and what must come of them, from the reference of the bridge for DeepEP: tokens, routes, what each expert
//! gets, what each rank gets back. Every rank makes the same ones.

use shunt_deep_ep_bridge::Format;
use shunt_deep_ep_bridge::reference::Case;
use shunt_layout::moe::Shape;
use std::collections::BTreeMap;

/// Layers that differ, at most; their number is told by each row's header.
const CASES: u64 = 4;
/// Channels of all of them together, at most.
const CHANNELS: u64 = 1 << 23;

/// A row as an expert must get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which expert.
    pub expert: u32,
    /// Whose row.
    pub source: u32,
    /// Which token.
    pub token: u32,
}

/// A layer, and what comes of it at the ranks that live here.
struct Layer {
    case: Case,
    due: BTreeMap<u32, Vec<Due>>,
    sums: BTreeMap<u32, Vec<u16>>,
}

/// Layers, in turn.
pub struct Model(Vec<Layer>);

fn layer(shape: Shape, topk: u32, seed: u64, ranks: &[u32]) -> Layer {
    let case = Case::random(shape, topk, Format::Bf16, seed);
    let due = |rank: u32| {
        let local = u64::from(shape.local_experts);
        let mut due = Vec::new();
        for expert in u64::from(rank) * local..u64::from(rank + 1) * local {
            for source in 0..shape.ranks {
                let tokens = case.chosen(source, expert).into_iter();
                due.extend(tokens.map(|token| Due { expert: expert as u32, source, token }));
            }
        }
        (rank, due)
    };
    let none = vec![false; shape.ranks as usize];
    let sums = |rank: u32| (rank, case.combined(rank, &none).into_iter().map(|(bits, ..)| bits).collect());
    let (due, sums) =
        (ranks.iter().map(|rank| due(*rank)).collect(), ranks.iter().map(|rank| sums(*rank)).collect());
    Layer { case, due, sums }
}

impl Model {
    /// Layers of this shape, with what comes of them at these ranks.
    pub fn new(shape: Shape, topk: u32, seed: u64, ranks: &[u32]) -> Self {
        let channels = u64::from(shape.ranks) * u64::from(shape.tokens) * u64::from(shape.hidden);
        let seeds = (0..(CHANNELS / channels.max(1)).clamp(1, CASES)).map(|number| seed.wrapping_add(number));
        std::thread::scope(|threads| {
            let make = |seed| threads.spawn(move || layer(shape, topk, seed, ranks));
            let made: Vec<_> = seeds.map(make).collect();
            Self(made.into_iter().map(|made| made.join().expect("a reference does not panic")).collect())
        })
    }

    fn layer(&self, number: u64) -> &Layer {
        &self.0[(number % self.0.len() as u64) as usize]
    }

    /// Tokens and routes of a layer.
    pub fn case(&self, layer: u64) -> &Case {
        &self.layer(layer).case
    }

    /// Rows that a rank's experts must get: by expert, by source, by token.
    pub fn due(&self, layer: u64, rank: u32) -> &[Due] {
        self.layer(layer).due.get(&rank).map_or(&[], Vec::as_slice)
    }

    /// What a rank must get back, as BF16.
    pub fn sums(&self, layer: u64, rank: u32) -> &[u16] {
        self.layer(layer).sums.get(&rank).map_or(&[], Vec::as_slice)
    }
}
