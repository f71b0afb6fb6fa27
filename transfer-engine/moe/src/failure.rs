//! Why a rank does not go on.

use crate::plan::What;
use serde::{Deserialize, Serialize};
use shunt_transfer::CallError;
use shunt_transfer_engine::error::TransferError;
use std::fmt;

/// The first thing that went wrong at a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What.
    pub why: String,
    /// No rail to a rank was left.
    pub is_lost: bool,
    /// The fate of a write is not known.
    pub is_uncertain: bool,
}

impl Failure {
    /// A promise was broken.
    pub fn broken(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_lost: false, is_uncertain: false }
    }

    /// A rank cannot be reached.
    pub fn lost(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_lost: true, is_uncertain: false }
    }

    /// Why an expectation of a rank was not reached. It has no deadline: what is missing is of a rank that is lost.
    pub fn not_arrived(error: TransferError, rank: u32, what: What) -> Self {
        match error {
            TransferError::Missing { got, want, .. } => {
                Self::lost(format!("rank {rank} is lost: expected {want} immediates of {what:?}, got {got}"))
            }
            error => error.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl std::error::Error for Failure {}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let is_lost = matches!(error, TransferError::PeerLost { .. } | TransferError::PeerLeft { .. });
        let is_uncertain = matches!(error, TransferError::Uncertain { .. });
        Self { why: error.to_string(), is_lost, is_uncertain }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Transfer(error) => error.into(),
            error => Self::broken(error.to_string()),
        }
    }
}

impl From<shunt::host::error::GpuError> for Failure {
    fn from(error: shunt::host::error::GpuError) -> Self {
        Self::broken(error.to_string())
    }
}

impl From<crate::routes::BadRoutes> for Failure {
    fn from(error: crate::routes::BadRoutes) -> Self {
        Self::broken(error.to_string())
    }
}
