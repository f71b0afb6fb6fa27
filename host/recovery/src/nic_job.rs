//! What a NIC is to do, how urgent it is, and what came of it.

use super::endpoint::{Half, Maker};
pub use super::fenced::{FenceTimes, Fenced, Urgency};
use shunt_mlx5::descriptor::{HalfCard, RailCard};
use shunt_mlx5::error::NicError;
use shunt_mlx5::nic::qp::QpTruth;
use shunt_mlx5::rail::Rail;

/// Names a job: its giver knows by the number whether it still matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// Never used twice by one agent.
    pub number: u64,
    /// Index of the pair it is about, or of the rail.
    pub about: usize,
}

/// What a new half is made from.
pub struct Making {
    /// The half of the last incarnation, to be destroyed first.
    pub old: Option<Half>,
    /// Makes it.
    pub maker: Box<dyn Maker>,
    /// The new incarnation, and the variant of the path's memory that it uses.
    pub number: (u32, u32),
    /// First PSN it sends.
    pub psn: u32,
    /// The other half, if it was made first: then both are connected at once.
    pub remote: Option<HalfCard>,
}

/// Work of the engine's owner that a NIC's worker does in its turn. It must be harmless to do it twice: an agent that
/// follows another gives it again, though it may be under way.
pub trait Work: Send {
    /// Does it. Ends by a deadline of its own.
    ///
    /// # Errors
    /// It was not done, and nothing of it will be.
    fn run(&self, rail: &Rail) -> Result<(), NicError>;
}

/// What a NIC is to do.
pub enum Job {
    /// 2ERR, query, flush, query.
    Fence(Half),
    /// Query, flush: for a half that nothing can reach any more ([`super::verdict::may_count`]).
    Count(Half),
    /// 2ERR of a half that was counted.
    Stop(Half),
    /// Make a half.
    Make(Box<Making>),
    /// Connect a half to the other one.
    Connect(Half, Box<HalfCard>),
    /// Destroy a half, and say that it is gone.
    Destroy(Half),
    /// Query a half that is to stay as it is.
    Look(Half),
    /// Ask whether the port is up.
    AskPort,
    /// Ask for the port's address.
    AskAddress,
    /// Resolve the way to a peer's rail.
    Resolve(Box<RailCard>),
    /// Recreate the rail's datagram queue pair, with this key.
    Datagrams(u32),
    /// Work of the owner's.
    Work(Box<dyn Work>),
}

/// What came of a job.
pub enum Outcome {
    /// Of a half that was stopped: what it says of itself afterwards.
    Stopped(Result<QpTruth, NicError>),
    /// Of a fence or a count.
    Fenced(Result<Fenced, NicError>),
    /// Of a recreated half; and a half that is left over, if its NIC stopped answering on the way.
    Made(Result<Half, NicError>, Option<Half>),
    /// Of a half that was to be destroyed: the PSN it would have sent next, if anybody knew. Or the half, to be kept.
    Destroyed(Result<Option<u32>, Half>),
    /// Of a connection.
    Connected(Result<(), NicError>),
    /// Of a look.
    Looked(Result<QpTruth, NicError>),
    /// Whether the port is up; false if nobody says so.
    Port(bool),
    /// The address is known.
    Address(Result<(), NicError>),
    /// Number of the new datagram queue pair.
    Datagrams(Result<u32, NicError>),
    /// Of work of the owner's.
    Worked(Result<(), NicError>),
}
