//! The grammar of faults: `down`, `drop=0.01`, `flap=50ms/20`, `delay=5us/10ms`.

use super::time::{WANTED, format_time, parse_time};
use super::{FaultInfo, FaultKind};
use std::fmt;
use std::str::FromStr;

/// A text that is no fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseFaultError {
    /// No fault has this name.
    #[error("no fault is called `{met}`{} `shmem_put_bw --list-faults` names all", did_you_mean(*near))]
    Name {
        /// What was written.
        met: String,
        /// The name of a fault that is nearest to it, if one is near.
        near: Option<&'static str>,
    },
    /// The name needs a parameter.
    #[error("`{met}` needs a parameter: `{syntax}`")]
    Missing {
        /// What was written.
        met: String,
        /// What would be right.
        syntax: &'static str,
    },
    /// A parameter does not read.
    #[error("`{whole}`: expected {wanted}, as in `{syntax}`, got `{met}`")]
    Parameter {
        /// The part that does not read.
        met: String,
        /// What was written.
        whole: String,
        /// What would have been read.
        wanted: &'static str,
        /// What would be right.
        syntax: &'static str,
    },
}

/// The name in a fault's text.
pub(super) fn name_of(text: &str) -> &str {
    text.split_once('=').map_or(text, |(name, _)| name)
}

/// No fault of `list` has the name.
pub(super) fn no_such_fault(text: &str, list: impl Iterator<Item = FaultInfo>) -> ParseFaultError {
    let name = name_of(text);
    let letters = |info: FaultInfo| (strsim::damerau_levenshtein(name, info.name()), info.name());
    let near = list.map(letters).min().filter(|(letters, known)| *letters <= 1 + known.len() / 6);
    ParseFaultError::Name { met: text.into(), near: near.map(|(_, known)| known) }
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map_or(";".to_owned(), |name| format!("; did you mean `{name}`?"))
}

/// A fault's text, taken apart.
pub(super) struct Text<'a> {
    whole: &'a str,
    syntax: &'static str,
    parameter: Option<&'a str>,
    extra: Option<&'a str>,
}

impl<'a> Text<'a> {
    pub(super) fn new(
        whole: &'a str,
        list: &'static [FaultInfo],
    ) -> Result<(&'a str, Self), ParseFaultError> {
        let name = name_of(whole);
        let parameters = whole.split_once('=').map(|(_, parameters)| parameters);
        let Some(info) = list.iter().find(|info| info.name() == name) else {
            return Err(no_such_fault(whole, list.iter().copied()));
        };
        let (parameter, extra) = match parameters.map(|text| text.split_once('/')) {
            Some(Some((parameter, extra))) => (Some(parameter), Some(extra)),
            Some(None) => (parameters, None),
            None => (None, None),
        };
        Ok((name, Self { whole, syntax: info.syntax, parameter, extra }))
    }

    fn bad(&self, met: &str, wanted: &'static str) -> ParseFaultError {
        ParseFaultError::Parameter { met: met.into(), whole: self.whole.into(), wanted, syntax: self.syntax }
    }

    fn required(&self) -> Result<&'a str, ParseFaultError> {
        self.parameter.ok_or(ParseFaultError::Missing { met: self.whole.into(), syntax: self.syntax })
    }

    /// The first parameter, required: a time.
    pub(super) fn time(&self) -> Result<u64, ParseFaultError> {
        let text = self.required()?;
        parse_time(text).ok_or_else(|| self.bad(text, WANTED))
    }

    fn number<T: FromStr>(&self, text: &str, wanted: &'static str) -> Result<T, ParseFaultError> {
        text.parse().map_err(|_| self.bad(text, wanted))
    }

    fn probability(&self) -> Result<f64, ParseFaultError> {
        let (text, wanted) = (self.required()?, "a probability from 0 to 1");
        let value: f64 = self.number(text, wanted)?;
        if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(self.bad(text, wanted)) }
    }

    fn count(&self, text: &str) -> Result<u32, ParseFaultError> {
        match self.number(text, "a count from 1")? {
            0 => Err(self.bad(text, "a count from 1")),
            count => Ok(count),
        }
    }

    /// The first parameter, required: every how manyeth.
    pub(super) fn number_of(&self) -> Result<u32, ParseFaultError> {
        self.count(self.required()?)
    }

    fn rate(&self) -> Result<f64, ParseFaultError> {
        let (text, wanted) = (self.required()?, "a rate in Gb/s above 0");
        let value: f64 = self.number(text.strip_suffix("gbps").unwrap_or(text), wanted)?;
        if value > 0.0 && value.is_finite() { Ok(value) } else { Err(self.bad(text, wanted)) }
    }

    fn syndrome(&self) -> Result<u8, ParseFaultError> {
        let text = self.required()?;
        let digits = text.strip_prefix("0x");
        let value = digits.map_or_else(|| text.parse().ok(), |hex| u8::from_str_radix(hex, 16).ok());
        value.filter(|value| *value != 0).ok_or_else(|| self.bad(text, "a syndrome from 1 to 255 or 0xff"))
    }

    /// The only parameter, required: a time.
    pub(super) fn only_time(&self) -> Result<u64, ParseFaultError> {
        self.no_extra()?;
        self.time()
    }

    /// The only parameter: how long.
    pub(super) fn lasting(&self) -> Result<Option<u64>, ParseFaultError> {
        self.no_extra()?;
        self.parameter.map(|text| parse_time(text).ok_or_else(|| self.bad(text, WANTED))).transpose()
    }

    /// Behind a slash: how long.
    pub(super) fn for_ns(&self) -> Result<Option<u64>, ParseFaultError> {
        self.extra.map(|text| parse_time(text).ok_or_else(|| self.bad(text, WANTED))).transpose()
    }

    fn no_extra(&self) -> Result<(), ParseFaultError> {
        self.extra.map_or(Ok(()), |text| Err(self.bad(text, "no further parameter")))
    }

    /// No parameter.
    pub(super) fn bare<T>(&self, fault: T) -> Result<T, ParseFaultError> {
        self.parameter.map_or(Ok(fault), |text| Err(self.bad(text, "no parameter")))
    }
}

