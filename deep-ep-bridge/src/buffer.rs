//! DeepEP's low-latency buffer of one rank.
//!
//! `dispatch` and `combine` run their sending phase and answer with what is to be received: a hook, as DeepEP calls it.
//! Between the two the caller computes; `receive` runs the second phase. Two calls may be under way, and they are
//! received in the order in which they were sent.

mod clean;
mod waits;

use crate::agreement::Mask;
use crate::fault::{self, MoeError, MoeFault};
use crate::runner::Runner;
use crate::settings::{Format, Patience, Signals};
use shunt_device::FaultKind;
use shunt_kernels::moe::{ABSOLUTE, ASK, MoeCall, Stage, ZERO_COPY};
use shunt_layout::moe::{At, CALLS_MAX, SETS, Shape, TOPK_MAX};
use std::borrow::Borrow;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells buffers apart: what one handed out is worth nothing to another.
static MADE: AtomicU64 = AtomicU64::new(1);

/// Bytes of the heap that a buffer takes: DeepEP's `get_low_latency_rdma_size_hint`.
///
/// # Errors
/// What of the sizes cannot be.
pub fn size_hint(tokens: u32, hidden: u32, ranks: u32, experts: u32) -> Result<u64, MoeError> {
    Shape::new(ranks, experts, tokens, hidden).map(|shape| shape.bytes()).map_err(MoeError::Shape)
}

/// What a dispatch leaves for the combine that answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    source: Vec<u32>,
    ranges: Vec<u64>,
    buffer: u64,
    tokens: u32,
    topk: u32,
    topk_index: Vec<i64>,
}

impl Handle {
    /// By local expert and row: index of the token at its source.
    pub fn source(&self) -> &[u32] {
        &self.source
    }

    /// By local expert and rank: first row (high half) and rows (low half).
    pub fn ranges(&self) -> &[u64] {
        &self.ranges
    }

    /// Rows of a local expert that came from `rank`, of so many; none where there is no such pair.
    pub fn rows(&self, ranks: u32, local_expert: u32, rank: u32) -> std::ops::Range<usize> {
        let pair = local_expert as usize * ranks as usize + rank as usize;
        let range = if rank < ranks { self.ranges.get(pair).copied().unwrap_or(0) } else { 0 };
        let (first, rows) = (range >> 32, range & 0xffff_ffff);
        first as usize..(first + rows) as usize
    }
}

/// What came for this rank's experts.
#[derive(Clone, Debug)]
pub struct Received {
    /// By local expert and row, `ranks * tokens` rows each: channels as bytes of the format, in words.
    pub x: Vec<u64>,
    /// FP8: by local expert, group of 128 channels (or four of them, as exponents), and row.
    pub scales: Vec<u32>,
    /// By local expert: rows.
    pub counts: Vec<u32>,
    /// For the combine.
    pub handle: Handle,
    /// The format it came in.
    pub format: Format,
}

/// A dispatch that was sent and is to be received.
#[must_use = "what was sent must be received"]
pub struct Dispatch {
    buffer: u64,
    call: u64,
    format: Format,
    tokens: u32,
    topk: u32,
    topk_index: Vec<i64>,
}

/// A combine that was sent and is to be received.
#[must_use = "what was sent must be received"]
pub struct Combine {
    buffer: u64,
    call: u64,
    tokens: u32,
    topk: u32,
    receive: Stage,
    topk_index: Vec<i64>,
    topk_weights: Vec<f32>,
}

/// The buffer.
pub struct Buffer<R: Runner> {
    runner: R,
    shape: Shape,
    base: u64,
    patience: Patience,
    /// Calls sent, and calls received.
    sent: u64,
    received: u64,
    floor: u64,
    meeting: u64,
    broken: bool,
    /// Its own number.
    made: u64,
    /// Where kernels here reach the part that each rank has of it; 0: by NIC.
    peers: Vec<u64>,
    /// The call whose send buffer the caller may write.
    lent: u64,
    /// What the ranks agree on, where they do.
    agreed: Option<Mask>,
}

fn numbered(what: &'static str, met: u64, most: u64) -> Result<(), MoeError> {
    if met <= most { Ok(()) } else { Err(MoeError::Numbers { what, met, most }) }
}

pub(crate) fn argument(what: &'static str, met: impl ToString, right: impl ToString) -> MoeError {
    MoeError::Argument { what, met: met.to_string(), right: right.to_string() }
}

