//! What a NIC is to do, how urgent it is, and what came of it.

use super::endpoint::{Half, Maker};
use super::message::SideTruth;
use crate::connect::card::{HalfCard, RailCard};
use crate::error::NicError;
use crate::nic::qp::QpTruth;
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::mutant::Mutant;

/// Which job goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A switcher of this PE waits for it.
    Asked,
    /// The peer's agent waits for it.
    Peer,
    /// A port went down: somebody will ask (rule 20).
    Port,
    /// A pair is made anew.
    Making,
    /// Nobody waits: before the path is used again will do.
    Idle,
}

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
    /// The new incarnation.
    pub incarnation: u32,
    /// First PSN it sends.
    pub psn: u32,
    /// The other half, if it was made first: then both are connected at once.
    pub remote: Option<HalfCard>,
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
    /// Make the rail's datagram queue pair anew, with this key.
    Datagrams(u32),
}

/// The two answers about a fenced half: before and after the flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// Before the flush.
    pub first: QpTruth,
    /// After it.
    pub last: QpTruth,
    /// The NIC's posted writes are in memory.
    pub flushed: bool,
    /// It was moved to ERR; of a [`Job::Count`] false.
    pub stopped: bool,
    /// How long each command took.
    pub times: FenceTimes,
}

impl Fenced {
    /// True if the half was seen in ERR.
    pub fn shows_err(&self) -> bool {
        self.last.state == Some(State::Err)
    }

    /// What this says of the half; `trusted`: the NIC's count is.
    pub fn truth(&self, trusted: bool) -> SideTruth {
        let (first, last) = (&self.first, &self.last);
        let still = first.rmsn == last.rmsn && first.next_rcv_psn == last.next_rcv_psn;
        if self.stopped && !self.shows_err() && !Mutant::StateNotLookedAt.on() {
            SideTruth::Dead
        } else if !self.flushed {
            SideTruth::Unflushed
        } else if still && trusted {
            SideTruth::Exact { executed: last.rmsn, next_rcv_psn: last.next_rcv_psn }
        } else {
            SideTruth::Fenced
        }
    }
}

/// How long each command of a fence took, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FenceTimes {
    /// 2ERR.
    pub error_ns: u64,
    /// First QUERY_QP.
    pub query_ns: u64,
    /// Flush READ.
    pub flush_ns: u64,
    /// Second QUERY_QP.
    pub again_ns: u64,
}

/// What came of a job.
pub enum Outcome {
    /// Of a half that was stopped: what it says of itself afterwards.
    Stopped(Result<QpTruth, NicError>),
    /// Of a fence or a count.
    Fenced(Result<Fenced, NicError>),
    /// Of a half made anew; and a half that is left over, if its NIC stopped answering on the way.
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
}
