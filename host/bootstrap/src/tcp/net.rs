//! [`TcpNet`]: a process's place among the others, and what it does there.

use super::address::ask;
use super::collectives::TcpBootstrap;
use super::driver::{Driver, Member, Part, Root, Timing, WAKE};
use super::error::{JoinError, Refused};
use super::handle::Handle;
use super::interface;
use super::link::Local;
use super::options::JoinOptions;
use super::preamble;
use super::secret;
use super::state::{BACK, Counters, LinkReason, PeerLink, Phase, Shared, State, THERE, Topic};
use crate::Oob;
use mio::{Poll, Waker};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Before the user is told whom we wait for, and between two such lines.
const TELL_AFTER: Duration = Duration::from_secs(1);
const TELL_AGAIN: Duration = Duration::from_secs(5);
/// A peer that has said nothing for so long counts as out of reach: more than two signs of life are missing.
const SILENT: Duration = Duration::from_millis(500);

/// One process among those of its job.
///
/// ```no_run
/// # use shunt_bootstrap::tcp::{TcpNet, Topic, Peers};
/// # use shunt_bootstrap::{Bootstrap, Oob};
/// # use shunt_bootstrap::job::{Flags, Job};
/// let job = Job::from_env(&Flags::default())?.expect("started by `shunt run`");
/// let net = TcpNet::join(job.join()?.options)?; // returns when all ranks are there
/// let all = net.bootstrap().all_gather(b"my card")?; // by rank
/// let agents = net.end(Topic::Agent); // an `Oob`: goes into the agent
/// let own = net.end(Topic::App); // an `Oob` for the program's own messages
/// own.send(0, b"done".to_vec());
/// net.cut(Topic::Agent, Peers::All, true); // the fault `oob-cut`
/// if !net.peer(0).up { /* .since, .reason: closed, refused, timed out, left */ }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Handles are cheap to clone; [`TcpBootstrap`] and [`TcpEnd`] are handles too. When the last one is gone the process
/// leaves in good order, which takes a second at most; [`TcpNet::close`] does it at once for all of them.
#[derive(Clone, Debug)]
pub struct TcpNet {
    handle: Arc<Handle>,
}

/// Whom a cut concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Every other rank.
    All,
    /// One.
    One(u32),
}

/// What there is to do before the thread starts.
struct Plan {
    part: Part,
    listeners: Vec<TcpListener>,
    /// Where the root is.
    root: SocketAddr,
    job: Option<[u8; 16]>,
}

impl TcpNet {
    /// Joins the job: returns when all ranks are there and every two of them are connected, or when the patience is
    /// over.
    pub fn join(options: JoinOptions) -> Result<Self, JoinError> {
        let since = Instant::now();
        options.check()?;
        let poll = Poll::new().map_err(|error| system("no poll", &error))?;
        let waker = Waker::new(poll.registry(), WAKE).map_err(|error| system("no waker", &error))?;
        let shared = Arc::new(Shared::new(options.rank, options.world, options.notices.clone(), waker));
        let patience = Duration::from_nanos(options.patience_ns);
        let root_name = options.root.to_string();
        let local = Local {
            rank: options.rank,
            world: options.world,
            versions: (preamble::PROTOCOL, options.abi),
            secret: options.secret.clone(),
            job: None,
        };
        let timing = Timing {
            keepalive: Duration::from_nanos(options.keepalive_ns),
            half_open: Duration::from_nanos(options.half_open_ns),
        };
        let plan = plan(options, &shared, patience)?;
        let local = Local { job: plan.job, ..local };
        let mut driver = Driver::new(poll, shared.clone(), local, timing, plan.part);
        for listener in plan.listeners {
            driver.listen(listener).map_err(|error| system("the root's socket cannot be watched", &error))?;
        }
        let thread = std::thread::Builder::new().name("shunt-net".to_owned());
        let thread = thread.spawn(|| driver.run()).map_err(|error| system("no thread", &error))?;
        let handle = Handle {
            shared,
            thread: Mutex::new(Some(thread)),
            root: plan.root,
            patience,
            round: Mutex::new(0),
        };
        let net = Self { handle: Arc::new(handle) };
        net.wait_for_all(since, since + patience, &root_name)?;
        Ok(net)
    }