impl<R: Runner> Buffer<R> {
    /// A buffer in the heap from offset `base` on, where all words are zero. All ranks make it alike.
    ///
    /// # Errors
    /// Sizes that cannot be, no room, or a mask to be agreed on where nothing agrees.
    pub fn new(
        runner: R,
        base: u64,
        tokens: u32,
        hidden: u32,
        experts: u32,
        patience: Patience,
    ) -> Result<Self, MoeError> {
        let shape = Shape::new(runner.ranks(), experts, tokens, hidden).map_err(MoeError::Shape)?;
        let (needed, met) = (shape.bytes(), runner.heap_bytes());
        if !base.is_multiple_of(16) {
            return Err(argument("base", base, "a multiple of 16"));
        }
        if base.checked_add(needed).is_none_or(|end| end > met) {
            return Err(MoeError::Room { needed, base, met });
        }
        let (sent, received, floor, meeting, broken) = (0, 0, 0, 2, false);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let agreed = match (patience.mask_lost, runner.agreement()) {
            (false, _) => None,
            (true, Some(agreement)) => Some(Mask::new(agreement)),
            (true, None) => {
                return Err(argument("mask_lost", true, "false: nothing here agrees with the other ranks"));
            }
        };
        let peers = (0..shape.ranks).map(|rank| runner.near(rank, base).unwrap_or(0)).collect();
        let buffer = Self {
            runner,
            shape,
            base,
            patience,
            sent,
            received,
            floor,
            meeting,
            broken,
            made,
            peers,
            lent: 0,
            agreed,
        };
        if buffer.was_used() {
            return Err(argument(
                "base",
                base,
                "a part of the heap that no buffer was in: words there are not zero",
            ));
        }
        Ok(buffer)
    }

    /// Whether calls of an earlier buffer left words behind, by those that this rank alone writes: its peers may be a
    /// call ahead already.
    fn was_used(&self) -> bool {
        let claims = (0..self.shape.tokens).map(|token| self.shape.claim(token));
        let mut own = claims.chain([self.shape.credit(self.runner.rank())]);
        own.any(|at| self.word(at).load(Ordering::Acquire) != 0)
    }

    /// What runs the kernels.
    pub fn runner(&self) -> &R {
        &self.runner
    }

    /// Its sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Calls are counted from `number` on, as behind a cleaning: before the first call, on all ranks alike.
    ///
    /// # Errors
    /// There was a call; numbers end before.
    pub fn count_from(&mut self, number: u64) -> Result<(), MoeError> {
        if self.sent != 0 {
            return Err(MoeError::Order("calls are counted already; set it before the first one"));
        }
        numbered("call", number, CALLS_MAX)?;
        (self.sent, self.received, self.floor) = (number, number, number);
        Ok(())
    }

    fn call(&self, number: u64, flags: u32) -> MoeCall {
        let absolute = if self.patience.signals == Signals::Absolute { ABSOLUTE } else { 0 };
        MoeCall {
            shape: self.shape,
            base: self.base,
            peers: self.peers.as_ptr() as u64,
            call: number,
            floor: self.floor,
            timeout_ns: self.patience.timeout_ns,
            slice_ns: self.patience.slice_ns,
            blocks: self.patience.blocks.max(1),
            flags: flags | absolute | if self.patience.mask_lost { ASK } else { 0 },
            ..MoeCall::default()
        }
    }

    fn run(&mut self, stage: Stage, call: &MoeCall) -> Result<u64, MoeError> {
        let outcome = self.runner.run(stage, call);
        let Some(fault) = outcome.as_fault() else { return Ok(outcome.value) };
        self.broken = true;
        if let Some(agreed) = self.agreed.as_mut().filter(|_| fault.kind == FaultKind::PeerLost) {
            agreed.note_lost(fault.peer);
        }
        let stage = Stage::from_raw(outcome.value).unwrap_or(stage);
        let path = self.runner.path(&fault);
        Err(MoeError::Fault(Box::new(MoeFault { at: fault::At::Stage(stage), fault, path })))
    }

    /// Whether another call may be sent.
    fn may_send(&mut self) -> Result<(), MoeError> {
        if let Some(agreed) = &self.agreed {
            agreed.check().inspect_err(|_| self.broken = true)?;
        }
        if self.broken {
            return Err(MoeError::Broken);
        }
        if self.sent - self.received >= SETS {
            return Err(MoeError::Order("two calls are under way; receive one first"));
        }
        // One is left for a cleaning behind the last.
        numbered("call", self.sent + 1, CALLS_MAX - 1)
    }

    fn own(&self, what: &'static str, buffer: u64) -> Result<(), MoeError> {
        if buffer == self.made {
            Ok(())
        } else {
            Err(argument(what, "another buffer's", "this buffer's own"))
        }
    }

    fn may_receive(&self, buffer: u64, call: u64) -> Result<(), MoeError> {
        self.own("what was sent", buffer)?;
        if self.broken {
            return Err(MoeError::Broken);
        }
        if call != self.received + 1 {
            return Err(MoeError::Order("calls are received in the order in which they were sent"));
        }
        Ok(())
    }

