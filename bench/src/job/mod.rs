//! A job: all its PEs in this process, or one here and the others in processes of their own. One trait, two bodies, and
//! what they are made of.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`board`] | what the ends of a run tell each other while it goes on |
//! | [`entry`], [`book`] | what each process reports of its part, and all parts together |
//! | [`wire`], [`message`] | how that is written between processes; pure |
//! | [`courier`] | the thread that keeps boards alike and carries reports, over messages that may be lost |
//! | [`threads`], [`processes`] | the two bodies |

pub mod board;
pub mod book;
pub mod courier;
pub mod entry;
pub mod message;
pub mod processes;
pub mod threads;
pub mod wire;

use board::Board;
use entry::Entry;
pub use shunt::Member;
use shunt_device::platform::host::World;
use shunt_host::error::BootstrapError;
use shunt_soft_nic::Fabric;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Why a job has no run.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The others did not come.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The processes do not reach each other, or their NICs do not.
    #[error("{0}")]
    Link(String),
    /// Processes were started with command lines that do not go together.
    #[error("{0}")]
    Disagree(String),
}

/// What of the agents' own link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentCut {
    /// Nothing.
    Joined,
    /// Both ways.
    BothWays,
    /// What the agent says.
    Says,
    /// What it hears.
    Hears,
}

/// How the PEs of a run are spread over processes.
pub trait Job: Sync {
    /// PEs of the job.
    fn pes(&self) -> u32;

    /// PEs that live here.
    fn own(&self) -> Range<u32>;

    /// Number of this process; 0 prints, judges and writes.
    fn rank(&self) -> u32;

    /// What each PE that lives here is brought up with. `clock` is the one of this process.
    fn members(&self, clock: &Arc<dyn World>) -> Vec<Member>;

    /// Connects the NICs of this process, all of them added, to those of the others.
    ///
    /// # Errors
    /// They cannot be reached.
    fn attach(&self, fabric: &mut Fabric) -> Result<(), JobError>;

    /// PEs, by number, whose processes have the same ports as this one.
    ///
    /// # Errors
    /// Somebody did not say.
    fn mates(&self, ports: &str) -> Result<Vec<u32>, JobError>;

    /// Cuts the agent of a PE that lives here off from all others, or joins it again.
    fn cut_agent(&self, pe: u32, cut: AgentCut);

    /// Messages between agents that cuts have swallowed so far.
    fn lost_by_cuts(&self) -> u64;

    /// Closes the agent's end of a PE that lives here, as its death would.
    fn close_agent(&self, pe: u32);

    /// A phase of the run begins: every process has this board from now on. Returns in all processes at about the same
    /// time.
    ///
    /// # Errors
    /// Somebody did not come.
    fn begin(&self, board: &Arc<Board>) -> Result<(), JobError>;

    /// Something to report to the process that judges.
    fn publish(&self, entry: &Entry);

    /// What others have reported since the last call, each with its rank.
    fn collect(&self) -> Vec<(u32, Entry)>;

    /// This process has nothing more to report.
    fn close(&self);

    /// Processes that have not yet reported everything and may still do so.
    fn awaited(&self) -> Vec<u32>;

    /// Processes whose report never became whole.
    fn missing(&self) -> Vec<u32>;

    /// The process that judges tells its status to all; the others wait for it. `None`: it is gone, or time is up.
    fn conclude(&self, status: u8, patience: Duration) -> Option<u8>;

    /// What is known of the death of the process that a PE lives in.
    fn gone(&self, pe: u32) -> Option<String>;

    /// Dies as by SIGKILL, once what was published is on its way. Only where a PE is a process: `false` says that this
    /// process is more than the PE.
    fn die(&self) -> bool;
}
