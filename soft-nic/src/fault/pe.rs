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
                | Self::ClockJump { by_ns: 0 }
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
            "clock-jump" => Self::ClockJump { by_ns: text.only_time()? },
            _ => unreachable!("every name of the list is read above; a test walks the list"),
        })
    }
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
            | Self::ClockJump { by_ns: ns } => write!(f, "={}", format_time(ns)),
        }
    }
}
