//! What kernels answer, and how it becomes an [`Outcome`].
//!
//! A kernel of one call answers with the raw word of that call, which only the leader has: its outcome is two stores,
//! and what a failure needs stands apart. The others answer with a whole outcome.

use crate::Outcome;
use shunt_device::{Channel, Deadline, Device, Fault, Platform, Posted, Solo};

/// What the body of a kernel answers. The leader's answer counts.
pub trait Answer {
    /// The outcome of the leader's block.
    fn outcome(self) -> Outcome;

    /// Stores it as that of `block`. What is zero in an outcome was zero before.
    ///
    /// # Safety
    /// `out` is the address of an outcome for each block, and nobody else writes this one.
    unsafe fn store(self, out: *mut Outcome, block: u32);
}

impl Answer for Result<Outcome, Fault> {
    #[inline(always)]
    fn outcome(self) -> Outcome {
        match self {
            Ok(outcome) => outcome,
            Err(fault) => Outcome::fault(&fault),
        }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut Outcome, block: u32) {
        // SAFETY: forwarded to the caller.
        unsafe { out.add(block as usize).write(self.outcome()) };
    }
}

/// Something was posted, or not, on a channel. The value is the ticket.
pub struct Sent<'s, P: Platform> {
    /// The channel.
    pub channel: Channel<'s, P>,
    /// What the post answered.
    pub posted: Posted,
}

impl<P: Platform> Answer for Sent<'_, P> {
    #[inline(always)]
    fn outcome(self) -> Outcome {
        match self.posted.ticket() {
            Some(ticket) => Outcome::ok(ticket.0),
            None => Outcome::fault(&self.channel.why(self.posted)),
        }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut Outcome, block: u32) {
        match self.posted.ticket() {
            // SAFETY: forwarded to the caller.
            Some(ticket) => unsafe { (&raw mut (*out.add(block as usize)).value).write(ticket.0) },
            None => refused_slow(self.channel.device(), self.channel.number(), self.posted, out, block),
        }
    }
}

/// All that was published on a channel is waited for.
pub struct Quieted<'s, P: Platform> {
    /// The channel.
    pub channel: Channel<'s, P>,
    /// Whether a first look found it done.
    pub done: bool,
    /// How long the rest is waited for.
    pub timeout_ns: u64,
}

impl<P: Platform> Answer for Quieted<'_, P> {
    #[inline(always)]
    fn outcome(self) -> Outcome {
        if self.done {
            return Outcome::ok(0);
        }
        match self.channel.quiet(Solo, Deadline::after(self.channel.now_ns(), self.timeout_ns)) {
            Ok(()) => Outcome::ok(0),
            Err(fault) => Outcome::fault(&fault),
        }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut Outcome, block: u32) {
        if !self.done {
            quiet_slow(self.channel.device(), self.channel.number(), self.timeout_ns, out, block);
        }
    }
}

/// The outcome of a post that was refused.
#[inline(never)]
fn refused_slow<P: Platform>(
    device: Device<'_, P>,
    number: u32,
    posted: Posted,
    out: *mut Outcome,
    block: u32,
) {
    // SAFETY: `Answer::store` vouches for the outcome.
    unsafe { out.add(block as usize).write(Sent { channel: device.numbered(number), posted }.outcome()) };
}

/// The outcome of a quiet that has to look closer.
#[inline(never)]
fn quiet_slow<P: Platform>(
    device: Device<'_, P>,
    number: u32,
    timeout_ns: u64,
    out: *mut Outcome,
    block: u32,
) {
    let channel = device.numbered(number);
    // SAFETY: as above.
    unsafe { out.add(block as usize).write(Quieted { channel, done: false, timeout_ns }.outcome()) };
}
