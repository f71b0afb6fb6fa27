//! What calls of transfers give back, and how each ends.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use shunt_transfer::pending::{CancelHow, End, Meeting};
use shunt_transfer::{CallError, Expectation, Met, Scattered, Transfer};
use shunt_transfer_engine::error::TransferError;
use std::time::{Duration, Instant};

/// Between two looks for a signal such as that of Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);

/// What was asked wrongly is a `ValueError`: nothing was posted.
pub fn refused(error: &CallError) -> PyErr {
    match error {
        CallError::Transfer(_) | CallError::Memory(_) => PyValueError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

/// Waits without the interpreter, and lets a signal end it. `None`: not in time.
pub fn waited<T: Send>(
    py: Python<'_>,
    patience_ns: u64,
    wait: impl Fn(Duration) -> Result<Option<T>, CallError> + Sync,
) -> PyResult<Option<T>> {
    let began = Instant::now();
    loop {
        let left = Duration::from_nanos(patience_ns).saturating_sub(began.elapsed());
        let ended = py.detach(|| wait(left.min(SLICE))).map_err(|error| refused(&error))?;
        if ended.is_some() || left <= SLICE {
            return Ok(ended);
        }
        py.check_signals()?;
    }
}

/// An error by its name, and its text.
type Named = (&'static str, String);

/// How something ended: its error, if it has one, and whether nothing of it lands any more.
type Ended = (Option<Named>, bool);

fn named(error: &TransferError) -> Named {
    let name = match error {
        TransferError::PeerLost { .. } => "peer_lost",
        TransferError::PeerLeft { .. } => "peer_left",
        TransferError::Denied { .. } => "denied",
        TransferError::Cancelled { .. } => "cancelled",
        TransferError::Uncertain { .. } => "uncertain",
        TransferError::Unproven { .. } => "unproven",
        TransferError::Missing { .. } => "missing",
        _ => "refused",
    };
    (name, error.to_string())
}

fn ended(End { result, is_quiet }: End) -> Ended {
    (result.err().map(|error| named(&error)), is_quiet)
}

fn how(name: &str, drain_ns: u64) -> PyResult<CancelHow> {
    Ok(match name {
        "unposted" => CancelHow::Unposted,
        "drain" => CancelHow::Drain(Duration::from_nanos(drain_ns)),
        "now" => CancelHow::Now,
        _ => {
            let text = format!("how: expected unposted, drain or now, got {name:?}");
            return Err(PyValueError::new_err(text));
        }
    })
}

/// A transfer that was begun.
#[pyclass(frozen, name = "Transfer", module = "shunt_ep._native")]
pub struct PyTransfer(pub Transfer);

#[pymethods]
impl PyTransfer {
    /// How it ended; `None`: not in time.
    fn wait(&self, py: Python<'_>, patience_ns: u64) -> PyResult<Option<Ended>> {
        Ok(waited(py, patience_ns, |patience| self.0.wait(patience))?.map(ended))
    }

    /// Cancels it: `unposted`, `now`, or `drain` and how long.
    fn cancel(&self, name: &str, drain_ns: u64) -> PyResult<()> {
        self.0.cancel(how(name, drain_ns)?);
        Ok(())
    }
}

/// Immediates that are awaited.
#[pyclass(frozen, name = "Expectation", module = "shunt_ep._native")]
pub struct PyExpectation(pub Expectation);

#[pymethods]
impl PyExpectation {
    /// How it ended; `None`: not in time.
    fn wait(&self, py: Python<'_>, patience_ns: u64) -> PyResult<Option<Ended>> {
        let end = waited(py, patience_ns, |patience| self.0.wait(patience))?;
        // What is missing may still come.
        Ok(end.map(|result| ended(End { is_quiet: result.is_ok(), result })))
    }
}

/// A scatter that was begun.
#[pyclass(frozen, name = "Scattered", module = "shunt_ep._native")]
pub struct PyScattered(pub Scattered);

#[pymethods]
impl PyScattered {
    /// How each share ended, in order; `None`: one of them has not, in time.
    fn wait(&self, py: Python<'_>, patience_ns: u64) -> PyResult<Option<Vec<Ended>>> {
        let ends = waited(py, patience_ns, |patience| self.0.wait(patience))?;
        Ok(ends.map(|ends| ends.into_iter().map(ended).collect()))
    }

    /// Cancels shares that have not ended, as a transfer.
    fn cancel(&self, name: &str, drain_ns: u64) -> PyResult<()> {
        self.0.cancel(how(name, drain_ns)?);
        Ok(())
    }
}

/// A barrier that was begun.
#[pyclass(frozen, name = "Barrier", module = "shunt_ep._native")]
pub struct PyMet(pub Met);

#[pymethods]
impl PyMet {
    /// Peers that failed, each with its error: none where all were there. `None`: it has not ended in time.
    fn wait(&self, py: Python<'_>, patience_ns: u64) -> PyResult<Option<Vec<(u32, Named)>>> {
        let met = waited(py, patience_ns, |patience| self.0.wait(patience))?;
        let failed = |met: Meeting| met.err().unwrap_or_default().into_iter();
        Ok(met.map(|met| failed(met).map(|(peer, error)| (peer.0, named(&error))).collect()))
    }
}
