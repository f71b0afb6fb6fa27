//! `<time>:<pe>.<rail>:<fault>` or `<time>:<pe>:<fault>`: what shall go wrong, where and when. The one grammar of
//! command lines, of the swarm and of regression files.

use super::kind::{FaultInfo, FaultKind};
use super::parse::{ParseFaultError, name_of, no_such_fault};
use super::pe::PeFault;
use super::time::{WANTED, format_time, parse_time};
use std::fmt;
use std::str::FromStr;

/// Anything that can go wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// One NIC, or the port of it that is a rail.
    Nic(FaultKind),
    /// A whole PE.
    Pe(PeFault),
    /// A command that makes the fault on real hardware, at a rail.
    Exec(String),
}

impl Fault {
    /// The one line of the list that is no fault of the software.
    pub const EXEC: FaultInfo =
        super::kind::fault("exec=COMMAND", "runs COMMAND in a shell: a fault of real hardware");

    /// The name without parameters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nic(kind) => kind.name(),
            Self::Pe(fault) => fault.name(),
            Self::Exec(_) => "exec",
        }
    }

    /// True if it hits a whole PE, and so names no rail.
    pub fn hits_whole_pe(&self) -> bool {
        matches!(self, Self::Pe(_))
    }

    /// True if it breaks a promise on purpose.
    pub fn is_sabotage(&self) -> bool {
        matches!(self, Self::Nic(kind) if kind.is_sabotage())
    }

    /// True for a parameter that nobody means: a probability, a delay or a duration of zero.
    pub fn does_nothing(&self) -> bool {
        match self {
            Self::Nic(kind) => kind.does_nothing(),
            Self::Pe(fault) => fault.does_nothing(),
            Self::Exec(_) => false,
        }
    }
}

impl FromStr for Fault {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, ParseFaultError> {
        let name = name_of(text);
        let Some(info) = list().find(|info| info.name() == name) else {
            return Err(no_such_fault(text, list()));
        };
        if info == Self::EXEC {
            let command = text.split_once('=').map_or("", |(_, command)| command);
            let missing = || ParseFaultError::Missing { met: text.into(), syntax: info.syntax };
            return if command.trim().is_empty() { Err(missing()) } else { Ok(Self::Exec(command.into())) };
        }
        if info.whole_pe { text.parse().map(Self::Pe) } else { text.parse().map(Self::Nic) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nic(kind) => kind.fmt(f),
            Self::Pe(fault) => fault.fmt(f),
            Self::Exec(command) => write!(f, "exec={command}"),
        }
    }
}

/// A fault, where and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    /// When, in nanoseconds after the traffic began.
    pub at_ns: u64,
    /// PE that is hit.
    pub pe: u32,
    /// Its rail; none if the fault is of the whole PE.
    pub rail: Option<u32>,
    /// What happens.
    pub fault: Fault,
}

/// A text that is no injection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseInjectionError {
    /// Not three parts.
    #[error(
        "fault: expected <time>:<pe>.<rail>:<fault>, e.g. 500ms:0.0:down, or <time>:<pe>:<fault>, got {met:?}"
    )]
    Shape {
        /// What was written.
        met: String,
    },
    /// The first part is no time.
    #[error("time in {whole:?}: expected {WANTED}, got {met:?}")]
    Time {
        /// The first part.
        met: String,
        /// What was written.
        whole: String,
    },
    /// The second part is no place.
    #[error("place in {whole:?}: expected <pe>.<rail>, e.g. 0.1, or for a whole PE <pe>, got {met:?}")]
    Place {
        /// The second part.
        met: String,
        /// What was written.
        whole: String,
    },
    /// The third part is no fault.
    #[error(transparent)]
    Fault(#[from] ParseFaultError),
    /// A fault of a rail at a PE.
    #[error("place: expected one rail for {fault}, e.g. {pe}.0:{fault}, got {met:?}")]
    NeedsRail {
        /// What was written.
        met: String,
        /// The PE.
        pe: u32,
        /// The fault.
        fault: String,
    },
    /// A fault of a PE at a rail.
    #[error("place: expected a whole PE for {fault}, {pe}:{fault}, got {met:?}")]
    NeedsPe {
        /// What was written.
        met: String,
        /// The PE.
        pe: u32,
        /// The fault.
        fault: String,
    },
}

/// A number of a PE or a rail: digits only.
fn parse_number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn parse_place(text: &str) -> Option<(u32, Option<u32>)> {
    match text.split_once('.') {
        Some((pe, rail)) => Some((parse_number(pe)?, Some(parse_number(rail)?))),
        None => Some((parse_number(text)?, None)),
    }
}

impl FromStr for Injection {
    type Err = ParseInjectionError;

    fn from_str(whole: &str) -> Result<Self, ParseInjectionError> {
        let mut parts = whole.splitn(3, ':');
        let (Some(time), Some(place), Some(fault)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(ParseInjectionError::Shape { met: whole.into() });
        };
        let bad_time = || ParseInjectionError::Time { met: time.into(), whole: whole.into() };
        let bad_place = || ParseInjectionError::Place { met: place.into(), whole: whole.into() };
        let at_ns = parse_time(time).ok_or_else(bad_time)?;
        let (pe, rail) = parse_place(place).ok_or_else(bad_place)?;
        let fault: Fault = fault.parse()?;
        let (met, text) = (whole.to_owned(), fault.to_string());
        match (fault.hits_whole_pe(), rail) {
            (true, Some(_)) => Err(ParseInjectionError::NeedsPe { met, pe, fault: text }),
            (false, None) => Err(ParseInjectionError::NeedsRail { met, pe, fault: text }),
            _ => Ok(Self { at_ns, pe, rail, fault }),
        }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", format_time(self.at_ns), self.pe)?;
        if let Some(rail) = self.rail {
            write!(f, ".{rail}")?;
        }
        write!(f, ":{}", self.fault)
    }
}

/// Every fault and sabotage there is: of a rail, of a whole PE, and the command of real hardware.
pub fn list() -> impl Iterator<Item = FaultInfo> {
    FaultKind::LIST.iter().chain(PeFault::LIST).copied().chain([Fault::EXEC])
}
