//! What kernels answer, and how it becomes an [`Outcome`].
//!
//! A kernel of one call answers with the raw word of that call, which only the leader has: its outcome is two stores,
//! and what a failure needs stands apart. The others answer with a whole outcome.

use crate::Outcome;
use shunt_device::{Channel, Deadline, Fault, Pending, Platform, Posted, Solo};

/// What the body of a kernel answers. The leader's answer counts.
pub trait Answer {
    /// The outcome of the leader's block.
    fn outcome(self) -> Outcome;

    /// Stores it. What is zero in an outcome was zero before.
    ///
    /// # Safety
    /// `out` is the address of an outcome that nobody else writes.
    unsafe fn store(self, out: *mut Outcome);
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
    unsafe fn store(self, out: *mut Outcome) {
        // SAFETY: forwarded to the caller.
        unsafe { out.write(self.outcome()) };
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
    unsafe fn store(self, out: *mut Outcome) {
        match self.posted.ticket() {
            // SAFETY: forwarded to the caller.
            Some(ticket) => unsafe { (&raw mut (*out).value).write(ticket.0) },
            None => refused_slow(self.channel, self.posted, out),
        }
    }
}

/// Something is waited for on a channel: all that was published.
pub struct Quieted<'s, P: Platform> {
    /// The channel.
    pub channel: Channel<'s, P>,
    /// What was still under way after a first look.
    pub pending: Pending,
    /// How long the rest is waited for.
    pub timeout_ns: u64,
}

impl<P: Platform> Answer for Quieted<'_, P> {
    #[inline(always)]
    fn outcome(self) -> Outcome {
        let Some(ticket) = self.pending.ticket() else { return Outcome::ok(0) };
        let deadline = Deadline::after(self.channel.now_ns(), self.timeout_ns);
        match self.channel.wait(Solo, ticket, deadline) {
            Ok(()) => Outcome::ok(0),
            Err(fault) => Outcome::fault(&fault),
        }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut Outcome) {
        if self.pending.ticket().is_some() {
            quiet_slow(self.channel, self.pending, self.timeout_ns, out);
        }
    }
}

/// The outcome of a post that was refused.
#[inline(never)]
fn refused_slow<P: Platform>(channel: Channel<'_, P>, posted: Posted, out: *mut Outcome) {
    // SAFETY: `Answer::store` vouches for the outcome.
    unsafe { out.write(Sent { channel, posted }.outcome()) };
}

/// The outcome of a quiet that has to look closer.
#[inline(never)]
fn quiet_slow<P: Platform>(channel: Channel<'_, P>, pending: Pending, timeout_ns: u64, out: *mut Outcome) {
    // SAFETY: as above.
    unsafe { out.write(Quieted { channel, pending, timeout_ns }.outcome()) };
}
