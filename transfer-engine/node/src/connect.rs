//! A domain with a lane to each other end, over each rail that both have.

use crate::error::NoNode;
use crate::source;
use shunt::device::platform::host::World;
use shunt::host::agent::worker::Threads;
use shunt::host::connect::Bootstrap;
use shunt::host::nanos::Nanos;
use shunt::{Member, OpenNics};
use shunt_transfer_engine::engine::{Engine, Policy};
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::rc::{
    Parts, Patience, RcDomain, address, address_from_bytes, address_to_bytes, open_rails,
};
use std::sync::Arc;
use std::time::Duration;

/// A lane opens within so long, or not at all.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a peer may be without a lane, where nothing is set: soft NICs wait for cores.
const GIVE_UP: Nanos = Nanos::secs(1);
const GIVE_UP_SOFT: Nanos = Nanos::secs(10);

/// An end that is connected.
pub struct Connected {
    /// Drives its domain.
    pub engine: Engine<RcDomain>,
    /// Exchange with all others.
    pub exchange: Box<dyn Bootstrap + Send>,
    /// The clock of its NICs.
    pub world: Arc<dyn World>,
    /// Its number.
    pub end: u32,
    /// Ends of the job.
    pub ends: u32,
}

impl Connected {
    /// The time.
    pub fn now(&self) -> Nanos {
        Nanos::new(self.world.now_ns())
    }
}

/// `SHUNT_GIVE_UP`, which `Source::find` has looked at.
fn give_up(nics: &OpenNics) -> Nanos {
    let usual = if nics.are_soft() { GIVE_UP_SOFT } else { GIVE_UP };
    source::give_up_ns().ok().flatten().map_or(usual, Nanos::new)
}

/// Opens so many rails of this member and connects it to all others. All of them call it.
///
/// # Errors
/// A NIC refuses, the others are not reached, or a lane does not open.
pub fn connect(member: Member, nics: &OpenNics, rails: u32) -> Result<Connected, NoNode> {
    let Member { pe, bootstrap, oob } = member;
    let world = nics.clock();
    let draws = bootstrap.all_gather(&bootstrap.draw()?)?;
    let draw = draws[0].as_slice().try_into();
    let draw = draw.map_err(|_| NoNode::Refused("end 0's draw: expected 16 bytes".to_owned()))?;
    let mut ports = nics.rails().open(pe)?;
    ports.truncate(rails as usize);
    let opened = open_rails(ports, &world, &draw)?;
    let addresses = bootstrap.all_gather(&address_to_bytes(&address(&opened, &draw)))?;
    let read = |(end, bytes): (u32, &Vec<u8>)| {
        address_from_bytes(bytes).map_err(|error| NoNode::Refused(format!("end {end}: {error}")))
    };
    let peers = (0..).zip(&addresses).map(read).collect::<Result<Vec<_>, _>>()?;
    let (ends, policy) = (peers.len() as u32, Policy { give_up: give_up(nics), ..Policy::of_rails(rails) });
    let patience = if nics.are_soft() { Patience::SOFT } else { Patience::HARDWARE };
    let parts = Parts { me: pe, world: world.clone(), rails: opened, peers, oob, draw, patience };
    let engine = Engine::new(RcDomain::new(parts, &Threads), policy);
    let mut connected = Connected { engine, exchange: bootstrap, world, end: pe, ends };
    open_lanes(&mut connected, rails)?;
    Ok(connected)
}

fn open_lanes(connected: &mut Connected, rails: u32) -> Result<(), NoNode> {
    let until = connected.now() + Nanos::new(PATIENCE.as_nanos() as u64);
    let others = || (0..connected.ends).filter(|end| *end != connected.end);
    for end in others().collect::<Vec<_>>() {
        while connected.engine.rails_to(PeerId(end)).len() < rails as usize {
            let now = connected.now();
            if now > until {
                let met = connected.engine.rails_to(PeerId(end)).len();
                return Err(NoNode::Lanes { end, want: rails, seconds: PATIENCE.as_secs(), met });
            }
            if !connected.engine.step(now) {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }
    Ok(())
}
