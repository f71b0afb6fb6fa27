//! The NICs of this machine, opened for the recovery engine and for queue pairs that stand in.

use super::owner::Device;
use super::post::{Link, Post};
use crate::objects::{At, Channel};
use crate::real;
use crate::settings::settings;
use core::ffi::CStr;
use shunt_device::platform::host::World;
use shunt_mlx5::clock::RealClock;
use shunt_mlx5::descriptor::HalfCard;
use shunt_mlx5::ibverbs::{IbverbsDevx, list};
use shunt_mlx5::rail::{Rail, RailOptions};
use shunt_recovery::destroy_queue::DestroyQueue;
use shunt_recovery::engine::{Engine, Parts};
use shunt_recovery::links::envelope::Seal;
use shunt_recovery::links::{LinkParts, Links, PeerAddress};
use shunt_recovery::nanos::Nanos;
use shunt_recovery::nic_dispatch::Nics;
use shunt_recovery::path::Timing;
use shunt_recovery::port_table::PortTable;
use shunt_recovery::worker::{Crew, Threads};
use std::sync::Arc;

/// How long a NIC may owe an answer.
const NIC_PATIENCE: Nanos = Nanos::secs(2);

/// What an agent stands on.
pub struct Machine {
    /// An engine that knows nobody yet.
    pub engine: Engine,
    /// The devices, by rail.
    pub devices: Vec<Device>,
    /// How peers address each rail.
    pub cards: Vec<HalfCard>,
}

/// How patient the engine is.
fn timing() -> Timing {
    let give_up = Nanos::new(settings().give_up_ns);
    Timing {
        lifetime: Nanos::new(settings().lifetime_ns),
        peer: Nanos::secs(1),
        doubt: Nanos::millis(5),
        resend: Nanos::millis(20),
        probes: settings().probes,
        probe: Nanos::micros(200),
        revive: Nanos::secs(5),
        backoff: Nanos::millis(10),
        owner: give_up.max(Nanos::secs(3)),
        give_up,
    }
}

/// Opens a device by its name, for this library's own queue pairs.
fn open_device(name: &str) -> Option<Device> {
    let mut count = 0;
    // SAFETY: the count is ours; the list is given back below, and devices are looked at before.
    unsafe {
        let first = real::ibv_get_device_list(&raw mut count);
        if first.is_null() {
            return None;
        }
        let devices = std::slice::from_raw_parts(first, usize::try_from(count).unwrap_or_default());
        let is = |device: &&*mut shunt_mlx5_sys::ibv_device| {
            CStr::from_ptr(real::ibv_get_device_name(**device)).to_bytes() == name.as_bytes()
        };
        let context = devices.iter().find(is).map(|device| real::ibv_open_device(*device));
        real::ibv_free_device_list(first);
        let context = context.filter(|context| !context.is_null())?;
        let channel = Channel::make(At(context));
        Some(Device { name: name.to_owned(), context: At(context), ops: (*context).ops, channel })
    }
}

fn open_rail(name: &str, index: u32, world: &Arc<dyn World>) -> Result<Rail, String> {
    let devx = IbverbsDevx::open(name).map_err(|error| error.to_string())?;
    let options = RailOptions { order_rounds: 0, ..RailOptions::default() };
    let mut rail = Rail::open(devx, index, options, world.clone()).map_err(|error| error.to_string())?;
    rail.settle_truth();
    Ok(rail)
}

/// Opens all that libmlx5 drives.
///
/// # Errors
/// Why there is none.
pub fn open(post: &Arc<Post>) -> Result<Machine, String> {
    shunt_mlx5_sys::look_behind();
    let world: Arc<dyn World> = Arc::new(RealClock::new());
    let entries = list().map_err(|error| error.to_string())?;
    let (mut rails, mut devices) = (Vec::new(), Vec::new());
    for entry in entries.iter().filter(|entry| entry.mlx5) {
        match (open_rail(&entry.name, rails.len() as u32, &world), open_device(&entry.name)) {
            (Ok(rail), Some(device)) => {
                if !rail.truth_holds {
                    shunt_settings::complain!(
                        "shunt: verbs: {}: its counts are not believed: {}",
                        entry.name,
                        rail.truth_detail
                    );
                }
                rails.push(Arc::new(rail));
                devices.push(device);
            }
            (Err(error), _) => shunt_settings::complain!("shunt: verbs: {} is not used: {error}", entry.name),
            (_, None) => shunt_settings::complain!(
                "shunt: verbs: {} is not used: it cannot be opened again",
                entry.name
            ),
        }
    }
    if rails.is_empty() {
        return Err("RDMA devices: expected one that libmlx5 drives, got none".into());
    }
    Ok(assemble(post, &world, &Threads, rails, devices))
}

/// What an agent stands on, of NICs that are open. Each has a worker of the crew's; rails and devices go together.
pub fn assemble(
    post: &Arc<Post>,
    world: &Arc<dyn World>,
    crew: &dyn Crew,
    rails: Vec<Arc<Rail>>,
    devices: Vec<Device>,
) -> Machine {
    let card = |rail: &Arc<Rail>| HalfCard { qpn: 1, psn: 0, incarnation: 0, ece: 0, rail: rail.card() };
    let cards: Vec<HalfCard> = rails.iter().map(card).collect();
    let own = PeerAddress {
        rails: cards.iter().map(|card| card.rail).collect(),
        datagrams: vec![0; rails.len()],
        qkey: 0,
    };
    let oob = Box::new(Link(post.clone()));
    // Nothing is sealed: these links carry no datagrams over rails.
    let seal = Seal::new(&[]);
    let links = LinkParts { me: 0, world: world.clone(), oob, rails: rails.clone(), peers: vec![own], seal };
    let mut ports = PortTable::new(1, rails.len() as u32);
    for rail in &rails {
        if !rail.port_up().unwrap_or(true) {
            ports.own_changes(world.now_ns().into(), rail.index, true);
        }
    }
    let parts = Parts {
        world: world.clone(),
        rails: rails.clone(),
        ports,
        links: Links::new(links, Vec::new()),
        nics: Nics::spawn(crew, &rails, world),
        destroys: DestroyQueue::default(),
        timing: timing(),
        nic_patience: NIC_PATIENCE,
        peers: 1,
    };
    Machine { engine: Engine::new(parts, world.now_ns().into()), devices, cards }
}
