//! The agent: the host thread that fences, revives and informs. Never on the no-fault data path.
//!
//! One [`Agent::step`] looks at everything once: port events, messages of other agents, requests of switchers, the
//! lives of pairs that are not ready, and channels that no kernel looks after. It calls no CUDA function.

mod age;
mod agree;
mod board;
mod chain;
pub mod desk;
mod fence;
mod graves;
mod homes;
mod jobs;
pub mod keeper;
pub(crate) mod kept;
pub mod message;
mod news;
mod operator;
pub mod pair;
mod ports;
mod proofs;
pub mod rails;
pub mod reader;
mod restart;
mod revive;
mod trial;
mod vacate;
pub mod words;
pub mod worker;

use crate::events::{Event, Watching};
use crate::nic::qp::QpTuning;
use crate::nic::queue::At;
use crate::pe::{PROVE_NS, Pe};
use crate::rail::{self, Rail};
use crate::ranks;
use age::Age;
use kept::Estate;
use message::{Message, PairId};
use pair::Pair;
use rails::locate::Locator;
use rails::renew::Renewal;
use rails::{Heard, Links, Reach};
use shunt_device::health::{Action, Health, Observation};
use shunt_device::{AbiMismatch, Patience};
use shunt_layout::mutant::Mutant;
use std::sync::Arc;
use words::{Place, StateWords};
use worker::{Crew, Threads};

/// Messages taken in one step.
const HEARD_MAX: usize = 256;

/// The agent's own patience. All times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentOptions {
    /// Packet lifetime (`SHUNT_MPL`): nothing a fenced QP sent is in the network after it.
    pub lifetime_ns: u64,
    /// How long the peer's half of a fence is awaited before it counts as silent.
    pub peer_ns: u64,
    /// How long a NIC of this PE may owe an answer to a command before its pairs count as not fenced here.
    pub nic_ns: u64,
    /// When a peer that should have answered is told again, over the rails as well.
    pub doubt_ns: u64,
    /// When it is told once more; doubled each time, up to a quarter of `peer_ns`.
    pub resend_ns: u64,
    /// Good probes wanted before a path made anew may be used.
    pub probes: u32,
    /// Time between probes.
    pub probe_ns: u64,
    /// Longest a revival may take from its first half to its last probe.
    pub revive_ns: u64,
    /// First pause after a failed revival, doubled with each failure.
    pub backoff_ns: u64,
    /// Time between looks at a port that is down, in case its event was lost.
    pub port_poll_ns: u64,
    /// Time between two looks for peers whose agent is out of reach; the largest number: none is made.
    pub touch_ns: u64,
    /// Channels looked after in one step; 0 leaves every switch to the kernels.
    pub looks: usize,
    /// How long after its start the agent has idle backups proved; the largest number: never.
    pub prove_ns: u64,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            lifetime_ns: 50_000_000,
            peer_ns: 500_000_000,
            nic_ns: 200_000_000,
            doubt_ns: 2_000_000,
            resend_ns: 10_000_000,
            probes: 3,
            probe_ns: 1_000_000,
            revive_ns: 2_000_000_000,
            backoff_ns: 20_000_000,
            port_poll_ns: 100_000_000,
            touch_ns: 20_000_000,
            looks: 64,
            prove_ns: PROVE_NS,
        }
    }
}

impl Pe {
    /// The agent of this PE: `None` while it has one. It is watched as the environment asks. Run its [`Agent::step`] in
    /// a thread (or a coroutine) that ends before the `Pe` does.
    ///
    /// # Errors
    /// [`AbiMismatch`] if the uploaded state is not of this version.
    pub fn agent(&self) -> Result<Option<Agent>, AbiMismatch> {
        let (lifetime_ns, probes) = (self.config().packet_lifetime_ns, self.config().probes);
        let prove_ns = self.config().prove_ns;
        let mut options = AgentOptions { lifetime_ns, probes, prove_ns, ..AgentOptions::default() };
        if !self.config().agent_switches {
            (options.looks, options.touch_ns) = (0, u64::MAX);
        }
        let mut agent = Agent::new(self, options, &Threads)?;
        // One that follows another is watched as that one was.
        if let Some(agent) = agent.as_mut().filter(|agent| agent.lives == 1) {
            let watching = Watching::from_env();
            let endpoint = watching.endpoint();
            agent.be_watched(&watching, endpoint.as_ref().map(|endpoint| endpoint.metrics()));
        }
        Ok(agent)
    }
}

