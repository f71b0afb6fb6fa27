//! A PE's place among the others.

use shunt_device::platform::host::World;
use shunt_host::connect::oob::{LATENCY_NS, OobNet};
use shunt_host::connect::tcp::{JoinError, TcpNet, Topic};
use shunt_host::connect::{Bootstrap, InMemory, Oob};
use shunt_host::job::{Flags, Job, JobError};
use std::sync::Arc;
use thiserror::Error;

/// One PE's ends: of the exchange at start, and of the agents' own channel.
pub struct Member {
    /// The PE.
    pub pe: u32,
    /// Exchange with the others while they come up.
    pub bootstrap: Box<dyn Bootstrap + Send>,
    /// Its agent's end.
    pub oob: Box<dyn Oob>,
}

/// All PEs of a job in this process.
pub struct Members {
    /// The agents' network, which can be cut.
    pub net: OobNet,
    /// By number.
    pub members: Vec<Member>,
}

/// Why the environment gives no place in a job.
#[derive(Debug, Error)]
pub enum NoMember {
    /// Variables that make no job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The others were not reached.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Nothing is set.
    #[error("SHUNT_RANK: expected a number, as `shunt run` and other launchers set it, got nothing")]
    Alone,
}

impl Members {
    /// `pes` of them, on one clock.
    pub fn in_process(pes: u32, clock: &Arc<dyn World>) -> Self {
        let net = OobNet::new(pes, LATENCY_NS, clock.clone());
        let member =
            |(pe, bootstrap)| Member { pe, bootstrap: Box::new(bootstrap), oob: Box::new(net.end(pe)) };
        let members = (0..pes).zip(InMemory::group(pes, clock)).map(member).collect();
        Self { net, members }
    }
}

impl Member {
    /// A process that has joined its job over TCP. PEs are numbered by rank.
    pub fn of_process(net: &TcpNet) -> Self {
        Self { pe: net.rank(), bootstrap: Box::new(net.bootstrap()), oob: Box::new(net.end(Topic::Agent)) }
    }

    /// Joins the job that the environment names, as `shunt run` or another launcher sets it.
    ///
    /// # Errors
    /// As [`NoMember`] says.
    pub fn from_env() -> Result<Self, NoMember> {
        let job = Job::from_env(&Flags::default())?.ok_or(NoMember::Alone)?;
        Ok(Self::of_process(&TcpNet::join(job.join()?.options)?))
    }
}
