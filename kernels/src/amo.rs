//! `amo_*` and `fetch_*`: one atomic of each kind, posted, or waited for and answered.

use crate::put::channel;
use crate::{Call, Outcome, Sent};
use shunt_device::{Amo, Deadline, Device, Fault, HeapOffset, Lanes, Platform};

#[inline(always)]
fn post<'s, P: Platform, L: Lanes>(device: Device<'s, P>, lanes: L, call: &Call, amo: Amo) -> Sent<'s, P> {
    let channel = channel(device, call);
    Sent { channel, posted: channel.try_amo(lanes, HeapOffset(call.word), amo) }
}

#[inline(always)]
fn fetch<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    call: &Call,
    amo: Amo,
) -> Result<Outcome, Fault> {
    let (channel, result) = (channel(device, call), HeapOffset(call.result));
    let ticket = channel.amo_fetch_nbi(lanes, HeapOffset(call.word), amo, result)?;
    channel.wait(lanes, ticket, Deadline::after(device.now_ns(), call.timeout_ns))?;
    Ok(Outcome::ok(device.fetched(amo, result)))
}

/// The two kernels of each kind of atomic.
macro_rules! kinds {
    ($($amo:ident $fetch:ident $what:literal |$call:ident| $make:expr;)*) => {$(
        #[doc = concat!($what, " the word at `word` of `peer`. The value is the atomic's ticket.")]
        #[inline(always)]
        pub fn $amo<'s, P: Platform, L: Lanes>(
            device: Device<'s, P>,
            lanes: L,
            _: u32,
            $call: &Call,
        ) -> Sent<'s, P> {
            post(device, lanes, $call, $make)
        }

        #[doc = concat!($what, " the word at `word` of `peer`, and waits for what the word was: that is the value.")]
        /// Its way is by the eight bytes at `result` here.
        #[inline(always)]
        pub fn $fetch<P: Platform, L: Lanes>(
            device: Device<'_, P>,
            lanes: L,
            _: u32,
            $call: &Call,
        ) -> Result<Outcome, Fault> {
            fetch(device, lanes, $call, $make)
        }
    )*};
}

kinds! {
    add32 fetch_add32 "Adds `value` to" |call| Amo::Add32(call.value as u32);
    add64 fetch_add64 "Adds `value` to" |call| Amo::Add64(call.value);
    set32 fetch_set32 "Stores `value` in" |call| Amo::Set32(call.value as u32);
    set64 fetch_set64 "Stores `value` in" |call| Amo::Set64(call.value);
    and32 fetch_and32 "Clears what `value` lacks in" |call| Amo::And32(call.value as u32);
    and64 fetch_and64 "Clears what `value` lacks in" |call| Amo::And64(call.value);
    or32 fetch_or32 "Sets the bits of `value` in" |call| Amo::Or32(call.value as u32);
    or64 fetch_or64 "Sets the bits of `value` in" |call| Amo::Or64(call.value);
    xor32 fetch_xor32 "Flips the bits of `value` in" |call| Amo::Xor32(call.value as u32);
    xor64 fetch_xor64 "Flips the bits of `value` in" |call| Amo::Xor64(call.value);
    swap32 fetch_swap32 "Stores `value` in" |call| Amo::Swap32(call.value as u32);
    swap64 fetch_swap64 "Stores `value` in" |call| Amo::Swap64(call.value);
    cas32 fetch_cas32 "Stores `value`, where it is `expect`, in"
        |call| Amo::CompareSwap32 { expect: call.expect as u32, new: call.value as u32 };
    cas64 fetch_cas64 "Stores `value`, where it is `expect`, in"
        |call| Amo::CompareSwap64 { expect: call.expect, new: call.value };
}
