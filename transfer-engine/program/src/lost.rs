//! An end of a job whose process is gone: its survivors judge what they saw, and one of them speaks. Pure.

use anyhow::Error;
use shunt::host::error::BootstrapError;
use shunt_transfer::CallError;
use std::fmt;

/// An end that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    end: u32,
    reason: String,
}

impl Lost {
    /// The end that an exchange of all ends lost, if that is why it failed.
    pub fn of(error: &Error) -> Option<Self> {
        let exchange = match error.downcast_ref() {
            Some(CallError::Exchange(error)) => Some(error),
            _ => error.downcast_ref(),
        };
        match exchange {
            Some(BootstrapError::Lost { rank, reason, .. }) => {
                Some(Self { end: *rank, reason: reason.clone() })
            }
            _ => None,
        }
    }

    /// Whether this end speaks for all that are left: the first of them does.
    pub fn speaks(&self, own: u32) -> bool {
        own == u32::from(self.end == 0)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { end, reason } = self;
        write!(f, "end {end}: expected it until the end of the run, got one that is gone: {reason}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_that_is_left_speaks() {
        for (rank, speaker) in [(0, 1), (1, 0), (3, 0)] {
            let exchange = || BootstrapError::Lost { round: 7, rank, reason: "it closed".to_owned() };
            for error in [CallError::from(exchange()).into(), Error::from(exchange())] {
                let lost = Lost::of(&error).expect("an end is gone");
                let speakers: Vec<u32> = (0..4).filter(|own| lost.speaks(*own)).collect();
                assert_eq!(speakers, [speaker], "{lost}");
            }
        }
        let late = BootstrapError::Missing { round: 7, missing: vec![1], size: 2, waited_ns: 1 };
        assert_eq!(Lost::of(&CallError::from(late).into()), None);
        assert_eq!(Lost::of(&CallError::Closed.into()), None);
    }
}
