//! What an option may say, where it is one of a few words.

use clap::ValueEnum;

/// Where kernels run.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// Threads of this process
    #[default]
    Cpu,
    /// CUDA
    Gpu,
}

impl DeviceKind {
    /// As on the command line, and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }
}

/// What carries packets.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NicKind {
    /// The software ConnectX
    #[default]
    Soft,
    /// RDMA devices through libibverbs and libmlx5: hardware, or soft NICs under `shunt soft-rdma run`
    Mlx5,
}

/// What the stream is made of.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A put and a signal
    Write,
    /// An inline put of 8 bytes and a signal
    P,
    /// Signals alone
    Signal,
    /// Atomics
    Amo,
}

/// What signals are.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalKind {
    /// Absolute values of a single writer, never cleared
    Monotone,
    /// Single writer, cleared by the receiver
    Cleared,
    /// Remote atomic adds
    Add,
}

/// How to resolve an uncertain operation.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncertain {
    /// Nothing: the run ends and names it
    Stop,
    /// It was applied: it is not repeated
    Applied,
    /// It was not applied: it is issued again
    Not,
}

/// What a fence rests on.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceKind {
    /// Both halves in ERR, the receiver's count, the placement flush
    Strict,
    /// ERR of the requester and the packet lifetime
    Time,
}
