//! `get`: one get, waited for.

use crate::put::channel;
use crate::{Call, Outcome};
use shunt_device::{Deadline, Device, Fault, Get, HeapOffset, Lanes, Platform};

/// Reads `bytes` from `src` at `peer` to `dst` here, and ends when they are there. The value is the get's ticket.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    let get = Get { dst: HeapOffset(call.dst), src: HeapOffset(call.src), bytes: call.bytes };
    let channel = channel(device, call);
    let ticket = channel.get_nbi(lanes, get)?;
    channel.wait(lanes, ticket, Deadline::after(device.now_ns(), call.timeout_ns))?;
    Ok(Outcome::ok(ticket.0))
}
