//! NICs through libibverbs and libmlx5: hardware, or the interposer's soft NICs, which this process cannot tell apart
//! but for a control socket of its own.

use super::control::Control;
use super::ports::{Port, Ports};
use super::source::NoNics;
use super::{Medium, Nics, RailCounters};
use crate::environment::of_process;
use crate::job::Job;
use crate::options::Options;
use shunt_device::platform::host::World;
use shunt_host::devx::ibverbs::{self, IbverbsDevx, Opening};
use shunt_host::discover::{SysRoot, discover};
use shunt_host::topology::select::Selection;
use shunt_soft_nic::{FaultKind, RailAt, WordWatch};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Soft NICs move what the cores give them, whatever rate their ports name: time is allowed for this much.
const INTERPOSER_GBPS: f64 = 4.0;

/// A command of a soft NIC that takes longer than this counts as unanswered: they take microseconds, but on a machine
/// with far more threads than cores up to some hundred milliseconds. What waits for a fence (2 s) has to find out in
/// time that a NIC is gone.
const SOFT_COMMAND: Duration = Duration::from_millis(500);

/// The ports of this machine.
#[derive(Debug)]
pub struct Mlx5 {
    ports: Ports,
    medium: Medium,
    /// PEs of this process have ports in common.
    shared: bool,
}

impl Mlx5 {
    /// Ranks the ports and opens once what will be opened: that it cannot be is said before anybody is kept waiting.
    ///
    /// # Errors
    /// What is missing.
    pub fn find(options: &Options) -> Result<Self, NoNics> {
        let selection =
            Selection::from_lookup(&of_process).map_err(|error| NoNics::Missing(error.to_string()))?;
        ibverbs::list().map_err(|error| NoNics::Missing(error.to_string()))?;
        let ports = Ports::rank(discover(&SysRoot::machine()), selection, options.rails)?;
        for note in ports.notes() {
            eprintln!("note: {note}");
        }
        let here = if options.job.is_some() { 1 } else { options.pes() as usize };
        let mut devices: Vec<String> =
            ports.of_pes(here).into_iter().flatten().map(|port| port.device).collect();
        let all = devices.len();
        devices.sort();
        devices.dedup();
        for device in &devices {
            IbverbsDevx::open(device).map_err(|error| NoNics::Missing(error.to_string()))?;
        }
        let control = Control::find().map_err(|error| NoNics::Missing(error.to_string()))?;
        let medium = if control.is_some() { Medium::Interposer } else { Medium::ConnectX };
        Ok(Self { ports, medium, shared: devices.len() < all })
    }

    /// What figures are labelled with.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Whether PEs of this process have ports in common.
    pub fn shared(&self) -> bool {
        self.shared
    }

    /// What a rail carries, in Gb/s: of the slowest.
    pub fn rail_gbps(&self) -> f64 {
        let named = self.ports.slowest_gbps();
        let slow = self.medium == Medium::Interposer || named == 0.0;
        if slow { INTERPOSER_GBPS } else { named }
    }

    /// Takes ports for the PEs that live here.
    ///
    /// # Errors
    /// The other processes cannot be asked which ports they have, or the control socket is gone.
    pub fn start(&self, options: &Options, job: &dyn Job) -> Result<Mlx5Nics, NoNics> {
        let mates = job.mates(&self.ports.identity())?;
        let rails = mates.iter().copied().zip(self.ports.of_pes(mates.len()));
        let rails: BTreeMap<u32, Vec<Port>> = rails.filter(|(pe, _)| job.own().contains(pe)).collect();
        let control = match self.medium {
            Medium::Interposer => Control::find().map_err(|error| NoNics::Open(error.to_string()))?,
            _ => None,
        };
        let opened = |port: &Port| (port.device.clone(), opening(port, control.is_some()));
        let named = rails.iter().map(|(pe, ports)| (*pe, ports.iter().map(opened).collect())).collect();
        let nics: Arc<dyn shunt::Nics> = Arc::new(shunt::Mlx5Nics::new(named));
        let world = nics.clock();
        let before =
            rails.values().flatten().map(|port| (port.device.clone(), hardware(&port.device))).collect();
        let counted = options.watch || control.is_some();
        Ok(Mlx5Nics { nics, world, rails, control, counted, before })
    }
}

