//! The two waits: for what this PE sent, and for what others send it.

use crate::launch::entries;
use crate::outcome::Outcome;
use shunt_device::{Deadline, HeapOffset};

entries! {
    /// Waits until everything published on the channel is delivered.
    shunt_quiet_lane, shunt_quiet_warp(peer: u32, channel: u32, timeout_ns: u64) =
        |device, lanes, _| {
            let deadline = Deadline::after(device.now_ns(), timeout_ns);
            device.channel(peer, channel).quiet(lanes, deadline)?;
            Ok(Outcome::ok(0))
        }
}

entries! {
    /// Waits until the heap word at `word` is at least `value`.
    shunt_wait_until_lane, shunt_wait_until_warp(word: u64, value: u64, timeout_ns: u64) =
        |device, lanes, _| {
            let deadline = Deadline::after(device.now_ns(), timeout_ns);
            Ok(Outcome::ok(device.wait_until_ge(lanes, HeapOffset(word), value, deadline)?))
        }
}
