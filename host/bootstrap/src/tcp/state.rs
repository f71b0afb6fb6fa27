//! What the network's thread and the program's threads share.

use super::error::{JoinError, Refused};
use super::options::Notices;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Ways of a connection, as bits of a cut: to the peer, and from it.
pub(super) const THERE: u8 = 1;
/// See [`THERE`].
pub(super) const BACK: u8 = 2;
const NO_WAY: u8 = 0;

/// Who talks over the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The agents.
    Agent,
    /// The program itself.
    App,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Agent, Self::App];

    pub(super) fn from_wire(byte: u8) -> Option<Self> {
        Self::ALL.get(byte as usize).copied()
    }
}

/// The mesh connection to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLink {
    /// It is there.
    pub up: bool,
    /// Since when it is as it is.
    pub since: Instant,
    /// When the peer was last heard; it gives a sign of life every keepalive interval.
    pub heard: Option<Instant>,
    /// Why it is as it is.
    pub reason: LinkReason,
}

impl PeerLink {
    /// For how long nothing was heard of the peer.
    pub fn silence(&self) -> Duration {
        self.heard.unwrap_or(self.since).elapsed()
    }
}

/// Why a mesh connection is up or down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkReason {
    /// It was never up.
    Connecting,
    /// It is up.
    Connected,
    /// The peer's system closed it: its process ended, or its socket.
    Closed,
    /// Nobody listens at the peer's address: its process is gone.
    Refused,
    /// No answer in time.
    TimedOut,
    /// The peer left in good order.
    Left,
    /// Anything else.
    Failed(String),
}

/// What happened on this process's connections so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections refused.
    pub refused: u64,
    /// Datagrams handed to a connection.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams dropped: a queue was full, or the peer was away for too long.
    pub dropped: u64,
    /// Datagrams dropped by a cut.
    pub cut: u64,
    /// Bytes of other ranks' parts of all-gathers, and of their rows of exchanges.
    pub gathered: u64,
}

/// How far joining has come.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// The root was not reached yet; what the last attempt met.
    Connecting(String),
    /// In, and waiting for others.
    Waiting(Vec<u32>),
    /// All are in.
    Started,
    /// It came to nothing.
    Failed(JoinError),
}

/// A datagram that waits for its connection.
pub(super) struct Message {
    pub topic: Topic,
    pub at: Instant,
    pub bytes: Vec<u8>,
}

/// What is kept for a peer.
pub(super) struct Peer {
    pub link: PeerLink,
    pub queue: VecDeque<Message>,
    pub queued: usize,
}

impl Peer {
    /// Takes the oldest message off.
    pub fn pop(&mut self) -> Option<Message> {
        let message = self.queue.pop_front()?;
        self.queued -= message.bytes.len();
        Some(message)
    }
}

/// This process's part of an all-gather, or its row of an exchange for one other rank.
pub(super) struct Give {
    pub round: u64,
    /// `None`: for all.
    pub to: Option<u32>,
    pub bytes: Arc<Vec<u8>>,
}

/// The rank that is `steps` behind this one, in the order of an exchange: round the job.
pub(super) fn after(rank: u32, steps: u32, world: u32) -> u32 {
    ((u64::from(rank) + u64::from(steps)) % u64::from(world)) as u32
}

/// Parts of an all-gather, or rows of an exchange, by rank.
pub(super) type Parts = BTreeMap<u32, Arc<Vec<u8>>>;

pub(super) struct State {
    pub phase: Phase,
    /// Our parts of all-gathers and exchanges that were not sent yet.
    pub gives: VecDeque<Give>,
    /// At the root: how many rounds each other rank that is there has given all of.
    pub given: BTreeMap<u32, u64>,
    /// All-gathers and exchanges that are not over here.
    pub rounds: BTreeMap<u64, Parts>,
    /// Parts of earlier ones come too late.
    pub oldest_round: u64,
    /// Ranks that left, and how, in the order in which that became known.
    gone: Vec<(u32, String)>,
    /// What went wrong here, which the others are told when this process leaves.
    pub failed: Option<String>,
    pub peers: Vec<Peer>,
    /// Mesh connections to break.
    pub breaks: Vec<u32>,
    pub refusals: VecDeque<Refused>,
    log: LogBudget,
    pub closing: bool,
}

impl State {
    /// A rank left.
    pub fn lose(&mut self, rank: u32, why: String) {
        self.gone.retain(|(gone, _)| *gone != rank);
        self.gone.push((rank, why));
    }

    /// Of these ranks the one that left first, and how: the others may have left because of it.
    pub fn first_gone(&self, of: &[u32]) -> Option<(u32, String)> {
        self.gone.iter().find(|(rank, _)| of.contains(rank)).cloned()
    }

