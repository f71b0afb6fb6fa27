//! Faults of a whole PE: its process, its agent, its clock, its way to the other agents.

use super::parse::{ParseFaultError, Text};
use super::time::format_time;
use super::{FaultInfo, kind};
use std::fmt;
use std::str::FromStr;

/// A fault of a whole PE. Who runs the PE carries it out; the NICs know nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeFault {
    /// The process is gone: its kernels, its agent, its queue pairs.
    PeerKilled,
    /// The agent does nothing any more; kernels and NICs go on.
    AgentKilled,
    /// The agent does nothing for a while.
    AgentStalled {
        /// How long.
        for_ns: u64,
    },
    /// The agent is gone at once; another one that knows nothing takes over.
    AgentRestart,
    /// The same, after a while without any agent.
    AgentDead {
        /// How long.
        for_ns: u64,
    },
    /// No message between this PE's agent and the others arrives.
    OobCut {
        /// How long; for ever if absent.
        for_ns: Option<u64>,
    },
    /// No message of this PE's agent reaches the others; theirs arrive.
    OobCutTx {
        /// How long; for ever if absent.
        for_ns: Option<u64>,
    },
    /// No message of the others reaches this PE's agent; its own arrive.
    OobCutRx {
        /// How long; for ever if absent.
        for_ns: Option<u64>,
    },
    /// Messages between this PE's agent and the others arrive twice, now and then.
    OobDup {
        /// Every how manyeth.
        every: u32,
        /// How long; for ever if absent.
        for_ns: Option<u64>,
    },
    /// Messages between this PE's agent and the others arrive later.
    OobDelay {
        /// By how much.
        by_ns: u64,
        /// How long; for ever if absent.
        for_ns: Option<u64>,
    },
    /// Messages between this PE's agent and the others are overtaken by later ones, now and then.
    OobReorder {
        /// Every how manyeth.
        every: u32,
        /// How long; for ever if absent.
        for_ns: Option<u64>,
    },
    /// The process is stopped, as by SIGSTOP, and goes on later.
    PeerStopped {
        /// How long.
        for_ns: u64,
    },
    /// The PE's clock jumps forward.
    ClockJump {
        /// By how much.
        by_ns: u64,
    },
}

impl PeFault {
    /// All of them.
    pub const LIST: &'static [FaultInfo] = &[
        kind::pe_fault(
            "peer-killed",
            "the PE's process is gone: its queue pairs are destroyed, its agent and its kernels stop",
        ),
        kind::pe_fault("agent-killed", "the PE's agent stops for good; its kernels and NICs go on"),
        kind::pe_fault(
            "agent-stalled=T",
            "the PE's agent does nothing for this long, and knows all it knew before",
        ),
        kind::pe_fault(
            "agent-restart",
            "the PE's agent dies; another one, which knows nothing, takes over at once",
        ),
        kind::pe_fault(
            "agent-dead=T",
            "the PE's agent dies; after this long another one, which knows nothing, takes over",
        ),
        kind::pe_fault("oob-cut[=T]", "messages between the PE's agent and the others are lost, both ways"),
        kind::pe_fault("oob-cut-tx[=T]", "messages of the PE's agent to the others are lost"),
        kind::pe_fault("oob-cut-rx[=T]", "messages of the others to the PE's agent are lost"),
        kind::pe_fault(
            "oob-dup=N[/T]",
            "every N-th message between the PE's agent and the others arrives once more, 1 ms late (simulator)",
        ),
        kind::pe_fault(
            "oob-delay=T[/T]",
            "each message between the PE's agent and the others arrives later (simulator)",
        ),
        kind::pe_fault(
            "oob-reorder=N[/T]",
            "every N-th message between the PE's agent and the others is overtaken, 1 ms late (simulator)",
        ),
        kind::pe_fault(
            "peer-stopped=T",
            "the PE's process does nothing for this long: its kernels, its agent; NICs go on (simulator)",
        ),
        kind::pe_fault("clock-jump=T", "the PE's clock jumps forward: of its kernels and of its agent"),
    ];

    /// The name without parameters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PeerKilled => "peer-killed",
            Self::AgentKilled => "agent-killed",
            Self::AgentStalled { .. } => "agent-stalled",
            Self::AgentRestart => "agent-restart",
            Self::AgentDead { .. } => "agent-dead",
            Self::OobCut { .. } => "oob-cut",
            Self::OobCutTx { .. } => "oob-cut-tx",
            Self::OobCutRx { .. } => "oob-cut-rx",
            Self::OobDup { .. } => "oob-dup",
            Self::OobDelay { .. } => "oob-delay",
            Self::OobReorder { .. } => "oob-reorder",
            Self::PeerStopped { .. } => "peer-stopped",
            Self::ClockJump { .. } => "clock-jump",
        }
    }

    /// True for a parameter that nobody means: nothing would happen.
    pub fn does_nothing(&self) -> bool {
        matches!(
            self,
            Self::AgentStalled { for_ns: 0 }
                | Self::AgentDead { for_ns: 0 }
                | Self::OobCut { for_ns: Some(0) }
                | Self::OobCutTx { for_ns: Some(0) }
                | Self::OobCutRx { for_ns: Some(0) }
                | Self::OobDup { for_ns: Some(0), .. }
                | Self::OobDelay { for_ns: Some(0), .. }
                | Self::OobDelay { by_ns: 0, .. }
                | Self::OobReorder { for_ns: Some(0), .. }
                | Self::PeerStopped { for_ns: 0 }
                | Self::ClockJump { by_ns: 0 }
        )
    }

    /// True if only the simulator can make it: elsewhere agents talk over the system's own network, which does not do
    /// so, and a process is stopped by any user who may send it a signal.
    pub fn is_simulated(&self) -> bool {
        matches!(
            self,
            Self::OobDup { .. } | Self::OobDelay { .. } | Self::OobReorder { .. } | Self::PeerStopped { .. }
        )
    }
}

