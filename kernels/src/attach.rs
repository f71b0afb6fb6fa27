//! `attach`: whether the state is one that this module understands.

use crate::{Call, Outcome};
use shunt_device::{Device, Fault, Lanes, Platform};

/// Says whether the root is of this version: what whoever wrote it launches first.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(device: Device<'_, P>, _: L, _: u32, _: &Call) -> Result<Outcome, Fault> {
    Ok(match device.version() {
        Ok(()) => Outcome::ok(0),
        Err(met) => Outcome::mismatch(&met),
    })
}
