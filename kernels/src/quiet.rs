//! `quiet`: until all that was sent is delivered.

use crate::put::channel;
use crate::{Call, Quieted};
use shunt_device::{Device, Lanes, Platform};

/// Waits until everything published on the channel is delivered, `timeout_ns` at most.
#[inline(always)]
pub fn run<'s, P: Platform, L: Lanes>(
    device: Device<'s, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Quieted<'s, P> {
    let channel = channel(device, call);
    Quieted { channel, done: channel.try_quiet(lanes), timeout_ns: call.timeout_ns }
}
