//! `quiet`: until all that was sent is delivered.

use crate::put::channel;
use crate::{Call, Outcome};
use shunt_device::{Deadline, Device, Fault, Lanes, Platform};

/// Waits until everything published on the channel is delivered, `timeout_ns` at most.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    let deadline = Deadline::after(device.now_ns(), call.timeout_ns);
    channel(device, call).quiet(lanes, deadline)?;
    Ok(Outcome::ok(0))
}
