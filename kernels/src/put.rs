//! `put`: one put, posted.

use crate::{Call, Sent};
use shunt_device::{Channel, Device, HeapOffset, Lanes, Platform, Put};

/// Posts one put of `bytes` from `src` to `dst` at `peer`. It ends when the put is posted, not when it is delivered;
/// the value is the put's ticket.
#[inline(always)]
pub fn run<'s, P: Platform, L: Lanes>(device: Device<'s, P>, lanes: L, _: u32, call: &Call) -> Sent<'s, P> {
    let channel = channel(device, call);
    Sent { channel, posted: channel.try_put(lanes, put(call)) }
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
