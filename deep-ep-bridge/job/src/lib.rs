//! Ranks on NICs, of this process or each in its own: what a buffer's kernels run on, by calls of its rank's thread.
//!
//! | module | what it is |
//! | --- | --- |
//! | `options` | what a job is made of, and what follows from it and the environment |
//! | `nics` | soft NICs, or ports of this machine |
//! | `shared`, `node` | memory that ranks of a node share, where each is a process |
//! | `lane` | [`Lane`]: what runs the kernels of one rank |
//! | `error` | why there is no job |

mod error;
mod lane;
mod nics;
mod node;
mod options;

pub use error::NoJob;
pub use lane::Lane;
pub use options::{JobOptions, RAILS};
pub use shunt_host::config::NicKind;
pub use shunt_host::connect;

use shunt::machine::Found;
use shunt::queues::{self, KernelsOn};
use shunt::{Builder, Member, Members, OpenNics, Runtime, Settings, soft_give_up_ns, start_together};
use shunt::{Mapping, SharedHeap};
use shunt_device::platform::host::World;
use shunt_host::connect::Bootstrap;
use shunt_host::connect::tcp::TcpNet;
use shunt_host::error::BootstrapError;
pub use shunt_host::events::{Logging, flush_log};
pub use shunt_host::job::Joining;
use shunt_host::pe::PeConfig;
use shunt_soft_nic::uplink::remove_unused_fabric;
use shunt_soft_nic::{FaultKind, RailAt};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The exchange with the other processes, and what is left of them on the machine.
struct Others {
    net: TcpNet,
    fabric: Option<String>,
}

impl Drop for Others {
    fn drop(&mut self) {
        self.net.close();
        if let Some(name) = &self.fabric {
            // While another process of the job is there it stays, and that one removes it.
            let _ = remove_unused_fabric(name);
        }
    }
}

/// Ranks of this process, their NICs and agents. Everything ends with the last of its lanes.
pub struct Job {
    ranks: Vec<Runtime>,
    first: u32,
    pes: u32,
    locals: u32,
    clock: Arc<dyn World>,
    slice_ns: u64,
    oversubscribed: bool,
    /// Heaps of the other ranks of this process's node, with their first rank, where each is a process.
    near: (u32, Vec<Option<Mapping>>),
    nics: OpenNics,
    /// Dropped last: who is told that this process leaves.
    others: Option<Others>,
}

impl Job {
    /// Where a buffer begins in the heap. Offsets below it are nobody's.
    pub const BASE: u64 = 4096;

    /// Brings all ranks up, in this process.
    ///
    /// # Errors
    /// As [`NoJob`] says.
    pub fn start(options: &JobOptions) -> Result<Arc<Self>, NoJob> {
        let found = nics::find(options)?;
        nics::tell(&found, options.nic, options.ranks as usize);
        let own = 0..options.ranks;
        let (nics, gbps) = match &found {
            Found::Soft(_) => (nics::soft(options, own.clone(), |_| Ok(()))?, options::RAIL_GBPS),
            Found::Mlx5(machine) => nics::ports(machine, &own.clone().collect::<Vec<_>>(), &own)?,
        };
        let crowded = options.oversubscribed(options.ranks);
        let setting = Setting::of(options, &nics, gbps, crowded, true)?;
        let members = Members::in_process(options.ranks, &nics.clock()).members;
        let ranks = start_together(members.into_iter().map(|member| setting.builder(&nics, member)))?;
        let locals = options.locals.unwrap_or(1);
        Ok(Arc::new(Self::of(options, ranks, setting.slice_ns, nics, crowded, locals)))
    }

    /// Brings the rank of this process up, the others in theirs. Returns when all are connected.
    ///
    /// # Errors
    /// As [`NoJob`] says.
    pub fn join(options: &JobOptions, joining: Joining) -> Result<Arc<Self>, NoJob> {
        let found = nics::find(options)?;
        let net = TcpNet::join(joining.options)?;
        let job = Self::meet(options, &found, &net, &joining.fabric);
        // The others are told what went wrong at this rank, not that it left.
        let mut job = job.inspect_err(|error| net.fail(&error.to_string()))?;
        let fabric = (joining.made_up && matches!(found, Found::Soft(_))).then_some(joining.fabric);
        job.others = Some(Others { net, fabric });
        Ok(Arc::new(job))
    }

