//! The ends of this process, and the way to the others: all ends here, or one end a process.

use crate::carriers::Carriers;
use crate::error::NoNode;
use crate::mates::{EndedHere, LinkHere};
use crate::source::{Source, Wish};
use shunt::host::connect::Bootstrap;
use shunt::host::connect::tcp::TcpNet;
use shunt::host::job::{Flags, Job, Joining};
use shunt::machine::{self, MachinePorts};
use shunt::soft_nic::uplink::{UnixUplink, UplinkError, remove_unused_fabric};
use shunt::soft_nic::{Fabric, FabricConfig, NicConfig, RailAt};
use shunt::{LINK_NS, Member, Members, OpenNics, SoftNics};
use shunt_transfer_engine::rc::Patience;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The ends of this process, and their NICs.
pub struct Place {
    /// What carries the packets of the ends that live here.
    pub nics: Arc<Carriers>,
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
    wish: &Wish,
    ends: Range<u32>,
    attach: impl FnOnce(&mut Fabric) -> Result<(), NoNode>,
) -> Result<OpenNics, NoNode> {
    let rails = wish.rails;
    let at = ends.flat_map(|pe| (0..rails).map(move |rail| RailAt { pe, rail }));
    let nics = at.map(|at| {
        let mut config = NicConfig::new(format!("mlx5_{}", at.rail), at.pe, at.rail);
        config.rail_gbps = Some(wish.soft_gbps);
        (at, config)
    });
    let config = FabricConfig { link_ns: LINK_NS, seed: 0 };
    Ok(OpenNics::Soft(Arc::new(SoftNics::with(config, nics, attach)?)))
}

/// A fence by time waits for so long: no frame may lie in a socket for longer.
const LIFETIME: Duration = Duration::from_nanos(Patience::SOFT.timing.lifetime.get());

/// What to do where another process has the place of this one.
const OTHERS: &str = "; give each job a fabric of its own: SHUNT_FABRIC=NAME at all its ends. Ends of one job need \
                      numbers of their own";

/// Soft NICs of one end on a fabric that other processes are on.
fn on_fabric(wish: &Wish, end: u32, fabric: &str) -> Result<OpenNics, NoNode> {
    soft(wish, end..end + 1, |own| {
        let refused = |error: UplinkError| {
            let hint = if matches!(error, UplinkError::Taken { .. }) { OTHERS } else { "" };
            NoNode::Fabric { name: fabric.to_owned(), why: format!("{error}{hint}") }
        };
        let uplink = UnixUplink::open(fabric, &[]).map_err(refused)?.with_lifetime(LIFETIME);
        own.attach(Box::new(uplink)).map_err(refused)
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
        source.joins_in_process(ends)?;
        let all: Vec<u32> = (0..ends).collect();
        let taken = |ports: &MachinePorts| Ok(OpenNics::Mlx5(ports.take(&all, |_| true)?));
        let nics = source.open(0..ends, |wish| soft(wish, 0..ends, |_| Ok(())), taken)?;
        let (rail_gbps, lines) = (source.rail_gbps(&nics), source.lines(ends as usize));
        Ok(Self { nics: Arc::new(nics), rail_gbps, lines, ends, net: None, made_up: None })
    }

    /// An end with a number of its own, beside those of other processes of this machine on the same software fabric, or
    /// on the same RDMA devices. They know nothing of each other yet.
    ///
    /// # Errors
    /// The NICs cannot be had.
    pub fn beside(source: &Source, end: u32, fabric: &str) -> Result<Self, NoNode> {
        source.joins_processes()?;
        let taken = |ports: &MachinePorts| Ok(OpenNics::Mlx5(ports.take(&[end], |_| true)?));
        let own = source.fabric(fabric)?;
        let nics = source.open(end..end + 1, |wish| on_fabric(wish, end, &own), taken)?;
        let (rail_gbps, lines) = (source.rail_gbps(&nics), source.lines(1));
        let made_up = (own != fabric).then_some(own);
        Ok(Self { nics: Arc::new(nics), rail_gbps, lines, ends: 1, net: None, made_up })
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
        source.joins_processes()?;
        let net = TcpNet::join(joining.options)?;
        let fabric = source.fabric(&joining.fabric)?;
        let place = Self::meet(source, &net, &fabric);
        let made_up = (joining.made_up && source.are_soft_nics()) || fabric != joining.fabric;
        let made_up = made_up.then_some(fabric);
        // The others are told what went wrong at this end, not that it left.
        let (nics, lines) = place.inspect_err(|error| net.fail(&error.to_string()))?;
        let (rail_gbps, ends) = (source.rail_gbps(&nics), net.bootstrap().size());
        Ok(Self { nics: Arc::new(nics), rail_gbps, lines, ends, net: Some(net), made_up })
    }

    fn meet(source: &Source, net: &TcpNet, fabric: &str) -> Result<(Carriers, Vec<String>), NoNode> {
        let (rank, own) = (net.rank(), source.name());
        for (end, name) in (0..).zip(&net.bootstrap().all_gather(own.as_bytes())?) {
            if name != own.as_bytes() {
                let name = String::from_utf8_lossy(name);
                let refused = format!("NICs of end {end}: expected {own} as at end {rank}, got {name}");
                return Err(NoNode::Refused(refused));
            }
        }
        // Ends of which this one tells what carries their packets.
        let mut tells_of = (rank == 0).then(|| net.bootstrap().size() as usize);
        let nics = source.open(
            rank..rank + 1,
            |wish| on_fabric(wish, rank, fabric),
            |ports| {
                let mates = mates(net, ports)?;
                tells_of = (mates.first() == Some(&rank)).then_some(mates.len());
                Ok(OpenNics::Mlx5(ports.take(&mates, |pe| pe == rank)?))
            },
        )?;
        Ok((nics, tells_of.map_or_else(Vec::new, |ends| source.lines(ends))))
    }

    /// The end that this process is, or the first that lives here.
    pub fn own(&self) -> u32 {
        self.net.as_ref().map_or(0, TcpNet::rank)
    }

    /// What the processes of the job say, by end, of which this one says `own`: before their ends are connected. A
    /// process without others hears itself.
    ///
    /// # Errors
    /// Another one does not answer.
    pub fn exchange(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, NoNode> {
        match &self.net {
            Some(net) => Ok(net.bootstrap().all_gather(own)?),
            None => Ok(vec![own.to_vec()]),
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
            None => {
                let ended = EndedHere::default();
                let link = |oob, end| LinkHere { link: oob, end, ended: ended.clone() };
                let members = Members::in_process(self.ends, &self.nics.clock()).members.into_iter();
                members.map(|one| Member { oob: Box::new(link(one.oob, one.pe)), ..one }).collect()
            }
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
