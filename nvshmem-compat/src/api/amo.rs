//! Atomics, and signals.

use super::types::{Value, with_bitwise_amo_types, with_extended_amo_types, with_standard_amo_types};
use super::{NO_STREAM, Stream, call, on_or_launch};
use crate::failure::Failure;
use crate::reduce::{from_half, to_half};
use crate::session::Change;
use crate::stream_call::{StreamCall, What};
use std::ffi::c_int;
use std::ops::Add;

/// `NVSHMEM_SIGNAL_SET` and `NVSHMEM_SIGNAL_ADD`.
const SIGNAL_SET: c_int = 9;
const SIGNAL_ADD: c_int = 10;

/// What a signal does to its word. Other PEs may write it too, so it is an atomic.
pub(super) fn signal(op: c_int, value: u64) -> Result<Change, Failure> {
    match op {
        SIGNAL_SET => Ok(Change::Set(value)),
        SIGNAL_ADD => Ok(Change::Add(value)),
        _ => {
            let want = "NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD";
            Err(Failure::Argument { what: "signal operation", met: op.into(), want })
        }
    }
}

fn change<T>(name: &str, word: *mut T, change: Change, pe: c_int) {
    let at = word.expose_provenance() as u64;
    call(name, |s| s.change(at, size_of::<T>() as u64, change, pe));
}

fn fetch<T: Value>(name: &str, word: *const T, change: Change, pe: c_int) -> T {
    let at = word.expose_provenance() as u64;
    T::from_bits(call(name, |s| s.fetch(at, size_of::<T>() as u64, change, pe)))
}

/// Adds two numbers of a type that NICs do not add.
fn add_number<T: Value + Add<Output = T>>(name: &str, word: *mut T, value: T, pe: c_int) -> T {
    let at = word.expose_provenance() as u64;
    let sum = |old| (T::from_bits(old) + value).bits();
    T::from_bits(call(name, |s| s.update(at, size_of::<T>() as u64, pe, sum)))
}

/// Adds to a half, which lies in a word of 32 bits: NICs change no less.
fn add_half(name: &str, word: *mut u16, value: u16, pe: c_int) -> u16 {
    let at = word.expose_provenance() as u64;
    let up = (at & 2) * 8;
    let sum = |old: u64| {
        let half = to_half(from_half((old >> up) as u16) + from_half(value));
        old & !(0xffff << up) | u64::from(half) << up
    };
    let old =
        call(name, |s| if at.is_multiple_of(2) { s.update(at & !3, 4, pe, sum) } else { unaligned(at) });
    (old >> up) as u16
}

fn unaligned(at: u64) -> Result<u64, Failure> {
    Err(Failure::Unaligned { at, bytes: 2 })
}

macro_rules! function {
    ($name:expr, ($($arg:ident: $type:ty),*) $(-> $answer:ty)?, $body:expr) => {
        const _: () = {
            #[unsafe(export_name = $name)]
            extern "C" fn function($($arg: $type),*) $(-> $answer)? {
                $body
            }
        };
    };
}

macro_rules! standard {
    ($($n:literal $t:ty;)*) => { $(
        function!(concat!("nvshmem_", $n, "_atomic_inc"), (word: *mut $t, pe: c_int),
            change(concat!("nvshmem_", $n, "_atomic_inc"), word, Change::Add(1), pe));
        function!(concat!("nvshmem_", $n, "_atomic_fetch_inc"), (word: *mut $t, pe: c_int) -> $t,
            fetch(concat!("nvshmem_", $n, "_atomic_fetch_inc"), word, Change::Add(1), pe));
        function!(concat!("nvshmem_", $n, "_atomic_add"), (word: *mut $t, value: $t, pe: c_int),
            change(concat!("nvshmem_", $n, "_atomic_add"), word, Change::Add(value.bits()), pe));
        function!(concat!("nvshmem_", $n, "_atomic_fetch_add"), (word: *mut $t, value: $t, pe: c_int) -> $t,
            fetch(concat!("nvshmem_", $n, "_atomic_fetch_add"), word, Change::Add(value.bits()), pe));
        function!(concat!("nvshmem_", $n, "_atomic_compare_swap"),
            (word: *mut $t, cond: $t, value: $t, pe: c_int) -> $t, {
            let change = Change::CompareSwap(cond.bits(), value.bits());
            fetch(concat!("nvshmem_", $n, "_atomic_compare_swap"), word, change, pe)
        });
    )* };
}
with_standard_amo_types!(standard);

