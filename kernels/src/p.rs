//! `p`: one value, carried in the work request itself.

use crate::put::channel;
use crate::{Call, Sent};
use shunt_device::{Device, HeapOffset, Lanes, Platform};

/// Posts a write of the low `bytes` (1 to 8) of `value` to `dst` at `peer`. The value is its ticket.
#[inline(always)]
pub fn run<'s, P: Platform, L: Lanes>(device: Device<'s, P>, lanes: L, _: u32, call: &Call) -> Sent<'s, P> {
    // More than eight are refused, however many more.
    let bytes = if call.bytes > 8 { 9 } else { call.bytes as u32 };
    let channel = channel(device, call);
    Sent { channel, posted: channel.try_p(lanes, HeapOffset(call.dst), call.value, bytes) }
}
