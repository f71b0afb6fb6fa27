//! Options that every program on the transfer engine has. Whatever cannot be honoured is refused, never ignored.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum as _};
use shunt::soft_nic::FaultKind;
use shunt::soft_nic::fault::{Fault, Injection};
use shunt_figures::units::{parse_gbps, whole};
use shunt_settings::NicKind;
use shunt_transfer::transport::{Names, Reorder, Transport, Way};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// As they are typed.
pub(crate) const NAMES: Names = Names {
    transport: "--transport",
    provider: "--provider",
    addresses: "--address",
    nic: "--nic",
    gbps: "--rail-gbps",
};

fn transport() -> impl TypedValueParser<Value = Transport> {
    let help = |transport| match transport {
        Transport::Rdma => "Queue pairs of NICs, as --nic has it",
        Transport::Tcp => "libfabric over TCP",
        Transport::Shm => "libfabric over shared memory: processes of one machine",
        Transport::Libfabric => "libfabric, as --provider has it",
        Transport::Sim => "A simulated network, between ends of one process",
    };
    let all = || Transport::ALL.into_iter().chain([Transport::Sim]);
    let known = all().map(|transport| PossibleValue::new(transport.name()).help(help(transport)));
    let named = move |name: String| all().find(|transport| transport.name() == name).ok_or("no transport");
    PossibleValuesParser::new(known).try_map(named)
}

fn reorder() -> impl TypedValueParser<Value = Reorder> {
    let known = [
        PossibleValue::new(Reorder::None.name())
            .help("Pieces of a lane keep their order, as those of a queue pair"),
        PossibleValue::new(Reorder::All.name()).help("Each piece takes its own time"),
    ];
    PossibleValuesParser::new(known)
        .map(|name| if name == Reorder::All.name() { Reorder::All } else { Reorder::None })
}

/// Most rails of an end.
const RAILS_MAX: u32 = 8;

/// Rails of each end, as they are typed: a number, or several, for rows of a table on each. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rails(Vec<u32>);

impl Rails {
    /// So many.
    pub fn of(rails: u32) -> Self {
        Self(vec![rails])
    }

    /// Several numbers, if there are.
    pub fn several(&self) -> Option<&[u32]> {
        Some(&self.0[..]).filter(|all| all.len() > 1)
    }
}

impl FromStr for Rails {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = whole(1..=RAILS_MAX);
        let all = text.split(',').map(|number| one(number).map_err(|error| error.to_string()));
        all.collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Rails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&all.join(","))
    }
}

/// Rails, NICs, their faults, and the file of the verdict.
#[derive(Args, Clone, Debug)]
pub struct NicOptions {
    /// Rails of each end
    #[arg(long, value_name = "N", default_value_t = Rails::of(2))]
    pub rails: Rails,
    /// What carries the packets [default: SHUNT_NIC, else soft with --rail-gbps, else auto]
    #[arg(long, value_name = "NIC")]
    pub nic: Option<NicKind>,
    /// What carries transfers
    #[arg(long, value_name = "TRANSPORT", default_value = "rdma", value_parser = transport())]
    pub transport: Transport,
    /// The provider of libfabric, as in tcp, shm or efa
    #[arg(long, value_name = "PROVIDER")]
    pub provider: Option<String>,
    /// Addresses of this machine for rails of libfabric, one a rail [default: where libfabric finds one]
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    pub address: Vec<String>,
    /// What order a simulated network keeps, with --transport sim [default: none]
    #[arg(long, value_name = "WHICH", value_parser = reorder())]
    pub reorder: Option<Reorder>,
    /// Rate of each rail in Gb/s, of NICs in software [default: 1]
    #[arg(long, value_name = "G", value_parser = parse_gbps)]
    pub rail_gbps: Option<f64>,
    /// A fault, as in 500ms:0.0:down: when, end and rail, what; repeatable. NICs in software fail on request
    #[arg(long, value_name = "FAULT", allow_hyphen_values = true)]
    pub inject: Vec<Injection>,
    /// Writes the verdict to this file, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl NicOptions {
    /// Rails of each end: the most of several numbers.
    pub fn rails(&self) -> u32 {
        self.rails.0.iter().copied().max().unwrap_or(1)
    }

    /// Whether it is one number.
    ///
    /// # Errors
    /// It is a list.
    pub fn check_rails(&self) -> Result<(), String> {
        match self.rails.several() {
            Some(_) => Err(format!(
                "--rails: expected one number, got {}; transfer_bw --table has rows for each of several",
                self.rails
            )),
            None => Ok(()),
        }
    }

    /// What carries the packets: as was asked, else as the variable says, else what is there. A rate asks for software.
    ///
    /// # Errors
    /// The variable names none.
    pub fn kind(&self, lookup: &dyn Fn(&str) -> Option<String>) -> Result<NicKind, String> {
        let variable = NicKind::from_lookup(lookup).map_err(|error| error.to_string())?;
        let usual = if self.rail_gbps.is_some() { NicKind::Soft } else { NicKind::Auto };
        Ok(self.nic.or(variable).unwrap_or(usual))
    }

