//! The failover drill: keeps a channel busy while somebody pulls cables, and times its rounds.

use crate::launch::{Group, Here, entries};
use crate::outcome::{Drill, Outcome};
use shunt_device::{Deadline, Fault, HeapOffset, Put, Signal};

entries! {
    /// Rounds of put and signal to `peer`, on the channel that has the block's number.
    shunt_drill_lane, shunt_drill_warp(peer: u32, drill: *const Drill) =
        |device, lanes, block| {
            // SAFETY: forwarded to whoever launches; nobody writes the drill while the kernel runs.
            run(device, lanes, peer, block, &*drill)
        }
}

/// A fault ends the drill: what was completed before it is lost from the report, the fault is not.
#[inline(always)]
fn run<L: Group>(device: Here, lanes: L, peer: u32, block: u32, drill: &Drill) -> Result<Outcome, Fault> {
    let channel = device.channel(peer, block);
    let shift = u64::from(block) * drill.stride;
    let put =
        Put { dst: HeapOffset(drill.dst + shift), src: HeapOffset(drill.src + shift), bytes: drill.bytes };
    let signal = HeapOffset(drill.signal + u64::from(block) * 8);
    let (mut round, mut longest) = (0, 0);
    let mut since = device.now_ns();
    while round < drill.rounds {
        let ticket = channel.put_signal_nbi(lanes, put, signal, Signal::Monotone(drill.first + round))?;
        round += 1;
        let window_full = drill.window == 0 || round % drill.window == 0;
        if window_full || round == drill.rounds {
            let now = device.now_ns();
            channel.wait(lanes, ticket, Deadline::after(now, drill.timeout_ns))?;
            let then = device.now_ns();
            longest = if then - since > longest { then - since } else { longest };
            since = then;
        }
    }
    Ok(Outcome { longest_ns: longest, ..Outcome::ok(round) })
}
