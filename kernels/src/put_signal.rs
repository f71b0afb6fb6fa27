//! `put_signal`: one put and a signal behind it, posted.

use crate::put::{channel, put};
use crate::{Call, Outcome};
use shunt_device::{Device, Fault, HeapOffset, Lanes, Platform, Signal};

/// Posts one put of `bytes` from `src` to `dst` at `peer` and, behind it, a kind 1 signal: the word at `word` takes
/// `value`. The value is the signal's ticket.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    _: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    let (at, signal) = (HeapOffset(call.word), Signal::Monotone(call.value));
    let ticket = channel(device, call).put_signal_nbi(lanes, put(call), at, signal)?;
    Ok(Outcome::ok(ticket.0))
}
