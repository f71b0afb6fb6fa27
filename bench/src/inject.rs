//! `<time>:<pe>.<rail>:<fault>`: what shall go wrong, where and when.

use crate::units::parse_time;
use shunt_soft_nic::FaultKind;
use std::fmt;

/// One planned fault.
#[derive(Clone, Debug)]
pub struct Injection {
    /// Nanoseconds from the start of the stream.
    pub at_ns: u64,
    /// PE whose rail is hit.
    pub pe: u32,
    /// The rail.
    pub rail: u32,
    /// What happens to it.
    pub kind: FaultKind,
    /// As it was written.
    text: String,
}

/// Why a fault was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadInjection {
    /// Not three parts.
    #[error("met {0:?}; a fault is <time>:<pe>.<rail>:<fault>, e.g. 500ms:0.0:down")]
    Shape(String),
    /// The first part.
    #[error("time of the fault: {0}")]
    Time(#[from] crate::units::BadUnit),
    /// The second part is no place.
    #[error("met the place {0:?}; a place is <pe>.<rail>, e.g. 0.1")]
    Place(String),
    /// A PE without a rail.
    #[error("met {0:?}: faults of a whole PE are not in this version; name a rail, e.g. 0.0:down")]
    WholePe(String),
    /// `exec=`.
    #[error(
        "met {0:?}: exec is for hardware and --nic mlx5 is not in this version; --list-faults names what is"
    )]
    Exec(String),
    /// The third part.
    #[error("{0}; --list-faults names every fault")]
    Fault(String),
}

impl Injection {
    /// Reads one `--inject`.
    pub fn parse(text: &str) -> Result<Self, BadInjection> {
        let mut parts = text.splitn(3, ':');
        let (Some(time), Some(place), Some(fault)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(BadInjection::Shape(text.to_owned()));
        };
        let at_ns = parse_time(time)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| BadInjection::Place(place.to_owned()));
        let (pe, rail) = match place.split_once('.') {
            Some((pe, rail)) => (number(pe)?, number(rail)?),
            None => {
                number(place)?;
                return Err(BadInjection::WholePe(text.to_owned()));
            }
        };
        if fault.starts_with("exec=") {
            return Err(BadInjection::Exec(text.to_owned()));
        }
        let kind = fault.parse::<FaultKind>().map_err(|error| BadInjection::Fault(error.to_string()))?;
        Ok(Self { at_ns, pe, rail, kind, text: text.to_owned() })
    }

    /// True for a fault of probability or delay zero: nobody means it.
    pub fn does_nothing(&self) -> bool {
        match self.kind {
            FaultKind::Drop { probability, .. } | FaultKind::Dup { probability, .. } => probability == 0.0,
            FaultKind::Delay { by_ns, .. }
            | FaultKind::PlacementDelay { by_ns, .. }
            | FaultKind::LateCqe { by_ns, .. }
            | FaultKind::EventLate { by_ns, .. } => by_ns == 0,
            _ => false,
        }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What happens when nobody says: the primary rail of PE 0 goes down at a sixth of the stream and comes back
/// at half of it.
pub fn default_plan(duration_ns: u64) -> Vec<Injection> {
    let make = |at_ns: u64, fault: &str| {
        let (at, unit) =
            if at_ns.is_multiple_of(1_000_000) { (at_ns / 1_000_000, "ms") } else { (at_ns, "ns") };
        let text = format!("{at}{unit}:0.0:{fault}");
        Injection::parse(&text).expect("down and up are faults")
    };
    vec![make(duration_ns / 6, "down"), make(duration_ns / 2, "up")]
}
