//! One put, with and without a signal. The launch returns when it is posted, not when it is delivered.

use crate::launch::entries;
use crate::outcome::Outcome;
use shunt_device::{HeapOffset, Put, Signal};

entries! {
    /// One put on channel `channel` to `peer`.
    shunt_put_lane, shunt_put_warp(peer: u32, channel: u32, dst: u64, src: u64, bytes: u64) =
        |device, lanes, _| {
            let put = Put { dst: HeapOffset(dst), src: HeapOffset(src), bytes };
            let ticket = device.channel(peer, channel).put_nbi(lanes, put)?;
            Ok(Outcome::ok(ticket.0))
        }
}

entries! {
    /// One put and, behind it, a signal: the word at `signal` takes `value`.
    shunt_put_signal_lane, shunt_put_signal_warp(
        peer: u32, channel: u32, dst: u64, src: u64, bytes: u64, signal: u64, value: u64,
    ) =
        |device, lanes, _| {
            let put = Put { dst: HeapOffset(dst), src: HeapOffset(src), bytes };
            let (at, signal) = (HeapOffset(signal), Signal::Monotone(value));
            let ticket = device.channel(peer, channel).put_signal_nbi(lanes, put, at, signal)?;
            Ok(Outcome::ok(ticket.0))
        }
}
