//! What a buffer is told: formats, patience, kinds of signals.

use shunt_kernels::moe::{EXPONENTS, FP8, ROUNDED};

/// How tokens travel to experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As they are.
    #[default]
    Bf16,
    /// FP8 with a 32-bit float for every 128 channels.
    Fp8,
    /// The same, scales rounded up to powers of two.
    Fp8Rounded,
    /// Powers of two, handed out as exponents (UE8M0), four to a word.
    Fp8Exponents,
}

impl Format {
    pub(crate) const fn flags(self) -> u32 {
        match self {
            Self::Bf16 => 0,
            Self::Fp8 => FP8,
            Self::Fp8Rounded => FP8 | ROUNDED,
            Self::Fp8Exponents => FP8 | ROUNDED | EXPONENTS,
        }
    }

    /// Bytes of a channel.
    pub const fn bytes(self) -> u64 {
        if matches!(self, Self::Bf16) { 2 } else { 1 }
    }
}

/// How long kernels wait, and in how many blocks they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A kernel ends by then, with a fault if it must.
    pub timeout_ns: u64,
    /// Between two looks at whether a peer is lost; longer than the device's own patience.
    pub slice_ns: u64,
    /// Ranks that are lost are left out, by a mask that all ranks agree on; else each is a fault, for good. On all
    /// ranks alike.
    pub mask_lost: bool,
    /// Blocks of a launch.
    pub blocks: u32,
    /// What counts and flags are.
    pub signals: Signals,
}

/// What counts and flags are; on all ranks alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signals {
    /// Kind 2, as DeepEP's: added to, and cleared by the receiver. Where neither the responder's truth nor the ledger
    /// can tell whether one was applied, the kernel ends with `Uncertain`.
    #[default]
    Cleared,
    /// Kind 1: absolute values. One that may have been applied is repeated, and never uncertain; no bracket is needed.
    Absolute,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            timeout_ns: 100_000_000_000,
            slice_ns: 100_000_000,
            mask_lost: false,
            blocks: 1,
            signals: Signals::Cleared,
        }
    }
}
