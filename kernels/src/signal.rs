//! `signal_*`: one signal of each kind, posted.

use crate::put::channel;
use crate::{Call, Outcome};
use shunt_device::{Device, Fault, HeapOffset, Lanes, Platform, Signal};

#[inline(always)]
fn post<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    call: &Call,
    signal: Signal,
) -> Result<Outcome, Fault> {
    let ticket = channel(device, call).signal_nbi(lanes, HeapOffset(call.word), signal)?;
    Ok(Outcome::ok(ticket.0))
}

/// Kind 1: the word at `word` of `peer` takes `value`. The value is the signal's ticket.
#[inline(always)]
pub fn monotone<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    post(device, lanes, call, Signal::Monotone(call.value))
}

/// Kind 2: `value` is added to the word at `word` of `peer`, which only this PE adds to. The value is the signal's
/// ticket.
#[inline(always)]
pub fn cleared<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    post(device, lanes, call, Signal::Cleared(call.value))
}

/// Kind 3: `value` is added to the word at `word` of `peer`, which others add to as well. The value is the signal's
/// ticket.
#[inline(always)]
pub fn add<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    post(device, lanes, call, Signal::Add(call.value))
}
