//! The same of normal mode: tensors of a call are copied to where kernels reach them, and back.

use super::{Staged, Tensor};
use crate::normal::NormalRunner;
use shunt_kernels::Outcome;
use shunt_kernels::moe::normal::{FP8, NormalCall, NormalKernel};
use shunt_layout::moe_normal::{NormalMap, Terms};

/// What runs kernels of normal mode as well.
pub trait NormalMachine: super::Machine {
    /// Runs a kernel to its end: a fault, if a block met one; else the sum of all.
    fn launch_normal(&self, kernel: NormalKernel, call: &NormalCall) -> Outcome;
}

/// Arguments that are addresses.
type Argument = fn(&mut NormalCall) -> &mut u64;

/// All of them, in the order of the numbers below.
pub const ARGUMENTS: [Argument; 21] = [
    |call| &mut call.peers,
    |call| &mut call.x,
    |call| &mut call.x_scales,
    |call| &mut call.topk_index,
    |call| &mut call.topk_weights,
    |call| &mut call.rank_counts,
    |call| &mut call.node_counts,
    |call| &mut call.expert_counts,
    |call| &mut call.position,
    |call| &mut call.incoming,
    |call| &mut call.prefix,
    |call| &mut call.arriving,
    |call| &mut call.counts,
    |call| &mut call.forward,
    |call| &mut call.out,
    |call| &mut call.out_scales,
    |call| &mut call.out_index,
    |call| &mut call.out_weights,
    |call| &mut call.biases[0],
    |call| &mut call.biases[1],
    |call| &mut call.said,
];
const PEERS: usize = 0;
const X: usize = 1;
const X_SCALES: usize = 2;
const INDEX: usize = 3;
const WEIGHTS: usize = 4;
const RANK_COUNTS: usize = 5;
const NODE_COUNTS: usize = 6;
const EXPERT_COUNTS: usize = 7;
const POSITION: usize = 8;
const INCOMING: usize = 9;
const PREFIX: usize = 10;
const ARRIVING: usize = 11;
const COUNTS: usize = 12;
const FORWARD: usize = 13;
const OUT: usize = 14;
const OUT_SCALES: usize = 15;
const OUT_INDEX: usize = 16;
const OUT_WEIGHTS: usize = 17;
const BIASES: [usize; 2] = [18, 19];
const SAID: usize = 20;

/// What a kernel reads and writes beside the heap. Those that a call leaves out, by an address of 0, are not among it.
pub fn tensors(kernel: NormalKernel, call: &NormalCall) -> Vec<Tensor> {
    let (shape, mut call) = (&call.shape, *call);
    let (ranks, nodes, channels) =
        (u64::from(shape.ranks()), u64::from(shape.nodes), u64::from(shape.channels));
    let (tokens, rows, topk) = (u64::from(call.tokens), call.rows, u64::from(call.topk));
    let (fp8, local) = (call.has(FP8), u64::from(shape.local_experts));
    let (data, bf16) = (shape.data_bytes(fp8), shape.data_bytes(false));
    let scales = if fp8 { 4 * shape.scales() } else { 0 };
    let peers = (PEERS, 8 * u64::from(shape.locals));
    let position = (POSITION, 4 * tokens * ranks);
    let incoming = (INCOMING, 4 * channels * ranks);
    let prefix = (PREFIX, 4 * (ranks + 1));
    let arriving = (ARRIVING, 4 * nodes * channels);
    let forward = (FORWARD, 4 * nodes * channels * u64::from(shape.part(shape.tokens)));
    let ways = [peers, position, incoming, prefix, arriving];
    let biases = BIASES.map(|number| (number, tokens * bf16));
    let expert_counts = (EXPERT_COUNTS, 4 * shape.experts());
    let (reads, writes) = match kernel {
        NormalKernel::Layout => (
            vec![(INDEX, 8 * tokens * topk)],
            vec![position, (RANK_COUNTS, 4 * ranks), (NODE_COUNTS, 4 * nodes), expert_counts],
        ),
        NormalKernel::Notify => {
            let found = [incoming, prefix, arriving, (COUNTS, 4 * local), (SAID, 8 * ranks)];
            (vec![peers, position, expert_counts], found.to_vec())
        }
        NormalKernel::Dispatch => (
            [
                &ways[..],
                &[(X, tokens * data), (X_SCALES, tokens * scales)],
                &[(INDEX, 8 * tokens * topk), (WEIGHTS, 4 * tokens * topk)],
            ]
            .concat(),
            vec![
                forward,
                (OUT, rows * data),
                (OUT_SCALES, rows * scales),
                (OUT_INDEX, 8 * rows * topk),
                (OUT_WEIGHTS, 4 * rows * topk),
            ],
        ),
        NormalKernel::Combine => (
            [&ways[..], &[forward, (X, rows * bf16), (WEIGHTS, 4 * rows * topk)], &biases].concat(),
            vec![(OUT, tokens * bf16), (OUT_WEIGHTS, 4 * tokens * topk)],
        ),
        NormalKernel::Settle => (vec![peers], Vec::new()),
        NormalKernel::Hold => (Vec::new(), vec![(SAID, 8 * Terms::WORDS * ranks)]),
    };
    let of = |written: bool| move |(argument, bytes)| Tensor { argument, bytes, written };
    let all = reads.into_iter().map(of(false)).chain(writes.into_iter().map(of(true)));
    all.filter(|tensor| *ARGUMENTS[tensor.argument](&mut call) != 0).collect()
}

