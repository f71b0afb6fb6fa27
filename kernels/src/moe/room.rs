//! `moe_room`: waits until the send buffer of a call is nobody's, so that its owner may write it before the call.

use super::call::MoeCall;
use super::exchange::Exchange;
use super::stop::Stop;
use shunt_device::{Device, Lanes, Platform};

/// One block. The value is 0.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &MoeCall,
) -> Result<u64, Stop> {
    if block == 0 {
        let exchange = Exchange::begin(device, lanes, call);
        exchange.check()?;
        exchange.room()?;
    }
    Ok(0)
}
