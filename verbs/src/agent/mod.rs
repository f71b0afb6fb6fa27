//! The thread that carries the recovery engine on, and moves queue pairs from one path to another.
//!
//! Each direction of a connection moves by itself, in the same few words:
//!
//! 1. The path is fenced at both ends by the engine, whoever noticed. From then on neither half does anything.
//! 2. The sender has the count that the receiver's NIC gives, cuts its journal there, and tells the receiver how many
//!    of the messages before the cut consumed a receive (`Cut`).
//! 3. The receiver takes completions until it has as many. The receives that are left go to a path that is ready, and
//!    it says so (`Ready`). Its count and the sender's are two, and agree or there is no truth.
//! 4. The sender posts the rest there, in order, and goes on.
//!
//! Going back is the same: the backup is fenced on purpose once the first path was ready for long enough.

mod charge;
mod ending;
mod fresh;
mod keys;
mod looks;
mod meeting;
mod moving;
mod nics;
mod orders;
mod owner;
mod pace;
mod ports;
mod post;
pub mod required;
mod silence;
mod waking;

use crate::chain::chain;
use crate::queue_pair::{Keeper, QueuePair};
use crate::settings::settings;
use crate::status;
use crate::words::{Said, VERSION, decode, encode, version};
use charge::{Charge, Part};
use fresh::Fresh;
pub use nics::{Machine, assemble};
use orders::Order;
pub use orders::Orders;
pub use owner::Device;
use owner::Owned;
use pace::{Pace, REST};
pub use post::{MeetingPlace, Post};
use required::{BY_LID, ONE_NIC};
use shunt_layout::mlx5::eqe;
use shunt_mlx5::descriptor::HalfCard;
use shunt_recovery::engine::{Around, Engine};
use shunt_recovery::nanos::Nanos;
use shunt_recovery::nic_job::Outcome;
use shunt_verbs_directory::Directory;
use shunt_verbs_directory::remarks::Remarks;
use shunt_verbs_near::waker::Waker;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// A peer that has not answered by then is without this library.
const ALONE: Nanos = Nanos::secs(10);
/// Time between two turns while something is under way.
pub const SOON: Nanos = Nanos::micros(50);

/// Those of this process's own agent, once it was asked for; none if the system gave no thread for it.
static ORDERS: OnceLock<Option<Arc<Orders>>> = OnceLock::new();
/// The process in which it was.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Why nothing is protected that a child connects: the agent's thread is its parent's.
const FORKED: &str = "its process was forked after the parent had connected";

/// Those of this process's agent; none before one was asked for, and in a child of that process.
fn orders() -> Option<&'static Arc<Orders>> {
    let known = ORDERS.get().and_then(Option::as_ref)?;
    (PROCESS.load(Ordering::Relaxed) == std::process::id()).then_some(known)
}

/// Why this process has no agent though one was asked for.
fn without() -> Option<&'static str> {
    match ORDERS.get() {
        Some(_) if PROCESS.load(Ordering::Relaxed) != std::process::id() => Some(FORKED),
        Some(None) => Some("the system gave no thread"),
        _ => None,
    }
}

/// Why the program cannot connect now, where what cannot be protected is refused.
pub fn refusal(addressed_by_gid: bool) -> Option<String> {
    begin();
    let why = if addressed_by_gid { without() } else { Some(BY_LID) };
    why.map(str::to_owned).or_else(required::refusal)
}

/// Has the agent begin, unless it has: what tells it, if there is one.
pub fn begin() -> Option<&'static Arc<Orders>> {
    let spawn = || {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        let orders = Arc::new(Orders::with_descriptors());
        let own = orders.clone();
        match std::thread::Builder::new().name("shunt verbs".into()).spawn(|| run(own)) {
            Ok(_) => Some(orders),
            Err(error) => {
                required::tell_nics(Err(format!("the system gave no thread: {error}")));
                None
            }
        }
    };
    ORDERS.get_or_init(spawn);
    orders()
}

/// The program has made a queue pair: an agent that runs is told of it by its own threads.
pub fn made(pair: &QueuePair) {
    if let Some(orders) = orders() {
        let _ = pair.keeper.set(orders.clone());
    }
}

/// The program has connected a queue pair.
pub fn connected(pair: &Arc<QueuePair>) {
    if pair.keeper.get().is_none() && begin().is_some() {
        made(pair);
    }
    match pair.keeper.get() {
        Some(keeper) => keeper.connected(pair),
        None => pair.state().pass(without().unwrap_or_default()),
    }
}

