//! Errors as Python's: what was asked wrongly is a `ValueError`, a fault of the network a `Fault`.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use shunt_deep_ep_bridge::MoeError;

pyo3::create_exception!(
    shunt_ep,
    Fault,
    PyRuntimeError,
    "A kernel met a fault: stage, peer, path and syndrome are in its text; `peer` and `syndrome` are numbers."
);

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
        MoeError::Fault(fault) => {
            let raised = Fault::new_err(text);
            let value = raised.value(py);
            let told = value.setattr("peer", fault.fault.peer);
            let told = told.and_then(|()| value.setattr("syndrome", fault.fault.syndrome));
            match told {
                Ok(()) => raised,
                Err(other) => other,
            }
        }
    }
}
