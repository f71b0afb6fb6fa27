//! `signal_*`: one signal of each kind, posted.

use crate::put::channel;
use crate::{Call, Sent};
use shunt_device::{Device, HeapOffset, Lanes, Platform, Signal};

#[inline(always)]
fn post<'s, P: Platform, L: Lanes>(
    device: Device<'s, P>,
    lanes: L,
    call: &Call,
    signal: Signal,
) -> Sent<'s, P> {
    let channel = channel(device, call);
    Sent { channel, posted: channel.try_signal(lanes, HeapOffset(call.word), signal) }
}

/// Kind 1: the word at `word` of `peer` takes `value`. The value is the signal's ticket.
#[inline(always)]
pub fn monotone<'s, P: Platform, L: Lanes>(
    device: Device<'s, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Sent<'s, P> {
    post(device, lanes, call, Signal::Monotone(call.value))
}

/// Kind 2: `value` is added to the word at `word` of `peer`, which only this PE adds to. The value is the signal's
/// ticket.
#[inline(always)]
pub fn cleared<'s, P: Platform, L: Lanes>(
    device: Device<'s, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Sent<'s, P> {
    post(device, lanes, call, Signal::Cleared(call.value))
}

/// Kind 2 on a word of four bytes. The value is the signal's ticket.
#[inline(always)]
pub fn cleared32<'s, P: Platform, L: Lanes>(
    device: Device<'s, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Sent<'s, P> {
    post(device, lanes, call, Signal::Cleared32(call.value as u32))
}

/// Kind 3: `value` is added to the word at `word` of `peer`, which others add to as well. The value is the signal's
/// ticket.
#[inline(always)]
pub fn add<'s, P: Platform, L: Lanes>(device: Device<'s, P>, lanes: L, _: u32, call: &Call) -> Sent<'s, P> {
    post(device, lanes, call, Signal::Add(call.value))
}