/// The agent of one PE.
pub struct Agent {
    words: StateWords,
    rails: Vec<Arc<Rail>>,
    pairs: Vec<Option<Pair>>,
    spares: Vec<Option<At>>,
    tuning: QpTuning,
    links: Links,
    locator: Locator,
    /// By rail: what is being done about its datagrams.
    renewals: Vec<Renewal>,
    options: AgentOptions,
    ports: ports::Ports,
    chains: chain::Chains,
    homes: homes::Homes,
    /// One a channel: silence on one must not hide behind traffic on another.
    patience: Vec<Patience>,
    age: Age,
    /// The same for patience: neither a jump of the clock nor a pause of this process is somebody else's silence.
    awake: Age,
    next_row: usize,
    /// By peer: since when it owes an answer, as the agent was awake; none once it said anything.
    unanswered: Vec<Option<u64>>,
    /// By peer: when it last said anything, likewise.
    heard_ns: Vec<u64>,
    next_touch_ns: u64,
    wake_seen: u64,
    requests_seen: Vec<u64>,
    records_seen: reader::Cursor,
    news: news::News,
    proofs: proofs::Proofs,
    agreement: agree::Agreement,
    /// By rail: who does the work there.
    posts: Vec<jobs::Post>,
    /// Jobs given so far.
    jobs: u64,
    graves: Vec<graves::Grave>,
    /// Agents of this PE so far, with this one.
    lives: u32,
    /// Where the next agent will find what outlives this one.
    estate: Estate,
    /// It is gone: it says nothing any more.
    ended: bool,
    /// It has not looked yet at what the last agent left.
    taking_over: bool,
}

impl Agent {
    /// The agent of a PE that is up: the first finds paths ready, incarnation 1, or to be made; `crew` runs a worker of
    /// each NIC. One after [`Agent::abandon`] finds what the last one left. `None` while the PE has one.
    ///
    /// # Errors
    /// [`AbiMismatch`] if the uploaded state is not of this version.
    pub fn new(pe: &Pe, options: AgentOptions, crew: &dyn Crew) -> Result<Option<Self>, AbiMismatch> {
        let Some(kept) = pe.estate().take(pe, crew) else { return Ok(None) };
        // SAFETY: the state was uploaded and read back; it is mapped as long as the `Pe`, which callers keep longer
        // than its agent (both live in the thread or coroutine that runs the PE).
        let words = unsafe { StateWords::new(pe.state(), pe.world().clone()) }?;
        let root = *words.root();
        let rows = kept.spares.len();
        let mut ports = ports::Ports::new(root.pe_count, root.rails);
        ports.keep_words(&kept.port_words);
        let rails_of = pe.peers().iter().map(|peer| peer.rails.len() as u32).collect();
        let now_ns = words.world().now_ns();
        let mut agent = Self {
            ports,
            chains: chain::Chains::new(rails_of, rows),
            homes: homes::Homes::new(root.channels_per_pe as usize, rows, kept.haunted),
            patience: vec![Patience::new(now_ns); rows],
            age: Age::new(now_ns),
            awake: Age::new(now_ns),
            next_row: 0,
            unanswered: vec![None; root.pe_count as usize],
            heard_ns: vec![0; root.pe_count as usize],
            next_touch_ns: 0,
            wake_seen: 0,
            requests_seen: vec![0; rows],
            records_seen: kept.records_seen,
            news: kept.news,
            proofs: proofs::Proofs::default(),
            agreement: agree::Agreement::new(pe.ranks(), kept.lives > 0),
            words,
            rails: pe.rails().to_vec(),
            pairs: kept.pairs.into_iter().map(|held| held.map(|held| Pair::found(held, now_ns))).collect(),
            spares: kept.spares,
            tuning: pe.config().tuning,
            links: Links::new(pe, kept.oob, kept.addresses),
            locator: Locator::default(),
            renewals: vec![Renewal::default(); pe.rails().len()],
            options,
            posts: kept.posts,
            jobs: kept.jobs,
            graves: kept.graves,
            lives: kept.lives + 1,
            estate: pe.estate().clone(),
            ended: false,
            taking_over: false,
        };
        if agent.lives > 1 {
            agent.taking_over = true;
            return Ok(Some(agent));
        }
        agent.introduce();
        for remark in rail::remarks(pe.rails()) {
            agent.note(remark);
        }
        for detail in pe.rails().iter().map(|rail| &rail.datagram_detail).filter(|text| !text.is_empty()) {
            agent.note(detail.clone());
        }
        Ok(Some(agent))
    }

