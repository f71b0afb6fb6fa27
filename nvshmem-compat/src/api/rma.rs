//! Put, get, p, g, iput, iget, put with signal: of 25 types, five sizes and plain bytes, at once and on a stream.

use super::types::{Value, plain_name, stream_name, with_rma_types, with_sizes};
use super::{NO_STREAM, Stream, on, on_or_launch};
use crate::api::amo::signal;
use crate::session::transfer::{Strides, Until};
use crate::stream_call::{StreamCall, What};
use std::ffi::{c_int, c_void};

/// What is moved: addresses, and bytes in all.
#[derive(Clone, Copy)]
struct Move {
    target: u64,
    source: u64,
    bytes: usize,
    pe: c_int,
}

impl Move {
    fn new<T>(target: *mut T, source: *const T, bytes: usize, pe: c_int) -> Self {
        Self {
            target: target.expose_provenance() as u64,
            source: source.expose_provenance() as u64,
            bytes,
            pe,
        }
    }
}

/// A signal word, what it is told, and how.
#[derive(Clone, Copy)]
struct Tail {
    word: *mut u64,
    value: u64,
    op: c_int,
}

/// The move as a kernel makes it.
fn kernel(kind: What, what: Move, until: Until) -> StreamCall {
    let call = StreamCall::new(kind, what.pe).moving(what.target, what.source, what.bytes as u64);
    call.until_done(until == Until::Done)
}

fn put(name: &str, stream: Stream, what: Move, until: Until) {
    on_or_launch(name, stream, Some(kernel(What::Put, what, until)), |s| {
        s.put(what.target, what.source, what.bytes as u64, what.pe, until)
    });
}

fn get(name: &str, stream: Stream, what: Move, until: Until) {
    on_or_launch(name, stream, Some(kernel(What::Get, what, until)), |s| {
        s.get(what.target, what.source, what.bytes as u64, what.pe, until)
    });
}

fn put_signal(name: &str, stream: Stream, what: Move, tail: Tail, until: Until) {
    let word = tail.word.expose_provenance() as u64;
    let known = signal(tail.op, tail.value).is_ok() && word != 0;
    let launched = known.then(|| kernel(What::Put, what, until).with_word(word, tail.value, tail.op));
    on_or_launch(name, stream, launched, |s| {
        // The word is looked at first: a put without its signal would be half a call.
        let change = signal(tail.op, tail.value)?;
        s.heap().offset(word, 8)?;
        // On one channel the signal comes behind the put, and a store is there before it is posted; the source is
        // waited for at the end.
        s.put(what.target, what.source, what.bytes as u64, what.pe, Until::Posted)?;
        s.signal(word, change, what.pe)?;
        if until == Until::Done { s.peers().quiet(what.pe) } else { Ok(()) }
    });
}

/// Distance between elements, how many, and bytes of one.
fn strides(target: isize, source: isize, count: usize, bytes: u64) -> Strides {
    Strides { target: target as i64, source: source as i64, count: count as u64, bytes }
}

fn iput(name: &str, stream: Stream, what: Move, strides: Strides) {
    on(name, stream, |s| s.put_strided(what.target, what.source, strides, what.pe));
}

fn iget(name: &str, stream: Stream, what: Move, strides: Strides) {
    on(name, stream, |s| s.get_strided(what.target, what.source, strides, what.pe));
}

fn p<T: Value>(name: &str, stream: Stream, target: *mut T, value: T, pe: c_int) {
    let at = target.expose_provenance() as u64;
    on(name, stream, |s| s.put_value(at, value.bits(), size_of::<T>() as u64, pe));
}

fn g<T: Value>(name: &str, stream: Stream, source: *const T, pe: c_int) -> T {
    let at = source.expose_provenance() as u64;
    T::from_bits(on(name, stream, |s| s.get_value(at, size_of::<T>() as u64, pe)))
}

/// `put`, `get` and their kind, for elements of a type: parts of the name, the type, bytes of an element.
macro_rules! moves {
    ($body:ident, $until:ident, [$($part:literal)*], $type:ty, $bytes:expr) => {
        const _: () = {
            #[unsafe(export_name = plain_name!($($part)*))]
            extern "C" fn plain(target: *mut $type, source: *const $type, count: usize, pe: c_int) {
                let what = Move::new(target, source, count.saturating_mul($bytes), pe);
                $body(plain_name!($($part)*), NO_STREAM, what, Until::$until);
            }
            #[unsafe(export_name = stream_name!($($part)*))]
            extern "C" fn streamed(
                target: *mut $type,
                source: *const $type,
                count: usize,
                pe: c_int,
                to: Stream,
            ) {
                let what = Move::new(target, source, count.saturating_mul($bytes), pe);
                $body(stream_name!($($part)*), to, what, Until::$until);
            }
        };
    };
}

