//! The native half of `shunt_ep`: ranks, and a buffer of each. What Python sees is in `package/shunt_ep`.
//!
//! Arrays come as buffers of the interpreter and are copied while it stands still; kernels run without it, so ranks may
//! be its threads. Nothing waits for a lock with the interpreter held.

mod buffer;
mod error;
mod held;
mod job;
mod normal;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<job::PyJob>()?;
    module.add_class::<job::PyRoot>()?;
    module.add_class::<buffer::PyBuffer>()?;
    module.add_class::<buffer::Sent>()?;
    module.add_class::<buffer::PyHandle>()?;
    module.add_class::<normal::PyNormal>()?;
    module.add_class::<normal::PyNormalHandle>()?;
    module.add_function(wrap_pyfunction!(buffer::size_hint, module)?)?;
    module.add_function(wrap_pyfunction!(normal::normal_size_hint, module)?)?;
    module.add_function(wrap_pyfunction!(normal::normal_layout, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Differs", module.py().get_type::<error::Differs>())?;
    module.add("Fault", module.py().get_type::<error::Fault>())
}
