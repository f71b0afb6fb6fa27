//! Ranks of this process on soft NICs.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use shunt_deep_ep_job::{Job, JobOptions};
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::Fault;
use std::sync::Arc;

/// Ranks, NICs and agents of this process.
#[pyclass(frozen, name = "Job", module = "shunt_ep._native")]
pub struct PyJob {
    pub job: Arc<Job>,
    rails: u32,
}

/// Most ranks of one process: each has threads of its own.
const RANKS_MAX: u32 = 64;
const RAILS_MAX: u32 = 8;
/// The largest put, for how long a path may be silent: tens of rows.
const MESSAGE: u64 = 1 << 20;

fn within(name: &str, met: u32, least: u32, most: u32) -> PyResult<()> {
    if (least..=most).contains(&met) {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{name}: {met} was given, {least} to {most} is right")))
}

#[pymethods]
impl PyJob {
    #[new]
    fn new(py: Python<'_>, ranks: u32, rails: u32, bytes: u64, channels: u32, seed: u64) -> PyResult<Self> {
        within("ranks", ranks, 2, RANKS_MAX)?;
        within("rails", rails, 1, RAILS_MAX)?;
        within("num_qps_per_rank", channels, 1, 64)?;
        let options = JobOptions { ranks, rails, channels, bytes, message: MESSAGE, seed, tolerant: true };
        let job = py.detach(|| Job::start(&options));
        let job = job.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(Self { job, rails })
    }

    /// Makes a rail of a rank fail, now: a fault as `shmem_put_bw --list-faults` writes it.
    fn inject(&self, rank: u32, rail: u32, fault: &str) -> PyResult<()> {
        within("rank", rank, 0, self.job.ranks() - 1)?;
        within("rail", rail, 0, self.rails - 1)?;
        let kind = match fault.parse::<Fault>() {
            Ok(Fault::Nic(kind)) => kind,
            Ok(_) => {
                return Err(PyValueError::new_err(format!(
                    "{fault} is of a whole PE; one of a rail is right"
                )));
            }
            Err(error) => return Err(PyValueError::new_err(error.to_string())),
        };
        self.job.nics().fail(RailAt { pe: rank, rail }, kind);
        Ok(())
    }

    /// Switches because of a fault, and back, over all channels of all ranks.
    fn switches(&self) -> (u64, u64) {
        self.job.switches()
    }
}
