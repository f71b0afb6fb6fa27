//! How a PE comes up: it joins the others, makes sure that all were started alike, opens its NICs, connects; and how it
//! leaves: at any stage of a switch, with or without the others.

use super::control::Control;
use super::kernels::write_tables;
use super::map::HeapMap;
use super::nics::Nics;
use super::stage::Stage;
use super::{Session, lock};
use crate::env::{Settings, difference};
use crate::failure::{Failure, InitError};
use crate::heap::SymmetricHeap;
use crate::kernels::{Kernels, Place};
use crate::registry::Registry;
use crate::report::end_process;
use crate::teams::{FIRST_OWN, Teams};
use shunt::{AgentThread, Member, Runtime, Turn};
use shunt_host::agent::words::StateWords;
use shunt_host::connect::bootstrap::Bootstrap;
use shunt_host::connect::tcp::{JoinOptions, TcpNet};
use shunt_host::pe::{Pe, PeConfig};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Threads of several PEs share few cores with soft NICs: silence shorter than this says nothing there.
const SOFT_SUSPECT_NS: u64 = 50_000_000;

/// How this process finds the others.
pub struct Joining {
    /// Connections.
    pub options: JoinOptions,
    /// Soft fabric of the machine.
    pub fabric: String,
    /// Whether its name was made up for this job: nobody else knows it.
    pub made_up: bool,
    /// Whether `SHUNT_SUSPECT` was set.
    pub suspect_is_set: bool,
}

/// A fabric that the last process of a job removes, once its NICs are gone.
pub(super) struct Leftovers(Option<String>);

impl Drop for Leftovers {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            // While another process of the job is there it stays, and that one removes it.
            let _ = shunt_soft_nic::uplink::remove_unused_fabric(name);
        }
    }
}

/// Starts the agent of this PE. Its thread hears as well what other PEs say.
fn spawn_agent(pe: Arc<Pe>, control: Arc<Control>) -> Result<AgentThread, InitError> {
    let me = control.net().rank();
    let turn = move || {
        if let Some((from, status)) = control.hear() {
            eprintln!("shunt: PE {me}: PE {from} ended the job with nvshmem_global_exit({status})");
            end_process(status);
        }
        Turn::Step
    };
    Ok(AgentThread::spawn(pe, Vec::new(), turn)?)
}

/// A number for each machine, by PE: the first PE on it.
fn nodes(names: &[Vec<u8>]) -> Vec<u32> {
    let first = |name: &Vec<u8>| names.iter().position(|other| other == name).unwrap_or(0) as u32;
    names.iter().map(first).collect()
}