impl FromStr for PeFault {
    type Err = ParseFaultError;

    fn from_str(whole: &str) -> Result<Self, ParseFaultError> {
        let (name, text) = Text::new(whole, Self::LIST)?;
        Ok(match name {
            "peer-killed" => text.bare(Self::PeerKilled)?,
            "agent-killed" => text.bare(Self::AgentKilled)?,
            "agent-stalled" => Self::AgentStalled { for_ns: text.only_time()? },
            "agent-restart" => text.bare(Self::AgentRestart)?,
            "agent-dead" => Self::AgentDead { for_ns: text.only_time()? },
            "oob-cut" => Self::OobCut { for_ns: text.lasting()? },
            "oob-cut-tx" => Self::OobCutTx { for_ns: text.lasting()? },
            "oob-cut-rx" => Self::OobCutRx { for_ns: text.lasting()? },
            "oob-dup" => Self::OobDup { every: text.number_of()?, for_ns: text.for_ns()? },
            "oob-delay" => Self::OobDelay { by_ns: text.time()?, for_ns: text.for_ns()? },
            "oob-reorder" => Self::OobReorder { every: text.number_of()?, for_ns: text.for_ns()? },
            "peer-stopped" => Self::PeerStopped { for_ns: text.only_time()? },
            "clock-jump" => Self::ClockJump { by_ns: text.only_time()? },
            _ => unreachable!("every name of the list is read above; a test walks the list"),
        })
    }
}

/// How long, if not for ever.
fn behind_a_slash(f: &mut fmt::Formatter<'_>, for_ns: Option<u64>) -> fmt::Result {
    for_ns.map_or(Ok(()), |for_ns| write!(f, "/{}", format_time(for_ns)))
}

impl fmt::Display for PeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match *self {
            Self::PeerKilled
            | Self::AgentKilled
            | Self::AgentRestart
            | Self::OobCut { for_ns: None }
            | Self::OobCutTx { for_ns: None }
            | Self::OobCutRx { for_ns: None } => Ok(()),
            Self::AgentStalled { for_ns: ns }
            | Self::AgentDead { for_ns: ns }
            | Self::OobCut { for_ns: Some(ns) }
            | Self::OobCutTx { for_ns: Some(ns) }
            | Self::OobCutRx { for_ns: Some(ns) }
            | Self::PeerStopped { for_ns: ns }
            | Self::ClockJump { by_ns: ns } => write!(f, "={}", format_time(ns)),
            Self::OobDup { every, for_ns } | Self::OobReorder { every, for_ns } => {
                write!(f, "={every}")?;
                behind_a_slash(f, for_ns)
            }
            Self::OobDelay { by_ns, for_ns } => {
                write!(f, "={}", format_time(by_ns))?;
                behind_a_slash(f, for_ns)
            }
        }
    }
}
