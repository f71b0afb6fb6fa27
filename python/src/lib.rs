//! The native half of `shunt_ep` and `shunt_transfer`: ranks, and a buffer of each; ends of transfers. What Python sees
//! is in `package/`.
//!
//! NumPy's arrays are copied while the interpreter stands still. Kernels run without it, so ranks may be its threads.
//! Nothing waits for a lock with the interpreter held.

mod buffer;
mod ended;
mod error;
mod held;
mod job;
mod normal;
mod transfer;
mod watched;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shunt_deep_ep_job::Logging;

/// Waits until the log is written, a second at most.
#[pyfunction]
fn flush_log(py: Python<'_>) {
    py.detach(shunt_deep_ep_job::flush_log);
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    Logging::install_from_env().map_err(|error| PyValueError::new_err(error.to_string()))?;
    module.add_function(wrap_pyfunction!(flush_log, module)?)?;
    module.add_class::<job::PyJob>()?;
    module.add_class::<job::PyRoot>()?;
    module.add_class::<buffer::PyBuffer>()?;
    module.add_class::<buffer::Sent>()?;
    module.add_class::<buffer::PyHandle>()?;
    module.add_class::<normal::PyNormal>()?;
    module.add_class::<normal::PyNormalHandle>()?;
    module.add_class::<transfer::PyNode>()?;
    module.add_class::<transfer::PyRegion>()?;
    module.add_class::<transfer::PyTarget>()?;
    module.add_class::<ended::PyTransfer>()?;
    module.add_class::<ended::PyExpectation>()?;
    module.add_class::<ended::PyScattered>()?;
    module.add_class::<ended::PyMet>()?;
    module.add_class::<watched::PyWatcher>()?;
    module.add_function(wrap_pyfunction!(buffer::size_hint, module)?)?;
    module.add_function(wrap_pyfunction!(normal::normal_size_hint, module)?)?;
    module.add_function(wrap_pyfunction!(normal::normal_layout, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Differs", module.py().get_type::<error::Differs>())?;
    module.add("Fault", module.py().get_type::<error::Fault>())
}