    /// Brings up the rank of this process, which has joined the others.
    fn meet(options: &JobOptions, found: &Found, net: &TcpNet, fabric: &str) -> Result<Self, NoJob> {
        let (me, exchange) = (net.rank(), net.bootstrap());
        alike(&exchange.all_gather(options.line(nics::name(found)).as_bytes())?)?;
        let machines = exchange.all_gather(&shunt::machine::id())?;
        let locals = node::size(options.locals, &machines)?;
        let identity = nics::identity(found);
        let ports = exchange.all_gather(identity.as_bytes())?;
        let same =
            |rank: &usize| ports[*rank] == identity.as_bytes() && machines[*rank] == machines[me as usize];
        let mates: Vec<u32> = (0..ports.len()).filter(same).map(|rank| rank as u32).collect();
        if mates.first() == Some(&me) {
            nics::tell(found, options.nic, mates.len());
        }
        let lifetime =
            Duration::from_nanos(options.settings().map_err(shunt::Error::Config)?.env.packet_lifetime_ns);
        let (nics, gbps) = match found {
            Found::Soft(_) => {
                let attach = |own: &mut _| nics::attach(own, fabric, lifetime);
                (nics::soft(options, me..me + 1, attach)?, options::RAIL_GBPS)
            }
            Found::Mlx5(machine) => nics::ports(machine, &mates, &(me..me + 1))?,
        };
        let here = machines.iter().filter(|machine| **machine == machines[me as usize]).count() as u32;
        let crowded = options.oversubscribed(here);
        let setting = Setting::of(options, &nics, gbps, crowded, mates.first() == Some(&me))?;
        let memory = Arc::new(SharedHeap::default());
        let builder = setting.builder(&nics, Member::of_process(net)).memory(memory.clone());
        let rank = builder.start()?;
        let heap = memory.heap().ok_or_else(|| NoJob::Node("this rank has no heap".to_owned()))?;
        let node = node::of(me, locals);
        let near = (node.start, node::map(&exchange, node, &heap)?);
        let mut job = Self::of(options, vec![rank], setting.slice_ns, nics, crowded, locals);
        (job.first, job.near) = (me, near);
        Ok(job)
    }

    fn of(
        options: &JobOptions,
        ranks: Vec<Runtime>,
        slice_ns: u64,
        nics: OpenNics,
        oversubscribed: bool,
        locals: u32,
    ) -> Self {
        Self {
            ranks,
            first: 0,
            pes: options.ranks,
            locals,
            clock: nics.clock(),
            slice_ns,
            oversubscribed,
            near: (0, Vec::new()),
            nics,
            others: None,
        }
    }

    /// The NICs: to make one fail.
    pub fn nics(&self) -> &OpenNics {
        &self.nics
    }

    /// Makes a NIC of this process fail now. Answers with the number of the fault in [`OpenNics::hits`].
    ///
    /// # Errors
    /// There is no such rail here, or it is hardware.
    pub fn inject(&self, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        self.nics.inject(at, kind)
    }

    /// The clock of the ranks of this process.
    pub fn clock(&self) -> &dyn World {
        &*self.clock
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.pes
    }

    /// Those that live in this process.
    pub fn own(&self) -> Range<u32> {
        self.first..self.first + self.ranks.len() as u32
    }

    /// Ranks of a node.
    pub fn locals(&self) -> u32 {
        self.locals
    }

    /// Between two looks at whether a peer is lost: longer than the device's own patience.
    pub fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    /// More threads than cores.
    pub fn oversubscribed(&self) -> bool {
        self.oversubscribed
    }

    /// Switches because of a fault, and back, over all channels of the ranks of this process.
    pub fn switches(&self) -> (u64, u64) {
        let each = self.ranks.iter().map(Runtime::switches);
        each.fold((0, 0), |(failovers, back), (more, more_back)| (failovers + more, back + more_back))
    }

    /// Bytes of payload that each rail of this process has sent so far, where its NIC counts them.
    pub fn sent(&self) -> Vec<(RailAt, u64)> {
        let of = |rank: &Runtime| {
            let pe = rank.rank();
            let rails = rank
                .pe()
                .rails()
                .iter()
                .map(move |rail| (RailAt { pe, rail: rail.index }, rail.devx.traffic()));
            rails.filter_map(|(at, traffic)| Some((at, traffic?.0))).collect::<Vec<_>>()
        };
        self.ranks.iter().flat_map(of).collect()
    }

    /// Entries that kernels of the ranks of this process have posted to NICs for other ranks of their node so far.
    pub fn posted_on_node(&self) -> u64 {
        let of = |rank: &Runtime| {
            let mates = node::of(rank.rank(), self.locals).filter(|mate| *mate != rank.rank());
            mates.map(|mate| rank.posted(mate)).sum::<u64>()
        };
        self.ranks.iter().map(of).sum()
    }

