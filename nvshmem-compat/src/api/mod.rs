//! The C interface. Each family is a macro over its types: one line makes the functions of all of them.
//!
//! | module | functions |
//! | --- | --- |
//! | [`init`] | init, finalize, unique id, who and how many, versions, exit |
//! | [`memory`] | malloc and its like, registered buffers, `nvshmem_ptr` |
//! | [`rma`] | put, get, p, g, iput, iget, put with signal; also on a stream |
//! | [`amo`] | atomics, signals |
//! | [`region`] | regions of transfers: hints |
//! | [`wait`] | wait_until and test; quiet, fence, flush |
//! | [`teams`] | teams, barrier, sync |
//! | [`collective`] | broadcast, fcollect, alltoall, reductions |
//! | [`device`] | what device code needs of the host |
//! | [`data`] | variables that programs ask the loader for |
//! | [`ext`] | what NVSHMEM does not have: errors as values, state, faults of soft NICs |
//! | [`types`] | which types a family has |
//!
//! Where the program has kernels, calls on a stream are launches of one ([`crate::session::Session::launch`]). Those
//! that no kernel can do, and all where there are no kernels, run at once, in the order in which they are made. With a
//! GPU they wait for what the stream holds. Elsewhere a stream that CUDA made is refused, since nothing could be
//! ordered behind what it holds.

mod amo;
mod collective;
mod data;
mod device;
mod ext;
mod init;
mod memory;
mod region;
mod rma;
mod teams;
mod types;
mod wait;

use crate::failure::{Failure, Kind};
use crate::report::fail;
use crate::session::Session;
use crate::stream_call::StreamCall;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, PoisonError, RwLock};

/// `cudaStream_t`.
type Stream = *mut c_void;
/// Of a call that belongs to no stream: no address that CUDA gives.
const NO_STREAM: Stream = std::ptr::without_provenance_mut(usize::MAX);
/// `cudaStreamPerThread`; one below it is `cudaStreamLegacy`. Both are default streams.
const LAST_DEFAULT: usize = 2;

/// The PE of this process, while it is up.
static SESSION: RwLock<Option<Arc<Session>>> = RwLock::new(None);

fn session() -> Option<Arc<Session>> {
    SESSION.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// `kernel`: what a kernel does where the call is on a stream of a program that has kernels.
fn attempt<R: Default>(
    stream: Stream,
    kernel: Option<StreamCall>,
    body: impl FnOnce(&Session) -> Result<R, Failure>,
) -> (Option<u32>, Result<R, Failure>) {
    let Some(session) = session() else { return (None, Err(Failure::NotInitialized)) };
    if let Some(call) = kernel.filter(|_| stream != NO_STREAM) {
        match session.kernels().follow().and_then(|()| session.launch(&call, stream)) {
            Ok(false) => {}
            ended => return (Some(session.me()), ended.map(|_| R::default())),
        }
    }
    let _running = session.running();
    let behind = match stream == NO_STREAM {
        true => Ok(()),
        false => session.kernels().drain(stream, stream.addr() <= LAST_DEFAULT),
    };
    (Some(session.me()), session.kernels().follow().and(behind).and_then(|()| body(&session)))
}

/// A call without a status: a failure ends the process, or is told to the program, which then gets nothing.
fn on<R: Default>(name: &str, stream: Stream, body: impl FnOnce(&Session) -> Result<R, Failure>) -> R {
    on_or_launch(name, stream, None, body)
}

/// The same, by a kernel where one can do it.
fn on_or_launch<R: Default>(
    name: &str,
    stream: Stream,
    kernel: Option<StreamCall>,
    body: impl FnOnce(&Session) -> Result<R, Failure>,
) -> R {
    let (pe, answer) = attempt(stream, kernel, body);
    answer.unwrap_or_else(|failure| {
        fail(name, pe, &failure);
        R::default()
    })
}

/// A call that belongs to no stream.
fn call<R: Default>(name: &str, body: impl FnOnce(&Session) -> Result<R, Failure>) -> R {
    on(name, NO_STREAM, body)
}

/// A call with a status: it answers with it where the call itself was wrong. What befell the job ends the process all
/// the same, or is told.
fn status_on(name: &str, stream: Stream, body: impl FnOnce(&Session) -> Result<(), Failure>) -> c_int {
    status_or_launch(name, stream, None, body)
}

/// The same, by a kernel where one can do it.
fn status_or_launch(
    name: &str,
    stream: Stream,
    kernel: Option<StreamCall>,
    body: impl FnOnce(&Session) -> Result<(), Failure>,
) -> c_int {
    let (pe, answer) = attempt(stream, kernel, body);
    answer.err().map_or(0, |failure| status_of(name, pe, &failure))
}

fn status(name: &str, body: impl FnOnce(&Session) -> Result<(), Failure>) -> c_int {
    status_on(name, NO_STREAM, body)
}

fn status_of(name: &str, pe: Option<u32>, failure: &Failure) -> c_int {
    if matches!(failure.kind(), Kind::Usage | Kind::Init) {
        return crate::report::tell(name, pe, failure);
    }
    fail(name, pe, failure)
}
