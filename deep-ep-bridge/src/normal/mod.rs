//! Normal mode: DeepEP's `get_dispatch_layout`, `dispatch` and `combine` between nodes.
//!
//! A dispatch ends with all rows that came, in the order of their sources and of their tokens there; a combine with
//! the sums. Each is one call on all ranks alike, and nothing is under way behind it but what is not needed any more.
//! A fault breaks the buffer, until all ranks have cleaned it together. What ranks must have alike is held.

mod clean;
mod combine;
mod data;
mod hold;
mod input;
pub mod layer;
mod layout;
pub mod reference;
mod settings;

pub use data::{NormalCombined, NormalHandle, NormalReceived, Tokens};
pub use layout::Layout;
pub use settings::Config;

use crate::buffer::argument;
use crate::fault::{At, MoeError, MoeFault};
use crate::runner::Runner;
use crate::settings::Patience;
use hold::Agreement;
use input::Input;
use shunt_kernels::Outcome;
use shunt_kernels::moe::normal::{FP8, GIVE_UP, NormalCall, NormalKernel, Role};
use shunt_layout::moe_normal::{CallTerms, NormalMap, NormalShape, Terms, Why};
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells buffers apart: what one handed out is worth nothing to another.
static MADE: AtomicU64 = AtomicU64::new(1);

/// Runs kernels of normal mode on one rank.
pub trait NormalRunner: Runner {
    /// Runs a kernel in all its blocks, to its end: an outcome that is a fault, if one of them met it.
    fn run_normal(&self, kernel: NormalKernel, call: &NormalCall) -> Outcome;
}

/// The buffer.
pub struct NormalBuffer<R: NormalRunner> {
    runner: R,
    shape: NormalShape,
    base: u64,
    patience: Patience,
    /// Where ranks of this node have theirs.
    peers: Vec<u64>,
    notified: u64,
    met: u64,
    /// Halves of cleanings that this rank is through with.
    cleaned: u64,
    broken: bool,
    /// Whether all ranks have these sizes.
    agreement: Agreement,
    /// Its own number, and another one behind each cleaning.
    made: u64,
}

