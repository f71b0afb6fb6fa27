//! Which faults strike, and when.

use shunt_deep_ep_bridge::reference::Chance;
use shunt_soft_nic::fault::Fault;
use shunt_soft_nic::{FaultKind, RailAt};
use std::fmt;
use std::str::FromStr;

/// What `random` draws from: all that leaves a path and ends by itself, for so long that a layer meets it.
const RANDOM: [&str; 20] = [
    "down=20ms",
    "down=150ms",
    "flap=10ms/3",
    "blackhole-tx=30ms",
    "blackhole-rx=30ms",
    "drop-acks=20ms",
    "drop=0.2/30ms",
    "delay=1ms/20ms",
    "dup=0.3/30ms",
    "reorder=3/30ms",
    "placement-delay=1ms/20ms",
    "late-cqe=3ms/20ms",
    "lost-doorbell",
    "nic-gone=100ms",
    "lost-atomic-response=20ms",
    "cqe-error=0x15",
    "cqe-error=0x14",
    "missing-flush=50ms",
    "event-lost=50ms",
    "rnr=10ms",
];

/// A NIC that answers no commands. Two of them at both ends of a path could not be fenced: it strikes one rank alone.
const DEAF: &str = "nic-gone";

/// The fault that makes others show that show nothing by themselves.
const COMPANION: &str = "down=20ms";

/// What goes wrong in a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// All kinds.
    Random,
    /// One kind.
    Kind(FaultKind),
}

impl FromStr for Trouble {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "random" => Ok(Self::Random),
            kind => Ok(Self::Kind(parse(kind)?)),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Random => f.write_str("random"),
            Self::Kind(kind) => write!(f, "{}", Fault::Nic(*kind)),
        }
    }
}

fn parse(text: &str) -> Result<FaultKind, String> {
    match text.parse::<Fault>() {
        Ok(Fault::Nic(kind)) => Ok(kind),
        Ok(_) => {
            Err(format!("expected none, random, or a fault of a rail, got {text}, which hits a whole PE"))
        }
        Err(error) => Err(format!("{error}, or none, or random")),
    }
}

/// A stream of faults from a seed. Only one rail of each rank ever fails, so that between any two a path is left.
pub struct Troubles {
    trouble: Trouble,
    chance: Chance,
    every_ns: u64,
    bad_rails: Vec<u32>,
    /// The rank whose NIC may go away.
    deaf: u32,
    next_ns: u64,
}

impl Troubles {
    /// From `start_ns` on.
    pub fn new(trouble: &Trouble, seed: u64, ranks: u32, rails: u32, every_ns: u64, start_ns: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x74_72_6f_75);
        let bad_rails = (0..ranks).map(|_| chance.below(u64::from(rails)) as u32).collect();
        let deaf = chance.below(u64::from(ranks)) as u32;
        let mut this =
            Self { trouble: trouble.clone(), chance, every_ns, bad_rails, deaf, next_ns: start_ns };
        this.pause();
        this
    }

    fn pause(&mut self) {
        self.next_ns += self.every_ns / 2 + self.chance.below(self.every_ns.max(1));
    }

    /// What strikes by `now_ns`.
    pub fn due(&mut self, now_ns: u64) -> Vec<(RailAt, FaultKind)> {
        if self.trouble == Trouble::None || now_ns < self.next_ns {
            return Vec::new();
        }
        self.pause();
        let known = |text: &str| parse(text).expect("a fault of the list");
        let (drawn, kinds) = match self.trouble {
            Trouble::Kind(kind) => (Fault::Nic(kind).to_string(), vec![kind]),
            _ => {
                let text = RANDOM[self.chance.below(RANDOM.len() as u64) as usize];
                let shown = text.starts_with("missing-flush") || text.starts_with("event-lost");
                let companion = shown.then(|| known(COMPANION));
                (text.to_owned(), std::iter::once(known(text)).chain(companion).collect())
            }
        };
        let rank = self.chance.below(self.bad_rails.len() as u64) as u32;
        let pe = if drawn.starts_with(DEAF) { self.deaf } else { rank };
        let at = RailAt { pe, rail: self.bad_rails[pe as usize] };
        kinds.into_iter().map(|kind| (at, kind)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn random_draws_all_kinds_on_one_rail_of_each_rank_and_again_from_the_seed() {
        let draw = |seed| {
            let mut troubles = Troubles::new(&Trouble::Random, seed, 4, 2, 10, 0);
            (0..20_000)
                .flat_map(|now| troubles.due(now))
                .map(|(at, kind)| (at, Fault::Nic(kind).to_string()))
                .collect()
        };
        let first: Vec<(RailAt, String)> = draw(3);
        assert_eq!(first, draw(3));
        assert_ne!(first, draw(4));
        let kinds: BTreeSet<&str> = first.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(kinds.len(), RANDOM.len(), "{kinds:?}");
        let rails: BTreeSet<(u32, u32)> = first.iter().map(|(at, _)| (at.pe, at.rail)).collect();
        assert_eq!(rails.len(), 4, "{rails:?}");
        let deaf = first.iter().filter(|(_, text)| text.starts_with(DEAF));
        let deaf: BTreeSet<u32> = deaf.map(|(at, _)| at.pe).collect();
        assert_eq!(deaf.len(), 1, "NICs of {deaf:?} go away");
    }

    #[test]
    fn a_fault_that_is_none_says_what_would_be_right() {
        assert_eq!("none".parse(), Ok(Trouble::None));
        assert!("down=20ms".parse::<Trouble>().is_ok());
        for text in ["dwon", "peer-killed", ""] {
            let error = text.parse::<Trouble>().unwrap_err();
            assert!(error.contains("none, ") && error.contains("random"), "{error}");
        }
    }
}
