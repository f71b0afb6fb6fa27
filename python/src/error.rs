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
    "A kernel met a fault: stage, peer, path and syndrome are in its text; `peer` and `syndrome` are numbers."
);

pyo3::create_exception!(
    shunt_ep,
    Differs,
    PyValueError,
    "Ranks do not have alike what they must: `peer` is the rank that differs, or that found it out; `what`, `theirs` \
     and `ours` say in what."
);

/// What ranks do not have alike, as an exception.
fn differs(py: Python<'_>, text: String, peer: u32, difference: Option<Difference>) -> PyErr {
    let raised = Differs::new_err(text);
    let value = raised.value(py);
    let told = value.setattr("peer", peer).and_then(|()| match difference {
        Some(Difference { what, theirs, ours }) => {
            value.setattr("what", what)?;
            value.setattr("theirs", theirs)?;
            value.setattr("ours", ours)
        }
        None => Ok(()),
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
        MoeError::Differs { rank, difference } => differs(py, text, *rank, Some(*difference)),
        MoeError::GaveUp { rank, why: Why::Differs { theirs, own, .. } } => {
            differs(py, text, *rank, own.differ(*theirs))
        }
        MoeError::GaveUp { rank, .. } => fault(py, text, *rank, 0),
        MoeError::Fault(met) => fault(py, text, met.fault.peer, met.fault.syndrome),
    }
}