/// `iput` and `iget`.
macro_rules! strided {
    ($body:ident, [$($part:literal)*], $type:ty, $bytes:expr) => {
        const _: () = {
            #[unsafe(export_name = plain_name!($($part)*))]
            extern "C" fn plain(
                to: *mut $type,
                from: *const $type,
                dst: isize,
                sst: isize,
                count: usize,
                pe: c_int,
            ) {
                $body(plain_name!($($part)*), NO_STREAM, Move::new(to, from, 0, pe), strides(dst, sst, count, $bytes));
            }
            #[unsafe(export_name = stream_name!($($part)*))]
            extern "C" fn streamed(
                to: *mut $type,
                from: *const $type,
                dst: isize,
                sst: isize,
                count: usize,
                pe: c_int,
                stream: Stream,
            ) {
                $body(stream_name!($($part)*), stream, Move::new(to, from, 0, pe), strides(dst, sst, count, $bytes));
            }
        };
    };
}

/// Put with signal.
macro_rules! signalled {
    ($until:ident, [$($part:literal)*], $type:ty, $bytes:expr) => {
        const _: () = {
            #[unsafe(export_name = plain_name!($($part)*))]
            extern "C" fn plain(
                target: *mut $type,
                source: *const $type,
                count: usize,
                word: *mut u64,
                value: u64,
                op: c_int,
                pe: c_int,
            ) {
                let what = Move::new(target, source, count.saturating_mul($bytes), pe);
                put_signal(plain_name!($($part)*), NO_STREAM, what, Tail { word, value, op }, Until::$until);
            }
            #[unsafe(export_name = stream_name!($($part)*))]
            extern "C" fn streamed(
                target: *mut $type,
                source: *const $type,
                count: usize,
                word: *mut u64,
                value: u64,
                op: c_int,
                pe: c_int,
                stream: Stream,
            ) {
                let what = Move::new(target, source, count.saturating_mul($bytes), pe);
                put_signal(stream_name!($($part)*), stream, what, Tail { word, value, op }, Until::$until);
            }
        };
    };
}

macro_rules! typed {
    ($($n:literal $t:ty;)*) => { $(
        moves!(put, Done, [$n "_put"], $t, size_of::<$t>());
        moves!(get, Done, [$n "_get"], $t, size_of::<$t>());
        moves!(put, Posted, [$n "_put_nbi"], $t, size_of::<$t>());
        moves!(get, Posted, [$n "_get_nbi"], $t, size_of::<$t>());
        strided!(iput, [$n "_iput"], $t, size_of::<$t>() as u64);
        strided!(iget, [$n "_iget"], $t, size_of::<$t>() as u64);
        signalled!(Done, [$n "_put_signal"], $t, size_of::<$t>());
        signalled!(Posted, [$n "_put_signal_nbi"], $t, size_of::<$t>());
        const _: () = {
            #[unsafe(export_name = concat!("nvshmem_", $n, "_p"))]
            extern "C" fn store(target: *mut $t, value: $t, pe: c_int) {
                p(concat!("nvshmem_", $n, "_p"), NO_STREAM, target, value, pe);
            }
            #[unsafe(export_name = concat!("nvshmemx_", $n, "_p_on_stream"))]
            extern "C" fn store_streamed(target: *mut $t, value: $t, pe: c_int, stream: Stream) {
                p(concat!("nvshmemx_", $n, "_p_on_stream"), stream, target, value, pe);
            }
            #[unsafe(export_name = concat!("nvshmem_", $n, "_g"))]
            extern "C" fn load(source: *const $t, pe: c_int) -> $t {
                g(concat!("nvshmem_", $n, "_g"), NO_STREAM, source, pe)
            }
            #[unsafe(export_name = concat!("nvshmemx_", $n, "_g_on_stream"))]
            extern "C" fn load_streamed(source: *const $t, pe: c_int, stream: Stream) -> $t {
                g(concat!("nvshmemx_", $n, "_g_on_stream"), stream, source, pe)
            }
        };
    )* };
}
with_rma_types!(typed);

macro_rules! sized {
    ($($n:literal $bytes:literal;)*) => { $(
        moves!(put, Done, ["put" $n], c_void, $bytes);
        moves!(get, Done, ["get" $n], c_void, $bytes);
        moves!(put, Posted, ["put" $n "_nbi"], c_void, $bytes);
        moves!(get, Posted, ["get" $n "_nbi"], c_void, $bytes);
        strided!(iput, ["iput" $n], c_void, $bytes);
        strided!(iget, ["iget" $n], c_void, $bytes);
        signalled!(Done, ["put" $n "_signal"], c_void, $bytes);
        signalled!(Posted, ["put" $n "_signal_nbi"], c_void, $bytes);
    )* };
}
with_sizes!(sized);

moves!(put, Done, ["putmem"], c_void, 1);
moves!(get, Done, ["getmem"], c_void, 1);
moves!(put, Posted, ["putmem_nbi"], c_void, 1);
moves!(get, Posted, ["getmem_nbi"], c_void, 1);
signalled!(Done, ["putmem_signal"], c_void, 1);
signalled!(Posted, ["putmem_signal_nbi"], c_void, 1);
