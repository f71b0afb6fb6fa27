//! `put_bw`: many puts, timed: bandwidth and message rate.

use crate::put::{channel, put};
use crate::{Call, Outcome};
use shunt_device::{Deadline, Device, Fault, Lanes, Platform};

/// `rounds` puts of `bytes` from `src` to `dst` at `peer`, `window` of them in flight, each block on a channel and
/// buffers of its own. It ends when all are delivered. The value is the number of rounds, the time that of all.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    let call = call.of_block(block);
    let channel = channel(device, &call);
    let start = device.now_ns();
    let (mut round, mut waited) = (0, 0);
    while round < call.rounds {
        let ticket = channel.put_nbi(lanes, put(&call))?;
        round += 1;
        if round - waited == call.window || round == call.rounds {
            channel.wait(lanes, ticket, Deadline::after(device.now_ns(), call.timeout_ns))?;
            waited = round;
        }
    }
    Ok(Outcome { ns: device.now_ns() - start, ..Outcome::ok(round) })
}
