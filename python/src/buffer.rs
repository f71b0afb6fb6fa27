//! A buffer of one rank.

use crate::error::raised;
use crate::held::{Held, bytes, copied, held};
use crate::job::PyJob;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shunt_deep_ep_bridge::{Buffer, Combine, Dispatch, Format, Handle, Patience, Received, Signals};
use shunt_deep_ep_job::{Job, Lane};
use std::sync::{Mutex, TryLockError};

/// Bytes of the heap that a buffer takes.
#[pyfunction]
pub fn size_hint(py: Python<'_>, tokens: u32, hidden: u32, ranks: u32, experts: u32) -> PyResult<u64> {
    shunt_deep_ep_bridge::size_hint(tokens, hidden, ranks, experts).map_err(|error| raised(py, &error))
}

/// A call that was sent and is to be received.
enum Call {
    Dispatch(Dispatch),
    Combine(Combine),
}

/// What a sending phase leaves: it is received once.
#[pyclass(frozen, module = "shunt_ep._native")]
pub struct Sent(Mutex<Option<Call>>);

impl Sent {
    fn of(call: Call) -> Self {
        Self(Mutex::new(Some(call)))
    }

    /// Lends what was sent to what receives it; what was refused can be received in its turn.
    fn received<T>(&self, receive: impl FnOnce(&Call) -> PyResult<T>) -> PyResult<T> {
        // Not waited for: who waits here holds the interpreter, which the one that receives needs to go on.
        let mut call = match self.0.try_lock() {
            Ok(call) => call,
            Err(TryLockError::Poisoned(call)) => call.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(PyRuntimeError::new_err("it is being received; a hook is called once"));
            }
        };
        let sent = call
            .as_ref()
            .ok_or_else(|| PyRuntimeError::new_err("it was received before; a hook is called once"))?;
        let done = receive(sent)?;
        *call = None;
        Ok(done)
    }
}

/// What a dispatch leaves for its combine.
#[pyclass(frozen, name = "Handle", module = "shunt_ep._native")]
pub struct PyHandle(Handle);

/// The buffer.
#[pyclass(frozen, name = "Buffer", module = "shunt_ep._native")]
pub struct PyBuffer(Held<Buffer<Lane>>);

fn format(name: &str) -> PyResult<Format> {
    Ok(match name {
        "bf16" => Format::Bf16,
        "fp8" => Format::Fp8,
        "fp8-rounded" => Format::Fp8Rounded,
        "fp8-exponents" => Format::Fp8Exponents,
        other => return Err(PyValueError::new_err(format!("no format is called {other}"))),
    })
}

/// Channels, scales, counts, sources and ranges, the handle, and what waiting for each rank took.
type Came<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    PyHandle,
    Vec<u64>,
);