/// What tells this machine from others: its name, and the number of its start.
fn machine() -> Vec<u8> {
    let read = |path: &str| std::fs::read(path).unwrap_or_default();
    [read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/boot_id")].concat()
}

fn config(settings: &Settings, heap_bytes: u64, suspect_is_set: bool, kernels: &Kernels) -> PeConfig {
    let mut config = PeConfig::new(&settings.host, heap_bytes);
    // Kernels have as many as were asked for, the host one more.
    config.channels_per_pe += u32::from(kernels.are_there());
    // Beside kernels on a GPU nobody on the host calls the driver, which may wait for them: all paths are made at
    // start.
    let gpu = matches!(kernels.place(), Place::Gpu(_));
    config.backups_later = !gpu;
    config.agent_switches = kernels.place() == Place::Nowhere;
    config.log2_chunk = settings.log2_chunk;
    if !suspect_is_set {
        config.policy.suspect_ns = config.policy.suspect_ns.max(SOFT_SUSPECT_NS);
        config.policy.suspect_floor_ns = config.policy.suspect_ns;
    }
    config
}

impl Session {
    /// Brings this process's PE up. Returns when all PEs are connected.
    ///
    /// # Errors
    /// Why not.
    pub fn start(settings: Settings, joining: Joining, kernels: Kernels) -> Result<Self, InitError> {
        let net = TcpNet::join(joining.options)?;
        let (me, pes) = (net.rank(), net.world());
        let exchange = net.bootstrap().with_patience(settings.call_deadline_ns);
        let all = exchange.all_gather(settings.shared_lines(kernels.are_there()).as_bytes())?;
        if let Some((pe, theirs, ours)) = difference(&all) {
            return Err(InitError::Disagree { pe, theirs, ours });
        }
        let nodes = nodes(&exchange.all_gather(&machine())?);
        let rails = settings.rails();
        let all_rails = exchange.all_gather(&rails.to_le_bytes())?;
        if me == 0 {
            let port = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u32::from_le_bytes);
            let ports: Vec<u32> = all_rails.iter().map(port).collect();
            shortages(settings.host.fault_tolerance, &ports)
                .iter()
                .for_each(|line| eprintln!("shunt: {line}"));
        }
        let lifetime = Duration::from_nanos(settings.host.packet_lifetime_ns);
        let nics = Nics::start(me, rails, &joining.fabric, lifetime, |world| kernels.ahead_of(world))?;
        let teams = Teams::new(me, &nodes, settings.max_teams);
        let map =
            HeapMap::new(settings.heap_bytes, pes, teams.ids().max(FIRST_OWN as u32), kernels.are_there());
        let config = config(&settings, map.bytes, joining.suspect_is_set, &kernels);
        let builder = Runtime::builder(nics.rails(), Member::of_process(&net))
            .memory(kernels.memory()?)
            .clock(nics.world().clone())
            .adjust(move |to| *to = config);
        let pe = Arc::new(builder.connect()?);
        if let Some(map) = &map.kernels {
            write_tables(map, &pe, &teams);
        }
        // SAFETY: the state and its tables are mapped while `pe` lives; the session holds it and drops it after this.
        let words =
            unsafe { StateWords::new(pe.state(), nics.world().clone()) }.map_err(|_| InitError::Build)?;
        let control = Arc::new(Control::new(net));
        let agent = spawn_agent(pe.clone(), control.clone())?;
        let base = pe.heap().address;
        let session = Self {
            agent: Mutex::new(Some(agent)),
            words,
            map,
            base,
            heap: Mutex::new(SymmetricHeap::new(map.user)),
            registry: Mutex::new(Registry::default()),
            teams: Mutex::new(teams),
            stage: Mutex::new(Stage::default()),
            taken: Mutex::new(1),
            kernels,
            rounds: Mutex::default(),
            control,
            exchange,
            pe,
            nics,
            _fabric: Leftovers(joining.made_up.then_some(joining.fabric)),
            settings,
        };
        session.tell_kernels()?;
        // Nobody ends before all are up.
        session.exchange.all_gather(&[])?;
        Ok(session)
    }

    /// Leaves: waits for what is under way as long as there is hope for it, then for the others as long as they are
    /// there. Nobody who is lost is waited for.
    ///
    /// # Errors
    /// Kernels run on, and use what this PE holds: nothing was taken from them, and nobody was told.
    pub fn leave(&self) -> Result<(), Failure> {
        let others = || (0..self.pes()).filter(|pe| *pe != self.me());
        let since = self.now_ns();
        let running = self.kernels.settle(self.settings.call_deadline_ns);
        if !running.is_empty() {
            let what = format!("kernels that still run on GPUs {running:?}");
            return Err(self.overdue(what, self.now_ns() - since));
        }
        let kernels_are_done = self.patiently_quiet(|| others().all(|pe| self.control.is_gone(pe)));
        if let Err(failure) = kernels_are_done {
            eprintln!("shunt: PE {}: nvshmem_finalize: {failure}", self.me());
        }
        self.dismiss_kernels();
        for pe in others() {
            let channel = self.channel(pe);
            let waited = self.patiently(
                || format!("what was sent to PE {pe}"),
                |until| {
                    let done = channel.quiet(shunt_device::Solo, until);
                    // Where its process is gone nothing more will come of it.
                    if self.control.is_gone(pe) { Ok(()) } else { done }
                },
            );
            if let Err(failure) = waited {
                eprintln!("shunt: PE {}: nvshmem_finalize: {failure}", self.me());
            }
        }
        let left = self.control.part(Duration::from_nanos(self.settings.call_deadline_ns));
        if !left.is_empty() {
            eprintln!("shunt: PE {}: nvshmem_finalize: PEs {left:?} did not finish in time", self.me());
        }
        drop(lock(&self.agent).take());
        self.control.net().close();
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(lock(&self.agent).take());
    }
}

/// What a job that starts all the same is short of, by the ports of each PE: fault tolerance without a second port has
/// nowhere to go, and where one has fewer than the others a card, a cable or a setting is missing.
fn shortages(tolerant: bool, ports: &[u32]) -> Vec<String> {
    let most = ports.iter().copied().max().unwrap_or_default();
    let of = |count: u32| (0..).zip(ports).filter(|(_, has)| **has == count).map(|(pe, _)| pe).collect();
    let mut said = Vec::new();
    let poor: Vec<u32> = of(1);
    if tolerant && !poor.is_empty() && ports.len() > 1 {
        said.push(format!(
            "fault tolerance is on, and PEs {poor:?} have one port: they have no other path to go to \
             (NVSHMEM_ENABLE_MULTI_PORT, SHUNT_SOFT_RAILS)"
        ));
    }
    for few in 1..most {
        let pes: Vec<u32> = of(few);
        if !pes.is_empty() {
            said.push(format!(
                "PEs {pes:?} have fewer ports than others, {few} of {most}: channels to them have fewer paths \
                 (SHUNT_SOFT_RAILS)"
            ));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_is_short_of_is_said() {
        assert!(shortages(true, &[2, 2]).is_empty() && shortages(true, &[1]).is_empty());
        assert!(shortages(false, &[1, 1]).is_empty(), "without fault tolerance one port is as usual");
        let said = shortages(true, &[2, 1, 2]);
        assert!(said.len() == 2 && said[0].contains("PEs [1] have one port"), "{said:?}");
        assert!(said[1].contains("PEs [1] have fewer ports than others, 1 of 2"), "{said:?}");
        assert_eq!(shortages(true, &[3, 2, 3, 2]).len(), 1);
        assert_eq!(shortages(false, &[3, 2, 1]).len(), 2);
    }

    #[test]
    fn machines_are_told_apart() {
        let names = ["a", "b", "a", "c", "b"].map(|name| name.as_bytes().to_vec());
        assert_eq!(nodes(&names), [0, 1, 0, 3, 1]);
        assert!(!machine().is_empty() && machine() == machine());
    }
}