    /// The same options for a process that is one end: faults of its own alone, and no file.
    pub fn of_end(&self, end: u32) -> Vec<String> {
        let own = self.inject.iter().filter(|injection| injection.pe == end);
        let all = [
            ("--rails", Some(self.rails().to_string())),
            ("--transport", Some(self.transport.name().to_owned())),
            ("--nic", self.nic.and_then(|nic| Some(nic.to_possible_value()?.get_name().to_owned()))),
            ("--provider", self.provider.clone()),
            ("--reorder", self.reorder.map(|reorder| reorder.name().to_owned())),
            ("--address", (!self.address.is_empty()).then(|| self.address.join(","))),
            ("--rail-gbps", self.rail_gbps.map(|rate| rate.to_string())),
        ];
        let given = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given
            .chain(own.map(|injection| ("--inject", injection.to_string())))
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect()
    }

    /// What is to carry transfers.
    pub fn way(&self) -> Way {
        Way {
            transport: self.transport,
            provider: self.provider.clone(),
            addresses: self.address.clone(),
            reorder: self.reorder.unwrap_or_default(),
            has_nic: self.nic.is_some(),
            has_gbps: self.rail_gbps.is_some(),
        }
    }

    /// Whether each fault is one of a NIC, at a rail of one of so many ends.
    ///
    /// # Errors
    /// What is wrong with the first that is not.
    pub fn check_faults(&self, ends: u32) -> Result<(), String> {
        for injection in &self.inject {
            fault(injection)?;
            let Injection { pe, rail, .. } = injection;
            if *pe >= ends || rail.is_none_or(|rail| rail >= self.rails()) {
                let (end, last) = (ends - 1, self.rails() - 1);
                let which = if end == 1 { "end 0 or 1".to_owned() } else { format!("end 0 to {end}") };
                let at = rail.map_or_else(|| pe.to_string(), |rail| format!("{pe}.{rail}"));
                return Err(format!("--inject {injection}: expected {which} and rail 0 to {last}, got {at}"));
            }
        }
        Ok(())
    }
}

/// What a fault does to a NIC.
///
/// # Errors
/// It is of another kind.
pub fn fault(injection: &Injection) -> Result<FaultKind, String> {
    match &injection.fault {
        Fault::Nic(kind) if !injection.fault.is_sabotage() => Ok(*kind),
        fault => Err(format!(
            "--inject {injection}: expected a fault of a NIC such as down, up or drop-acks=10ms, got {}",
            fault.name()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        nics: NicOptions,
    }

    fn of(line: &str) -> NicOptions {
        Typed::parse_from(["program"].into_iter().chain(line.split_whitespace())).nics
    }

    /// Under `shunt soft-rdma run` the programs took NICs of their own, and none of its devices.
    #[test]
    fn devices_are_taken_where_nothing_else_is_asked_for() {
        let kind = |line: &str, variable: Option<&str>| {
            let lookup = |name: &str| variable.filter(|_| name == NicKind::VARIABLE).map(str::to_owned);
            of(line).kind(&lookup).expect("a kind")
        };
        assert_eq!((kind("", None), kind("--rail-gbps 1", None)), (NicKind::Auto, NicKind::Soft));
        assert_eq!(
            (kind("", Some("soft")), kind("--rail-gbps 1", Some("auto"))),
            (NicKind::Soft, NicKind::Auto)
        );
        assert_eq!(kind("--nic mlx5 --rail-gbps 1", Some("soft")), NicKind::Mlx5);
        assert_eq!(kind("--nic soft", Some("mlx5")), NicKind::Soft);
    }

    #[test]
    fn several_numbers_of_rails_are_a_list() {
        let one = of("--rails 4");
        assert_eq!((one.rails(), one.rails.several(), one.check_rails()), (4, None, Ok(())));
        let list = of("--rails 1,4,2");
        assert_eq!((list.rails(), list.rails.several()), (4, Some(&[1, 4, 2][..])));
        let why = "--rails: expected one number, got 1,4,2; transfer_bw --table has rows for each of several";
        assert_eq!(list.check_rails(), Err(why.to_owned()));
        let wrong = "1,9".parse::<Rails>();
        assert_eq!(wrong, Err("expected a whole number from 1 to 8, got \"9\"".to_owned()));
    }

    #[test]
    fn an_end_gets_what_was_typed_and_faults_of_its_own() {
        let line = "--rails 3 --transport libfabric --provider tcp --address 10.0.0.1,10.0.0.2,10.0.0.3 --inject \
                    1s:1.0:down --inject 2s:0.1:up";
        let own = of(line).of_end(1).join(" ");
        assert_eq!(own, line.replace(" --inject 2s:0.1:up", ""));
        assert_eq!(of(&own).of_end(1).join(" "), own);
        assert_eq!(of("").of_end(0).join(" "), "--rails 2 --transport rdma");
        let nics = "--rails 2 --transport rdma --nic soft --rail-gbps 0.5";
        assert_eq!(of(&format!("{nics} --json FILE")).of_end(0).join(" "), nics);
    }
}
