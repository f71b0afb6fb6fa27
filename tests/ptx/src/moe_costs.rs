//! What the phases of a low-latency MoE layer cost one rank of many, when nothing fails and nobody is late: what its
//! peers would send lies in the heap before a phase begins, so no wait is part of a count.

use crate::code::Module;
use crate::counts::Counts;
use crate::rig::{Mode, Rig, actor, bytes_of, outcome_words, outcomes};
use shunt_kernels::Outcome;
use shunt_kernels::moe::{FP8, MoeCall, Stage};
use shunt_layout::moe::{At, Shape, TOPK_MAX};
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::{BASE, spec};
use shunt_tests::oracle::store;
use std::cell::RefCell;
use std::rc::Rc;

/// A layer whose cost is counted.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Ranks.
    pub ranks: u32,
    /// Experts of all ranks.
    pub experts: u32,
    /// Tokens of the rank that is counted.
    pub tokens: u32,
    /// Channels of a token.
    pub hidden: u32,
    /// Experts of a token.
    pub topk: u32,
    /// Blocks of a launch, and threads of a block.
    pub launch: (u32, u32),
    /// Whether tokens are sent as FP8.
    pub fp8: bool,
}

/// The dispatch, by its number: rooms of the buffers are waited for, and were given back.
const DISPATCH: u64 = 3;
const COMBINE: u64 = DISPATCH + 1;

/// A rank of the layer, and what its calls lead to.
struct Rank {
    rig: Rig,
    shape: Shape,
    layer: Layer,
    call: MoeCall,
    memory: RefCell<Vec<Vec<u64>>>,
}

impl Rank {
    fn new(module: &Rc<Module>, layer: Layer) -> Self {
        let shape = Shape::new(layer.ranks, layer.experts, layer.tokens, layer.hidden).expect("a shape");
        let mut spec = spec(&shape, 1);
        // A channel to each peer is enough: indices go round.
        spec.channels = 1;
        let rig = Rig::new(Cluster::start(&spec), module, Mode { relaxed: false, seed: 1 }, false);
        let mut rank = Self { rig, shape, layer, call: MoeCall::default(), memory: RefCell::new(Vec::new()) };
        rank.call = rank.first_call();
        rank.peers_are_through();
        rank
    }

    /// Memory that kernels reach, filled.
    fn tensor(&self, bytes: u64, word: impl Fn(u64) -> u64) -> u64 {
        let words: Vec<u64> = (0..bytes.div_ceil(8)).map(word).collect();
        self.rig.station(0).lent.lend(&words);
        let at = words.as_ptr() as u64;
        self.memory.borrow_mut().push(words);
        at
    }

    fn first_call(&self) -> MoeCall {
        let (shape, layer) = (self.shape, self.layer);
        let (rows, local) = (shape.rows(), u64::from(shape.local_experts));
        let topk = u64::from(layer.topk);
        assert!(layer.topk <= TOPK_MAX);
        // Each token goes to experts of ranks that lie apart, this rank's own among them.
        let chosen =
            |number: u64| (number / topk + (number % topk) * shape.experts() / topk) % shape.experts();
        MoeCall {
            shape,
            base: BASE,
            timeout_ns: 10_000_000_000,
            slice_ns: 10_000_000,
            x: self.tensor(local * rows * shape.bf16_bytes(), |n| 0x3f80_3f00_4000_bf80 ^ n << 3 & 0x70),
            topk_index: self.tensor(u64::from(layer.tokens) * topk * 8, chosen),
            topk_weights: self.tensor(u64::from(layer.tokens) * topk * 4, |_| 0x3e80_0000_3e80_0000),
            out: self.tensor(local * rows * shape.bf16_bytes(), |_| 0),
            out_scales: self.tensor(local * rows * shape.scales() * 4, |_| 0),
            source: self.tensor(local * rows * 4, |_| 0),
            ranges: self.tensor(shape.experts() * 8, |_| 0),
            counts: self.tensor(local * 4, |_| 0),
            tokens: layer.tokens,
            topk: layer.topk,
            blocks: layer.launch.0,
            flags: if layer.fp8 { FP8 } else { 0 },
            ..MoeCall::default()
        }
    }

    fn set(&self, at: At, value: u64) {
        store(self.rig.cluster.pe(0).heap().address + BASE + at.0, value);
    }

    /// Words of the other ranks: they took all calls before these, sent one token to each expert, and answered.
    fn peers_are_through(&self) {
        let shape = self.shape;
        for rank in 0..shape.ranks {
            self.set(shape.credit(rank), DISPATCH);
            for local in (0..shape.local_experts).filter(|_| rank != 0) {
                self.set(shape.count(DISPATCH % 2, local, rank), !1);
                self.set(shape.flag(COMBINE % 2, u64::from(rank * shape.local_experts + local)), !0);
            }
        }
    }

    /// What a phase costs, all of its blocks.
    fn cost(&self, stage: Stage, number: u64) -> Counts {
        let before = self.rig.counts();
        let (blocks, threads) = self.layer.launch;
        let room = outcome_words(blocks * threads.div_ceil(32));
        let station = self.rig.station(0);
        station.lent.lend(&room);
        let call = MoeCall { call: number, ..self.call };
        // SAFETY: calls of kernels are plain words.
        let params = vec![unsafe { bytes_of(&call) }, (room.as_ptr() as u64).to_le_bytes().to_vec()];
        let tasks: Vec<_> = (0..blocks)
            .map(|block| {
                let (station, params) = (self.rig.station(0), params.clone());
                let entry = format!("shunt_kernel_{}_block", stage.kernel());
                let run = move || station.run(&entry, &params, (block, blocks), threads);
                self.rig.cluster.sim.spawn(format!("{}.{block}", stage.kernel()), actor(), run)
            })
            .collect();
        self.rig.cluster.sim.finish_all(&tasks);
        let fault =
            outcomes(&room, blocks * threads.div_ceil(32)).into_iter().find_map(|outcome| outcome.as_fault());
        assert!(fault.is_none(), "{}: expected no fault, got {fault:?}", stage.name());
        self.rig.counts().less(&before)
    }
}

/// The cost of each phase, in the order in which they run.
pub fn costs(module: &Rc<Module>, layer: Layer) -> Vec<(Stage, Counts)> {
    let rank = Rank::new(module, layer);
    [
        (Stage::DispatchSend, DISPATCH),
        (Stage::DispatchReceive, DISPATCH),
        (Stage::CombineSend, COMBINE),
        (Stage::CombineReceive, COMBINE),
    ]
    .map(|(stage, number)| (stage, rank.cost(stage, number)))
    .into()
}

/// What making the message of a token costs: the difference that one more token makes, all of whose experts are this
/// rank's first.
pub fn message(module: &Rc<Module>, layer: Layer) -> Counts {
    let of = |tokens: u32| {
        let rank = Rank::new(module, layer);
        let call = MoeCall { tokens, topk: 1, ..rank.call };
        let rank = Rank { call, ..rank };
        rank.cost(Stage::DispatchSend, 1)
    };
    of(2).less(&of(1))
}

const _: () = assert!(size_of::<Outcome>().is_multiple_of(8));
