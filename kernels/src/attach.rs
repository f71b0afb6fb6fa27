//! `attach`: whether the state is one that this module understands.

use crate::{Call, Outcome};
use shunt_device::{Device, Fault, Lanes, Platform};

/// Says whether the root is of this version: what its writer launches first. The time is what the clock of
/// the kernels shows, with any root, for hosts that set theirs by it.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(device: Device<'_, P>, _: L, _: u32, _: &Call) -> Result<Outcome, Fault> {
    let outcome = match device.version() {
        Ok(()) => Outcome::ok(0),
        Err(met) => Outcome::mismatch(&met),
    };
    Ok(Outcome { ns: device.now_ns(), ..outcome })
}
