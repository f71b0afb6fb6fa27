//! `put_latency`: puts one after the other, each waited for.

use crate::put::{channel, put};
use crate::{Call, Outcome};
use shunt_device::{Deadline, Device, Fault, Lanes, Platform};

/// `rounds` puts of `bytes` from `src` to `dst` at `peer`, each delivered before the next one is posted. The value is
/// the time of all rounds, the time that of the longest.
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
    let (mut round, mut since, mut longest) = (0, start, 0);
    while round < call.rounds {
        let ticket = channel.put_nbi(lanes, put(&call))?;
        channel.wait(lanes, ticket, Deadline::after(since, call.timeout_ns))?;
        let now = device.now_ns();
        longest = if now - since > longest { now - since } else { longest };
        since = now;
        round += 1;
    }
    Ok(Outcome { ns: longest, ..Outcome::ok(since - start) })
}
