//! How a PE comes up: it joins the others, makes sure that all were started alike, opens its NICs, connects; and how it
//! leaves: at any stage of a switch, with or without the others.

use super::Session;
use super::control::Control;
use super::heap_memory::HeapMemory;
use super::kernels::{KernelSide, write_tables};
use super::leftovers::Leftovers;
use super::locks::lock;
use super::map::HeapMap;
use super::meetings::Meetings;
use super::nics::Nics;
use super::node_heaps::NodeHeaps;
use super::peers::{HOST_CHANNEL, Peers};
use super::ports::{Ports, mates};
use super::source::{Source, tell};
use super::staging::Stage;
use super::symmetric::Symmetric;
use crate::env::{Settings, difference};
use crate::failure::{Failure, InitError};
use crate::kernels::{Kernels, Place};
use crate::report::end_process;
use crate::teams::{FIRST_OWN, Teams};
use shunt::{AgentThread, HeapCard, Member, Runtime, Turn, soft_give_up_ns};
use shunt_device::platform::host::World;
use shunt_host::agent::words::StateWords;
use shunt_host::connect::bootstrap::Bootstrap;
use shunt_host::connect::tcp::TcpNet;
use shunt_host::job::Joining;
use shunt_host::pe::{Pe, PeConfig};
use shunt_host::silence::Silence;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Threads of several PEs share few cores with soft NICs: silence shorter than this says nothing there.
const SOFT_SUSPECT_NS: u64 = 50_000_000;

