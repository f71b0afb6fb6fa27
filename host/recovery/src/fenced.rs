//! What a NIC answers of a half that was fenced, and how urgent the fence was.

use super::truth::SideTruth;
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::mutant::Mutant;
use shunt_mlx5::nic::qp::QpTruth;

/// Which job goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A switcher of this PE waits for it.
    Asked,
    /// The peer's agent waits for it.
    Peer,
    /// A port went down: somebody will ask (rule 20).
    Port,
    /// A pair is made again.
    Making,
    /// Nobody waits: before the path is used again will do.
    Idle,
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
    /// It was moved to ERR; of a [`Job::Count`](super::nic_job::Job::Count) false.
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
