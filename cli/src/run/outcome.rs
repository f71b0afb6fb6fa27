//! How ranks ended, and what the job's exit status is. Pure.

use nix::sys::signal::Signal;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this status.
    Exited(u8),
    /// By this signal.
    Killed(i32),
}

impl Ending {
    /// From what the system says.
    pub fn from_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code as u8),
            (None, signal) => Self::Killed(signal.unwrap_or(0)),
        }
    }

    /// Ended by itself with 0.
    pub fn is_clean(self) -> bool {
        self == Self::Exited(0)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Killed(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "was killed by {signal}"),
                Err(_) => write!(f, "was killed by signal {number}"),
            },
        }
    }
}

/// The job's exit status, of endings in the order in which they came: see `shunt run --help`.
pub fn status(endings: &[Ending]) -> u8 {
    let exited = endings.iter().filter_map(|ending| match ending {
        Ending::Exited(code) => Some(*code),
        Ending::Killed(_) => None,
    });
    let killed = endings.iter().find_map(|ending| match ending {
        Ending::Killed(signal) => Some(128u8.saturating_add(*signal as u8)),
        Ending::Exited(_) => None,
    });
    match exited.max() {
        Some(code) if code != 0 => code,
        _ => killed.unwrap_or(0),
    }
}

/// One line that says which rank ended how; neighbours that ended alike are named together.
pub fn summary(endings: &[Ending]) -> String {
    let mut parts = Vec::new();
    let mut first = 0;
    while first < endings.len() {
        let alike = endings[first..].iter().take_while(|ending| **ending == endings[first]).count();
        let last = first + alike - 1;
        let ranks = if alike == 1 { format!("rank {first}") } else { format!("ranks {first}-{last}") };
        let verb = endings[first].to_string();
        parts.push(match alike {
            1 => format!("{ranks} {verb}"),
            _ => format!("{ranks} {}", verb.replacen("was", "were", 1)),
        });
        first = last + 1;
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ending::{Exited, Killed};

    #[test]
    fn what_a_rank_says_itself_comes_before_signals() {
        let cases: [(&[Ending], u8); 6] = [
            (&[Exited(0), Exited(0)], 0),
            (&[Exited(3), Exited(1)], 3),
            (&[Exited(0), Killed(9)], 137),
            (&[Exited(3), Killed(9)], 3),
            (&[Killed(15), Killed(9)], 143),
            (&[], 0),
        ];
        for (endings, want) in cases {
            assert_eq!(status(endings), want, "{endings:?}");
        }
    }

    #[test]
    fn neighbours_are_named_together() {
        let met = summary(&[Exited(0), Exited(0), Killed(9), Exited(3), Killed(15), Killed(15)]);
        let want = "ranks 0-1 exited with 0, rank 2 was killed by SIGKILL, rank 3 exited with 3, \
                    ranks 4-5 were killed by SIGTERM";
        assert_eq!(met, want);
    }
}