/// NICs of the PEs that live here, opened by name.
pub struct Mlx5Nics {
    nics: Arc<dyn shunt::Nics>,
    world: Arc<dyn World>,
    rails: BTreeMap<u32, Vec<Port>>,
    /// Soft NICs' alone.
    control: Option<Control>,
    /// Somebody looks at counters. Hardware answers by firmware commands, which others wait for.
    counted: bool,
    /// What hardware had counted when this began.
    before: BTreeMap<String, RailCounters>,
}

/// What a port of hardware has counted since the machine started.
fn hardware(device: &str) -> RailCounters {
    let count = |name: &str| -> Option<u64> {
        let path = format!("/sys/class/infiniband/{device}/ports/1/counters/{name}");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    // The unit of data is four bytes.
    let bytes_tx = count("port_xmit_data").map(|words| words.saturating_mul(4));
    let (packets_tx, packets_rx) = (count("port_xmit_packets"), count("port_rcv_packets"));
    RailCounters { packets_tx, packets_rx, bytes_tx, ..RailCounters::default() }
}

fn since(now: RailCounters, before: RailCounters) -> RailCounters {
    let since = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
    RailCounters {
        packets_tx: since(now.packets_tx, before.packets_tx),
        packets_rx: since(now.packets_rx, before.packets_rx),
        bytes_tx: since(now.bytes_tx, before.bytes_tx),
        ..RailCounters::default()
    }
}

/// How a port is opened; `soft`: it is one of the interposer's.
fn opening(port: &Port, soft: bool) -> Opening {
    let usual = Opening { gid_index: port.gid_index, ..Opening::default() };
    if soft { Opening { command: SOFT_COMMAND, ..usual } } else { usual }
}

impl Mlx5Nics {
    fn at_rails(&self, mut count: impl FnMut(&str) -> Option<RailCounters>) -> Vec<(RailAt, RailCounters)> {
        let rails = self.rails.iter().flat_map(|(pe, ports)| {
            (0..).zip(ports).map(|(rail, port)| (RailAt { pe: *pe, rail }, &port.device))
        });
        rails.filter_map(|(at, device)| Some((at, count(device)?))).collect()
    }
}

/// What the control socket answered, or nothing and a line that says why.
fn told<T>(answer: Result<T, String>) -> Option<T> {
    answer.map_err(|error| eprintln!("soft NICs: {error}")).ok()
}

impl Nics for Mlx5Nics {
    fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    fn rails(&self) -> &Arc<dyn shunt::Nics> {
        &self.nics
    }

    fn inject(&self, at_ns: u64, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        let port = self.rails.get(&at.pe).and_then(|ports| ports.get(at.rail as usize));
        match (&self.control, port) {
            (Some(control), Some(port)) => {
                control.inject(&port.device, at_ns.saturating_sub(self.world.now_ns()), kind)
            }
            (None, _) => Err("the NICs are hardware, only soft NICs fail on request".to_owned()),
            (_, None) => Err(format!("there is no rail {at} in this process")),
        }
    }

    fn hits(&self) -> Vec<u64> {
        self.control.as_ref().and_then(|control| told(control.hits())).unwrap_or_default()
    }

    fn watch(&self, addresses: &[u64]) {
        if let Some(control) = &self.control {
            for address in addresses {
                told(control.watch(*address));
            }
        }
    }

    fn watched(&self, addresses: &[u64]) -> Option<Vec<WordWatch>> {
        let control = self.control.as_ref()?;
        told(addresses.iter().map(|address| control.watched(*address)).collect())
    }

    fn counters(&self) -> Vec<(RailAt, RailCounters)> {
        if !self.counted {
            return Vec::new();
        }
        let Some(control) = &self.control else {
            let before = |device: &str| self.before.get(device).copied().unwrap_or_default();
            return self.at_rails(|device| Some(since(hardware(device), before(device))));
        };
        let all: BTreeMap<String, RailCounters> = told(control.counters()).into_iter().flatten().collect();
        self.at_rails(|device| all.get(device).copied())
    }
}