/// The program is destroying it. One that was never connected is nothing to an agent.
pub fn gone(pair: &Arc<QueuePair>) {
    if let Some(keeper) = pair.keeper.get() {
        keeper.gone(pair);
    }
}

/// Regions have changed, of which queue pairs on backups and peers must know.
pub fn regions_changed() {
    if let Some(orders) = orders() {
        orders.stirred_later();
    }
}

/// Blocks every signal: they are the program's.
fn block_signals() {
    // SAFETY: the set is ours.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

fn run(orders: Arc<Orders>) {
    block_signals();
    let agent = Directory::open(&settings().store)
        .map_err(|error| format!("the directory: {error}"))
        .and_then(|directory| {
            let post = Arc::new(Post::new(Box::new(directory)));
            Ok(Agent::stand_on(nics::open(&post)?, post, orders.clone()))
        });
    match agent {
        Ok(agent) => {
            required::tell_nics(Ok(agent.cards.len()));
            charge::debug(&format!("{} NICs are open", agent.cards.len()));
            agent.run();
        }
        Err(error) => {
            shunt_settings::complain!("shunt: verbs: {error}; the program runs without protection");
            required::tell_nics(Err(error));
            loop {
                orders.begin_look();
                for order in orders.take() {
                    if let Order::Connected(pair) = order {
                        pair.state().pass("no agent");
                        required::refuse(&pair, "no agent");
                        status::tell(pair.id, charge::report(&pair, "", "no agent"));
                        status::write();
                    }
                }
                orders.wait();
            }
        }
    }
}

/// What a peer process is known by.
struct Peer {
    /// Keys of its memory.
    keys: Arc<RwLock<crate::spare::Keys>>,
    rails: usize,
}

/// It carries one process's queue pairs on, a turn at a time.
pub struct Agent {
    post: Arc<Post>,
    orders: Arc<Orders>,
    engine: Engine,
    owned: Owned,
    charges: Vec<Charge>,
    /// Those that are to be taken charge of.
    fresh: Fresh<Arc<QueuePair>>,
    /// By the engine's number, which begins at 1.
    peers: HashMap<u32, Peer>,
    /// Cards of this process's rails, as halves of nothing.
    cards: Vec<HalfCard>,
    /// By domain's address: which of its changes were told, of these backups.
    told: HashMap<usize, (u64, BTreeSet<u32>)>,
    /// When changes of those that were seen are told.
    keys_at: Option<Nanos>,
    ports_asked: Nanos,
    /// Processes that run another version.
    foreign: HashSet<String>,
    /// Rails whose events could not be read: their descriptors are not waited for.
    deaf: HashSet<usize>,
    /// What is to be told once.
    remarks: Remarks,
    pace: Pace,
    busy: bool,
}

impl Agent {
    /// One that knows no queue pair yet, on these NICs; it is told by `orders`.
    pub fn stand_on(machine: Machine, post: Arc<Post>, orders: Arc<Orders>) -> Self {
        let Machine { engine, devices, cards } = machine;
        let owned =
            Owned { paths: HashMap::new(), requests: 0, answers: Vec::new(), devices, remarks: Vec::new() };
        Self {
            post,
            orders,
            engine,
            owned,
            charges: Vec::new(),
            fresh: Fresh::default(),
            peers: HashMap::new(),
            cards,
            told: HashMap::new(),
            keys_at: None,
            ports_asked: Nanos::ZERO,
            foreign: HashSet::new(),
            deaf: HashSet::new(),
            remarks: Remarks::default(),
            pace: Pace::default(),
            busy: false,
        }
    }

    fn now(&self) -> Nanos {
        self.engine.world.now_ns().into()
    }

    fn run(mut self) {
        loop {
            match self.turn() {
                Some(wait) => self.rest(wait),
                None => std::thread::sleep(std::time::Duration::from_micros(SOON.get() / 1000)),
            }
        }
    }

    /// Does what there is to do. How long it may [`Agent::rest`] then; none if the next turn is to come after [`SOON`].
    pub fn turn(&mut self) -> Option<Nanos> {
        self.orders.begin_look();
        self.busy = false;
        self.step();
        self.carry_charges();
        self.release(self.now());
        self.wake_sleepers();
        self.tell_keys();
        for remark in std::mem::take(&mut self.owned.remarks) {
            charge::debug(&remark);
        }
        if required::is_asked() {
            required::tell_store(self.post.directory.is_open());
        }
        let sent = self.post.carry_on();
        let now = self.now();
        if self.busy || !sent || self.charges.iter().any(Charge::is_in_motion) {
            self.pace.stir(now);
            return None;
        }
        Some(self.pace.wait(now, self.due(now)))
    }

    /// When the next timer ends; none if something is on its way of which nobody tells.
    fn due(&self, now: Nanos) -> Option<Nanos> {
        let told = self.orders.can_wake() && self.post.directory.tells();
        if !told || !self.engine.is_at_rest() || !self.owned.answers.is_empty() {
            return None;
        }
        let charges = self.charges.iter().try_fold(now + REST, |first, one| Some(first.min(one.due()?)))?;
        let timers = [self.port_due(), self.fresh.due_at(), self.keys_at];
        Some(timers.into_iter().flatten().fold(charges, Nanos::min))
    }

    /// Waits for so long, or until a program's thread, another process or a NIC has something to tell.
    pub fn rest(&self, wait: Nanos) {
        if self.orders.lie_down(wait > pace::SHORT) {
            let channels = self.channels();
            let fds = channels
                .iter()
                .map(|channel| channel.fd())
                .chain(self.event_fds())
                .chain(self.orders.waker().into_iter().flat_map(Waker::fds));
            self.post.directory.wait(fds.collect(), pace::milliseconds(wait));
            self.orders.hush();
        }
    }

    fn take_orders(&mut self) {
        let (now, mut closed) = (self.now(), false);
        for order in self.orders.take() {
            match order {
                Order::Connected(pair) => self.fresh.add(now, pair),
                Order::Gone(pair) => {
                    self.fresh.remove(|one| one.id == pair.id);
                    while let Some(at) = self.charges.iter().position(|one| one.pair.id == pair.id) {
                        let charge = self.charges.swap_remove(at);
                        self.let_go(now, charge, false);
                        closed = true;
                    }
                }
            }
        }
        for pair in self.fresh.due(now) {
            if !self.charges.iter().any(|one| one.pair.id == pair.id) {
                self.take_charge(now, pair);
            }
        }
        if closed {
            status::write();
        }
    }

    /// A queue pair of the program is connected: its rail, the backups, and its entry in the directory.
    fn take_charge(&mut self, now: Nanos, pair: Arc<QueuePair>) {
        let rail = self.owned.devices.iter().position(|device| device.name == pair.context.device);
        // This thread asks the kernel for the address: the program waits for what its own thread does.
        let gid = rail.and_then(|rail| self.owned.devices[rail].address(&pair.state().connection));
        let connection = pair.state().addressed(gid);
        let up = |at: u32| self.engine.ports.own_up(at);
        let rails = rail.map_or(Vec::new(), |rail| {
            let link = |at: u32| self.engine.rails[at as usize].caps.link;
            let (rail, count) = (rail as u32, self.owned.devices.len() as u32);
            chain(rail, count, settings().backups, |at| link(at) == link(rail), up)
        });
        let why = match rails.len() {
            0 => "its device is none that libmlx5 drives",
            1 => ONE_NIC,
            _ if connection.attr.ah_attr.is_global == 0 => BY_LID,
            _ => "",
        };
        if !why.is_empty() {
            pair.state().pass(why);
            required::refuse(&pair, why);
            pair.estrange(why);
            status::tell(pair.id, charge::report(&pair, "", why));
            return status::write();
        }
        if let Err(error) = self.post.directory.put(&connection.gid, pair.qpn) {
            charge::debug(&format!("the directory: {error}"));
        }
        let to_itself = connection.remote() == (connection.gid, pair.qpn);
        let charge = |part: &Part| Charge::new(pair.clone(), *part, rails.clone(), now);
        self.charges.extend(Part::all(to_itself).iter().map(charge));
    }

    /// A queue pair is destroyed, or not protected any more.
    fn let_go(&mut self, now: Nanos, charge: Charge, lost: bool) {
        self.post.directory.remove(&charge.connection.gid, charge.pair.qpn);
        if let Some(there) = charge.there {
            let said = if lost { Said::Lost(there.id) } else { Said::Parted(there.id, true) };
            self.post.send(there.peer, encode(&said));
        }
        for key in charge.keys.iter().copied() {
            self.engine.remove(now, key);
            self.owned.paths.remove(&key);
        }
        self.report(&charge);
        status::closed(charge.pair.id);
    }

    fn step(&mut self) {
        self.take_orders();
        let outcomes = self.engine.nics.take_done();
        let events = self.take_events();
        let mut arrived = Vec::new();
        while let Some((from, bytes)) = self.post.directory.receive() {
            arrived.push((from, decode(&bytes), version(&bytes)));
        }
        let now = self.now();
        self.busy |= !outcomes.is_empty() || !events.is_empty() || !arrived.is_empty();
        self.engine.grow(now);
        for (rail, id, outcome) in outcomes {
            match outcome {
                Outcome::Port(up) => self.port_answered(now, rail, up),
                Outcome::Looked(found) if self.looked(now, id, &found) => {}
                outcome => self.engine.outcome(&mut self.owned, now, id, outcome),
            }
        }
        for (rail, event) in events {
            if eqe::EVENT_TYPE.get(&event) as u8 == eqe::event::PORT_CHANGE {
                self.port_changed(now, rail, eqe::SUB_TYPE.get(&event) as u8 == eqe::port::DOWN);
            }
        }
        self.ask_ports(now);
        for (from, said, version) in arrived {
            match said {
                Some(said) => self.hear(now, &from, said),
                None => self.hear_nothing(from, version),
            }
        }
        for remark in self.post.directory.remarks().into_iter().chain(self.remarks.take()) {
            charge::say(&remark);
        }
        for key in self.engine.paths().keys() {
            self.busy |= self.engine.look(&mut self.owned, now, key, Around::default());
        }
        self.busy |= self.engine.look_at_destroys(now);
    }

    /// A message that this version does not read.
    fn hear_nothing(&mut self, from: String, version: Option<u16>) {
        match version.filter(|version| *version != VERSION) {
            Some(version) => {
                self.remarks.add(format!(
                    "{from}: expected messages of version {VERSION}, got {version}; run the same Shunt at both ends"
                ));
                self.foreign.insert(from);
            }
            None => {
                self.remarks.add(format!("{from}: expected a message of this library, got something else"))
            }
        }
    }

    fn hear(&mut self, now: Nanos, name: &str, said: Said) {
        if let Said::Hello(hello) = said {
            return self.meet(now, name, &hello);
        }
        let Some(from) = self.post.number(name).filter(|from| *from > 0) else { return };
        self.engine.peers.heard(self.engine.awake.age_ns, from);
        match said {
            Said::Hello(_) => {}
            Said::Port(rail, down, at_ns) => {
                let known = self.peers.get(&from).is_some_and(|peer| (rail as usize) < peer.rails);
                if known {
                    self.engine.ports.peer_says(now, from, rail, down, at_ns.into());
                }
            }
            Said::Path(pair, number, incarnation, word) => {
                let key = self.owned.key(pair, number);
                if let Some(key) = key.filter(|key| self.engine.paths().peer(*key) == Some(from)) {
                    // Who fences it knows it, though the introduction that says so may still be on its way.
                    self.charge_of(from, pair).map(Charge::arm);
                    self.engine.hear(&mut self.owned, now, key, (incarnation, word), false);
                }
            }
            Said::Quiet(pair) => {
                if let Some(said) = self.charge_of(from, pair).and_then(|charge| charge.says_receives()) {
                    self.post.send(from, encode(&said));
                }
            }
            Said::Keys(first, keys) => {
                let Some(peer) = self.peers.get(&from) else { return };
                let mut known = peer.keys.write().unwrap_or_else(PoisonError::into_inner);
                if first {
                    known.clear();
                }
                known.extend(keys.into_iter().map(|[rail, key, on, there]| ((rail, key, on), there)));
            }
            Said::Cut(pair, ..)
            | Said::Ready(pair, ..)
            | Said::Atomics(pair)
            | Said::Parted(pair, _)
            | Said::Receives(pair, _)
            | Said::Lost(pair) => {
                if let Some(charge) = self.charge_of(from, pair) {
                    charge.hear(now, &said);
                }
            }
        }
    }

    /// A queue pair by its number here, if it is connected to that peer.
    fn charge_of(&mut self, peer: u32, pair: u64) -> Option<&mut Charge> {
        let is = |one: &Charge| one.id() == pair && one.there.is_some_and(|at| at.peer == peer);
        self.charges.iter_mut().find(|one| is(one))
    }
}