    /// Something went wrong here. What comes after the first is its consequence.
    pub fn fail(&mut self, why: &str) {
        self.failed.get_or_insert_with(|| why.chars().take(WHY_MAX).collect());
    }

    /// Peers that were never heard and are not known to have left, and why.
    pub fn unmet(&self) -> impl Iterator<Item = (u32, &LinkReason)> {
        let unheard = |link: &PeerLink| link.heard.is_none() && !link.up;
        let met = |rank: &u32| self.gone.iter().any(|(gone, _)| gone == rank);
        (0u32..)
            .zip(&self.peers)
            .filter(move |(rank, peer)| unheard(&peer.link) && !met(rank))
            .map(|(rank, peer)| (rank, &peer.link.reason))
    }
}

/// Lines of refusals that may still be logged in this second.
struct LogBudget {
    since: Instant,
    lines: u32,
    hidden: u64,
}

/// Characters of what went wrong here that the others are told at most.
const WHY_MAX: usize = 2000;
/// Lines of refusals in a second.
const LINES: u32 = 10;
/// Refusals that are remembered.
const REFUSALS_KEPT: usize = 64;
/// Messages that wait for one peer, or to be received.
const QUEUE_MAX: usize = 4096;
/// Their bytes.
const QUEUE_BYTES: usize = 64 << 20;

/// Messages that came in for a topic.
#[derive(Default)]
struct Inbox {
    /// Read without the lock: agents look often, and mostly in vain.
    count: AtomicUsize,
    queue: Mutex<Arrived>,
}

#[derive(Default)]
struct Arrived {
    /// Sender and bytes.
    messages: VecDeque<(u32, Vec<u8>)>,
    bytes: usize,
}

pub(super) struct Shared {
    pub rank: u32,
    pub world: u32,
    pub notices: Notices,
    state: Mutex<State>,
    pub changed: Condvar,
    waker: mio::Waker,
    /// The thread was woken and has not looked yet.
    woken: AtomicBool,
    inboxes: [Inbox; 2],
    /// By topic, then peer.
    /// By topic and peer: ways that are cut.
    cuts: [Vec<AtomicU8>; 2],
    refused: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    dropped: AtomicU64,
    cut: AtomicU64,
    gathered: AtomicU64,
}

