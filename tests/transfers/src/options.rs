//! The command line.

use clap::{Parser, ValueEnum};
use shunt_figures::units::{parse_gbps, whole};
use shunt_tests::transfers::timing::{Case, TimingSpec};
use std::path::PathBuf;

/// What happens in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// A port of either end goes down and comes up later.
    Down,
    /// A port holds packets back, and a transfer with pages there is cancelled at once.
    Cancel,
    /// The writing end hangs, and the other one cuts it off.
    Revoke,
    /// The reading end hangs, and the other one cuts it off.
    Leave,
    /// A port goes down for 20 ms, and the rate is measured before, meanwhile and after.
    Rate,
}

impl Which {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Down, Self::Cancel, Self::Revoke, Self::Leave, Self::Rate];

    /// As runs have it.
    pub const fn case(self) -> Case {
        match self {
            Self::Down => Case::Down,
            Self::Cancel => Case::Cancel,
            Self::Revoke => Case::Revoke,
            Self::Leave => Case::Leave,
            Self::Rate => Case::Rate,
        }
    }

    /// As it is typed.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// transfer_virtual: how long faults, cancels and cuts of the transfer engine take. RC queue pairs of soft NICs in one
/// simulation, in virtual time: link 2 us, firmware command 100 us, event 50 us, message between agents 30 us.
///
/// Up to four transfers of 8 pages of 64 KiB are under way. Every page is checked, every immediate is counted.
#[derive(Parser, Clone, Debug)]
#[command(name = "transfer_virtual", version)]
#[command(
    max_term_width = 80,
    after_help = "Exit status: 0 all is as it must be, 1 a promise was broken, a fault hit nothing, or something took \
                  longer than its bar, 2 bad usage."
)]
pub struct Options {
    /// Runs of each case; of `rate` one for each hundred of them
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = whole(1..=10_000_000))]
    pub seeds: u32,
    /// The seed of the first run
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub first: u64,
    /// This case alone; may be repeated [default: all]
    #[arg(long = "case", value_enum, value_name = "CASE")]
    pub cases: Vec<Which>,
    /// Rails of each end
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole(2..=8))]
    pub rails: u32,
    /// What a rail carries, Gb/s [default: 25; of `rate` 10]
    #[arg(long, value_name = "GBPS", value_parser = parse_gbps)]
    pub rail_gbps: Option<f64>,
    /// Runs at a time [default: the processors there are]
    #[arg(long, value_name = "N", value_parser = whole(1..=256))]
    pub threads: Option<u32>,
    /// Also write the verdict to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Options {
    /// The runs.
    pub fn runs(&self) -> Vec<(Which, TimingSpec)> {
        let wanted = |which: &Which| self.cases.is_empty() || self.cases.contains(which);
        let of = |which: Which| {
            let count = if which == Which::Rate { self.seeds.div_ceil(100) } else { self.seeds };
            (self.first..self.first.saturating_add(count.into())).map(move |seed| {
                let spec = TimingSpec::new(seed, which.case());
                let rail_gbps = self.rail_gbps.unwrap_or(spec.rail_gbps);
                (which, TimingSpec { rails: self.rails, rail_gbps, ..spec })
            })
        };
        Which::ALL.into_iter().filter(wanted).flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_the_wanted_cases() {
        let of =
            |args: &[&str]| Options::try_parse_from([&["transfer_virtual"], args].concat()).unwrap().runs();
        let all = of(&["--seeds", "150"]);
        let count = |which| all.iter().filter(|(it, _)| *it == which).count();
        assert_eq!(Which::ALL.map(count), [150, 150, 150, 150, 2]);
        let few = of(&["--case", "rate", "--first", "7", "--seeds", "3", "--rails", "3", "--rail-gbps", "2"]);
        assert_eq!(few.len(), 1);
        let spec = few[0].1;
        assert_eq!((spec.seed, spec.case, spec.rails, spec.rail_gbps), (7, Case::Rate, 3, 2.0));
        assert!(Options::try_parse_from(["transfer_virtual", "--rails", "1"]).is_err(), "none would be left");
    }
}
