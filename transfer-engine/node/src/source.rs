//! What carries the packets: found before anybody waits for it.

use crate::carriers::{Carriers, OpenFabric};
use crate::error::NoNode;
use crate::simulated::OpenSim;
use crate::transport::{Names, Over, Reorder, Way};
use shunt::OpenNics;
use shunt::choice::{software, through_libibverbs};
use shunt::control::Control;
use shunt::machine::{Found, MachinePorts, NoMachine, Rails};
use shunt_settings::{ConfigError, Lookup, NicKind, parse_duration};
use shunt_transfer_fabric::endpoint::Endpoint;
use std::ops::Range;

/// What a program asks of its NICs.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// What carries the packets.
    pub nic: NicKind,
    /// Rails of each end.
    pub rails: u32,
    /// Rate of each rail in Gb/s, of NICs in software.
    pub soft_gbps: f64,
}

/// What `SHUNT_GIVE_UP` holds, if it is set.
pub(crate) fn give_up_ns() -> Result<Option<u64>, ConfigError> {
    Lookup(&|name| std::env::var(name).ok()).parse("SHUNT_GIVE_UP", parse_duration)
}

/// What it comes to here.
pub struct Source(Of);

enum Of {
    Nics { wish: Wish, found: Found },
    Fabric { provider: String, rails: u32, addresses: Vec<String> },
    Sim { rails: u32, reorder: Reorder },
}