const KERNELS: [NormalKernel; 6] = [
    NormalKernel::Layout,
    NormalKernel::Notify,
    NormalKernel::Dispatch,
    NormalKernel::Combine,
    NormalKernel::Settle,
    NormalKernel::Hold,
];

/// Bytes of the largest tensor of each argument.
pub(super) fn largest(shape: &NormalMap) -> Vec<u64> {
    let rows = u64::from(shape.ranks()) * u64::from(shape.tokens);
    let call = |flags| {
        let (tokens, topk) = (shape.tokens, shape.topk);
        let mut call = NormalCall { shape: *shape, tokens, topk, rows, flags, ..NormalCall::default() };
        // None is left out.
        ARGUMENTS.iter().for_each(|argument| *argument(&mut call) = 1);
        call
    };
    let mut out = vec![0; ARGUMENTS.len()];
    for (kernel, flags) in KERNELS.into_iter().flat_map(|kernel| [(kernel, 0), (kernel, FP8)]) {
        for tensor in tensors(kernel, &call(flags)) {
            out[tensor.argument] = out[tensor.argument].max(tensor.bytes);
        }
    }
    out
}

impl<M: NormalMachine> NormalRunner for Staged<M> {
    /// # Panics
    /// A kernel wrote what is not its own.
    fn run_normal(&self, kernel: NormalKernel, call: &NormalCall) -> Outcome {
        let mut room = self.normal.borrow_mut();
        let room = room.get_or_insert_with(|| super::Room::new(&self.machine, &largest(&call.shape), 0));
        let (mut staged, mut given) = (*call, *call);
        let tensors = tensors(kernel, call);
        for Tensor { argument, bytes, written } in tensors.iter().copied() {
            let from = *ARGUMENTS[argument](&mut given);
            *ARGUMENTS[argument](&mut staged) =
                room.bring(&self.machine, argument, bytes, (!written).then_some(from));
        }
        let outcome = self.machine.launch_normal(kernel, &staged);
        room.check(&self.machine);
        for Tensor { argument, bytes, .. } in tensors.into_iter().filter(|tensor| tensor.written) {
            room.take(&self.machine, argument, bytes, *ARGUMENTS[argument](&mut given));
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal::Config;

    #[test]
    fn every_argument_has_a_largest_size_and_what_is_left_out_is_not_copied() {
        let config = Config { sms: 4, nvl_slots: 2, rdma_chunk: 2, rdma_slots: 4 };
        let shape = NormalMap::of(config.shape(2, 2, (2, 4), 6, 512));
        assert!(largest(&shape).iter().all(|bytes| *bytes > 0));
        let call = NormalCall { shape, x: 1, tokens: 6, ..NormalCall::default() };
        let of_x = Tensor { argument: X, bytes: 6 * 1024, written: false };
        assert_eq!(tensors(NormalKernel::Dispatch, &call), [of_x]);
        let bytes = |kernel| tensors(kernel, &call).iter().map(|tensor| tensor.bytes).sum::<u64>();
        assert_eq!((bytes(NormalKernel::Combine), bytes(NormalKernel::Settle)), (0, 0));
    }
}
