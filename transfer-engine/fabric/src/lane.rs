//! The lane that is open on a path: its pieces under way. Pure.

use crate::machine::Patience;
use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::domain::{Op, Request};
use shunt_transfer_engine::ids::LaneId;
use std::collections::{BTreeMap, VecDeque};

/// A piece under way.
pub(crate) struct Held {
    pub len: u64,
    /// Its immediate, and which of those of its lane it is.
    pub imm: Option<(u32, u64)>,
    /// The peer's key that it names.
    pub key: Option<u32>,
}

/// A piece that the provider has not taken yet.
pub(crate) struct Waiting {
    pub number: u64,
    pub op: Op,
    /// The bytes of a SEND.
    pub part: Box<[u8]>,
    /// Address at this end, and the key of its region.
    pub local: (u64, Option<u32>),
    /// The same at the peer.
    pub remote: (u64, Option<u32>),
    pub len: u64,
}

impl Waiting {
    /// A piece that goes over this rail.
    pub fn new(number: u64, rail: usize, request: &Request<'_>) -> Self {
        let Request { op, local, remote, len, part, .. } = *request;
        let key = |keys: &[u32]| keys.get(rail).copied();
        let (local, remote) = ((local, key(request.local_keys)), (remote, key(request.remote_keys)));
        Self { number, op, part: part.into(), local, remote, len: len.into() }
    }
}

/// The lane that is open on a path, or being closed.
pub(crate) struct Lane {
    pub id: LaneId,
    /// Pieces posted so far.
    pub next: u64,
    pub under_way: BTreeMap<u64, Held>,
    pub bytes: u64,
    /// Pieces that the provider has not taken yet.
    pub waiting: VecDeque<Waiting>,
    /// When the last piece completed, or the first one was posted on an idle lane.
    pub progress: Nanos,
    /// That it failed was said.
    pub told: bool,
    /// A piece that names memory which this end does not know.
    pub denied: Option<u64>,
}

impl Lane {
    /// One on which nothing was posted yet.
    pub const fn new(id: LaneId, now: Nanos) -> Self {
        Self {
            id,
            next: 0,
            under_way: BTreeMap::new(),
            bytes: 0,
            waiting: VecDeque::new(),
            progress: now,
            told: false,
            denied: None,
        }
    }

    /// True if pieces are under way and none has completed for longer than all bytes that are under way on its rail
    /// take.
    pub fn is_silent(&self, now: Nanos, patience: &Patience, on_rail: u64) -> bool {
        !self.under_way.is_empty()
            && now > self.progress + patience.suspect + takes(on_rail, patience.slowest)
    }
}

/// How long so many bytes take at so many a second.
fn takes(bytes: u64, rate: u64) -> Nanos {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Nanos::new(u64::try_from(ns).unwrap_or(u64::MAX))
}