    fn check_topk(&self, tokens: usize, topk_index: &[i64]) -> Result<u32, MoeError> {
        let (most, experts) = (self.shape.tokens, self.shape.experts() as i64);
        if tokens > most as usize {
            return Err(argument("tokens", tokens, format!("{most} at most")));
        }
        let topk = topk_index.len().checked_div(tokens).unwrap_or(0);
        if topk_index.len() != topk * tokens || topk > TOPK_MAX as usize || (tokens > 0 && topk == 0) {
            let right = format!("1 to {TOPK_MAX} for each of {tokens} tokens");
            return Err(argument("topk indices", topk_index.len(), right));
        }
        if let Some(index) = topk_index.iter().find(|index| **index >= experts) {
            return Err(argument("a topk index", index, format!("below {experts}, or negative for none")));
        }
        Ok(topk as u32)
    }

    /// DeepEP's `low_latency_dispatch`, its sending phase: `x` is the tokens in BF16, `topk_index` the experts of each.
    ///
    /// # Errors
    /// Arguments that cannot be, with nothing sent; a fault, which breaks the buffer until it is cleaned.
    pub fn dispatch(&mut self, x: &[u16], topk_index: &[i64], format: Format) -> Result<Dispatch, MoeError> {
        self.may_send()?;
        let hidden = self.shape.hidden as usize;
        let tokens = x.len() / hidden;
        if x.len() != tokens * hidden {
            return Err(argument("channels of all tokens", x.len(), format!("a multiple of {hidden}")));
        }
        let topk = self.check_topk(tokens, topk_index)?;
        let copied = aligned(x);
        let number = self.sent + 1;
        let call = MoeCall {
            x: copied.as_ref().map_or(x.as_ptr() as u64, |words| words.as_ptr() as u64),
            topk_index: topk_index.as_ptr() as u64,
            tokens: tokens as u32,
            topk,
            ..self.call(number, format.flags())
        };
        self.run(Stage::DispatchSend, &call)?;
        self.sent = number;
        let (buffer, tokens, topk_index) = (self.made, tokens as u32, topk_index.to_vec());
        Ok(Dispatch { buffer, call: number, format, tokens, topk, topk_index })
    }

    /// The hook of a dispatch: its receiving phase.
    ///
    /// # Errors
    /// Out of order or another buffer's, with nothing received: lent, it can be received in its turn. A fault, which
    /// breaks the buffer until it is cleaned.
    pub fn receive_dispatch(&mut self, sent: impl Borrow<Dispatch>) -> Result<Received, MoeError> {
        let &Dispatch { buffer, call: number, format, tokens, topk, ref topk_index } = sent.borrow();
        self.may_receive(buffer, number)?;
        let (rows, local) = (self.shape.rows(), self.shape.local_experts as u64);
        let mut handle = Handle {
            source: vec![0; (local * rows) as usize],
            ranges: vec![0; (local * u64::from(self.shape.ranks)) as usize],
            buffer,
            tokens,
            topk,
            topk_index: topk_index.clone(),
        };
        let bytes = local * rows * self.shape.hidden as u64 * format.bytes();
        let scales = match format {
            Format::Bf16 => 0,
            Format::Fp8Exponents => local * rows * self.shape.scales() / 4,
            _ => local * rows * self.shape.scales(),
        };
        let mut x = vec![0u64; bytes as usize / 8];
        let mut scales = vec![0u32; scales as usize];
        let mut counts = vec![0u32; local as usize];
        let call = MoeCall {
            out: x.as_mut_ptr() as u64,
            out_scales: scales.as_mut_ptr() as u64,
            source: handle.source.as_mut_ptr() as u64,
            ranges: handle.ranges.as_mut_ptr() as u64,
            counts: counts.as_mut_ptr() as u64,
            ..self.call(number, format.flags())
        };
        self.run(Stage::DispatchReceive, &call)?;
        self.received = number;
        Ok(Received { x, scales, counts, handle, format })
    }

    /// Where the experts may leave what they make, for a combine without a copy: by local expert and row, rows
    /// [`Shape::combine_stride`] bytes apart. It is that of the next call, and this waits until nothing of the call
    /// before the last is read from there any more. DeepEP's `get_next_low_latency_combine_buffer`.
    ///
    /// # Errors
    /// Two calls are under way; a fault, which breaks the buffer until it is cleaned.
    pub fn next_combine_buffer(&mut self) -> Result<u64, MoeError> {
        self.may_send()?;
        let number = self.sent + 1;
        let call = MoeCall { blocks: 1, ..self.call(number, 0) };
        self.run(Stage::Room, &call)?;
        self.lent = number;
        Ok(self.runner.address(self.base + self.shape.send(number % SETS).0))
    }

