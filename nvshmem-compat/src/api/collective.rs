//! Broadcast, fcollect, alltoall, reductions: of all types, at once and on a stream.

use super::types::{
    plain_name, stream_name, with_bitwise_reduce_types, with_other_reduce_types, with_rma_types,
};
use super::{NO_STREAM, Stream, status_on, status_or_launch};
use crate::reduce::{Number, Op};
use crate::session::Reduction;
use crate::stream_call::{StreamCall, What};
use std::ffi::{c_int, c_void};

/// What a collective call is given: team, addresses, bytes of each member's part.
struct Call {
    team: i32,
    target: u64,
    source: u64,
    bytes: u64,
}

impl Call {
    fn new<T>(team: i32, target: *mut T, source: *const T, bytes: usize) -> Self {
        let (target, source) = (target.expose_provenance() as u64, source.expose_provenance() as u64);
        Self { team, target, source, bytes: bytes as u64 }
    }
}

/// The call as a kernel makes it.
fn kernel(kind: What, what: &Call) -> StreamCall {
    StreamCall::new(kind, what.team).moving(what.target, what.source, what.bytes)
}

fn broadcast(name: &str, stream: Stream, what: Call, root: c_int) -> c_int {
    let launched = kernel(What::Broadcast, &what).with_word(0, 0, root);
    status_or_launch(name, stream, Some(launched), |s| {
        s.broadcast(what.team, what.target, what.source, what.bytes, root)
    })
}

fn fcollect(name: &str, stream: Stream, what: Call) -> c_int {
    status_or_launch(name, stream, Some(kernel(What::Collect, &what)), |s| {
        s.collect(what.team, what.target, what.source, what.bytes)
    })
}

fn alltoall(name: &str, stream: Stream, what: Call) -> c_int {
    status_or_launch(name, stream, Some(kernel(What::AllToAll, &what)), |s| {
        s.all_to_all(what.team, what.target, what.source, what.bytes)
    })
}

fn reduce(name: &str, stream: Stream, what: Call, reduction: Reduction) -> c_int {
    status_on(name, stream, |s| s.reduce(what.team, what.target, what.source, reduction))
}

fn reducescatter(name: &str, stream: Stream, what: Call, reduction: Reduction) -> c_int {
    status_on(name, stream, |s| s.reduce_scatter(what.team, what.target, what.source, reduction))
}

macro_rules! moves {
    ($body:ident, [$($part:literal)*], $type:ty, $bytes:expr) => {
        const _: () = {
            #[unsafe(export_name = plain_name!($($part)*))]
            extern "C" fn plain(team: i32, to: *mut $type, from: *const $type, count: usize) -> c_int {
                $body(plain_name!($($part)*), NO_STREAM, Call::new(team, to, from, count.saturating_mul($bytes)))
            }
            #[unsafe(export_name = stream_name!($($part)*))]
            extern "C" fn streamed(
                team: i32,
                to: *mut $type,
                from: *const $type,
                count: usize,
                stream: Stream,
            ) -> c_int {
                $body(stream_name!($($part)*), stream, Call::new(team, to, from, count.saturating_mul($bytes)))
            }
        };
    };
}

macro_rules! broadcasts {
    ([$($part:literal)*], $type:ty, $bytes:expr) => {
        const _: () = {
            #[unsafe(export_name = plain_name!($($part)*))]
            extern "C" fn plain(
                team: i32,
                to: *mut $type,
                from: *const $type,
                count: usize,
                root: c_int,
            ) -> c_int {
                let what = Call::new(team, to, from, count.saturating_mul($bytes));
                broadcast(plain_name!($($part)*), NO_STREAM, what, root)
            }
            #[unsafe(export_name = stream_name!($($part)*))]
            extern "C" fn streamed(
                team: i32,
                to: *mut $type,
                from: *const $type,
                count: usize,
                root: c_int,
                stream: Stream,
            ) -> c_int {
                let what = Call::new(team, to, from, count.saturating_mul($bytes));
                broadcast(stream_name!($($part)*), stream, what, root)
            }
        };
    };
}

macro_rules! typed {
    ($($n:literal $t:ty;)*) => { $(
        broadcasts!([$n "_broadcast"], $t, size_of::<$t>());
        moves!(fcollect, [$n "_fcollect"], $t, size_of::<$t>());
        moves!(alltoall, [$n "_alltoall"], $t, size_of::<$t>());
    )* };
}
with_rma_types!(typed);
broadcasts!(["broadcastmem"], c_void, 1);
moves!(fcollect, ["fcollectmem"], c_void, 1);
moves!(alltoall, ["alltoallmem"], c_void, 1);

macro_rules! reductions {
    ($op:literal $what:ident, $($n:literal $t:ty, $number:ident;)*) => { $(
        reductions!(@ reduce, concat!("nvshmem_", $n, "_", $op, "_reduce"),
            concat!("nvshmemx_", $n, "_", $op, "_reduce_on_stream"), $t, Op::$what, Number::$number);
        reductions!(@ reducescatter, concat!("nvshmem_", $n, "_", $op, "_reducescatter"),
            concat!("nvshmemx_", $n, "_", $op, "_reducescatter_on_stream"), $t, Op::$what, Number::$number);
    )* };
    (@ $body:ident, $name:expr, $stream_name:expr, $t:ty, $op:expr, $number:expr) => {
        const _: () = {
            #[unsafe(export_name = $name)]
            extern "C" fn plain(team: i32, to: *mut $t, from: *const $t, count: usize) -> c_int {
                let reduction = Reduction { op: $op, number: $number, count: count as u64 };
                $body($name, NO_STREAM, Call::new(team, to, from, 0), reduction)
            }
            #[unsafe(export_name = $stream_name)]
            extern "C" fn streamed(team: i32, to: *mut $t, from: *const $t, count: usize, stream: Stream) -> c_int {
                let reduction = Reduction { op: $op, number: $number, count: count as u64 };
                $body($stream_name, stream, Call::new(team, to, from, 0), reduction)
            }
        };
    };
}
with_bitwise_reduce_types!(reductions, "and" And,);
with_bitwise_reduce_types!(reductions, "or" Or,);
with_bitwise_reduce_types!(reductions, "xor" Xor,);
with_bitwise_reduce_types!(reductions, "min" Min,);
with_other_reduce_types!(reductions, "min" Min,);
with_bitwise_reduce_types!(reductions, "max" Max,);
with_other_reduce_types!(reductions, "max" Max,);
with_bitwise_reduce_types!(reductions, "sum" Sum,);
with_other_reduce_types!(reductions, "sum" Sum,);
with_bitwise_reduce_types!(reductions, "prod" Prod,);
with_other_reduce_types!(reductions, "prod" Prod,);
