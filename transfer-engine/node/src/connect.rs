//! A domain with a lane to each other end, over each rail that both have.

use crate::carriers::Carriers;
use crate::error::NoNode;
use crate::mates::Mates;
use crate::rails::{Address, Rails};
use crate::source;
use shunt::device::platform::host::World;
use shunt::host::agent::worker::Threads;
use shunt::host::connect::{Bootstrap, Oob};
use shunt::host::nanos::Nanos;
use shunt::host::rail::Rail;
use shunt::{Member, OpenNics};
use shunt_transfer_engine::engine::{Engine, Policy};
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::rc::{Draw, Parts, Patience, RcDomain, address, open_rails};
use shunt_transfer_fabric::{FabricAddress, FabricDomain, Parts as FabricParts, Patience as FabricPatience};
use std::sync::Arc;
use std::time::Duration;

/// A lane opens within so long, or not at all.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a peer may be without a lane, where nothing is set: soft NICs wait for cores.
const GIVE_UP: Nanos = Nanos::secs(1);
const GIVE_UP_SOFT: Nanos = Nanos::secs(10);

/// The exchange with all others of a job, the number of this end, and ends of the job.
pub type InJob = (Box<dyn Bootstrap + Send>, u32, u32);

/// An engine that is ready.
pub struct Connected<T> {
    /// Drives its domain.
    pub engine: Engine<Rails>,
    /// The clock of its NICs.
    pub world: Arc<dyn World>,
    /// The other ends of its job. Who drives the engine looks at them, and cuts off who has left.
    pub mates: Mates,
    /// What there is to say of it.
    pub told: T,
}

impl<T> Connected<T> {
    /// The time.
    pub fn now(&self) -> Nanos {
        Nanos::new(self.world.now_ns())
    }
}

/// `SHUNT_GIVE_UP`, which `Source::find` has looked at.
pub(crate) fn give_up(carriers: &Carriers) -> Nanos {
    let usual = if carriers.are_soft() { GIVE_UP_SOFT } else { GIVE_UP };
    source::give_up_ns().ok().flatten().map_or(usual, Nanos::new)
}

/// Soft NICs may be slower than they usually are: a lane then has to be as patient.
fn patience(nics: &OpenNics) -> Patience {
    let patience = if nics.are_soft() { Patience::SOFT } else { Patience::HARDWARE };
    let OpenNics::Soft(soft) = nics else { return patience };
    // Half of the rate: other lanes' acknowledgements want some, and so do the cores.
    let slowest = soft.slowest_gbps().map_or(u64::MAX, |gbps| (gbps * 62_500_000.0) as u64);
    Patience { slowest: patience.slowest.min(slowest), ..patience }
}

/// Opens so many rails of this member and connects it to all others. All of them call it.
///
/// # Errors
/// There are not as many rails, a NIC refuses, the others are not reached, or a lane does not open.
pub fn connect(member: Member, carriers: &Carriers, rails: u32) -> Result<Connected<InJob>, NoNode> {
    let Member { pe, bootstrap, oob } = member;
    let world = carriers.clock();
    let (domain, ends) = match carriers {
        Carriers::Nics(nics) => {
            let draws = bootstrap.all_gather(&bootstrap.draw()?)?;
            let draw = draws[0].as_slice().try_into();
            let draw = draw.map_err(|_| NoNode::Refused("end 0's draw: expected 16 bytes".to_owned()))?;
            let opened = open_ports(nics, pe, rails, &draw)?;
            let own = Address::Rc(address(&opened, &draw));
            let all = exchanged(&*bootstrap, &own, |address| match address {
                Address::Rc(address) => Some(address),
                Address::Fabric(_) => None,
            })?;
            let (ends, world, patience) = (all.len(), world.clone(), patience(nics));
            let parts = Parts { me: pe, world, rails: opened, peers: all, oob, draw, patience };
            (Rails::Rc(Box::new(RcDomain::new(parts, &Threads))), ends)
        }
        Carriers::Fabric(fabric) => {
            let opened = fabric.open(pe, rails)?;
            let own = Address::Fabric(FabricAddress::new(&opened));
            let peers = exchanged(&*bootstrap, &own, |address| match address {
                Address::Fabric(address) => Some(address),
                Address::Rc(_) => None,
            })?;
            let (ends, patience) = (peers.len(), FabricPatience::DEFAULT);
            let domain = FabricDomain::new(FabricParts { me: pe, rails: opened, peers, oob, patience });
            (Rails::fabric(domain, fabric.faults().clone(), pe), ends)
        }
        Carriers::Sim(sim) => (Rails::Sim(Box::new(sim.open(pe, rails)?)), sim.ends() as usize),
    };
    let engine = Engine::new(domain, policy(carriers, rails));
    let mates = Mates::of_job(pe, ends as u32);
    let mut connected = Connected { engine, world, mates, told: (bootstrap, pe, ends as u32) };
    open_lanes(&mut connected, rails)?;
    Ok(connected)
}