#[pymethods]
impl PyBuffer {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "as Python calls it")]
    fn new(
        py: Python<'_>,
        job: &PyJob,
        rank: u32,
        base: u64,
        room: u64,
        tokens: u32,
        hidden: u32,
        experts: u32,
        timeout_ns: u64,
        absolute: bool,
        mask_lost: bool,
        by_memory: bool,
    ) -> PyResult<Self> {
        if !job.job.own().contains(&rank) {
            return Err(PyValueError::new_err(format!("rank {rank}: expected one of {:?}", job.job.own())));
        }
        held(py, size_hint(py, tokens, hidden, job.job.ranks(), experts)?, room)?;
        let patience = Patience {
            timeout_ns,
            slice_ns: job.job.slice_ns(),
            mask_lost,
            signals: if absolute { Signals::Absolute } else { Signals::Cleared },
            ..Patience::default()
        };
        let lane = if by_memory { job.job.lane(rank) } else { job.job.lane(rank).by_nics() };
        let buffer = Buffer::new(lane, Job::BASE + base, tokens, hidden, experts, patience);
        Ok(Self(Held::of(buffer.map_err(|error| raised(py, &error))?)))
    }

    fn dispatch(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        topk: &Bound<'_, PyAny>,
        form: &str,
    ) -> PyResult<Sent> {
        let (x, topk, form) = (copied::<u16>(x)?, copied::<i64>(topk)?, format(form)?);
        Ok(Sent::of(Call::Dispatch(self.0.with(py, |buffer| buffer.dispatch(&x, &topk, form))?)))
    }

    fn receive_dispatch<'py>(&self, py: Python<'py>, sent: &Sent, timed: bool) -> PyResult<Came<'py>> {
        let mut costs = Vec::new();
        let Received { x, scales, counts, handle, .. } = sent.received(|call| match call {
            Call::Dispatch(sent) if timed => self.0.with(py, |buffer| {
                costs.resize(buffer.shape().ranks as usize, 0);
                buffer.receive_dispatch_timed(sent, &mut costs)
            }),
            Call::Dispatch(sent) => self.0.with(py, |buffer| buffer.receive_dispatch(sent)),
            Call::Combine(_) => Err(PyRuntimeError::new_err("what was sent is no dispatch")),
        })?;
        Ok((
            bytes(py, &x, u64::to_le_bytes),
            bytes(py, &scales, u32::to_le_bytes),
            bytes(py, &counts, u32::to_le_bytes),
            bytes(py, handle.source(), u32::to_le_bytes),
            bytes(py, handle.ranges(), u64::to_le_bytes),
            PyHandle(handle),
            costs,
        ))
    }

    fn combine(
        &self,
        py: Python<'_>,
        x: Option<&Bound<'_, PyAny>>,
        weights: &Bound<'_, PyAny>,
        handle: &PyHandle,
        logfmt: bool,
    ) -> PyResult<Sent> {
        let (x, weights) = (x.map(|x| copied::<u16>(x)).transpose()?, copied::<f32>(weights)?);
        let sent = self.0.with(py, |buffer| match x.as_deref() {
            Some(x) if logfmt => buffer.combine_logfmt(x, &weights, &handle.0),
            x => buffer.combine(x, &weights, &handle.0),
        })?;
        Ok(Sent::of(Call::Combine(sent)))
    }

    fn receive_combine<'py>(
        &self,
        py: Python<'py>,
        sent: &Sent,
        timed: bool,
    ) -> PyResult<(Bound<'py, PyBytes>, Vec<u64>)> {
        let mut costs = Vec::new();
        let combined = sent.received(|call| match call {
            Call::Combine(sent) if timed => self.0.with(py, |buffer| {
                costs.resize(buffer.shape().ranks as usize, 0);
                buffer.receive_combine_timed(sent, &mut costs)
            }),
            Call::Combine(sent) => self.0.with(py, |buffer| buffer.receive_combine(sent)),
            Call::Dispatch(_) => Err(PyRuntimeError::new_err("what was sent is no combine")),
        })?;
        Ok((bytes(py, &combined, u16::to_le_bytes), costs))
    }

    /// Address of where experts may leave what they make for the next combine, and bytes between two rows.
    fn next_combine_buffer(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        self.0.with(py, |buffer| Ok((buffer.next_combine_buffer()?, buffer.shape().combine_stride())))
    }

    fn clean(&self, py: Python<'_>) -> PyResult<()> {
        self.0.with(py, Buffer::clean)
    }

    fn mask(&self, py: Python<'_>) -> PyResult<Vec<bool>> {
        self.0.with(py, |buffer| Ok(buffer.mask()))
    }

    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.with(py, |buffer| Ok(buffer.epoch()))
    }

    fn set_mask(&self, py: Python<'_>, rank: u32, masked: bool) -> PyResult<()> {
        self.0.with(py, |buffer| buffer.set_mask(rank, masked))
    }

    fn destroy(&self, py: Python<'_>) {
        self.0.destroy(py);
    }
}
