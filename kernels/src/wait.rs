//! `wait_until`: until somebody else's signal has come.

use crate::{Call, Outcome};
use shunt_device::{Deadline, Device, Fault, HeapOffset, Lanes, Platform};

/// Waits until the word at `word` here is at least `value`, `timeout_ns` at most. The value is what it was then.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    let deadline = Deadline::after(device.now_ns(), call.timeout_ns);
    Ok(Outcome::ok(device.wait_until_ge(lanes, HeapOffset(call.word), call.value, deadline)?))
}
