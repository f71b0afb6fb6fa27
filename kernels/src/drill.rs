//! `drill`: the failover drill. It keeps channels busy while somebody pulls cables, and times its rounds.

use crate::put::{channel, put};
use crate::{Call, Outcome};
use shunt_device::{Deadline, Device, Fault, HeapOffset, Lanes, Platform, Signal};

/// `rounds` puts of `bytes` from `src` to `dst` at `peer`, each with a kind 1 signal at `word` behind it, `window` of
/// them in flight, each block on a channel, buffers and a word of its own. Round `n` sets the word to `value + n`, so
/// that the receiver can judge order and doubles from the word alone. The value is the number of rounds, the time that
/// of the longest between two waits.
///
/// A fault ends the drill: what was completed before it is lost from the outcome, the fault is not.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    let call = call.of_block(block);
    let channel = channel(device, &call);
    let (mut round, mut waited, mut longest) = (0, 0, 0);
    let mut since = device.now_ns();
    while round < call.rounds {
        let signal = Signal::Monotone(call.value.wrapping_add(round));
        let ticket = channel.put_signal_nbi(lanes, put(&call), HeapOffset(call.word), signal)?;
        round += 1;
        if round - waited == call.window || round == call.rounds {
            channel.wait(lanes, ticket, Deadline::after(device.now_ns(), call.timeout_ns))?;
            let now = device.now_ns();
            longest = if now - since > longest { now - since } else { longest };
            (since, waited) = (now, round);
        }
    }
    Ok(Outcome { ns: longest, ..Outcome::ok(round) })
}
