//! `all_to_all`: every PE sends every other PE a part.

use crate::{Call, Outcome};
use shunt_device::{Deadline, Device, Fault, HeapOffset, Lanes, Platform, Put, Signal};

/// One block for each PE. Block `b` sends the `bytes` at `src + b * stride` to PE `b`, which finds those of PE `p` at
/// `dst + p * stride`, and waits for what PE `b` sends. The word at `word + p * 8` says that the part of PE `p` is
/// there: it takes `value`, which grows from call to call. The block of this PE does nothing: its part is here.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &Call,
) -> Result<Outcome, Fault> {
    let me = device.my_pe();
    if block == me || block >= device.pe_count() {
        return Ok(Outcome::ok(call.value));
    }
    let part = |base: u64, of: u32| HeapOffset(base.wrapping_add(call.stride.wrapping_mul(of as u64)));
    let word = |of: u32| HeapOffset(call.word.wrapping_add(8 * of as u64));
    let put = Put { dst: part(call.dst, me), src: part(call.src, block), bytes: call.bytes };
    let channel = device.channel(block, call.channel);
    let ticket = channel.put_signal_nbi(lanes, put, word(me), Signal::Monotone(call.value))?;
    let deadline = Deadline::after(device.now_ns(), call.timeout_ns);
    let seen = device.wait_until_ge(lanes, word(block), call.value, deadline)?;
    // What was sent may be overwritten once the kernel has ended.
    channel.wait(lanes, ticket, deadline)?;
    Ok(Outcome::ok(seen))
}
