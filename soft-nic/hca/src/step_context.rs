//! What all NICs of a fabric share while they run: routes, payload buffers, the oracle's taps.

use crate::memory::Span;
use shunt_soft_wire::packet::{NO_ROUTE, Payload, Pool};
use shunt_soft_wire::remote_nics::RemoteNics;
use std::collections::HashMap;

/// What was placed on a watched word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordWatch {
    /// 8-byte placements.
    pub writes: u64,
    /// The last value placed, as a little-endian number.
    pub last: u64,
    /// Placements whose value was not above the one before.
    pub not_increasing: u64,
}

/// Where an address leads.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The NIC's number in the fabric.
    pub nic: u32,
    /// The MAC that belongs to it; `None` on InfiniBand.
    pub mac: Option<u64>,
}

/// Shared surroundings of one step.
#[derive(Default)]
pub struct StepContext {
    /// The instant of the step, in nanoseconds.
    pub now: u64,
    /// Free payload buffers.
    pub pool: Pool,
    /// Where addresses lead that NICs of this fabric have.
    pub routes: HashMap<u128, Route>,
    /// NICs of other processes.
    pub remote_nics: RemoteNics,
    /// Changes with every change of `routes`.
    pub epoch: u32,
    /// Watched words, by address.
    pub watch: HashMap<u64, WordWatch>,
    /// How far a rate limit may catch up, for callers that step coarsely. Zero in virtual time.
    pub catch_up_ns: u64,
}

impl StepContext {
    /// The number of the NIC that an address and a MAC lead to, or [`NO_ROUTE`]. It holds for this `epoch`.
    pub fn route(&mut self, address: u128, mac: u64) -> u32 {
        match self.routes.get(&address) {
            Some(route) if route.mac.is_none_or(|owned| owned == mac) => route.nic,
            Some(_) => NO_ROUTE,
            None => self.remote_nics.number(address, mac),
        }
    }

    /// Puts bytes into memory: the instant at which a write becomes visible.
    #[inline]
    pub(crate) fn land(&mut self, span: Span, bytes: &[u8]) {
        span.store(bytes);
        if bytes.len() == 8 && !self.watch.is_empty() {
            self.tap(span.address(), bytes);
        }
    }

    /// Lands a payload and takes its buffer back.
    #[inline]
    pub(crate) fn land_payload(&mut self, span: Span, payload: Payload) {
        self.land(span, payload.bytes());
        self.pool.give(payload);
    }

    #[cold]
    fn tap(&mut self, address: u64, bytes: &[u8]) {
        if let Some(watch) = self.watch.get_mut(&address) {
            let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | *byte as u64);
            watch.not_increasing += (watch.writes > 0 && value <= watch.last) as u64;
            watch.writes += 1;
            watch.last = value;
        }
    }
}
