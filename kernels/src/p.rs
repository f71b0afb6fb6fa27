//! `p`: one value, carried in the work request itself.

use crate::put::channel;
use crate::{Call, Outcome};
use shunt_device::{Device, Fault, HeapOffset, Lanes, Platform};

/// Posts a write of the low `bytes` (1 to 8) of `value` to `dst` at `peer`. The value is its ticket.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    // More than eight are refused, however many more.
    let bytes = if call.bytes > 8 { 9 } else { call.bytes as u32 };
    let ticket = channel(device, call).p_nbi(lanes, HeapOffset(call.dst), call.value, bytes)?;
    Ok(Outcome::ok(ticket.0))
}
