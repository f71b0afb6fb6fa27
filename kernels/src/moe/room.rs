//! `moe_room`: waits until the send buffer of a call is nobody's, so that its owner may write it before the call.

use super::call::MoeCall;
use super::exchange::{Exchange, Part};
use super::stop::Stop;
use shunt_device::{Device, Platform, WarpLanes};

/// The first part. The value is 0.
#[inline(always)]
pub fn run<P: Platform, L: WarpLanes>(
    device: Device<'_, P>,
    lanes: L,
    part: Part,
    call: &MoeCall,
) -> Result<u64, Stop> {
    if part.number == 0 {
        let exchange = Exchange::begin(device, lanes, call);
        exchange.check()?;
        exchange.room()?;
    }
    Ok(0)
}
