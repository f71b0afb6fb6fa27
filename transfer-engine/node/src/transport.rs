//! What carries transfers, as it is asked for at every door: the programs, C, Python. Pure.

use std::str::FromStr;

/// What carries transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Queue pairs of NICs.
    #[default]
    Rdma,
    /// libfabric over TCP.
    Tcp,
    /// libfabric over shared memory: processes of one machine.
    Shm,
    /// libfabric over a provider that is named.
    Libfabric,
    /// A simulated network, between ends of one process.
    Sim,
}

impl Transport {
    /// Those that reach other processes, by number.
    pub const ALL: [Self; 4] = [Self::Rdma, Self::Tcp, Self::Shm, Self::Libfabric];

    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
            Self::Shm => "shm",
            Self::Libfabric => "libfabric",
            Self::Sim => "sim",
        }
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|transport| transport.name() == text);
        found.ok_or_else(|| format!("expected rdma, tcp, shm or libfabric, got {text:?}"))
    }
}

/// In which order a simulated network executes pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reorder {
    /// Those of a lane in the order they were posted, as queue pairs do.
    #[default]
    None,
    /// Each takes its own time.
    All,
}

impl Reorder {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::All => "all",
        }
    }
}

/// What is to carry transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over<'a> {
    /// Queue pairs of NICs.
    Nics,
    /// A provider of libfabric.
    Fabric(&'a str),
    /// A simulated network.
    Sim(Reorder),
}

/// What a door calls what goes with it, in its errors.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// What carries transfers.
    pub transport: &'static str,
    /// The provider of libfabric.
    pub provider: &'static str,
    /// Addresses of rails of libfabric.
    pub addresses: &'static str,
    /// What carries the packets of NICs.
    pub nic: &'static str,
    /// The rate of NICs in software.
    pub gbps: &'static str,
}

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// What carries transfers.
    pub transport: Transport,
    /// The provider of libfabric.
    pub provider: Option<String>,
    /// Addresses of this machine for rails of libfabric: none, or one a rail.
    pub addresses: Vec<String>,
    /// The order of a simulated network.
    pub reorder: Reorder,
    /// Kind or rate of NICs were asked for.
    pub has_nic: bool,
    /// See [`Way::has_nic`].
    pub has_gbps: bool,
}

impl Way {
    /// What is to carry transfers.
    ///
    /// # Errors
    /// What does not go together.
    pub fn over(&self, names: &Names) -> Result<Over<'_>, String> {
        let over = match (self.transport, self.provider.as_deref()) {
            (Transport::Libfabric, None) => {
                Err(format!("{} libfabric: expected {}, got none", names.transport, names.provider))
            }
            (Transport::Libfabric, Some(given)) => Ok(Over::Fabric(given)),
            (_, Some(given)) => Err(format!(
                "{} {given}: expected {} libfabric, got another",
                names.provider, names.transport
            )),
            (Transport::Rdma, None) => Ok(Over::Nics),
            (Transport::Tcp, None) => Ok(Over::Fabric("tcp")),
            (Transport::Shm, None) => Ok(Over::Fabric("shm")),
            (Transport::Sim, None) => Ok(Over::Sim(self.reorder)),
        }?;
        let met = match over {
            Over::Nics => "NICs".to_owned(),
            Over::Fabric(provider) => format!("libfabric's {provider}"),
            Over::Sim(_) => "a simulated network".to_owned(),
        };
        let nics = [(names.nic, self.has_nic), (names.gbps, self.has_gbps)];
        match nics.into_iter().find(|(_, is_set)| *is_set && over != Over::Nics) {
            Some((option, _)) => Err(format!("{option}: expected rails of NICs, got {met}")),
            None if !self.addresses.is_empty() && !matches!(over, Over::Fabric(_)) => Err(format!(
                "{}: expected rails of libfabric, got {met}; set {}",
                names.addresses, names.transport
            )),
            None => Ok(over),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names = Names { transport: "t", provider: "p", addresses: "a", nic: "n", gbps: "g" };

    #[test]
    fn what_does_not_go_together_is_refused_in_the_doors_words() {
        let way = |transport: &str, provider: Option<&str>| Way {
            transport: transport.parse().expect("one of them"),
            provider: provider.map(str::to_owned),
            ..Way::default()
        };
        let refused = |way: &Way| way.over(&NAMES).expect_err("a refusal");
        assert_eq!(Way::default().over(&NAMES), Ok(Over::Nics));
        assert_eq!(way("tcp", None).over(&NAMES), Ok(Over::Fabric("tcp")));
        assert_eq!(way("shm", None).over(&NAMES), Ok(Over::Fabric("shm")));
        assert_eq!(way("libfabric", Some("efa")).over(&NAMES), Ok(Over::Fabric("efa")));
        assert_eq!(refused(&way("libfabric", None)), "t libfabric: expected p, got none");
        assert_eq!(refused(&way("tcp", Some("x"))), "p x: expected t libfabric, got another");
        let with = |way: Way, has_nic, has_gbps| Way { has_nic, has_gbps, ..way };
        assert_eq!(
            refused(&with(way("tcp", None), true, true)),
            "n: expected rails of NICs, got libfabric's tcp"
        );
        assert_eq!(
            refused(&with(way("shm", None), false, true)),
            "g: expected rails of NICs, got libfabric's shm"
        );
        assert_eq!(with(way("rdma", None), true, true).over(&NAMES), Ok(Over::Nics));
        let addresses = Way { addresses: vec!["10.0.0.1".to_owned()], ..Way::default() };
        assert_eq!(refused(&addresses), "a: expected rails of libfabric, got NICs; set t");
        let sim = Way { transport: Transport::Sim, reorder: Reorder::All, ..Way::default() };
        assert_eq!(sim.over(&NAMES), Ok(Over::Sim(Reorder::All)));
        assert_eq!(refused(&with(sim, true, false)), "n: expected rails of NICs, got a simulated network");
        assert_eq!(
            "TCP".parse::<Transport>(),
            Err("expected rdma, tcp, shm or libfabric, got \"TCP\"".to_owned())
        );
    }
}