/// The addresses of all ends, of the same kind, each with as many rails as this one.
fn exchanged<T>(
    bootstrap: &dyn Bootstrap,
    own: &Address,
    kind: impl Fn(Address) -> Option<T>,
) -> Result<Vec<T>, NoNode> {
    let all = bootstrap.all_gather(&own.to_bytes())?;
    let (me, want) = (bootstrap.rank(), own.rails());
    let read = |(end, bytes): (u32, &Vec<u8>)| {
        let refused = |why: String| NoNode::Refused(format!("end {end}: {why}"));
        let address = Address::from_bytes(bytes).map_err(refused)?;
        let met = address.rails();
        if met != want {
            return Err(NoNode::Rails { end, me, want, met });
        }
        kind(address).ok_or_else(|| refused("rails: expected the same transport, got another".to_owned()))
    };
    (0..).zip(&all).map(read).collect()
}

/// Opens so many rails of an end of this process, which knows nobody. Who joins later is reached by `oob`.
///
/// # Errors
/// There are not as many rails, or a NIC refuses.
pub fn open(
    (carriers, end): (&Carriers, u32),
    rails: u32,
    draw: Draw,
    oob: Box<dyn Oob>,
) -> Result<Connected<Address>, NoNode> {
    let world = carriers.clock();
    let (domain, own) = match carriers {
        Carriers::Nics(nics) => {
            let opened = open_ports(nics, end, rails, &draw)?;
            let own = address(&opened, &draw);
            let (peers, patience, world) = (vec![own.clone()], patience(nics), world.clone());
            let parts = Parts { me: 0, world, rails: opened, peers, oob, draw, patience };
            (Rails::Rc(Box::new(RcDomain::new(parts, &Threads))), Address::Rc(own))
        }
        Carriers::Fabric(fabric) => {
            let opened = fabric.open(end, rails)?;
            let own = FabricAddress::new(&opened);
            let (peers, patience) = (vec![own.clone()], FabricPatience::DEFAULT);
            let domain = FabricDomain::new(FabricParts { me: 0, rails: opened, peers, oob, patience });
            (Rails::fabric(domain, fabric.faults().clone(), end), Address::Fabric(own))
        }
        Carriers::Sim(_) => {
            let refused = "a node of a simulated network: expected ends that know each other, got one alone";
            return Err(NoNode::Refused(refused.to_owned()));
        }
    };
    let engine = Engine::new(domain, policy(carriers, rails));
    Ok(Connected { engine, world, mates: Mates::default(), told: own })
}

fn open_ports(nics: &OpenNics, end: u32, rails: u32, draw: &Draw) -> Result<Vec<Arc<Rail>>, NoNode> {
    let mut ports = nics.rails().open(end)?;
    let most = ports.len();
    if rails == 0 || rails as usize > most {
        return Err(NoNode::Refused(format!("rails of end {end}: expected 1 to {most}, got {rails}")));
    }
    ports.truncate(rails as usize);
    Ok(open_rails(ports, &nics.clock(), draw)?)
}

fn policy(carriers: &Carriers, rails: u32) -> Policy {
    Policy { give_up: give_up(carriers), ..Policy::of_rails(rails) }
}

fn open_lanes(connected: &mut Connected<InJob>, rails: u32) -> Result<(), NoNode> {
    let until = connected.now() + Nanos::new(PATIENCE.as_nanos() as u64);
    let (_, own, ends) = connected.told;
    for end in (0..ends).filter(|end| *end != own) {
        while connected.engine.rails_to(PeerId(end)).len() < rails as usize {
            let (now, met) = (connected.now(), connected.engine.rails_to(PeerId(end)).len());
            if connected.engine.domain.has_left(PeerId(end)) {
                return Err(NoNode::Gone { end, want: rails });
            }
            if now > until {
                return Err(NoNode::Lanes { end, want: rails, seconds: PATIENCE.as_secs(), met });
            }
            if !connected.engine.step(now) {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }
    Ok(())
}
