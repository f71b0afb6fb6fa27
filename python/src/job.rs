//! Ranks: all of this process on soft NICs, or the one that this process is.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shunt_deep_ep_job::connect::tcp::interface::InterfaceSpec;
use shunt_deep_ep_job::connect::tcp::{JoinError, JoinOptions, UniqueId};
use shunt_deep_ep_job::{Job, JobOptions, Joining, NicKind, NoJob};
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::Fault;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Ranks, NICs and agents of this process.
#[pyclass(frozen, name = "Job", module = "shunt_ep._native")]
pub struct PyJob {
    pub job: Arc<Job>,
}

/// Most ranks of one process: each has threads of its own.
const RANKS_MAX: u32 = 64;
const RAILS_MAX: u32 = 8;
/// The largest put, for how long a path may be silent: tens of rows.
const MESSAGE: u64 = 1 << 20;
/// The interface that rank 0 listens on.
const INTERFACE: &str = "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME";

pub fn within(name: &str, met: u32, least: u32, most: u32) -> PyResult<()> {
    if (least..=most).contains(&met) {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{name}: expected {least} to {most}, got {met}")))
}

/// What was asked wrongly is a `ValueError`.
fn refused(error: &NoJob) -> PyErr {
    match error {
        NoJob::Machine(_) | NoJob::Queues(_) | NoJob::Disagree { .. } | NoJob::Node(_) => {
            PyValueError::new_err(error.to_string())
        }
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

fn interface() -> PyResult<Option<InterfaceSpec>> {
    let spec = std::env::var(INTERFACE).ok().map(|text| text.parse()).transpose();
    spec.map_err(|_| PyValueError::new_err(format!("{INTERFACE} is not understood; see shunt env --long")))
}

/// Where rank 0 of a job listens: made by rank 0, whose process begins the job with it.
#[pyclass(frozen, name = "Root", module = "shunt_ep._native")]
pub struct PyRoot {
    id: UniqueId,
    listener: Mutex<Option<TcpListener>>,
}

#[pymethods]
impl PyRoot {
    #[new]
    fn new() -> PyResult<Self> {
        let (id, listener) = UniqueId::create(interface()?.as_ref())
            .map_err(|error: JoinError| PyRuntimeError::new_err(error.to_string()))?;
        Ok(Self { id, listener: Mutex::new(Some(listener)) })
    }

    /// What all ranks need to know of it, the secret of the job among it.
    fn unique_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.id.to_bytes())
    }
}

/// How a rank joins a job whose rank 0 has made `unique_id`; that rank gives what it made it with.
pub fn joining(rank: u32, ranks: u32, unique_id: &[u8], root: Option<&PyRoot>) -> PyResult<Joining> {
    let id = UniqueId::from_bytes(unique_id).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let mut options = JoinOptions::new(rank, ranks, id.root(), id.secret());
    options.interface = interface()?;
    options.listener =
        root.and_then(|root| root.listener.lock().unwrap_or_else(PoisonError::into_inner).take());
    Ok(Joining { options, fabric: id.fabric(), made_up: true })
}

#[pymethods]
impl PyJob {
    /// All ranks in this process, so many of them a node.
    #[new]
    fn new(
        py: Python<'_>,
        ranks: u32,
        rails: u32,
        bytes: u64,
        channels: u32,
        seed: u64,
        locals: u32,
    ) -> PyResult<Self> {
        within("ranks", ranks, 2, RANKS_MAX)?;
        within("rails", rails, 1, RAILS_MAX)?;
        within("num_qps_per_rank", channels, 1, 64)?;
        let (tolerant, nic, locals) = (true, NicKind::Soft, Some(locals));
        let options =
            JobOptions { ranks, rails, channels, bytes, message: MESSAGE, seed, tolerant, nic, locals };
        let job = py.detach(|| Job::start(&options)).map_err(|error| refused(&error))?;
        Ok(Self { job })
    }

    /// The rank that this process is, of a job whose rank 0 has made `unique_id`, and gives what it made it with.
    #[staticmethod]
    #[pyo3(signature = (rank, ranks, rails, bytes, channels, unique_id, root, nic, locals))]
    #[expect(clippy::too_many_arguments, reason = "as Python calls it")]
    fn join(
        py: Python<'_>,
        rank: u32,
        ranks: u32,
        rails: u32,
        bytes: u64,
        channels: u32,
        unique_id: &[u8],
        root: Option<&PyRoot>,
        nic: Option<&str>,
        locals: Option<u32>,
    ) -> PyResult<Self> {
        within("rails", rails, 1, RAILS_MAX)?;
        let said = nic.map(str::to_owned).or_else(|| std::env::var(NicKind::VARIABLE).ok());
        let kind = NicKind::from_lookup(&|_| said.clone());
        let nic = kind.map_err(|error| PyValueError::new_err(error.to_string()))?.unwrap_or_default();
        let joining = joining(rank, ranks, unique_id, root)?;
        let seed = u64::from_le_bytes(unique_id[120..128].try_into().expect("a unique id has 128 bytes"));
        let (message, tolerant) = (MESSAGE, true);
        let options = JobOptions { ranks, rails, channels, bytes, message, seed, tolerant, nic, locals };
        let job = py.detach(|| Job::join(&options, joining)).map_err(|error| refused(&error))?;
        Ok(Self { job })
    }

    /// Makes a rail of a rank of this process fail, now: a fault as `shmem_put_bw --list-faults` writes it.
    fn inject(&self, rank: u32, rail: u32, fault: &str) -> PyResult<()> {
        let own = self.job.own();
        within("rank", rank, own.start, own.end - 1)?;
        let rails = self.job.nics().count(rank) as u32;
        within("rail", rail, 0, rails.saturating_sub(1))?;
        let kind = match fault.parse::<Fault>() {
            Ok(Fault::Nic(kind)) => kind,
            Ok(_) => {
                return Err(PyValueError::new_err(format!(
                    "{fault} hits a whole PE: expected a fault of a rail"
                )));
            }
            Err(error) => return Err(PyValueError::new_err(error.to_string())),
        };
        let done = self.job.inject(RailAt { pe: rank, rail }, kind);
        done.map(|_| ()).map_err(PyValueError::new_err)
    }

    /// Switches because of a fault, and back, over all channels of the ranks of this process.
    fn switches(&self) -> (u64, u64) {
        self.job.switches()
    }

    /// What carries the packets, for people.
    fn nics(&self) -> String {
        self.job.nics().describe()
    }

    /// Ranks of a node.
    fn locals(&self) -> u32 {
        self.job.locals()
    }

    /// Address at which this process reaches what buffers have of the heap of a rank that lives here.
    fn address(&self, rank: u32) -> PyResult<u64> {
        let own = self.job.own();
        within("rank", rank, own.start, own.end - 1)?;
        Ok(shunt_deep_ep_bridge::Runner::address(&self.job.lane(rank), Job::BASE))
    }

    /// Waits until the processes of all ranks call it, or until one of them is known to be gone or this time is over;
    /// says what went wrong.
    fn meet(&self, py: Python<'_>, patience_ns: u64) -> Option<String> {
        let met = py.detach(|| self.job.gather(&[], Duration::from_nanos(patience_ns)));
        met.err().map(|error| error.to_string())
    }
}