impl FromStr for FaultKind {
    type Err = ParseFaultError;

    fn from_str(whole: &str) -> Result<Self, ParseFaultError> {
        let (name, text) = Text::new(whole, Self::LIST)?;
        Ok(match name {
            "down" => Self::Down { for_ns: text.lasting()? },
            "up" => text.bare(Self::Up)?,
            "flap" => {
                let missing = ParseFaultError::Missing { met: whole.into(), syntax: text.syntax };
                let period_ns = text.time()?;
                if period_ns < 2 {
                    return Err(text.bad(whole, "a period of at least 2ns"));
                }
                Self::Flap { period_ns, count: text.count(text.extra.ok_or(missing)?)? }
            }
            "blackhole-tx" => Self::BlackholeTx { for_ns: text.lasting()? },
            "blackhole-rx" => Self::BlackholeRx { for_ns: text.lasting()? },
            "drop-acks" => Self::DropAcks { for_ns: text.lasting()? },
            "drop" => Self::Drop { probability: text.probability()?, for_ns: text.for_ns()? },
            "delay" => Self::Delay { by_ns: text.time()?, for_ns: text.for_ns()? },
            "hold" => Self::Hold { for_ns: text.only_time()? },
            "dup" => Self::Dup { probability: text.probability()?, for_ns: text.for_ns()? },
            "reorder" => Self::Reorder { every: text.count(text.required()?)?, for_ns: text.for_ns()? },
            "slow" => Self::Slow { gbps: text.rate()?, for_ns: text.for_ns()? },
            "placement-delay" => Self::PlacementDelay { by_ns: text.time()?, for_ns: text.for_ns()? },
            "late-cqe" => Self::LateCqe { by_ns: text.time()?, for_ns: text.for_ns()? },
            "lost-doorbell" => Self::LostDoorbell { for_ns: text.lasting()? },
            "nic-gone" => Self::NicGone { for_ns: text.lasting()? },
            "fw-timeout" => Self::FwTimeout { for_ns: text.lasting()? },
            "event-lost" => Self::EventLost { for_ns: text.lasting()? },
            "event-late" => Self::EventLate { by_ns: text.time()?, for_ns: text.for_ns()? },
            "lost-atomic-response" => Self::LostAtomicResponse { for_ns: text.lasting()? },
            "cqe-error" => {
                text.no_extra()?;
                Self::CqeError { syndrome: text.syndrome()? }
            }
            "partial-write" => {
                text.no_extra()?;
                Self::PartialWrite { packets: text.count(text.required()?)? }
            }
            "rkey-revoked" => Self::RkeyRevoked { for_ns: text.lasting()? },
            "gid-change" => text.bare(Self::GidChange)?,
            "missing-flush" => Self::MissingFlush { for_ns: text.lasting()? },
            "rnr" => Self::Rnr { for_ns: text.lasting()? },
            "cqe-garbage-init" => Self::CqeGarbageInit { for_ns: text.lasting()? },
            "corrupt" => text.bare(Self::Corrupt)?,
            "double-signal" => text.bare(Self::DoubleSignal)?,
            "double-atomic" => text.bare(Self::DoubleAtomic)?,
            "skip-atomic" => text.bare(Self::SkipAtomic)?,
            "swap-signal" => text.bare(Self::SwapSignal)?,
            _ => unreachable!("every name of the list is read above; a test walks the list"),
        })
    }
}

