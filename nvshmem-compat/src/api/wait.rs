//! Waits for words and tests of them; quiet, fence, flush.

use super::types::{Value, with_wait_types};
use super::{NO_STREAM, Stream, call, on, on_or_launch};
use crate::session::{Compare, Session, Watch, Width};
use crate::stream_call::{StreamCall, What};
use std::ffi::c_int;

/// No word.
const NONE: usize = usize::MAX;

/// What C says of the words that are watched.
struct Words<T> {
    at: *mut T,
    count: usize,
    left_out: *const c_int,
    compare: c_int,
    values: Vec<u64>,
    signed: bool,
}

impl<T: Value> Words<T> {
    /// One word alone.
    fn single(at: *mut T, compare: c_int, value: T, signed: bool) -> Self {
        Self { at, count: 1, left_out: std::ptr::null(), compare, values: one(value), signed }
    }
}

/// Numbers of the words that hold, when enough do.
fn watch<T: Value>(
    name: &str,
    stream: Stream,
    words: Words<T>,
    look: impl FnOnce(&Session, &Watch<'_>) -> Result<Vec<u64>, crate::failure::Failure>,
) -> Vec<u64> {
    on(name, stream, |s| {
        let compare = Compare::from_raw(words.compare)?;
        let left_out = (!words.left_out.is_null() && words.count > 0)
            // SAFETY: a caller that gives such an array gives one entry for each word.
            .then(|| unsafe { std::slice::from_raw_parts(words.left_out, words.count) });
        let width = Width { bytes: size_of::<T>() as u64, signed: words.signed };
        let (at, count) = (words.at.expose_provenance() as u64, words.count as u64);
        look(s, &Watch { at, width, compare, values: &words.values, count, left_out })
    })
}

/// Waits for so many of them.
fn wait<T: Value>(name: &str, stream: Stream, words: Words<T>, enough: usize) -> Vec<u64> {
    watch(name, stream, words, |s, watch| s.peers().wait_for(watch, enough))
}

/// Looks once, and looks after this PE's channels.
fn test<T: Value>(name: &str, words: Words<T>, wanted: Wanted) -> (bool, Vec<u64>) {
    let mut counted = 0;
    let held = watch(name, NO_STREAM, words, |s, watch| {
        counted = watch.numbers().count();
        let held = s.peers().held(watch)?;
        if held.len() < counted {
            s.peers().look_after(watch)?;
        }
        Ok(held)
    });
    let all = match wanted {
        Wanted::All => held.len() >= counted,
        Wanted::Some => !held.is_empty(),
    };
    (all, held)
}

/// What a test asks.
#[derive(Clone, Copy)]
enum Wanted {
    All,
    Some,
}

fn first(held: &[u64]) -> usize {
    held.first().map_or(NONE, |number| *number as usize)
}

/// Writes the numbers of words where the caller has room for all of them; answers with how many.
fn numbers(held: &[u64], to: *mut usize) -> usize {
    for (at, number) in held.iter().enumerate() {
        // SAFETY: the caller's array has an entry for each word, and no more numbers are held than there are words.
        unsafe { to.add(at).write(*number as usize) };
    }
    held.len()
}

/// One value for all.
fn one<T: Value>(value: T) -> Vec<u64> {
    vec![value.bits()]
}

/// A value for each word.
fn each<T: Value>(values: *const T, count: usize) -> Vec<u64> {
    // SAFETY: the caller gives one value for each word.
    (0..count).map(|at| unsafe { values.add(at).read() }.bits()).collect()
}

macro_rules! function {
    ($name:expr, ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?, $body:expr) => {
        const _: () = {
            #[unsafe(export_name = $name)]
            extern "C" fn function($($arg: $type),*) $(-> $answer)? {
                $body
            }
        };
    };
}

macro_rules! waits {
    ($($n:literal $t:ty, $signed:literal;)*) => { $(
        function!(concat!("nvshmem_", $n, "_wait_until"), (at: *mut $t, compare: c_int, value: $t), {
            let words = Words::single(at, compare, value, $signed);
            wait(concat!("nvshmem_", $n, "_wait_until"), NO_STREAM, words, 1);
        });
        function!(concat!("nvshmemx_", $n, "_wait_until_on_stream"),
            (at: *mut $t, compare: c_int, value: $t, stream: Stream), {
            let words = Words::single(at, compare, value, $signed);
            wait(concat!("nvshmemx_", $n, "_wait_until_on_stream"), stream, words, 1);
        });
        function!(concat!("nvshmem_", $n, "_test"), (at: *mut $t, compare: c_int, value: $t) -> c_int, {
            let words = Words::single(at, compare, value, $signed);
            test(concat!("nvshmem_", $n, "_test"), words, Wanted::All).0.into()
        });
        function!(concat!("nvshmem_", $n, "_wait_until_all"),
            (at: *mut $t, count: usize, left_out: *const c_int, compare: c_int, value: $t), {
            let words = Words { at, count, left_out, compare, values: one(value), signed: $signed };
            wait(concat!("nvshmem_", $n, "_wait_until_all"), NO_STREAM, words, count);
        });
        function!(concat!("nvshmemx_", $n, "_wait_until_all_on_stream"),
            (at: *mut $t, count: usize, left_out: *const c_int, compare: c_int, value: $t, stream: Stream), {
            let words = Words { at, count, left_out, compare, values: one(value), signed: $signed };
            wait(concat!("nvshmemx_", $n, "_wait_until_all_on_stream"), stream, words, count);
        });
        function!(concat!("nvshmem_", $n, "_wait_until_any"),
            (at: *mut $t, count: usize, left_out: *const c_int, compare: c_int, value: $t) -> usize, {
            let words = Words { at, count, left_out, compare, values: one(value), signed: $signed };
            first(&wait(concat!("nvshmem_", $n, "_wait_until_any"), NO_STREAM, words, 1))
        });
        function!(concat!("nvshmem_", $n, "_wait_until_some"),
            (at: *mut $t, count: usize, which: *mut usize, left_out: *const c_int, compare: c_int, value: $t)
            -> usize, {
            let words = Words { at, count, left_out, compare, values: one(value), signed: $signed };
            numbers(&wait(concat!("nvshmem_", $n, "_wait_until_some"), NO_STREAM, words, 1), which)
        });
        function!(concat!("nvshmem_", $n, "_wait_until_all_vector"),
            (at: *mut $t, count: usize, left_out: *const c_int, compare: c_int, values: *const $t), {
            let words = Words { at, count, left_out, compare, values: each(values, count), signed: $signed };
            wait(concat!("nvshmem_", $n, "_wait_until_all_vector"), NO_STREAM, words, count);
        });
        function!(concat!("nvshmemx_", $n, "_wait_until_all_vector_on_stream"),
            (at: *mut $t, count: usize, left_out: *const c_int, compare: c_int, values: *const $t, stream: Stream), {
            let words = Words { at, count, left_out, compare, values: each(values, count), signed: $signed };
            wait(concat!("nvshmemx_", $n, "_wait_until_all_vector_on_stream"), stream, words, count);
        });
        function!(concat!("nvshmem_", $n, "_wait_until_any_vector"),
            (at: *mut $t, count: usize, left_out: *const c_int, compare: c_int, values: *const $t) -> usize, {
            let words = Words { at, count, left_out, compare, values: each(values, count), signed: $signed };
            first(&wait(concat!("nvshmem_", $n, "_wait_until_any_vector"), NO_STREAM, words, 1))
        });
        function!(concat!("nvshmem_", $n, "_wait_until_some_vector"),
            (at: *mut $t, count: usize, which: *mut usize, left_out: *const c_int, compare: c_int, values: *const $t)
            -> usize, {
            let words = Words { at, count, left_out, compare, values: each(values, count), signed: $signed };
            numbers(&wait(concat!("nvshmem_", $n, "_wait_until_some_vector"), NO_STREAM, words, 1), which)
        });
        tests!($n $t, $signed);
    )* };
}

macro_rules! tests {
    ($n:literal $t:ty, $signed:literal) => {
        function!(concat!("nvshmem_", $n, "_test_all"),
            (at: *mut $t, count: usize, left_out: *const c_int, compare: c_int, value: $t) -> c_int, {
            let words = Words { at, count, left_out, compare, values: one(value), signed: $signed };
            test(concat!("nvshmem_", $n, "_test_all"), words, Wanted::All).0.into()
        });
        function!(concat!("nvshmem_", $n, "_test_any"),
            (at: *mut $t, count: usize, left_out: *const c_int, compare: c_int, value: $t) -> usize, {
            let words = Words { at, count, left_out, compare, values: one(value), signed: $signed };
            first(&test(concat!("nvshmem_", $n, "_test_any"), words, Wanted::Some).1)
        });
        function!(concat!("nvshmem_", $n, "_test_some"),
            (at: *mut $t, count: usize, which: *mut usize, left_out: *const c_int, compare: c_int, value: $t)
            -> usize, {
            let words = Words { at, count, left_out, compare, values: one(value), signed: $signed };
            numbers(&test(concat!("nvshmem_", $n, "_test_some"), words, Wanted::Some).1, which)
        });
        function!(concat!("nvshmem_", $n, "_test_all_vector"),
            (at: *mut $t, count: usize, left_out: *const c_int, compare: c_int, values: *const $t) -> c_int, {
            let words = Words { at, count, left_out, compare, values: each(values, count), signed: $signed };
            test(concat!("nvshmem_", $n, "_test_all_vector"), words, Wanted::All).0.into()
        });
        function!(concat!("nvshmem_", $n, "_test_any_vector"),
            (at: *mut $t, count: usize, left_out: *const c_int, compare: c_int, values: *const $t) -> usize, {
            let words = Words { at, count, left_out, compare, values: each(values, count), signed: $signed };
            first(&test(concat!("nvshmem_", $n, "_test_any_vector"), words, Wanted::Some).1)
        });
        function!(concat!("nvshmem_", $n, "_test_some_vector"),
            (at: *mut $t, count: usize, which: *mut usize, left_out: *const c_int, compare: c_int, values: *const $t)
            -> usize, {
            let words = Words { at, count, left_out, compare, values: each(values, count), signed: $signed };
            numbers(&test(concat!("nvshmem_", $n, "_test_some_vector"), words, Wanted::Some).1, which)
        });
    };
}
with_wait_types!(waits);

fn signal_wait(name: &str, stream: Stream, at: *mut u64, compare: c_int, value: u64) -> u64 {
    let words =
        Words { at, count: 1, left_out: std::ptr::null(), compare, values: one(value), signed: false };
    wait(name, stream, words, 1);
    let at = at.expose_provenance() as u64;
    on(name, stream, |s| s.heap().read_word(at))
}

function!("nvshmem_signal_wait_until", (at: *mut u64, compare: c_int, value: u64) -> u64,
    signal_wait("nvshmem_signal_wait_until", NO_STREAM, at, compare, value));
function!("nvshmemx_signal_wait_until_on_stream", (at: *mut u64, compare: c_int, value: u64, stream: Stream), {
    let launched = Compare::from_raw(compare).is_ok().then(|| {
        StreamCall::new(What::Wait, 0).with_word(at.expose_provenance() as u64, value, compare)
    });
    on_or_launch("nvshmemx_signal_wait_until_on_stream", stream, launched, |s| {
        let watch = Watch {
            at: at.expose_provenance() as u64,
            width: Width { bytes: 8, signed: false },
            compare: Compare::from_raw(compare)?,
            values: &[value],
            count: 1,
            left_out: None,
        };
        s.peers().wait_for(&watch, 1).map(|_| ())
    });
});

fn quiet_on(name: &str, stream: Stream) {
    on_or_launch(name, stream, Some(StreamCall::new(What::Quiet, 0)), Session::quiet);
}

function!("nvshmem_quiet", (), call("nvshmem_quiet", Session::quiet));
function!("nvshmemx_quiet_on_stream", (stream: Stream), quiet_on("nvshmemx_quiet_on_stream", stream));
function!("nvshmem_fence", (), call("nvshmem_fence", |s| s.fence()));
// Sources may be changed: they are when everything is done, and no sooner is told apart.
function!("nvshmemx_flush", (), call("nvshmemx_flush", Session::quiet));
function!("nvshmemx_flush_on_stream", (stream: Stream), quiet_on("nvshmemx_flush_on_stream", stream));
