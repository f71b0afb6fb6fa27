//! NICs through libibverbs and libmlx5: hardware, or the interposer's soft NICs, which this process cannot tell apart
//! but for a control socket of its own.

use super::error::NoNics;
use super::{Medium, Nics, RailCounters};
use crate::environment::of_process;
use crate::job::Job;
use crate::options::Options;
use shunt::machine::{MachinePorts, OwnPorts, Rails};
use shunt_device::platform::host::World;
use shunt_soft_nic::{FaultKind, RailAt, WordWatch};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Soft NICs move what the cores give them, whatever rate their ports name: time is allowed for this much.
const INTERPOSER_GBPS: f64 = 4.0;

/// The ports of this machine.
#[derive(Debug)]
pub struct Mlx5 {
    machine: MachinePorts,
    /// PEs of this process have ports in common.
    shared: bool,
}

impl Mlx5 {
    /// Ranks the ports and opens once what will be opened: that it cannot be is said before anybody is kept waiting.
    ///
    /// # Errors
    /// What is missing.
    pub fn find(options: &Options) -> Result<Self, NoNics> {
        let machine = MachinePorts::find(Rails::Exactly(options.rails), &of_process)?;
        for note in machine.ports().notes() {
            shunt_host::complain!("note: {note}");
        }
        let here = if options.job.is_some() { 1 } else { options.pes() as usize };
        let devices = machine.devices(here);
        machine.try_open(&devices)?;
        let taken: usize = machine.ports().of_pes(here).iter().map(Vec::len).sum();
        let shared = devices.len() < taken;
        Ok(Self { machine, shared })
    }

    /// What figures are labelled with.
    pub fn medium(&self) -> Medium {
        if self.machine.is_interposed() { Medium::Interposer } else { Medium::ConnectX }
    }

    /// Whether PEs of this process have ports in common.
    pub fn shared(&self) -> bool {
        self.shared
    }

    /// What a rail carries, in Gb/s: of the slowest.
    pub fn rail_gbps(&self) -> f64 {
        let named = self.machine.ports().slowest_gbps();
        let slow = self.machine.is_interposed() || named == 0.0;
        if slow { INTERPOSER_GBPS } else { named }
    }

    /// Takes ports for the PEs that live here.
    ///
    /// # Errors
    /// The other processes cannot be asked which ports they have, or the control socket is gone.
    pub fn start(&self, options: &Options, job: &dyn Job) -> Result<Mlx5Nics, NoNics> {
        let mates = job.mates(&self.machine.ports().identity())?;
        let own = self.machine.take(&mates, |pe| job.own().contains(&pe));
        let own = own.map_err(|error| NoNics::Open(error.to_string()))?;
        let devices = own.rails().values().flatten();
        let before = devices.map(|port| (port.device.clone(), hardware(&port.device))).collect();
        let nics: Arc<dyn shunt::Nics> = own.nics();
        let counted = options.watch || own.control().is_some();
        Ok(Mlx5Nics { world: nics.clock(), nics, own, counted, before })
    }
}

/// NICs of the PEs that live here, opened by name.
pub struct Mlx5Nics {
    nics: Arc<dyn shunt::Nics>,
    world: Arc<dyn World>,
    own: OwnPorts,
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

impl Mlx5Nics {
    fn at_rails(&self, mut count: impl FnMut(&str) -> Option<RailCounters>) -> Vec<(RailAt, RailCounters)> {
        let rails = self.own.rails().iter().flat_map(|(pe, ports)| {
            (0..).zip(ports).map(|(rail, port)| (RailAt { pe: *pe, rail }, &port.device))
        });
        rails.filter_map(|(at, device)| Some((at, count(device)?))).collect()
    }
}

/// What the control socket answered, or nothing and a line that says why.
fn told<T>(answer: Result<T, String>) -> Option<T> {
    answer.map_err(|error| shunt_host::complain!("soft NICs: {error}")).ok()
}

impl Nics for Mlx5Nics {
    fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    fn rails(&self) -> &Arc<dyn shunt::Nics> {
        &self.nics
    }

    fn inject(&self, at_ns: u64, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        self.own.inject(at, at_ns.saturating_sub(self.world.now_ns()), kind)
    }

    fn hits(&self) -> Vec<u64> {
        self.own.control().and_then(|control| told(control.hits())).unwrap_or_default()
    }

    fn watch(&self, addresses: &[u64]) {
        if let Some(control) = self.own.control() {
            for address in addresses {
                told(control.watch(*address));
            }
        }
    }

    fn watched(&self, addresses: &[u64]) -> Option<Vec<WordWatch>> {
        let control = self.own.control()?;
        told(addresses.iter().map(|address| control.watched(*address)).collect())
    }

    fn counters(&self) -> Vec<(RailAt, RailCounters)> {
        if !self.counted {
            return Vec::new();
        }
        let Some(control) = self.own.control() else {
            let before = |device: &str| self.before.get(device).copied().unwrap_or_default();
            return self.at_rails(|device| Some(since(hardware(device), before(device))));
        };
        let all =
            told(control.counters()).into_iter().flatten().map(|(device, counted)| (device, counted.into()));
        let all: BTreeMap<String, RailCounters> = all.collect();
        self.at_rails(|device| all.get(device).copied())
    }
}
