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
}

impl Transport {
    /// All of them, by number.
    pub const ALL: [Self; 4] = [Self::Rdma, Self::Tcp, Self::Shm, Self::Libfabric];

    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
            Self::Shm => "shm",
            Self::Libfabric => "libfabric",
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
    /// Kind or rate of NICs were asked for.
    pub has_nic: bool,
    /// See [`Way::has_nic`].
    pub has_gbps: bool,
}

impl Way {
    /// The provider of libfabric that was asked for; none: NICs.
    ///
    /// # Errors
    /// What does not go together.
    pub fn provider(&self, names: &Names) -> Result<Option<&str>, String> {
        let given = self.provider.as_deref();
        let provider = match (self.transport, given) {
            (Transport::Libfabric, None) => {
                Err(format!("{} libfabric: expected {}, got none", names.transport, names.provider))
            }
            (Transport::Libfabric, given) => Ok(given),
            (_, Some(given)) => Err(format!(
                "{} {given}: expected {} libfabric, got another",
                names.provider, names.transport
            )),
            (Transport::Rdma, None) => Ok(None),
            (Transport::Tcp, None) => Ok(Some("tcp")),
            (Transport::Shm, None) => Ok(Some("shm")),
        }?;
        let nics = [(names.nic, self.has_nic), (names.gbps, self.has_gbps)];
        match (provider, nics.into_iter().find(|(_, is_set)| *is_set)) {
            (Some(provider), Some((option, _))) => {
                Err(format!("{option}: expected rails of NICs, got libfabric's {provider}"))
            }
            (None, _) if !self.addresses.is_empty() => Err(format!(
                "{}: expected rails of libfabric, got NICs; set {}",
                names.addresses, names.transport
            )),
            (provider, _) => Ok(provider),
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
        let said = |way: &Way| way.provider(&NAMES).map(|provider| provider.map(str::to_owned));
        let refused = |way: &Way| said(way).expect_err("a refusal");
        assert_eq!(said(&Way::default()), Ok(None));
        assert_eq!(said(&way("tcp", None)), Ok(Some("tcp".to_owned())));
        assert_eq!(said(&way("shm", None)), Ok(Some("shm".to_owned())));
        assert_eq!(said(&way("libfabric", Some("efa"))), Ok(Some("efa".to_owned())));
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
        assert_eq!(said(&with(way("rdma", None), true, true)), Ok(None));
        let addresses = Way { addresses: vec!["10.0.0.1".to_owned()], ..Way::default() };
        assert_eq!(refused(&addresses), "a: expected rails of libfabric, got NICs; set t");
        assert_eq!(
            "TCP".parse::<Transport>(),
            Err("expected rdma, tcp, shm or libfabric, got \"TCP\"".to_owned())
        );
    }
}