    fn wait_for_all(&self, since: Instant, until: Instant, root: &str) -> Result<(), JoinError> {
        let shared = &self.handle.shared;
        let mut tell_at = since + TELL_AFTER;
        let mut state = shared.lock();
        loop {
            let now = Instant::now();
            match &state.phase {
                Phase::Started if state.unmet().next().is_none() => return Ok(()),
                Phase::Failed(error) => return Err(error.clone()),
                _ if now >= until => {
                    let waited_ns = now.duration_since(since).as_nanos() as u64;
                    return Err(overdue(&state, shared.world, waited_ns, root));
                }
                _ if now >= tell_at => {
                    let line = progress(&state, shared.rank, root);
                    tell_at = now + TELL_AGAIN;
                    drop(state);
                    shared.notices.say(&line);
                    state = shared.lock();
                }
                _ => state = shared.wait(state, until.min(tell_at)),
            }
        }
    }

    /// This process.
    pub fn rank(&self) -> u32 {
        self.handle.shared.rank
    }

    /// Processes in the job.
    pub fn world(&self) -> u32 {
        self.handle.shared.world
    }

    /// Where the root listens.
    pub fn root(&self) -> SocketAddr {
        self.handle.root
    }

    /// The exchange at start, with the patience of the [`JoinOptions`]. All its handles count the same all-gathers.
    pub fn bootstrap(&self) -> TcpBootstrap {
        TcpBootstrap::new(self.handle.clone(), self.handle.patience)
    }

    /// This process's end of a topic. All ends of a topic share what comes in.
    pub fn end(&self, topic: Topic) -> TcpEnd {
        TcpEnd { handle: self.handle.clone(), topic }
    }

    /// The mesh connection to a peer; of a rank that does not exist, one that was never up.
    pub fn peer(&self, rank: u32) -> PeerLink {
        let state = self.handle.shared.lock();
        match state.peers.get(rank as usize) {
            Some(peer) => peer.link.clone(),
            None => PeerLink {
                up: false,
                since: Instant::now(),
                heard: None,
                reason: super::LinkReason::Failed(format!("there is no rank {rank}")),
            },
        }
    }

    /// Fault injection: drops messages of a topic, from and to the peers, from now on (`true`) or no longer. What is
    /// under way here is lost; connections stay.
    pub fn cut(&self, topic: Topic, peers: Peers, on: bool) {
        self.set_cut(topic, peers, if on { THERE | BACK } else { 0 });
    }

    /// Fault injection: the same for what goes to the peers (`there`) or comes from them alone.
    pub fn cut_one_way(&self, topic: Topic, peers: Peers, there: bool) {
        self.set_cut(topic, peers, if there { THERE } else { BACK });
    }

    fn set_cut(&self, topic: Topic, peers: Peers, ways: u8) {
        let shared = &self.handle.shared;
        match peers {
            Peers::One(peer) => shared.set_cut(topic, peer, ways),
            Peers::All => {
                (0..shared.world)
                    .filter(|peer| *peer != shared.rank)
                    .for_each(|p| shared.set_cut(topic, p, ways));
            }
        }
    }

    /// Fault injection: breaks the mesh connection to a peer. It is made again.
    pub fn break_link(&self, peer: u32) {
        self.handle.shared.lock().breaks.push(peer);
        self.handle.shared.wake();
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.handle.shared.counters()
    }

    /// The last connections that were refused.
    pub fn refusals(&self) -> Vec<Refused> {
        self.handle.shared.lock().refusals.iter().cloned().collect()
    }

    /// Something went wrong here: the others are told what when this process leaves, in place of that it left in good
    /// order. The first call counts; an exchange that fails calls it by itself.
    pub fn fail(&self, why: &str) {
        self.handle.shared.update(|state| state.fail(why));
    }

    /// Leaves the job; what was sent is given a second to arrive. Everything that is left of this
    /// process's handles is silent from then on.
    pub fn close(&self) {
        self.handle.close();
    }
}

fn system(what: &'static str, error: &std::io::Error) -> JoinError {
    JoinError::System { what, detail: error.to_string() }
}

fn overdue(state: &State, world: u32, waited_ns: u64, root: &str) -> JoinError {
    match &state.phase {
        Phase::Waiting(missing) => {
            let last_refused = state.refusals.back().cloned();
            JoinError::Missing { missing: missing.clone(), world, waited_ns, last_refused }
        }
        Phase::Connecting(last) => {
            JoinError::Unreachable { root: root.to_owned(), waited_ns, last: last.clone() }
        }
        Phase::Failed(error) => error.clone(),
        Phase::Started => {
            let last = state.unmet().next().map(|(_, reason)| format!("{reason:?}")).unwrap_or_default();
            let missing = state.unmet().map(|(rank, _)| rank).collect();
            JoinError::Mesh { missing, waited_ns, last }
        }
    }
}