    /// Looks at everything once. True if there was something to do, so that an idle thread may sleep a little.
    pub fn step(&mut self) -> bool {
        self.grow_older();
        if std::mem::take(&mut self.taking_over) {
            self.take_over();
        }
        let mut busy = self.take_outcomes();
        busy |= self.poll_ports();
        // No more at a time: a flood of words is not to keep the agent from its other work.
        for _ in 0..HEARD_MAX {
            let Some(heard) = self.links.try_recv() else { break };
            busy = true;
            match heard {
                Heard::Message(from, bytes) => self.take(from, &bytes),
                Heard::Pong(pong) => self.answered(pong),
            }
        }
        busy |= self.scan_requests();
        for index in 0..self.pairs.len() {
            busy |= self.progress(index);
        }
        busy |= self.mind_homes();
        busy |= self.mind_chains();
        busy |= self.mind_graves();
        busy |= self.mind_proofs();
        busy |= self.locate();
        busy |= self.agree_on_ranks();
        if !Mutant::SilentNotTouched.on() {
            self.touch_the_silent();
        }
        let looks = if Mutant::AgentNeverSwitches.on() { 0 } else { self.options.looks };
        for _ in 0..looks.min(self.patience.len()) {
            self.next_row = (self.next_row + 1) % self.patience.len();
            self.words.attend_to(self.next_row as u32, &mut self.patience[self.next_row]);
        }
        self.gather();
        busy
    }

    /// A message arrived, over whichever link.
    fn take(&mut self, from: u32, bytes: &[u8]) {
        if let Some(since) = self.unanswered.get_mut(from as usize) {
            *since = None;
            self.heard_ns[from as usize] = self.awake.age_ns;
        }
        if ranks::message::Message::is_one(bytes) {
            return self.hear_of_ranks(from, bytes);
        }
        match Message::from_bytes(bytes) {
            Ok(message) => self.receive(from, message),
            Err(error) => self.report(Event::MessageRefused { peer: from, error: error.to_string() }),
        }
    }

    /// Puts something on the wire to peers whose agent neither link reaches. If only the agents are silent, that
    /// changes nothing; if the process is gone, its channels fail now and not at the next put: a kernel that waits
    /// for such a peer's signal has nothing outstanding to notice it by.
    fn touch_the_silent(&mut self) {
        let now = self.now();
        if now < self.next_touch_ns || self.options.touch_ns == u64::MAX {
            return;
        }
        let (pes, per, me) = {
            let root = self.words.root();
            (root.pe_count, root.channels_per_pe, root.my_pe)
        };
        let mut pause_ns = self.options.touch_ns;
        for peer in (0..pes).filter(|peer| *peer != me) {
            if !self.links.reachable(peer, &self.ports) {
                (0..per).for_each(|channel| {
                    self.words.touch(peer * per + channel);
                });
            } else if self.links.in_question(peer) {
                pause_ns = pause_ns.min(self.options.touch_ns / 4);
            }
        }
        self.next_touch_ns = now.saturating_add(pause_ns);
        self.tell_of_rails();
    }

    /// What the operator should know of the agents' second link.
    fn tell_of_rails(&mut self) {
        self.mind_datagrams();
        match self.links.take_strangers() {
            0 => {}
            count => self.note(format!("{count} datagram(s) on the rails were none of this job's agents")),
        }
    }

    /// Switch records since the last call, and how many were lost.
    pub fn records(&mut self) -> (Vec<shunt_layout::state::SwitchRecord>, u64) {
        self.words.records_since(&mut self.records_seen)
    }

    /// The view of the device state.
    pub fn words(&self) -> &StateWords {
        &self.words
    }

    /// Health of a pair.
    pub fn health(&self, at: Place) -> Option<Health> {
        self.pairs.get(self.index(at))?.as_ref().map(|pair| pair.health)
    }

    /// Says what has no event of its own.
    fn note(&mut self, text: String) {
        self.report(Event::Remark { text });
    }

    fn now(&self) -> u64 {
        self.words.world().now_ns()
    }