/// Starts the agent of this PE. Its thread hears as well what other PEs say.
fn spawn_agent(pe: Arc<Pe>, control: Arc<Control>) -> Result<AgentThread, InitError> {
    let me = control.net().rank();
    let turn = move || {
        if let Some((from, status)) = control.hear() {
            shunt_host::complain!(
                "shunt: PE {me}: PE {from} ended the job with nvshmem_global_exit({status})"
            );
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

fn config(settings: &Settings, map: &HeapMap, soft: bool, kernels: &Kernels) -> PeConfig {
    let mut config = PeConfig::new(&settings.host, map.bytes);
    config.split = map.split;
    // What the program has not allocated is not pinned; what calls need is.
    config.late_chunks = (map.user >> settings.log2_chunk) as u32;
    // Kernels have as many as were asked for, the host one more.
    config.channels_per_pe += u32::from(kernels.are_there());
    // Beside kernels on a GPU nobody on the host calls the driver, which may wait for them: all paths are made at
    // start.
    let gpu = matches!(kernels.place(), Place::Gpu(_));
    config.backups_later = !gpu;
    config.host_channels = (kernels.place() != Place::Nowhere).then_some(HOST_CHANNEL + 1);
    config.log2_chunk = settings.log2_chunk;
    if !soft {
        let silence = Silence::HARDWARE.with(settings.suspect_ns, settings.suspect_floor_ns);
        (config.policy.suspect_ns, config.policy.suspect_floor_ns) = (silence.suspect_ns, silence.floor_ns);
    } else if settings.suspect_ns.is_none() {
        config.policy.suspect_ns = config.policy.suspect_ns.max(SOFT_SUSPECT_NS);
        config.policy.suspect_floor_ns = config.policy.suspect_ns;
    }
    if soft {
        config.policy.give_up_ns = soft_give_up_ns(settings.give_up_ns, config.policy.give_up_ns);
    }
    config
}

/// All PEs were started alike.
fn agree_on_settings(
    settings: &Settings,
    kernels: &Kernels,
    source: &Source,
    exchange: &dyn Bootstrap,
) -> Result<(), InitError> {
    let lines = settings.shared_lines(kernels.are_there(), source.name());
    let Some((pe, theirs, ours)) = difference(&exchange.all_gather(lines.as_bytes())?) else { return Ok(()) };
    // One of them may have found other NICs than the others: why, each says itself.
    let me = exchange.rank();
    source.lines(settings.nic, 1).iter().for_each(|line| shunt_host::complain!("shunt: PE {me}: {line}"));
    Err(InitError::Disagree { pe, theirs, ours })
}

/// The NICs of a PE, which shares the machine's ports with its mates.
fn open_nics(
    settings: &Settings,
    source: &Source,
    fabric: &str,
    (me, mates): (u32, &[u32]),
    kernels: &Kernels,
) -> Result<Nics, InitError> {
    let lifetime = Duration::from_nanos(settings.host.packet_lifetime_ns);
    let ahead = |world: &dyn World| kernels.ahead_of(world);
    match source {
        Source::Soft { rails, .. } => Nics::soft(me, *rails, fabric, lifetime, ahead),
        Source::Mlx5(machine) => Nics::mlx5(me, machine, mates, ahead),
    }
}

/// All PEs have their heaps in the same kind of memory, or offsets would not mean the same.
fn agree_on_memory(memory: &HeapMemory, exchange: &dyn Bootstrap) -> Result<(), InitError> {
    let line = format!("SHUNT_HEAP {}", memory.name());
    match difference(&exchange.all_gather(line.as_bytes())?) {
        Some((pe, theirs, ours)) => Err(InitError::Disagree { pe, theirs, ours }),
        None => Ok(()),
    }
}

/// Maps the heaps of this PE's node, if all of its PEs can: then they are a team.
fn share(
    card: HeapCard,
    nodes: &[u32],
    exchange: &dyn Bootstrap,
    teams: &mut Teams,
) -> Result<NodeHeaps, InitError> {
    let node = NodeHeaps::share(exchange.rank(), nodes, card, exchange)?;
    if node.is_some() {
        teams.share_node();
    }
    Ok(node.unwrap_or_default())
}

impl Session {
    /// Brings this process's PE up. Returns when all PEs are connected.
    ///
    /// # Errors
    /// Why not.
    pub fn start(
        settings: Settings,
        joining: Joining,
        kernels: Kernels,
        source: Source,
    ) -> Result<Self, InitError> {
        let net = TcpNet::join(joining.options)?;
        let (me, pes) = (net.rank(), net.world());
        let exchange = net.bootstrap().with_patience(settings.call_deadline_ns);
        agree_on_settings(&settings, &kernels, &source, &exchange)?;
        let nodes = nodes(&exchange.all_gather(&shunt::machine::id())?);
        let ports = exchange.all_gather(&source.ports().to_bytes())?;
        let ports: Vec<Ports> = ports.iter().map(|bytes| Ports::of_bytes(bytes)).collect();
        let mates = mates(me, &nodes, &ports);
        tell(&settings, &source, me, &mates, &nodes, &ports);
        let nics = open_nics(&settings, &source, &joining.fabric, (me, &mates), &kernels)?;
        let mut teams = Teams::new(me, &nodes, settings.max_teams);
        let memory = HeapMemory::find(&settings, &kernels, &nics, mates.first() == Some(&me))?;
        agree_on_memory(&memory, &exchange)?;
        let (ids, split) =
            (teams.ids().max(FIRST_OWN as u32), memory.is_split().then_some(settings.log2_chunk));
        let map = HeapMap::new(settings.heap(), pes, ids, kernels.are_there(), split);
        let mut config = config(&settings, &map, nics.are_soft(), &kernels);
        config.kernels_from = memory.queues().kernels_from(HOST_CHANNEL + 1);
        let builder = Runtime::builder(nics.rails(), Member::of_process(&net))
            .memory(memory.memory())
            .clock(nics.world().clone())
            .adjust(move |to| *to = config);
        let pe = Arc::new(builder.connect()?);
        let node = share(memory.card(&settings), &nodes, &exchange, &mut teams)?;
        if let Some(map) = &map.kernels {
            write_tables(map, pe.heap().address, &teams, (me, &node));
        }
        // SAFETY: the state and its tables are mapped while `pe` lives; `Peers` holds it and drops it after this.
        let words = unsafe { StateWords::new(pe.host_state(), nics.world().clone()) }
            .map_err(|_| InitError::Build)?;
        let control = Arc::new(Control::new(net));
        let agent = spawn_agent(pe.clone(), control.clone())?;
        let base = pe.heap().address;
        let (clock, theirs) = (nics.world().clone(), kernels.place() != Place::Nowhere);
        let deadline_ns = settings.call_deadline_ns;
        let access = memory.access()?;
        let peers = Peers::new(pe, words, clock, control.clone(), access.clone(), (theirs, deadline_ns));
        let peers = Arc::new(peers);
        let heap = Symmetric::new(base, map.user, access.clone());
        let session = Self {
            agent: Mutex::new(Some(agent)),
            kernels: KernelSide::new(peers.clone(), kernels, map.kernels, heap.addresses()),
            teams: Meetings::new(peers.clone(), map, base, teams, exchange),
            stage: Mutex::new(Stage::new(peers.clone(), map, base, access.clone())),
            access,
            heap,
            node,
            map,
            base,
            control,
            peers,
            nics,
            _fabric: Leftovers((joining.made_up && source.is_soft()).then_some(joining.fabric)),
            settings,
        };
        session.kernels.tell()?;
        // Nobody ends before all are up.
        session.teams.all_are_here()?;
        // The program goes on: what is closed opens.
        drop(session.running());
        Ok(session)
    }

    /// Leaves: waits for what is under way as long as there is hope for it, then for the others as long as they are
    /// there. Nobody who is lost is waited for.
    ///
    /// # Errors
    /// Kernels run on, and use what this PE holds: nothing was taken from them, and nobody was told.
    pub fn leave(&self) -> Result<(), Failure> {
        let _running = self.running();
        self.kernels.settle()?;
        let peers = &self.peers;
        let kernels_are_done = self.kernels.quiet(|| peers.others().all(|pe| self.control.is_gone(pe)));
        if let Err(failure) = kernels_are_done {
            shunt_host::complain!("shunt: PE {}: nvshmem_finalize: {failure}", self.me());
        }
        self.kernels.dismiss();
        for pe in peers.others() {
            let channel = peers.channel(pe);
            let waited = peers.patiently(
                || format!("what was sent to PE {pe}"),
                |until| {
                    let done = channel.quiet(shunt_device::Solo, until);
                    // Where its process is gone nothing more will come of it.
                    if self.control.is_gone(pe) { Ok(()) } else { done }
                },
            );
            if let Err(failure) = waited {
                shunt_host::complain!("shunt: PE {}: nvshmem_finalize: {failure}", self.me());
            }
        }
        let left = self.control.part(Duration::from_nanos(self.settings.call_deadline_ns));
        if !left.is_empty() {
            shunt_host::complain!(
                "shunt: PE {}: nvshmem_finalize: PEs {left:?} did not finish in time",
                self.me()
            );
        }
        drop(lock(&self.agent).take());
        self.control.net().close();
        Ok(())
    }

    /// This PE's agent dies, and another one takes over.
    pub fn restart_agent(&self) {
        if let Some(agent) = &*lock(&self.agent) {
            agent.restart();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(lock(&self.agent).take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_told_apart() {
        let names = ["a", "b", "a", "c", "b"].map(|name| name.as_bytes().to_vec());
        assert_eq!(nodes(&names), [0, 1, 0, 3, 1]);
        assert!(!shunt::machine::id().is_empty());
    }
}