impl<R: NormalRunner> NormalBuffer<R> {
    /// A buffer in the heap from offset `base` on, where all words are zero. All ranks make it alike.
    ///
    /// # Errors
    /// Sizes that cannot be, no room, or a rank of this node whose memory is not mapped here.
    pub fn new(runner: R, base: u64, shape: NormalShape, patience: Patience) -> Result<Self, MoeError> {
        let shape = shape.check().map_err(MoeError::NormalShape)?;
        if shape.ranks() != runner.ranks() {
            let right = format!("{}, the ranks there are", runner.ranks());
            return Err(argument("nodes times ranks of a node", shape.ranks(), right));
        }
        let (needed, met) = (shape.bytes(), runner.heap_bytes());
        if !base.is_multiple_of(16) {
            return Err(argument("base", base, "a multiple of 16"));
        }
        if base.checked_add(needed).is_none_or(|end| end > met) {
            return Err(MoeError::Room { needed, base, met });
        }
        let first = runner.rank() / shape.locals * shape.locals;
        let reach = |rank| {
            let right = format!("ranks whose memory is mapped here, or 1; rank {rank}'s is not");
            runner.near(rank, base).ok_or_else(|| argument("ranks of a node", shape.locals, right))
        };
        let peers = (first..first + shape.locals).map(reach).collect::<Result<_, _>>()?;
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            runner,
            shape,
            base,
            patience,
            peers,
            notified: 0,
            met: 0,
            cleaned: 0,
            broken: false,
            agreement: Agreement::default(),
            made,
        })
    }

    /// What runs the kernels.
    pub fn runner(&self) -> &R {
        &self.runner
    }

    /// Its sizes.
    pub fn shape(&self) -> &NormalShape {
        &self.shape
    }

    fn call(&self) -> NormalCall {
        NormalCall {
            shape: NormalMap::of(self.shape),
            base: self.base,
            peers: self.peers.as_ptr() as u64,
            timeout_ns: self.patience.timeout_ns,
            slice_ns: self.patience.slice_ns,
            blocks: self.patience.blocks.clamp(1, self.shape.channels),
            ..NormalCall::default()
        }
    }

    fn run(&mut self, kernel: NormalKernel, call: &NormalCall) -> Result<u64, MoeError> {
        self.agreement.check()?;
        if self.broken {
            return Err(MoeError::NormalBroken);
        }
        self.run_broken(kernel, call)
    }

    /// The same, of a buffer that may be broken.
    fn run_broken(&mut self, kernel: NormalKernel, call: &NormalCall) -> Result<u64, MoeError> {
        let outcome = self.runner.run_normal(kernel, call);
        let Some(fault) = outcome.as_fault() else { return Ok(outcome.value) };
        self.broken = true;
        let role = Role::from_raw(outcome.value).unwrap_or(Role::Layout);
        let said = hold::said(role, &fault, CallTerms::from_bits(call.terms), self.runner.rank());
        if let Some(why) = said.to_tell {
            self.give_up(why);
        }
        if let Some(error) = said.error {
            return Err(error);
        }
        let path = self.runner.path(&fault);
        Err(MoeError::Fault(Box::new(MoeFault { at: At::Role(role), fault, path })))
    }

    /// Holds the sizes of all ranks against this one's, once: nothing that they have a part in is written before.
    fn hold(&mut self) -> Result<(), MoeError> {
        self.hold_by(Self::run)
    }

    /// The same, of a buffer that may be broken: a rank that came too late for the others' first call has not held
    /// theirs, or they not its.
    fn hold_broken(&mut self) -> Result<(), MoeError> {
        self.hold_by(Self::run_broken)
    }

    fn hold_by(
        &mut self,
        run: fn(&mut Self, NormalKernel, &NormalCall) -> Result<u64, MoeError>,
    ) -> Result<(), MoeError> {
        if self.agreement.is_held() {
            return Ok(());
        }
        let mut said = vec![0u64; self.shape.ranks() as usize * Terms::WORDS as usize];
        let call = NormalCall { said: said.as_mut_ptr() as u64, blocks: 1, ..self.call() };
        run(self, NormalKernel::Hold, &call)?;
        self.agreement.hold(&said, Terms::of(self.shape))
    }

    /// Tells all ranks that this one gave the call up that they are in. Whom it cannot reach waits for its own
    /// deadline.
    fn give_up(&mut self, why: Why) {
        self.broken = true;
        let call = NormalCall { number: u64::from(why.bits()), flags: GIVE_UP, blocks: 1, ..self.call() };
        self.runner.run_normal(NormalKernel::Hold, &call);
    }

    /// Tokens of so many indices.
    fn check_topk(&self, topk: u32, topk_index: &[i64]) -> Result<usize, MoeError> {
        let (most, experts) = (self.shape.topk, self.shape.experts() as i64);
        if topk == 0 || topk > most {
            return Err(argument("experts of a token", topk, format!("1 to {most}")));
        }
        if !topk_index.len().is_multiple_of(topk as usize) {
            return Err(argument("topk indices", topk_index.len(), format!("a multiple of {topk}")));
        }
        if let Some(index) = topk_index.iter().find(|index| **index >= experts) {
            return Err(argument("a topk index", index, format!("below {experts}, or negative for none")));
        }
        let tokens = topk_index.len() / topk as usize;
        self.check_tokens(tokens).map(|()| tokens)
    }

    fn check_tokens(&self, tokens: usize) -> Result<(), MoeError> {
        let most = self.shape.tokens;
        if tokens <= most as usize {
            Ok(())
        } else {
            Err(argument("tokens", tokens, format!("{most} at most")))
        }
    }

    fn own(&self, what: &'static str, buffer: u64) -> Result<(), MoeError> {
        if buffer == self.made {
            Ok(())
        } else {
            Err(argument(
                what,
                "another buffer's, or one of before a cleaning",
                "one of this buffer and of now",
            ))
        }
    }

    /// DeepEP's `dispatch`: `x` to the ranks that `layout` says, with experts and weights of each token, or on all
    /// ranks without any.
    ///
    /// # Errors
    /// Arguments that cannot be, with nothing sent; ranks that differ, with no token sent; a fault, which breaks the
    /// buffer.
    pub fn dispatch(
        &mut self,
        x: Tokens<'_>,
        layout: &Layout,
        topk_index: &[i64],
        topk_weights: &[f32],
    ) -> Result<NormalReceived, MoeError> {
        self.dispatch_within(u64::MAX, x, layout, topk_index, topk_weights)
    }

    /// The same where there is room for so many rows: DeepEP's `num_worst_tokens`. Where more come this rank gives the
    /// call up, and the others are told.
    ///
    /// # Errors
    /// As [`dispatch`](Self::dispatch); too many rows, which breaks the buffers of all ranks.
    pub fn dispatch_within(
        &mut self,
        room: u64,
        x: Tokens<'_>,
        layout: &Layout,
        topk_index: &[i64],
        topk_weights: &[f32],
    ) -> Result<NormalReceived, MoeError> {
        self.own("the layout", layout.buffer)?;
        let tokens = self.count(x)?;
        if tokens != layout.tokens as usize {
            return Err(argument("tokens", tokens, format!("{}, as the layout has", layout.tokens)));
        }
        let none = layout.topk == 0 && topk_index.is_empty();
        if !none && self.check_topk(layout.topk, topk_index)? != tokens {
            return Err(argument("topk indices", topk_index.len(), "those of the layout"));
        }
        if topk_weights.len() != topk_index.len() {
            return Err(argument("topk weights", topk_weights.len(), format!("{}", topk_index.len())));
        }
        let terms = CallTerms::dispatch(layout.topk, x.fp8());
        let handle = self.notify(layout, terms)?;
        if handle.rows > room {
            self.give_up(Why::Rows(room as u32));
            return Err(argument("num_worst_tokens", room, format!("{} at least", handle.rows)));
        }
        self.send(x, handle, topk_index, topk_weights, layout.topk)
    }

    /// The same for other tokens that go the ways of an earlier dispatch, in its channels and to its rows: nobody is
    /// notified. Experts and weights are those of that dispatch, and are not sent.
    ///
    /// # Errors
    /// As [`dispatch`](Self::dispatch).
    pub fn dispatch_cached(
        &mut self,
        x: Tokens<'_>,
        handle: &NormalHandle,
    ) -> Result<NormalReceived, MoeError> {
        self.own("the handle", handle.buffer)?;
        let tokens = self.count(x)?;
        if tokens != handle.tokens as usize {
            return Err(argument("tokens", tokens, format!("{}, as the handle has", handle.tokens)));
        }
        self.send(x, handle.clone(), &[], &[], 0)
    }

    /// Tokens of `x`.
    fn count(&self, x: Tokens<'_>) -> Result<usize, MoeError> {
        let hidden = self.shape.hidden as usize;
        let channels = match x {
            Tokens::Bf16(x) => x.len(),
            Tokens::Fp8(x, _) => x.len(),
        };
        let tokens = channels / hidden;
        if channels != tokens * hidden {
            return Err(argument("channels of all tokens", channels, format!("a multiple of {hidden}")));
        }
        let scales = tokens * self.shape.scales() as usize;
        match x {
            Tokens::Fp8(_, met) if met.len() != scales => Err(argument("scales", met.len(), scales)),
            _ => self.check_tokens(tokens).map(|()| tokens),
        }
    }

    fn notify(&mut self, layout: &Layout, terms: CallTerms) -> Result<NormalHandle, MoeError> {
        self.hold()?;
        let (ranks, channels) = (self.shape.ranks() as usize, self.shape.channels as usize);
        let (nodes, part) = (self.shape.nodes as usize, self.shape.part(self.shape.tokens) as usize);
        let mut handle = NormalHandle {
            position: layout.position.clone(),
            incoming: vec![0; channels * ranks],
            prefix: vec![0; ranks + 1],
            arriving: vec![0; nodes * channels],
            forward: vec![0; nodes * channels * part],
            counts: vec![0; self.shape.local_experts as usize],
            buffer: self.made,
            tokens: layout.tokens,
            topk: layout.topk,
            rows: 0,
        };
        let mut said = vec![0u64; ranks];
        let call = NormalCall {
            number: self.notified + 1,
            terms: terms.bits(),
            said: said.as_mut_ptr() as u64,
            expert_counts: layout.expert_counts.as_ptr() as u64,
            counts: handle.counts.as_mut_ptr() as u64,
            ..self.with(&mut handle)
        };
        handle.rows = self.run(NormalKernel::Notify, &call)?;
        self.notified += 1;
        // All ranks have what each said, and nothing is under way: if one differs, all refuse, and all may call again.
        hold::calls(&said, terms).map(|()| handle)
    }

    /// A call that knows the ways of a handle.
    fn with(&self, handle: &mut NormalHandle) -> NormalCall {
        NormalCall {
            position: handle.position.as_ptr() as u64,
            incoming: handle.incoming.as_mut_ptr() as u64,
            prefix: handle.prefix.as_mut_ptr() as u64,
            arriving: handle.arriving.as_mut_ptr() as u64,
            forward: handle.forward.as_mut_ptr() as u64,
            tokens: handle.tokens,
            rows: handle.rows,
            ..self.call()
        }
    }

    fn send(
        &mut self,
        x: Tokens<'_>,
        mut handle: NormalHandle,
        topk_index: &[i64],
        topk_weights: &[f32],
        topk: u32,
    ) -> Result<NormalReceived, MoeError> {
        let rows = handle.rows();
        let (words, scales, fp8) = match x {
            Tokens::Bf16(_) => (self.shape.data_bytes(false), 0, 0),
            Tokens::Fp8(..) => (self.shape.data_bytes(true), self.shape.scales() as usize, FP8),
        };
        let mut out = vec![0u64; rows * words as usize / 8];
        // Kernels write pieces of 16 bytes, at whole words.
        let mut out_scales = vec![0u64; rows * scales / 2];
        let mut out_index = vec![-1i64; rows * topk as usize];
        let mut out_weights = vec![0f32; rows * topk as usize];
        let input = Input::of(x);
        let some = |at: u64| if topk > 0 { at } else { 0 };
        let call = NormalCall {
            x: input.x,
            x_scales: input.scales,
            topk_index: some(topk_index.as_ptr() as u64),
            topk_weights: some(topk_weights.as_ptr() as u64),
            out: out.as_mut_ptr() as u64,
            out_scales: out_scales.as_mut_ptr() as u64,
            out_index: some(out_index.as_mut_ptr() as u64),
            out_weights: some(out_weights.as_mut_ptr() as u64),
            topk,
            terms: CallTerms::dispatch(topk, x.fp8()).bits(),
            flags: fp8,
            ..self.with(&mut handle)
        };
        self.run(NormalKernel::Dispatch, &call)?;
        drop(input);
        let halves = |word: u64| [f32::from_bits(word as u32), f32::from_bits((word >> 32) as u32)];
        Ok(NormalReceived {
            x: out,
            scales: out_scales.into_iter().flat_map(halves).collect(),
            topk_index: out_index,
            topk_weights: out_weights,
            counts: handle.counts.clone(),
            handle,
        })
    }
}
