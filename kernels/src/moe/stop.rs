//! Why a phase ends before it is through, and what the kernel then answers.

use super::stage::Stage;
use crate::{Answer, Outcome};
use shunt_device::{Device, Fault, FaultKind, Lanes, Platform, Posted};

/// Why a phase ends: registers. The fault of nine fields is read from memory where it is told, in a cold call, and no
/// wait or post carries one about.
#[derive(Clone, Copy)]
pub struct Stop {
    /// A `FaultKind`, or one of those below.
    why: u64,
    rank: u32,
    /// The channel; of a rank that is lost: how many channels lead there; of one that said something: that.
    index: u32,
    /// The leader's register of a post that was refused; else 0. No `Option`: its tag would be that of a `Result` as
    /// well, and lanes would branch on what only the leader has instead of on what it told them.
    posted: u64,
}

/// `Stop::why`: one of the channels to the rank is dead.
const LOST: u64 = 1 << 32;
/// `Stop::why`: the channel's own fault, if it has one; else of the kind in the low half.
const ENDED: u64 = 2 << 32;

/// `Stop::why`: a rank said something that is in the place of the channel.
const TOLD: u64 = 4 << 32;

/// The stage is above it, in the register that goes to the cold call: few, so that none goes over a stack.
const STAGE: u32 = 40;

impl Stop {
    /// A call, or data of a rank, that cannot be.
    #[inline(always)]
    pub const fn wrong(rank: u32) -> Self {
        Self { why: FaultKind::BadAddress as u64, rank, index: 0, posted: 0 }
    }

    /// What should have come on a channel did not.
    #[inline(always)]
    pub const fn late(rank: u32, index: u32) -> Self {
        Self { why: FaultKind::Overdue as u64, rank, index, posted: 0 }
    }

    /// One of so many channels to a rank is dead.
    #[inline(always)]
    pub const fn lost(rank: u32, channels: u32) -> Self {
        Self { why: LOST, rank, index: channels, posted: 0 }
    }

    /// What a rank said keeps this one from going on: the fault has it in the place of an address.
    #[inline(always)]
    pub const fn told(rank: u32, what: u32) -> Self {
        Self { why: TOLD, rank, index: what, posted: 0 }
    }

    /// A post was refused.
    #[inline(always)]
    pub const fn refused(rank: u32, index: u32, posted: Posted) -> Self {
        Self { why: 0, rank, index, posted: posted.raw() }
    }

    /// What was posted on a channel ended with a fault of this kind.
    #[inline(always)]
    pub const fn ended(rank: u32, index: u32, kind: u64) -> Self {
        Self { why: ENDED | kind, rank, index, posted: 0 }
    }

    /// The one that `lane` has, to all lanes.
    #[inline(always)]
    pub fn of_lane<L: Lanes>(self, lanes: L, lane: u32) -> Self {
        let at = lanes.broadcast((self.rank as u64) << 32 | self.index as u64, lane);
        let (why, posted) = (lanes.broadcast(self.why, lane), lanes.broadcast(self.posted, lane));
        Self { why, rank: (at >> 32) as u32, index: at as u32, posted }
    }

    /// The whole fault.
    #[inline(always)]
    pub fn fault<P: Platform>(self, device: Device<'_, P>) -> Fault {
        if self.why == TOLD {
            let fault = device.channel(self.rank, 0).told(FaultKind::BadAddress);
            return Fault { address: self.index as u64, ..fault };
        }
        let mut index = if self.why == LOST { 0 } else { self.index };
        while self.why == LOST && index < self.index {
            if let Err(fault) = device.channel(self.rank, index).alive() {
                return fault;
            }
            index += 1;
        }
        let channel = device.channel(self.rank, if self.why == LOST { 0 } else { self.index });
        if self.posted != 0 {
            return channel.why(Posted::from_raw(self.posted));
        }
        if self.why & ENDED != 0
            && let Err(fault) = channel.alive()
        {
            return fault;
        }
        channel.told(FaultKind::from_raw(self.why as u32).unwrap_or(FaultKind::PeerLost))
    }
}

/// What a phase answers.
pub struct Phase<'s, P: Platform> {
    /// The device.
    pub device: Device<'s, P>,
    /// The phase.
    pub stage: Stage,
    /// What the phase's documentation calls its value, or why it was broken off.
    pub ended: Result<u64, Stop>,
}

impl<P: Platform> Answer for Phase<'_, P> {
    #[inline(always)]
    fn outcome(self) -> Outcome {
        match self.ended {
            Ok(value) => Outcome::ok(value),
            Err(stop) => Outcome { value: self.stage as u64, ..Outcome::fault(&stop.fault(self.device)) },
        }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut Outcome, block: u32) {
        match self.ended {
            // SAFETY: forwarded to the caller.
            Ok(value) => unsafe { (&raw mut (*out.add(block as usize)).value).write(value) },
            // SAFETY: one for each block.
            Err(stop) => stopped(self.device, self.stage as u64, stop, unsafe { out.add(block as usize) }),
        }
    }
}

/// Stores the outcome of what was broken off in a stage, or in a role of normal mode.
#[inline(always)]
pub fn stopped<P: Platform>(device: Device<'_, P>, stage: u64, stop: Stop, out: *mut Outcome) {
    let Stop { why, rank, index, posted } = stop;
    stopped_slow(device, stage << STAGE | why, (rank as u64) << 32 | index as u64, posted, out);
}

/// The outcome of a phase that was broken off.
#[inline(never)]
fn stopped_slow<P: Platform>(device: Device<'_, P>, why: u64, at: u64, posted: u64, out: *mut Outcome) {
    let stop = Stop { why: why & ((1 << STAGE) - 1), rank: (at >> 32) as u32, index: at as u32, posted };
    let outcome = Outcome { value: why >> STAGE, ..Outcome::fault(&stop.fault(device)) };
    // SAFETY: `Answer::store` vouches for the outcome.
    unsafe { out.write(outcome) };
}
