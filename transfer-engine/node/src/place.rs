//! The ends of this process, and the way to the others: all ends here, or one end a process.

use crate::error::NoNode;
use crate::source::Source;
use shunt::host::connect::Bootstrap;
use shunt::host::connect::tcp::TcpNet;
use shunt::host::job::{Flags, Job, Joining};
use shunt::machine::{self, Found, MachinePorts};
use shunt::soft_nic::uplink::{UnixUplink, remove_unused_fabric};
use shunt::soft_nic::{Fabric, FabricConfig, NicConfig, RailAt};
use shunt::{LINK_NS, Member, Members, OpenNics, SoftNics};
use std::ops::Range;
use std::sync::Arc;

/// The ends of this process, and their NICs.
pub struct Place {
    /// NICs of the ends that live here.
    pub nics: Arc<OpenNics>,
    /// What a rail of them carries in Gb/s, if it is known.
    pub rail_gbps: Option<f64>,
    /// What the NICs are, for people: a line each, at one end of each machine.
    pub lines: Vec<String>,
    ends: u32,
    net: Option<TcpNet>,
    /// The soft fabric to remove once no process is on it.
    made_up: Option<String>,
}

fn soft(
    source: &Source,
    ends: Range<u32>,
    attach: impl FnOnce(&mut Fabric) -> Result<(), NoNode>,
) -> Result<OpenNics, NoNode> {
    let rails = source.wish.rails;
    let at = ends.flat_map(|pe| (0..rails).map(move |rail| RailAt { pe, rail }));
    let nics = at.map(|at| {
        let mut config = NicConfig::new(format!("mlx5_{}", at.rail), at.pe, at.rail);
        config.rail_gbps = Some(source.wish.soft_gbps);
        (at, config)
    });
    let config = FabricConfig { link_ns: LINK_NS, seed: 0 };
    Ok(OpenNics::Soft(Arc::new(SoftNics::with(config, nics, attach)?)))
}

/// Soft NICs of one end on a fabric that other processes are on.
fn on_fabric(source: &Source, end: u32, fabric: &str) -> Result<OpenNics, NoNode> {
    soft(source, end..end + 1, |own| {
        let refused = |why: String| NoNode::Fabric { name: fabric.to_owned(), why };
        let uplink = UnixUplink::open(fabric, &[]).map_err(|error| refused(error.to_string()))?;
        own.attach(Box::new(uplink)).map_err(|error| refused(error.to_string()))
    })
}

/// The ends that take their ports from the same ones as this end does.
fn mates(net: &TcpNet, ports: &MachinePorts) -> Result<Vec<u32>, NoNode> {
    let own = [ports.ports().identity().into_bytes(), machine::id()].concat();
    let all = net.bootstrap().all_gather(&own)?;
    let same = (0..).zip(&all).filter(|(_, other)| **other == own);
    Ok(same.map(|(end, _)| end).collect())
}

impl Place {
    /// All ends in this process.
    ///
    /// # Errors
    /// The NICs cannot be had.
    pub fn alone(source: &Source, ends: u32) -> Result<Self, NoNode> {
        let nics = match &source.found {
            Found::Soft(_) => soft(source, 0..ends, |_| Ok(()))?,
            Found::Mlx5(ports) => {
                let all: Vec<u32> = (0..ends).collect();
                OpenNics::Mlx5(ports.take(&all, |_| true)?)
            }
        };
        let (rail_gbps, lines) = (source.rail_gbps(&nics), source.lines(ends as usize));
        Ok(Self { nics: Arc::new(nics), rail_gbps, lines, ends, net: None, made_up: None })
    }

    /// An end with a number of its own, beside those of other processes of this machine on the same software fabric, or
    /// on the same RDMA devices. They know nothing of each other yet.
    ///
    /// # Errors
    /// The NICs cannot be had.
    pub fn beside(source: &Source, end: u32, fabric: &str) -> Result<Self, NoNode> {
        let nics = match &source.found {
            Found::Soft(_) => on_fabric(source, end, fabric)?,
            Found::Mlx5(ports) => OpenNics::Mlx5(ports.take(&[end], |_| true)?),
        };
        let (rail_gbps, lines) = (source.rail_gbps(&nics), source.lines(1));
        Ok(Self { nics: Arc::new(nics), rail_gbps, lines, ends: 1, net: None, made_up: None })
    }

    /// The end that this process is in the job that its launcher's variables name; `None` if they name none.
    ///
    /// # Errors
    /// As [`Place::join`], or the variables make no job.
    pub fn from_env(source: &Source) -> Result<Option<Self>, NoNode> {
        let job = Job::from_env(&Flags::default())?;
        job.map(|job| Self::join(source, job.join()?)).transpose()
    }

    /// The end that this process is. Returns when all processes of the job have joined.
    ///
    /// # Errors
    /// The others were not reached, or their NICs are of another kind.
    pub fn join(source: &Source, joining: Joining) -> Result<Self, NoNode> {
        let net = TcpNet::join(joining.options)?;
        let made_up = (joining.made_up && !source.are_devices()).then(|| joining.fabric.clone());
        let place = Self::meet(source, &net, &joining.fabric);
        // The others are told what went wrong at this end, not that it left.
        let (nics, lines) = place.inspect_err(|error| net.fail(&error.to_string()))?;
        let (rail_gbps, ends) = (source.rail_gbps(&nics), net.bootstrap().size());
        Ok(Self { nics: Arc::new(nics), rail_gbps, lines, ends, net: Some(net), made_up })
    }

    fn meet(source: &Source, net: &TcpNet, fabric: &str) -> Result<(OpenNics, Vec<String>), NoNode> {
        let (rank, own) = (net.rank(), source.name());
        for (end, name) in (0..).zip(&net.bootstrap().all_gather(own.as_bytes())?) {
            if name != own.as_bytes() {
                let name = String::from_utf8_lossy(name);
                let refused = format!("NICs of end {end}: expected {own} as at end {rank}, got {name}");
                return Err(NoNode::Refused(refused));
            }
        }
        match &source.found {
            Found::Soft(_) => {
                let nics = on_fabric(source, rank, fabric)?;
                let lines =
                    if rank == 0 { source.lines(net.bootstrap().size() as usize) } else { Vec::new() };
                Ok((nics, lines))
            }
            Found::Mlx5(ports) => {
                let mates = mates(net, ports)?;
                let first = mates.first() == Some(&rank);
                let lines = if first { source.lines(mates.len()) } else { Vec::new() };
                Ok((OpenNics::Mlx5(ports.take(&mates, |pe| pe == rank)?), lines))
            }
        }
    }

    /// Ends of the job.
    pub fn ends(&self) -> u32 {
        self.ends
    }

    /// The ends that live here, which know nothing of each other yet.
    pub fn members(&self) -> Vec<Member> {
        match &self.net {
            Some(net) => vec![Member::of_process(net)],
            None => Members::in_process(self.ends, &self.nics.clock()).members,
        }
    }

    /// Whether this process prints and writes for all.
    pub fn is_first(&self) -> bool {
        self.net.as_ref().is_none_or(|net| net.rank() == 0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(net) = &self.net {
            net.close();
        }
        if let Some(name) = &self.made_up {
            // While another process of the job is there it stays, and that one removes it.
            let _ = remove_unused_fabric(name);
        }
    }
}