impl FaultKind {
    /// The name without parameters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Down { .. } => "down",
            Self::Up => "up",
            Self::Flap { .. } => "flap",
            Self::BlackholeTx { .. } => "blackhole-tx",
            Self::BlackholeRx { .. } => "blackhole-rx",
            Self::DropAcks { .. } => "drop-acks",
            Self::Drop { .. } => "drop",
            Self::Delay { .. } => "delay",
            Self::Hold { .. } => "hold",
            Self::Dup { .. } => "dup",
            Self::Reorder { .. } => "reorder",
            Self::Slow { .. } => "slow",
            Self::PlacementDelay { .. } => "placement-delay",
            Self::LateCqe { .. } => "late-cqe",
            Self::LostDoorbell { .. } => "lost-doorbell",
            Self::NicGone { .. } => "nic-gone",
            Self::FwTimeout { .. } => "fw-timeout",
            Self::EventLost { .. } => "event-lost",
            Self::EventLate { .. } => "event-late",
            Self::LostAtomicResponse { .. } => "lost-atomic-response",
            Self::CqeError { .. } => "cqe-error",
            Self::PartialWrite { .. } => "partial-write",
            Self::RkeyRevoked { .. } => "rkey-revoked",
            Self::GidChange => "gid-change",
            Self::MissingFlush { .. } => "missing-flush",
            Self::Rnr { .. } => "rnr",
            Self::CqeGarbageInit { .. } => "cqe-garbage-init",
            Self::Corrupt => "corrupt",
            Self::DoubleSignal => "double-signal",
            Self::DoubleAtomic => "double-atomic",
            Self::SkipAtomic => "skip-atomic",
            Self::SwapSignal => "swap-signal",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let has_parameter = match *self {
            Self::Flap { period_ns, count } => {
                write!(f, "={}/{count}", format_time(period_ns))?;
                true
            }
            Self::Drop { probability, .. } | Self::Dup { probability, .. } => {
                write!(f, "={probability}")?;
                true
            }
            Self::Delay { by_ns, .. }
            | Self::PlacementDelay { by_ns, .. }
            | Self::LateCqe { by_ns, .. }
            | Self::EventLate { by_ns, .. } => {
                write!(f, "={}", format_time(by_ns))?;
                true
            }
            Self::Reorder { every: count, .. } | Self::PartialWrite { packets: count } => {
                write!(f, "={count}")?;
                true
            }
            Self::Slow { gbps, .. } => {
                write!(f, "={gbps}")?;
                true
            }
            Self::CqeError { syndrome } => {
                write!(f, "={syndrome:#04x}")?;
                true
            }
            _ => false,
        };
        match self.duration() {
            Some(for_ns) => write!(f, "{}{}", if has_parameter { '/' } else { '=' }, format_time(for_ns)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text for each syntax of the list, with the optional parts or without.
    fn example(syntax: &str, optional: bool) -> String {
        let (fixed, rest) =
            syntax.split_once('[').map_or((syntax, ""), |(a, b)| (a, b.trim_end_matches(']')));
        let fixed = fixed
            .replace("=PERIOD/COUNT", "=50ms/20")
            .replace("=SYNDROME", "=0x15")
            .replace("=GBPS", "=12.5")
            .replace("=P", "=0.25")
            .replace("=T", "=7us")
            .replace("=N", "=3");
        let rest = if optional { rest.replace('T', "10ms") } else { String::new() };
        format!("{fixed}{rest}")
    }

    #[test]
    fn every_line_of_the_list_reads_and_prints_itself() {
        for info in FaultKind::LIST {
            for optional in [false, true] {
                let text = example(info.syntax, optional);
                let kind: FaultKind = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(kind.to_string(), text);
                assert_eq!(kind.is_sabotage(), info.sabotage, "{text}");
            }
        }
    }

    #[test]
    fn errors_say_what_is_expected_and_what_came() {
        let message = |text: &str| text.parse::<FaultKind>().unwrap_err().to_string();
        assert!(message("dwon").contains("`dwon`; did you mean `down`? `shmem_put_bw --list-faults`"));
        assert!(message("whatever-else").contains("`whatever-else`; `shmem_put_bw --list-faults`"));
        assert!(message("drop=2").contains("a probability from 0 to 1"));
        assert!(message("delay").contains("`delay=T[/T]`"));
        assert!(message("down=5").contains("a time like 10ms"));
        assert!(message("flap=50ms").contains("flap=PERIOD/COUNT"));
        assert!(message("up=1s").contains("`1s`"));
        assert!(message("down=1s/2").contains("`2`"));
        assert!(message("delay=-1ms").contains("`-1ms`") && message("delay=nans").contains("`nans`"));
        assert!(message("slow=0").contains("above 0") && message("reorder=0").contains("from 1"));
    }
}
