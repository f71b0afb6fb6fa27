//! `moe_room`: waits until the send buffer of a call is nobody's, so that its owner may write it before the call.

use super::call::MoeCall;
use super::exchange::Exchange;
use crate::Outcome;
use shunt_device::{Device, Fault, Lanes, Platform};

/// One block. The value is 0.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &MoeCall,
) -> Result<Outcome, Fault> {
    if block == 0 {
        let exchange = Exchange::begin(device, lanes, call);
        exchange.check()?;
        exchange.room()?;
    }
    Ok(Outcome::ok(0))
}