fn progress(state: &State, rank: u32, root: &str) -> String {
    match &state.phase {
        Phase::Connecting(last) => format!("rank {rank} waits for the root at {root}: {last}"),
        Phase::Waiting(missing) => format!("rank {rank} waits for rank(s) {missing:?}"),
        Phase::Failed(error) => format!("rank {rank}: {error}"),
        Phase::Started => {
            let unmet: Vec<_> = state.unmet().map(|(rank, _)| rank).collect();
            format!("rank {rank} waits for connections with rank(s) {unmet:?}")
        }
    }
}

/// Listens, or finds out where the root is.
fn plan(options: JoinOptions, shared: &Shared, patience: Duration) -> Result<Plan, JoinError> {
    let mut tell_at = Instant::now() + TELL_AFTER;
    let tell = |error: &JoinError| {
        if Instant::now() >= tell_at {
            tell_at = Instant::now() + TELL_AGAIN;
            shared.notices.say(&format!("rank {}: {error}; asked again", options.rank));
        }
    };
    let targets = ask(patience, |left| options.root.resolve(left), tell)?;
    let chosen = match &options.interface {
        Some(spec) => Some(interface::choose(spec, &interface::interfaces()?, targets[0].ip())?),
        None => None,
    };
    if options.rank > 0 {
        let listen_at = chosen.map(|one| one.ip);
        warn_of_rails(shared, listen_at.or_else(|| way_to(targets[0])));
        let root = targets[0];
        let part = Part::Member(Member::new(options.root.to_string(), targets, listen_at));
        return Ok(Plan { part, listeners: Vec::new(), root, job: None });
    }
    let failed = |error: std::io::Error| JoinError::Listen {
        root: options.root.to_string(),
        detail: error.to_string(),
    };
    let listener = match options.listener {
        Some(listener) => listener,
        None => TcpListener::bind(&targets[..]).map_err(failed)?,
    };
    let root = listener.local_addr().map_err(failed)?;
    warn_of_rails(shared, Some(root.ip()));
    let job = secret::random()?[..16].try_into().expect("sixteen of 32");
    Ok(Plan { part: Part::Root(Root::new(options.world)), listeners: vec![listener], root, job: Some(job) })
}

/// The address this machine would use to reach another; nothing is sent.
fn way_to(root: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if root.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(root).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Agents on a rail are deaf when the rail dies: the moment they are there for.
fn warn_of_rails(shared: &Shared, ip: Option<IpAddr>) {
    let Some(ip) = ip.filter(|ip| !ip.is_loopback()) else { return };
    let all = interface::interfaces().unwrap_or_default();
    let Some(own) = all.into_iter().find(|one| one.ip == ip) else { return };
    if let Some(device) = interface::rail_of(Path::new("/sys"), &own.name) {
        shared.warn(&format!(
            "interface {} belongs to rail {device}: agents must not depend on a rail; \
             NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME names another",
            own.name
        ));
    }
}

/// A process's end of a topic on the mesh: unreliable, in order per pair, never waits.
#[derive(Clone, Debug)]
pub struct TcpEnd {
    handle: Arc<Handle>,
    topic: Topic,
}

impl Oob for TcpEnd {
    fn send(&self, to_pe: u32, bytes: Vec<u8>) {
        self.handle.shared.send(self.topic, to_pe, bytes);
    }

    fn try_recv(&self) -> Option<(u32, Vec<u8>)> {
        self.handle.shared.take(self.topic)
    }

    /// False as well for a peer that has said nothing for `SILENT`: a machine that lost its power closes nothing.
    fn reachable(&self, pe: u32) -> bool {
        let state = self.handle.shared.lock();
        state.peers.get(pe as usize).is_none_or(|peer| match peer.link.reason {
            LinkReason::Connecting => true,
            LinkReason::Connected => peer.link.silence() < SILENT,
            _ => false,
        })
    }

    fn has_left(&self, pe: u32) -> bool {
        let state = self.handle.shared.lock();
        state.peers.get(pe as usize).is_some_and(|peer| peer.link.reason == LinkReason::Left)
    }
}
