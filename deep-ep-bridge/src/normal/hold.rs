//! What ranks must have alike: sizes before the first dispatch, terms of a call in each. A rank that finds a difference
//! in the middle of a call says so to all.

use crate::fault::MoeError;
use shunt_device::Fault;
use shunt_kernels::moe::normal::Role;
use shunt_layout::moe_normal::{CallTerms, Terms, Why};

/// Whether all ranks have the same sizes.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreement {
    held: bool,
    /// Another rank has others: for good.
    apart: Option<MoeError>,
}

impl Agreement {
    /// True once the sizes of all ranks were held against this one's and are the same.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// An error if another rank has other sizes.
    pub fn check(&self) -> Result<(), MoeError> {
        self.apart.clone().map_or(Ok(()), Err)
    }

    /// Holds what all ranks said of their sizes against this one's.
    pub fn hold(&mut self, said: &[u64], ours: Terms) -> Result<(), MoeError> {
        let (all, _) = said.as_chunks::<{ Terms::WORDS as usize }>();
        self.apart = (0..).zip(all).find_map(|(rank, words)| {
            let difference = ours.differ(&Terms::from_words(*words))?;
            Some(MoeError::Differs { rank, difference })
        });
        self.held = self.apart.is_none();
        self.check()
    }
}

/// What is behind a fault that a rank's words made: nothing behind any other.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// What the caller gets.
    pub error: Option<MoeError>,
    /// For what all ranks must be told that this one gave the call up.
    pub to_tell: Option<Why>,
}

/// Reads a fault that `me` met in a call with these terms.
pub(super) fn said(role: Role, fault: &Fault, own: CallTerms, me: u32) -> Said {
    let rank = fault.peer;
    match role {
        Role::Differs => {
            let theirs = CallTerms::from_bits(fault.address);
            let error = own.differ(theirs).map(|difference| MoeError::Differs { rank, difference });
            Said { error, to_tell: Some(Why::Differs { rank, theirs, own }) }
        }
        Role::GaveUp => {
            Said { error: Some(told(rank, Why::from_bits(fault.address as u32), me)), to_tell: None }
        }
        _ => Said::default(),
    }
}

/// What a rank gave the call up for. Where it is that the two differ, this one could have found it as well.
fn told(rank: u32, why: Why, me: u32) -> MoeError {
    let met = match why {
        Why::Differs { rank: other, theirs, own } if other == me => theirs.differ(own),
        _ => None,
    };
    met.map_or(MoeError::GaveUp { rank, why }, |difference| MoeError::Differs { rank, difference })
}

/// Holds what all ranks said of a call against what this one says.
pub(super) fn calls(said: &[u64], ours: CallTerms) -> Result<(), MoeError> {
    let differs = (0..).zip(said).find_map(|(rank, bits)| {
        let difference = ours.differ(CallTerms::from_bits(*bits))?;
        Some(MoeError::Differs { rank, difference })
    });
    differs.map_or(Ok(()), Err)
}