impl Shared {
    pub fn new(rank: u32, world: u32, notices: Notices, waker: mio::Waker) -> Self {
        let now = Instant::now();
        let link = PeerLink { up: false, since: now, heard: None, reason: LinkReason::Connecting };
        let peers = (0..world).map(|_| Peer { link: link.clone(), queue: VecDeque::new(), queued: 0 });
        let cuts = || (0..world).map(|_| AtomicU8::new(NO_WAY)).collect();
        Self {
            rank,
            world,
            notices,
            state: Mutex::new(State {
                phase: Phase::Connecting("not tried yet".to_owned()),
                gives: VecDeque::new(),
                given: BTreeMap::new(),
                rounds: BTreeMap::new(),
                oldest_round: 0,
                gone: Vec::new(),
                failed: None,
                peers: peers.collect(),
                breaks: Vec::new(),
                refusals: VecDeque::new(),
                log: LogBudget { since: now, lines: 0, hidden: 0 },
                closing: false,
            }),
            changed: Condvar::new(),
            waker,
            woken: AtomicBool::new(false),
            inboxes: Default::default(),
            cuts: [cuts(), cuts()],
            refused: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            gathered: AtomicU64::new(0),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is whole by itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and tells who waits for it.
    pub fn update<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let answer = change(&mut self.lock());
        self.changed.notify_all();
        answer
    }

    /// Waits for a change, at most until `until`.
    pub fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Instant) -> MutexGuard<'a, State> {
        let left = until.saturating_duration_since(Instant::now());
        let answer = self.changed.wait_timeout(state, left);
        answer.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Makes the thread look at what it is to do.
    pub fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            // It fails where the descriptor is gone, and with it the thread.
            let _ = self.waker.wake();
        }
    }

    /// The thread looks now.
    pub fn looking(&self) {
        self.woken.store(false, Ordering::SeqCst);
    }

    /// Says a warning: through `tracing` if the program listens there, else as a notice.
    pub fn warn(&self, line: &str) {
        let silent = tracing::dispatcher::get_default(|to| to.is::<tracing::subscriber::NoSubscriber>());
        match silent {
            true => self.notices.say(line),
            false => tracing::warn!(rank = self.rank, "{line}"),
        }
    }

    /// Counts and logs a refused connection.
    pub fn refuse(&self, refused: Refused) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let line = format!("connection from {} refused: {}", refused.from, refused.reason);
        let mut state = self.lock();
        if state.refusals.len() == REFUSALS_KEPT {
            state.refusals.pop_front();
        }
        state.refusals.push_back(refused);
        let hidden = state.log.take();
        drop(state);
        match hidden {
            Some(0) => self.warn(&line),
            Some(hidden) => self.warn(&format!("{line} ({hidden} more were refused before it)")),
            None => {}
        }
    }

    /// True if all of these ways are cut.
    pub fn is_cut(&self, topic: Topic, peer: u32, ways: u8) -> bool {
        let cut = self.cuts[topic as usize].get(peer as usize);
        cut.is_some_and(|cut| cut.load(Ordering::SeqCst) & ways == ways)
    }

    /// Counts a datagram that a cut dropped.
    pub fn count_cut(&self, messages: usize) {
        self.cut.fetch_add(messages as u64, Ordering::Relaxed);
    }

    pub fn count_gathered(&self, bytes: usize) {
        self.gathered.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn count_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_dropped(&self, messages: usize) {
        self.dropped.fetch_add(messages as u64, Ordering::Relaxed);
    }

    pub fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            refused: read(&self.refused),
            sent: read(&self.sent),
            received: read(&self.received),
            dropped: read(&self.dropped),
            cut: read(&self.cut),
            gathered: read(&self.gathered),
        }
    }

    /// Cuts these ways and no others; what is under way on them is lost.
    pub fn set_cut(&self, topic: Topic, peer: u32, ways: u8) {
        let Some(cut) = self.cuts[topic as usize].get(peer as usize) else { return };
        cut.store(ways, Ordering::SeqCst);
        if ways & THERE != 0 {
            self.lose_outgoing(topic, peer);
        }
        if ways & BACK != 0 {
            self.lose_arrived(topic, peer);
        }
    }

    fn lose_outgoing(&self, topic: Topic, peer: u32) {
        let mut state = self.lock();
        let Peer { queue, queued, .. } = &mut state.peers[peer as usize];
        let before = queue.len();
        queue.retain(|message| message.topic != topic);
        *queued = queue.iter().map(|message| message.bytes.len()).sum();
        self.count_cut(before - queue.len());
    }

    fn lose_arrived(&self, topic: Topic, peer: u32) {
        let inbox = &self.inboxes[topic as usize];
        let mut arrived = inbox.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let before = arrived.messages.len();
        arrived.messages.retain(|(from, _)| *from != peer);
        arrived.bytes = arrived.messages.iter().map(|(_, bytes)| bytes.len()).sum();
        inbox.count.store(arrived.messages.len(), Ordering::SeqCst);
        self.count_cut(before - arrived.messages.len());
    }

    /// Queues a datagram. The oldest give way.
    pub fn send(&self, topic: Topic, to: u32, bytes: Vec<u8>) {
        if to >= self.world || bytes.len() > QUEUE_BYTES {
            return self.count_dropped(1);
        }
        if self.is_cut(topic, to, THERE) {
            return self.count_cut(1);
        }
        if to == self.rank {
            self.count_sent();
            return self.receive(topic, to, bytes);
        }
        let mut state = self.lock();
        let peer = &mut state.peers[to as usize];
        while peer.queue.len() >= QUEUE_MAX || peer.queued + bytes.len() > QUEUE_BYTES {
            peer.pop();
            self.count_dropped(1);
        }
        peer.queued += bytes.len();
        peer.queue.push_back(Message { topic, at: Instant::now(), bytes });
        drop(state);
        self.wake();
    }

    /// A datagram came in. The oldest give way.
    pub fn receive(&self, topic: Topic, from: u32, bytes: Vec<u8>) {
        if self.is_cut(topic, from, BACK) {
            return self.count_cut(1);
        }
        self.received.fetch_add(1, Ordering::Relaxed);
        let inbox = &self.inboxes[topic as usize];
        let mut arrived = inbox.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while arrived.messages.len() >= QUEUE_MAX * self.world as usize
            || arrived.bytes + bytes.len() > 4 * QUEUE_BYTES
        {
            let Some((_, old)) = arrived.messages.pop_front() else { break };
            arrived.bytes -= old.len();
            self.count_dropped(1);
        }
        arrived.bytes += bytes.len();
        arrived.messages.push_back((from, bytes));
        inbox.count.store(arrived.messages.len(), Ordering::SeqCst);
    }

    /// The oldest datagram that came in.
    pub fn take(&self, topic: Topic) -> Option<(u32, Vec<u8>)> {
        let inbox = &self.inboxes[topic as usize];
        if inbox.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut arrived = inbox.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let message = arrived.messages.pop_front()?;
        arrived.bytes -= message.1.len();
        inbox.count.store(arrived.messages.len(), Ordering::SeqCst);
        Some(message)
    }
}

impl LogBudget {
    /// How many lines were hidden before this one; `None` hides this one.
    fn take(&mut self) -> Option<u64> {
        if self.since.elapsed() >= Duration::from_secs(1) {
            (self.since, self.lines) = (Instant::now(), 0);
        }
        if self.lines == LINES {
            self.hidden += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.hidden))
    }
}
