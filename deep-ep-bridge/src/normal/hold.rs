//! What ranks must have alike: sizes before the first dispatch, terms of a call in each. Whoever finds a difference in
//! the middle of a call says so to all.

use super::{NormalBuffer, NormalRunner};
use crate::fault::MoeError;
use shunt_device::Fault;
use shunt_kernels::moe::normal::{GIVE_UP, NormalCall, NormalKernel, Role};
use shunt_layout::moe_normal::{CallTerms, Terms, Why};

/// How a buffer runs a kernel.
type Run<R> = fn(&mut NormalBuffer<R>, NormalKernel, &NormalCall) -> Result<u64, MoeError>;

impl<R: NormalRunner> NormalBuffer<R> {
    /// Holds the sizes of all ranks against this one's, once: nothing that they have a part in is written before.
    pub(super) fn hold(&mut self) -> Result<(), MoeError> {
        self.hold_by(Self::run)
    }

    /// The same, of a buffer that may be broken: a rank that came too late for the others' first call has not held
    /// theirs, or they not its.
    pub(super) fn hold_broken(&mut self) -> Result<(), MoeError> {
        self.hold_by(Self::run_broken)
    }

    fn hold_by(&mut self, run: Run<R>) -> Result<(), MoeError> {
        if self.held {
            return Ok(());
        }
        let mut said = vec![0u64; self.shape.ranks() as usize * Terms::WORDS as usize];
        let call = NormalCall { said: said.as_mut_ptr() as u64, blocks: 1, ..self.call() };
        run(self, NormalKernel::Hold, &call)?;
        if let Err(apart) = sizes(&said, Terms::of(self.shape)) {
            self.apart = Some(apart.clone());
            return Err(apart);
        }
        self.held = true;
        Ok(())
    }

    /// Tells all ranks that this one gave the call up that they are in. Whom it cannot reach waits for its own
    /// deadline.
    pub(super) fn give_up(&mut self, why: Why) {
        self.broken = true;
        let call = NormalCall { number: u64::from(why.bits()), flags: GIVE_UP, blocks: 1, ..self.call() };
        self.runner.run_normal(NormalKernel::Hold, &call);
    }

    /// What a rank gave the call up for. Where it is that the two differ, this one could have found it as well.
    fn told(&self, rank: u32, why: Why) -> MoeError {
        let met = match why {
            Why::Differs { rank: other, theirs, own } if other == self.runner.rank() => theirs.differ(own),
            _ => None,
        };
        met.map_or(MoeError::GaveUp { rank, why }, |difference| MoeError::Differs { rank, difference })
    }

    /// What is behind a fault that a rank's words made; none behind any other.
    pub(super) fn said(&mut self, role: Role, fault: &Fault, own: CallTerms) -> Option<MoeError> {
        let rank = fault.peer;
        match role {
            Role::Differs => {
                let theirs = CallTerms::from_bits(fault.address);
                self.give_up(Why::Differs { rank, theirs, own });
                own.differ(theirs).map(|difference| MoeError::Differs { rank, difference })
            }
            Role::GaveUp => Some(self.told(rank, Why::from_bits(fault.address as u32))),
            _ => None,
        }
    }
}

/// Holds what all ranks said of their sizes against this one's.
fn sizes(said: &[u64], ours: Terms) -> Result<(), MoeError> {
    let (all, _) = said.as_chunks::<{ Terms::WORDS as usize }>();
    let differs = (0..).zip(all).find_map(|(rank, words)| {
        let difference = ours.differ(&Terms::from_words(*words))?;
        Some(MoeError::Differs { rank, difference })
    });
    differs.map_or(Ok(()), Err)
}

/// Holds what all ranks said of a call against what this one says.
pub(super) fn calls(said: &[u64], ours: CallTerms) -> Result<(), MoeError> {
    let differs = (0..).zip(said).find_map(|(rank, bits)| {
        let difference = ours.differ(CallTerms::from_bits(*bits))?;
        Some(MoeError::Differs { rank, difference })
    });
    differs.map_or(Ok(()), Err)
}