macro_rules! extended {
    ($($n:literal $t:ty;)*) => { $(
        function!(concat!("nvshmem_", $n, "_atomic_fetch"), (word: *const $t, pe: c_int) -> $t,
            fetch(concat!("nvshmem_", $n, "_atomic_fetch"), word, Change::Add(0), pe));
        function!(concat!("nvshmem_", $n, "_atomic_set"), (word: *mut $t, value: $t, pe: c_int),
            change(concat!("nvshmem_", $n, "_atomic_set"), word, Change::Set(value.bits()), pe));
        function!(concat!("nvshmem_", $n, "_atomic_swap"), (word: *mut $t, value: $t, pe: c_int) -> $t,
            fetch(concat!("nvshmem_", $n, "_atomic_swap"), word, Change::Swap(value.bits()), pe));
    )* };
}
with_extended_amo_types!(extended);

macro_rules! bitwise {
    ($($n:literal $t:ty;)*) => { $(
        bitwise!(@ $n $t, "and", And);
        bitwise!(@ $n $t, "or", Or);
        bitwise!(@ $n $t, "xor", Xor);
    )* };
    (@ $n:literal $t:ty, $op:literal, $change:ident) => {
        function!(concat!("nvshmem_", $n, "_atomic_", $op), (word: *mut $t, value: $t, pe: c_int),
            change(concat!("nvshmem_", $n, "_atomic_", $op), word, Change::$change(value.bits()), pe));
        function!(concat!("nvshmem_", $n, "_atomic_fetch_", $op), (word: *mut $t, value: $t, pe: c_int) -> $t,
            fetch(concat!("nvshmem_", $n, "_atomic_fetch_", $op), word, Change::$change(value.bits()), pe));
    };
}
with_bitwise_amo_types!(bitwise);

macro_rules! number {
    ($($n:literal $t:ty, $add:ident;)*) => { $(
        function!(concat!("nvshmemx_", $n, "_atomic_add"), (word: *mut $t, value: $t, pe: c_int), {
            $add(concat!("nvshmemx_", $n, "_atomic_add"), word, value, pe);
        });
        function!(concat!("nvshmemx_", $n, "_atomic_fetch_add"), (word: *mut $t, value: $t, pe: c_int) -> $t,
            $add(concat!("nvshmemx_", $n, "_atomic_fetch_add"), word, value, pe));
    )* };
}
number!("half" u16, add_half; "float" f32, add_number; "double" f64, add_number;);

fn signal_op(name: &str, stream: Stream, word: *mut u64, value: u64, op: c_int, pe: c_int) {
    let at = word.expose_provenance() as u64;
    let launched =
        signal(op, value).is_ok().then(|| StreamCall::new(What::Signal, pe).with_word(at, value, op));
    on_or_launch(name, stream, launched, |s| s.signal(at, signal(op, value)?, pe));
}

function!("nvshmemx_signal_op", (word: *mut u64, value: u64, op: c_int, pe: c_int),
    signal_op("nvshmemx_signal_op", NO_STREAM, word, value, op, pe));
function!("nvshmemx_signal_op_on_stream", (word: *mut u64, value: u64, op: c_int, pe: c_int, stream: Stream),
    signal_op("nvshmemx_signal_op_on_stream", stream, word, value, op, pe));
function!("nvshmem_signal_fetch", (word: *mut u64) -> u64, {
    let at = word.expose_provenance() as u64;
    call("nvshmem_signal_fetch", |s| s.heap().read_word(at))
});
