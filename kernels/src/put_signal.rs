//! `put_signal`: one put and a signal behind it, posted.

use crate::put::{channel, put};
use crate::{Call, Sent};
use shunt_device::{Device, HeapOffset, Lanes, Platform, Signal};

/// Posts one put of `bytes` from `src` to `dst` at `peer` and, behind it, a kind 1 signal: the word at `word` takes
/// `value`. The value is the signal's ticket.
#[inline(always)]
pub fn run<'s, P: Platform, L: Lanes>(device: Device<'s, P>, lanes: L, _: u32, call: &Call) -> Sent<'s, P> {
    let (at, signal) = (HeapOffset(call.word), Signal::Monotone(call.value));
    let channel = channel(device, call);
    Sent { channel, posted: channel.try_put_signal(lanes, put(call), at, signal) }
}
