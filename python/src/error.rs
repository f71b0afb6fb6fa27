//! Errors as Python's: what was asked wrongly is a `ValueError`, `Differs` where it is not the same on all ranks; a
//! fault of the network, and a rank that gave up, is a `Fault`.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use shunt_deep_ep_bridge::MoeError;
use shunt_layout::moe_normal::{Difference, Why};

pyo3::create_exception!(
    shunt_ep,
    Fault,
    PyRuntimeError,
    "A kernel had a fault: stage, peer, path and syndrome are in its text; `peer` and `syndrome` are numbers."
);

pyo3::create_exception!(
    shunt_ep,
    Differs,
    PyValueError,
    "Ranks do not have alike what they must: `peer` is the rank that differs from this one, `what`, `theirs` and \
     `ours` say in what. Where two others differ `peer` is the one that found it, and `theirs` and `ours` are None."
);

/// What ranks do not have alike, as an exception; what is theirs and ours where this rank is one of the two.
fn differs(py: Python<'_>, text: String, peer: u32, what: &str, values: Option<(u64, u64)>) -> PyErr {
    let raised = Differs::new_err(text);
    let value = raised.value(py);
    let told = value.setattr("peer", peer).and_then(|()| {
        value.setattr("what", what)?;
        value.setattr("theirs", values.map(|(theirs, _)| theirs))?;
        value.setattr("ours", values.map(|(_, ours)| ours))
    });
    told.map_or_else(|other| other, |()| raised)
}

/// A fault, of a network or of a rank.
fn fault(py: Python<'_>, text: String, peer: u32, syndrome: u32) -> PyErr {
    let raised = Fault::new_err(text);
    let value = raised.value(py);
    let told = value.setattr("peer", peer).and_then(|()| value.setattr("syndrome", syndrome));
    told.map_or_else(|other| other, |()| raised)
}

/// An error of the buffer.
pub fn raised(py: Python<'_>, error: &MoeError) -> PyErr {
    let text = error.to_string();
    match error {
        MoeError::Shape(_) | MoeError::NormalShape(_) | MoeError::Room { .. } | MoeError::Argument { .. } => {
            PyValueError::new_err(text)
        }
        MoeError::Broken
        | MoeError::NormalBroken
        | MoeError::Order(_)
        | MoeError::Numbers { .. }
        | MoeError::Epoch { .. }
        | MoeError::LeftOut { .. }
        | MoeError::NoMajority { .. }
        | MoeError::Undecided { .. }
        | MoeError::Unmet(_) => PyRuntimeError::new_err(text),
        MoeError::Differs { rank, difference: Difference { what, theirs, ours } } => {
            differs(py, text, *rank, what, Some((*theirs, *ours)))
        }
        MoeError::GaveUp { rank, why: Why::Differs { theirs, own, .. } } => {
            differs(py, text, *rank, own.differ(*theirs).map_or("a call", |found| found.what), None)
        }
        MoeError::GaveUp { rank, .. } => fault(py, text, *rank, 0),
        MoeError::Fault(met) => fault(py, text, met.fault.peer, met.fault.syndrome),
    }
}