    /// DeepEP's `low_latency_combine`, its sending phase: `x` is what the experts made in BF16, by local expert and
    /// row; `None` if it lies in [`Buffer::next_combine_buffer`].
    ///
    /// # Errors
    /// As for a dispatch.
    pub fn combine(
        &mut self,
        x: Option<&[u16]>,
        topk_weights: &[f32],
        handle: impl Borrow<Handle>,
    ) -> Result<Combine, MoeError> {
        self.combine_as(x, topk_weights, handle.borrow(), (Stage::CombineSend, Stage::CombineReceive))
    }

    /// The same with `use_logfmt`, on all ranks alike: groups of 128 channels that are all below 1 travel in ten bits a
    /// channel. The receiving phase knows.
    ///
    /// # Errors
    /// As for a dispatch.
    pub fn combine_logfmt(
        &mut self,
        x: &[u16],
        topk_weights: &[f32],
        handle: impl Borrow<Handle>,
    ) -> Result<Combine, MoeError> {
        let stages = (Stage::CombineSendLog, Stage::CombineReceiveLog);
        self.combine_as(Some(x), topk_weights, handle.borrow(), stages)
    }

    fn combine_as(
        &mut self,
        x: Option<&[u16]>,
        topk_weights: &[f32],
        handle: &Handle,
        (send, receive): (Stage, Stage),
    ) -> Result<Combine, MoeError> {
        self.own("a handle", handle.buffer)?;
        self.may_send()?;
        if x.is_none() && self.lent != self.sent + 1 {
            return Err(MoeError::Order(
                "next_combine_buffer says where, and when; no call is sent in between",
            ));
        }
        let right = self.shape.local_experts as u64 * self.shape.rows() * self.shape.hidden as u64;
        if let Some(x) = x
            && x.len() as u64 != right
        {
            return Err(argument("channels of all rows of all local experts", x.len(), right));
        }
        if topk_weights.len() != handle.topk_index.len() {
            return Err(argument("topk weights", topk_weights.len(), handle.topk_index.len()));
        }
        let copied = x.and_then(aligned);
        let from = copied.as_ref().map(|words| words.as_ptr() as u64);
        let number = self.sent + 1;
        let call = MoeCall {
            x: from.or(x.map(|x| x.as_ptr() as u64)).unwrap_or(0),
            source: handle.source.as_ptr() as u64,
            ranges: handle.ranges.as_ptr() as u64,
            ..self.call(number, if x.is_none() { ZERO_COPY } else { 0 })
        };
        self.run(send, &call)?;
        self.sent = number;
        let &Handle { buffer, tokens, topk, ref topk_index, .. } = handle;
        let (topk_index, topk_weights) = (topk_index.clone(), topk_weights.to_vec());
        Ok(Combine { buffer, call: number, tokens, topk, receive, topk_index, topk_weights })
    }

    /// The hook of a combine: the tokens, weighed and summed, in BF16.
    ///
    /// # Errors
    /// As for [`Buffer::receive_dispatch`].
    pub fn receive_combine(&mut self, sent: impl Borrow<Combine>) -> Result<Vec<u16>, MoeError> {
        let sent = sent.borrow();
        self.may_receive(sent.buffer, sent.call)?;
        let channels = sent.tokens as usize * self.shape.hidden as usize;
        let mut out = vec![0u64; channels / 4];
        let call = MoeCall {
            topk_index: sent.topk_index.as_ptr() as u64,
            topk_weights: sent.topk_weights.as_ptr() as u64,
            out: out.as_mut_ptr() as u64,
            tokens: sent.tokens,
            topk: sent.topk,
            ..self.call(sent.call, 0)
        };
        self.run(sent.receive, &call)?;
        self.received = sent.call;
        Ok(out.iter().flat_map(|word| (0..4).map(move |at| (word >> (16 * at)) as u16)).collect())
    }

    fn mask_word(&self, rank: u32) -> &AtomicU64 {
        self.word(self.shape.mask(rank))
    }

    fn word(&self, at: At) -> &AtomicU64 {
        let at = self.runner.address(self.base + at.0);
        // SAFETY: an aligned word of the buffer's part of the heap, which lives as long as the runner; kernels reach it
        // atomically.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }
    }
}

/// A copy in whole words, if `x` is not aligned to them: kernels read whole words.
pub(crate) fn aligned(x: &[u16]) -> Option<Vec<u64>> {
    if (x.as_ptr() as usize).is_multiple_of(align_of::<u64>()) {
        return None;
    }
    let word = |four: &[u16]| (0..4).fold(0, |word, at| word | u64::from(four[at]) << (16 * at));
    Some(x.chunks_exact(4).map(word).collect())
}
