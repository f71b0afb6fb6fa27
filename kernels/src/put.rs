//! `put`: one put, posted.

use crate::{Call, Outcome};
use shunt_device::{Channel, Device, Fault, HeapOffset, Lanes, Platform, Put};

/// Posts one put of `bytes` from `src` to `dst` at `peer`. It ends when the put is posted, not when it is delivered;
/// the value is the put's ticket.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    let ticket = channel(device, call).put_nbi(lanes, put(call))?;
    Ok(Outcome::ok(ticket.0))
}

/// The put that a call asks for.
#[inline(always)]
pub(crate) fn put(call: &Call) -> Put {
    Put { dst: HeapOffset(call.dst), src: HeapOffset(call.src), bytes: call.bytes }
}

/// The channel that a call names.
#[inline(always)]
pub(crate) fn channel<'s, P: Platform>(device: Device<'s, P>, call: &Call) -> Channel<'s, P> {
    device.channel(call.peer, call.channel)
}