    /// Lets the agent's age follow the clock; answers with it.
    fn grow_older(&mut self) -> u64 {
        let (now, lifetime_ns) = (self.now(), self.options.lifetime_ns);
        self.awake.grow(now, self.options.nic_ns / 8 + 1);
        self.age.grow(now, lifetime_ns / 8 + 1)
    }

    fn index(&self, at: Place) -> usize {
        let root = self.words.root();
        ((at.peer * root.channels_per_pe + at.channel) * root.slots + at.slot) as usize
    }

    fn place(&self, index: usize) -> Place {
        let (root, index) = (self.words.root(), index as u32);
        let row = index / root.slots;
        Place {
            peer: row / root.channels_per_pe,
            channel: row % root.channels_per_pe,
            slot: index % root.slots,
        }
    }

    fn id(&self, index: usize) -> PairId {
        let at = self.place(index);
        let incarnation = self.pairs[index].as_ref().map_or(0, |pair| pair.incarnation);
        PairId { channel: at.channel, slot: at.slot, incarnation }
    }

    fn tell(&mut self, index: usize, message: Message) {
        let peer = self.place(index).peer;
        self.links.send(peer, message.to_bytes(), Reach::Link, &self.ports);
    }

    /// The lower PE leads a revival (rule 17).
    fn leads(&self, index: usize) -> bool {
        self.words.root().my_pe < self.place(index).peer
    }

    /// Moves a pair along the health table; answers with what to do.
    fn observe(&mut self, index: usize, what: Observation) -> Action {
        let now = self.now();
        let Some(pair) = &mut self.pairs[index] else { return Action::Keep };
        let (next, action) = pair.health.observe(what);
        if next != pair.health {
            let before_ns = std::mem::replace(&mut pair.since_ns, now);
            pair.health = next;
            self.moved(index, what, next, before_ns);
        }
        action
    }

    fn receive(&mut self, from: u32, message: Message) {
        let (id, made) = match message {
            Message::Port { rail, down, at_ns } => return self.peer_port(from, rail, down, at_ns),
            Message::Rail { card, at_ns } => return self.peer_rail(from, card, at_ns),
            Message::Retire(id, _) | Message::Readmit(id, _) | Message::Vacate(id) => (id, false),
            Message::Home { channel, home } => return self.adopt_home(from, channel, home),
            Message::AskHome { channel, version, rails, pressing } => {
                return self.home_asked(from, channel, version, rails, pressing);
            }
            Message::Fence(id) | Message::Leave(id) | Message::Truth(id, _) | Message::Left(id) => {
                (id, false)
            }
            Message::Make(id, ..) | Message::Made(id, ..) | Message::Up(id) | Message::Proved(id) => {
                (id, true)
            }
        };
        let root = self.words.root();
        if from >= root.pe_count || id.channel >= root.channels_per_pe || id.slot >= root.slots {
            return self.note(format!("PE {from} names a pair that does not exist: {id:?}"));
        }
        let index = self.index(Place { peer: from, channel: id.channel, slot: id.slot });
        if self.pairs[index].is_none() {
            return self.note(format!("PE {from} names a pair that does not exist: {id:?}"));
        }
        if made { self.receive_revival(index, id, message) } else { self.receive_fence(index, id, message) }
    }

    fn scan_requests(&mut self) -> bool {
        let wake = self.words.wake();
        if wake == self.wake_seen {
            return false;
        }
        self.wake_seen = wake;
        let (pes, per, slots) =
            (self.words.root().pe_count, self.words.root().channels_per_pe, self.words.root().slots);
        for row in 0..pes * per {
            let (peer, channel) = (row / per, row % per);
            let request = self.words.request(peer, channel);
            if request.number == self.requests_seen[row as usize] || request.slot >= slots {
                continue;
            }
            self.requests_seen[row as usize] = request.number;
            self.ask_fence(Place { peer, channel, slot: request.slot }, request);
        }
        true
    }

    /// Carries one pair on.
    fn progress(&mut self, index: usize) -> bool {
        match self.pairs[index].as_ref().map(|pair| pair.health) {
            Some(Health::Ready) => self.mind_leaving(index),
            None | Some(Health::Retired) => false,
            Some(Health::Fencing) => {
                let busy = self.await_truth(index);
                self.say_in_hand(index);
                busy
            }
            Some(Health::Fenced) => self.await_left(index),
            Some(Health::Released) => self.rest(index),
            Some(Health::Connecting) => self.await_connected(index),
            Some(Health::Probing) => self.probe(index),
        }
    }
}