impl Source {
    /// Looks for what is asked for. Nothing is left open.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(wish: Wish) -> Result<Self, NoNode> {
        give_up_ns().map_err(|error| NoNode::Refused(error.to_string()))?;
        let lookup = |name: &str| std::env::var(name).ok();
        let found = Found::find(wish.nic, Rails::Exactly(wish.rails), &lookup)?;
        Ok(Self(Of::Nics { wish, found }))
    }

    /// NICs as `wish` says, or rails of libfabric as `way` does.
    ///
    /// # Errors
    /// It is not there, or what was asked for does not go together, in words of `names`.
    pub fn by(way: &Way, names: &Names, wish: Wish) -> Result<Self, NoNode> {
        match way.over(names).map_err(NoNode::Refused)? {
            Over::Fabric(provider) => Self::libfabric(provider, wish.rails, &way.addresses),
            Over::Nics => Self::find(wish),
            Over::Sim(reorder) => Ok(Self(Of::Sim { rails: wish.rails, reorder })),
        }
    }

    /// So many rails of a provider of libfabric, such as `tcp` or `shm`: each at one of these addresses of this
    /// machine, in turn; where libfabric finds it, if there are none.
    ///
    /// # Errors
    /// libfabric is missing, it has no such provider, there are not as many addresses as rails, or one is none of this
    /// machine's.
    pub fn libfabric(provider: &str, rails: u32, addresses: &[String]) -> Result<Self, NoNode> {
        give_up_ns().map_err(|error| NoNode::Refused(error.to_string()))?;
        if !addresses.is_empty() && addresses.len() != rails as usize {
            let met = addresses.len();
            return Err(NoNode::Refused(format!("addresses: expected {rails}, one a rail, got {met}")));
        }
        let opened = OpenFabric::new(provider, 0..1, rails, addresses).open(0, rails)?;
        // A provider takes an address of another machine for a rail, and refuses each of its endpoints.
        for (rail, address) in opened.iter().zip(addresses) {
            let tried = Endpoint::open(rail, 1, 1).and_then(|mut endpoint| endpoint.close(&mut Vec::new()));
            tried.map_err(|error| {
                NoNode::Refused(format!("addresses: expected those of this machine, got {address}: {error}"))
            })?;
        }
        let (provider, addresses) = (provider.to_owned(), addresses.to_vec());
        Ok(Self(Of::Fabric { provider, rails, addresses }))
    }

    /// Whether so many ends of one process reach each other.
    ///
    /// # Errors
    /// They do not.
    pub(crate) fn joins_in_process(&self, ends: u32) -> Result<(), NoNode> {
        match &self.0 {
            // A sender of libfabric's shm uses the endpoint of an end of its own process, closed or not.
            Of::Fabric { provider, .. } if provider == "shm" && ends > 1 => Err(NoNode::Refused(format!(
                "ends of one process over libfabric's shm: expected 1, got {ends}; start a process for each, as \
                 shunt run -n {ends} does"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether an end of this process reaches those of others.
    ///
    /// # Errors
    /// It does not.
    pub fn joins_processes(&self) -> Result<(), NoNode> {
        match &self.0 {
            Of::Sim { .. } => Err(NoNode::Refused(
                "ends of a simulated network: expected all in one process, got processes of their own"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// The fabric of software NICs in a job whose own has this name. An interposer's soft NICs, once they were looked
    /// at, have places on that one already.
    pub(crate) fn fabric(&self, job: &str) -> Result<String, NoNode> {
        let is_beside = match &self.0 {
            Of::Nics { wish, found: Found::Soft(_) } if wish.nic == NicKind::Auto => {
                Control::find().map_err(NoMachine::from)?.is_some()
            }
            _ => false,
        };
        // Names have 32 letters at most.
        Ok(if is_beside { format!("{job:.29}.sw") } else { job.to_owned() })
    }

    /// What carries the packets of these ends of this process: NICs in software by `soft`, RDMA devices by `taken`.
    pub(crate) fn open(
        &self,
        ends: Range<u32>,
        soft: impl FnOnce(&Wish) -> Result<OpenNics, NoNode>,
        taken: impl FnOnce(&MachinePorts) -> Result<OpenNics, NoNode>,
    ) -> Result<Carriers, NoNode> {
        match &self.0 {
            Of::Nics { wish, found: Found::Soft(_) } => Ok(Carriers::Nics(soft(wish)?)),
            Of::Nics { found: Found::Mlx5(ports), .. } => Ok(Carriers::Nics(taken(ports)?)),
            Of::Fabric { provider, rails, addresses } => {
                Ok(Carriers::Fabric(OpenFabric::new(provider, ends, *rails, addresses)))
            }
            Of::Sim { rails, reorder } => {
                Ok(Carriers::Sim(OpenSim::new(ends.end, *rails, *reorder == Reorder::All)))
            }
        }
    }

    /// Whether they are RDMA devices of libibverbs.
    pub fn are_devices(&self) -> bool {
        matches!(&self.0, Of::Nics { found: Found::Mlx5(_), .. })
    }

    /// Whether they are NICs in software, whose rate is this process's to choose.
    pub fn are_soft_nics(&self) -> bool {
        matches!(&self.0, Of::Nics { found: Found::Soft(_), .. })
    }

    /// Which NICs they are: what other processes of a run ask for so that theirs are the same. `None`: there are none.
    pub fn kind(&self) -> Option<NicKind> {
        match &self.0 {
            Of::Nics { found: Found::Mlx5(_), .. } => Some(NicKind::Mlx5),
            Of::Nics { .. } => Some(NicKind::Soft),
            Of::Fabric { .. } | Of::Sim { .. } => None,
        }
    }

    /// Whether they fail on request: NICs in software do, and rails of libfabric, whose lanes can be closed.
    pub fn fail_on_request(&self) -> bool {
        match &self.0 {
            Of::Nics { found: Found::Mlx5(ports), .. } => ports.is_interposed(),
            Of::Nics { .. } | Of::Fabric { .. } | Of::Sim { .. } => true,
        }
    }

    /// What a rail carries in Gb/s, if it is known. Soft NICs behind libibverbs move what the cores give them, whatever
    /// rate their ports name.
    pub fn rail_gbps(&self, carriers: &Carriers) -> Option<f64> {
        match &self.0 {
            Of::Nics { wish, found: Found::Soft(_) } => Some(wish.soft_gbps),
            Of::Nics { .. } if carriers.are_soft() => None,
            Of::Nics { found: Found::Mlx5(ports), .. } => {
                Some(ports.ports().slowest_gbps()).filter(|gbps| *gbps > 0.0)
            }
            Of::Fabric { .. } | Of::Sim { .. } => None,
        }
    }

    /// What all ends must have alike.
    pub(crate) fn name(&self) -> String {
        match &self.0 {
            Of::Nics { found: Found::Mlx5(_), .. } => "RDMA devices".to_owned(),
            Of::Nics { .. } => "NICs in software".to_owned(),
            Of::Fabric { provider, .. } => format!("libfabric's {provider}"),
            Of::Sim { .. } => "a simulated network".to_owned(),
        }
    }

    /// What the NICs are that so many ends of this machine share, a line each. Software that was asked for needs none.
    pub fn lines(&self, ends: usize) -> Vec<String> {
        match &self.0 {
            Of::Nics { wish, found: Found::Soft(_) } if wish.nic == NicKind::Soft => Vec::new(),
            Of::Nics { found: Found::Soft(why), .. } => vec![software(why)],
            Of::Nics { found: Found::Mlx5(ports), .. } => {
                let notes = ports.ports().notes().iter().cloned();
                notes.chain([through_libibverbs(&ports.devices(ends))]).collect()
            }
            Of::Fabric { provider, rails, .. } => {
                vec![format!("{rails} rails of libfabric, provider {provider}")]
            }
            Of::Sim { rails, reorder: Reorder::None } => {
                vec![format!("{rails} rails of a simulated network")]
            }
            Of::Sim { rails, reorder: Reorder::All } => {
                vec![format!("{rails} rails of a simulated network without an order")]
            }
        }
    }
}