    /// Gives bytes to all processes and returns everyone's, by rank: these alone where all ranks are here. All
    /// processes call it equally often.
    ///
    /// # Errors
    /// Somebody did not answer within this time.
    pub fn gather(&self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>, BootstrapError> {
        match &self.others {
            None => Ok(vec![mine.to_vec()]),
            Some(others) => {
                let exchange = others.net.bootstrap().with_patience(patience.as_nanos() as u64);
                exchange.all_gather(mine)
            }
        }
    }

    /// What runs the kernels of a rank.
    ///
    /// # Panics
    /// If it does not live here.
    pub fn lane(self: &Arc<Self>, rank: u32) -> Lane {
        assert!(self.own().contains(&rank), "rank {rank} of {:?}", self.own());
        Lane { job: self.clone(), rank, alone: false }
    }

    pub(crate) fn rank(&self, rank: u32) -> &Runtime {
        &self.ranks[(rank - self.first) as usize]
    }

    /// Where kernels of `rank` reach the heap of another one, if it is of their node.
    pub(crate) fn near(&self, rank: u32, other: u32) -> Option<u64> {
        if !node::of(rank, self.locals).contains(&other) {
            return None;
        }
        if self.own().contains(&other) {
            return Some(self.rank(other).pe().heap().address);
        }
        let (first, maps) = &self.near;
        Some(maps.get(other.checked_sub(*first)? as usize)?.as_ref()?.span().address)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.ranks.iter().for_each(Runtime::ask_to_stop);
    }
}

/// What all ranks of this process are brought up with.
struct Setting {
    settings: Settings,
    suspect_ns: u64,
    floor_ns: u64,
    slice_ns: u64,
    heap_bytes: u64,
    /// Channels from this one on have their queues in memory of a device.
    kernels_from: Option<u32>,
}

impl Setting {
    /// `speaks`: it is this process that says where queues lie.
    fn of(
        options: &JobOptions,
        nics: &OpenNics,
        gbps: f64,
        crowded: bool,
        speaks: bool,
    ) -> Result<Self, NoJob> {
        let settings = options.settings().map_err(shunt::Error::Config)?;
        let on_gpu = |_| Err::<(), _>("kernels run on the processor".to_owned());
        let (queues, said) =
            queues::choose(settings.env.queues, KernelsOn::Processor, nics.carrier(), on_gpu)?;
        if let Some(said) = said.filter(|_| speaks) {
            shunt_host::complain!("shunt: {said}");
        }
        let silence = options.silence(&settings, nics, gbps, crowded);
        Ok(Self {
            settings,
            suspect_ns: silence.suspect_ns,
            floor_ns: silence.floor_ns,
            slice_ns: (4 * silence.suspect_ns).max(100_000_000),
            heap_bytes: Job::BASE + options.bytes.next_multiple_of(128),
            kernels_from: queues.kernels_from(0),
        })
    }

    fn builder(&self, nics: &OpenNics, member: Member) -> Builder {
        let (suspect_ns, floor_ns) = (self.suspect_ns, self.floor_ns);
        let (soft, asked, kernels_from) = (nics.are_soft(), self.settings.give_up_ns, self.kernels_from);
        let adjust = move |config: &mut PeConfig| {
            // A switch goes to a backup that is there.
            config.backups_later = false;
            config.kernels_from = kernels_from;
            (config.policy.suspect_ns, config.policy.suspect_floor_ns) = (suspect_ns, floor_ns);
            if soft {
                config.policy.give_up_ns = soft_give_up_ns(asked, config.policy.give_up_ns);
            }
        };
        let builder = Runtime::builder(nics.rails(), member).settings(self.settings);
        builder.heap_bytes(self.heap_bytes).adjust(adjust)
    }
}

/// Refuses a job whose ranks say different things.
fn alike(lines: &[Vec<u8>]) -> Result<(), NoJob> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(ours) = lines.first() else { return Ok(()) };
    match (0..).zip(lines).find(|(_, theirs)| *theirs != ours) {
        Some((rank, theirs)) => Err(NoJob::Disagree { rank, theirs: text(theirs), ours: text(ours) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the usual second a rank was given up whose soft NICs had no core for so long.
    #[test]
    fn ranks_on_soft_nics_are_patient_with_each_other() {
        let options = JobOptions {
            ranks: 2,
            rails: 1,
            channels: 1,
            bytes: 4096,
            message: 4096,
            seed: 1,
            tolerant: true,
            nic: NicKind::Soft,
            locals: None,
        };
        let job = Job::start(&options).unwrap();
        let asked = Settings::from_env().unwrap().give_up_ns;
        for rank in &job.ranks {
            assert_eq!(rank.pe().root().policy.give_up_ns, asked.unwrap_or(10_000_000_000));
        }
    }
}
