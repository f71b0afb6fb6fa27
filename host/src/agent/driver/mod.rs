//! What joins the machines. [`Agent`] holds them all; each file here routes what one of them decides to those who carry
//! it out.
//!
//! One [`Agent::step`] looks at everything once: port events, messages of other agents, requests of switchers, the
//! lives of pairs that are not ready, and channels that no kernel looks after. It calls no CUDA function.

mod admin;
mod atomics;
mod datagrams;
mod destroys;
mod fence;
mod localize;
mod membership;
mod nics;
mod pool;
mod ports;
mod proof;
mod reconnect;
mod release;
mod reports;
mod restore;
mod status;
mod take;

use super::age::Age;
use super::agreement::Agreement;
use super::atomic_owner::AtomicOwner;
use super::checkpoint::{Checkpoint, CheckpointCell, NicEvent};
use super::datagram_renewal::Renewal;
use super::destroy_queue::DestroyQueue;
use super::fault_localizer::FaultLocalizer;
use super::health::{Action, Health, Observation};
use super::message::{Message, PairId};
use super::nic_dispatch::Nics;
use super::nic_job::{JobId, Outcome};
use super::options::{AgentOptions, Settings};
use super::pair::Pair;
use super::path_pool::PathPool;
use super::path_proof::Proofs;
use super::port_table::PortTable;
use super::rails::arrival::Arrival;
use super::rails::{Heard, Links, Reach};
use super::reader::Cursor;
use super::reporter::Reporter;
use super::status_page::StatusBoard;
use super::words::{Place, StateWords};
use super::worker::{Crew, Threads};
use crate::events::{Event, Watching};
use crate::nanos::Nanos;
use crate::nic::half::HalfPath;
use crate::nic::qp::QpTuning;
use crate::nic::queue::At;
use crate::pe::Pe;
use crate::rail::{self, Rail};
use crate::ranks;
use shunt_device::{AbiMismatch, Patience};
use shunt_layout::mutant::Mutant;
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages taken in one step.
const HEARD_MAX: usize = 256;

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
            let now = self.world().now_ns().into();
            agent.be_watched(now, &watching, endpoint.as_ref().map(|endpoint| endpoint.metrics()));
        }
        Ok(agent)
    }
}

/// What has arrived for an agent.
#[derive(Default)]
pub struct Inputs {
    /// What the workers have done, by rail.
    outcomes: VecDeque<(usize, JobId, Outcome)>,
    /// What was read of the NICs' events, by rail.
    pub(super) events: VecDeque<NicEvent>,
    /// What other agents sent, at most [`HEARD_MAX`] messages.
    pub(super) arrivals: VecDeque<Arrival>,
}

/// The agent of one PE.
pub struct Agent {
    words: StateWords,
    rails: Vec<Arc<Rail>>,
    pairs: Vec<Option<Pair>>,
    spares: Vec<Option<At>>,
    tuning: QpTuning,
    links: Links,
    localizer: FaultLocalizer,
    /// By rail: what is being done about its datagrams.
    renewals: Vec<Renewal>,
    /// As it was given.
    given: AgentOptions,
    options: Settings,
    ports: PortTable,
    pool: PathPool,
    owner: AtomicOwner,
    /// One a channel: silence on one must not hide behind traffic on another.
    patience: Vec<Patience>,
    age: Age,
    /// The same for patience: neither a jump of the clock nor a pause of this process is somebody else's silence.
    awake: Age,
    next_row: usize,
    /// By peer: since when it owes an answer, as the agent was awake; none once it said anything.
    unanswered: Vec<Option<Nanos>>,
    /// By peer: when it last said anything, likewise.
    heard_ns: Vec<Nanos>,
    next_touch_ns: Nanos,
    wake_seen: u64,
    requests_seen: Vec<u64>,
    records_seen: Cursor,
    reporter: Reporter,
    /// What others look at, if anybody asked for it.
    board: Option<Box<StatusBoard>>,
    proofs: Proofs,
    agreement: Agreement,
    nics: Nics,
    destroys: DestroyQueue<Arc<HalfPath>>,
    /// Agents of this PE so far, with this one.
    lives: u32,
    /// What has arrived and was not looked at: of a step that panics, the next agent looks at the rest.
    arrived: Inputs,
    /// When it last looked.
    looked_ns: Nanos,
    /// Where the next agent will find what outlives this one.
    cell: CheckpointCell,
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
        let Some(kept) = take::take(pe, crew) else { return Ok(None) };
        // SAFETY: the state was uploaded and read back; it is mapped as long as the `Pe`, which callers keep longer
        // than its agent (both live in the thread or coroutine that runs the PE).
        let words = unsafe { StateWords::new(pe.state(), pe.world().clone()) }?;
        let root = *words.root();
        let rows = kept.spares.len();
        let mut ports = PortTable::new(root.pe_count, root.rails);
        ports.keep_words(&kept.port_words);
        let rails_of = pe.peers().iter().map(|peer| peer.rails.len() as u32).collect();
        let now = Nanos::new(words.world().now_ns());
        let mut agent = Self {
            ports,
            pool: PathPool::new(root.my_pe, rails_of, rows),
            owner: AtomicOwner::new(root.channels_per_pe as usize, rows, kept.unfenced),
            patience: vec![Patience::new(now.get()); rows],
            age: Age::new(now),
            awake: Age::new(now),
            next_row: 0,
            unanswered: vec![None; root.pe_count as usize],
            heard_ns: vec![Nanos::ZERO; root.pe_count as usize],
            next_touch_ns: Nanos::ZERO,
            wake_seen: 0,
            requests_seen: vec![0; rows],
            records_seen: kept.records_seen,
            reporter: kept.reporter,
            board: kept.board,
            proofs: Proofs::default(),
            agreement: Agreement::new(pe.ranks(), kept.lives > 0),
            words,
            rails: pe.rails().to_vec(),
            pairs: kept.pairs.into_iter().map(|held| held.map(|held| Pair::found(held, now))).collect(),
            spares: kept.spares,
            tuning: pe.config().tuning,
            links: Links::new(pe, kept.oob, kept.addresses),
            localizer: FaultLocalizer::default(),
            renewals: vec![Renewal::default(); pe.rails().len()],
            given: options,
            options: options.into(),
            nics: kept.nics,
            destroys: kept.destroys,
            lives: kept.lives + 1,
            arrived: Inputs { events: kept.events, arrivals: kept.arrivals, ..Inputs::default() },
            looked_ns: now,
            cell: pe.checkpoint().clone(),
            ended: false,
            taking_over: false,
        };
        if agent.lives > 1 {
            agent.taking_over = true;
            return Ok(Some(agent));
        }
        agent.introduce(now);
        for remark in rail::remarks(pe.rails()) {
            agent.note(now, remark);
        }
        for detail in pe.rails().iter().map(|rail| &rail.datagram_detail).filter(|text| !text.is_empty()) {
            agent.note(now, detail.clone());
        }
        Ok(Some(agent))
    }

    /// What has arrived since the last step. Read it first and the clock afterwards: what a step is told is then never
    /// younger than the time it is told, and nothing that must last a packet lifetime begins too early.
    pub fn inputs(&mut self) -> Inputs {
        if self.taking_over {
            self.nics.take_over();
        }
        let mut inputs = std::mem::take(&mut self.arrived);
        inputs.outcomes.extend(self.nics.take_done());
        for (rail, one) in self.rails.iter().enumerate() {
            loop {
                let event = one.devx.next_event();
                let last = !matches!(event, Ok(Some(_)));
                // An empty queue is told only of a NIC whose events could not be read: now they can.
                if !matches!(event, Ok(None)) || self.ports.is_silent(rail) {
                    inputs.events.push_back((rail as u32, event));
                }
                if last {
                    break;
                }
            }
        }
        // No more at a time: a flood of words is not to keep the agent from its other work.
        for _ in 0..HEARD_MAX {
            if !self.links.receive(&mut inputs.arrivals) {
                break;
            }
        }
        inputs
    }

    /// Looks at everything once, at `now`. True if there was something to do, so that an idle thread may sleep. Then
    /// comes [`Agent::hand_on`].
    pub fn step(&mut self, now: Nanos, inputs: Inputs) -> bool {
        self.arrived = inputs;
        self.looked_ns = now;
        self.awake.grow(now, self.options.nic_ns / 8 + Nanos::new(1));
        self.age.grow(now, self.options.lifetime_ns / 8 + Nanos::new(1));
        if std::mem::take(&mut self.taking_over) {
            self.take_over(now);
        }
        let mut busy = false;
        while let Some((rail, id, outcome)) = self.arrived.outcomes.pop_front() {
            self.outcome(now, rail, id, outcome);
            busy = true;
        }
        busy |= self.poll_ports(now);
        while let Some(arrival) = self.arrived.arrivals.pop_front() {
            let Some(heard) = self.links.hear(now, arrival) else { continue };
            busy = true;
            match heard {
                Heard::Message(from, bytes) => self.take(now, from, &bytes),
                Heard::Pong(pong) => self.answered(now, pong),
            }
        }
        busy |= self.scan_requests(now);
        for index in 0..self.pairs.len() {
            busy |= self.progress(now, index);
        }
        busy |= self.mind_homes(now);
        busy |= self.mind_pool(now);
        busy |= self.mind_destroys(now);
        busy |= self.mind_proofs(now);
        busy |= self.localize(now);
        busy |= self.agree_on_ranks(now);
        if !Mutant::SilentNotTouched.on() {
            self.touch_the_silent(now);
        }
        let looks = if Mutant::AgentNeverSwitches.on() { 0 } else { self.options.looks };
        for _ in 0..looks.min(self.patience.len()) {
            self.next_row = (self.next_row + 1) % self.patience.len();
            self.words.attend_to(self.next_row as u32, &mut self.patience[self.next_row]);
        }
        busy
    }

    /// A message arrived, over whichever link.
    fn take(&mut self, now: Nanos, from: u32, bytes: &[u8]) {
        if let Some(since) = self.unanswered.get_mut(from as usize) {
            *since = None;
            self.heard_ns[from as usize] = self.awake.age_ns;
        }
        if ranks::message::Message::is_one(bytes) {
            return self.hear_of_ranks(now, from, bytes);
        }
        match Message::from_bytes(bytes) {
            Ok(message) => self.receive(now, from, message),
            Err(error) => self.report(now, Event::MessageRefused { peer: from, error: error.to_string() }),
        }
    }

    /// What the operator should know of the agents' second link.
    pub(in crate::agent) fn tell_of_rails(&mut self, now: Nanos) {
        self.mind_datagrams(now);
        match self.links.take_strangers() {
            0 => {}
            count => {
                self.note(now, format!("{count} datagram(s) on the rails were none of this job's agents"))
            }
        }
    }

    /// The agent dies here, as a panic or a fault has it: it tells nobody, and all it knew is lost. What lies in memory
    /// and in NICs stays; `Agent::new` gives it to the next agent of the PE.
    pub fn abandon(mut self) {
        self.ended = true;
        let (oob, addresses) = self.links.give_up();
        let unfenced = self.owner.all_unfenced();
        let Inputs { outcomes, events, arrivals } = std::mem::take(&mut self.arrived);
        self.nics.give_back(outcomes.into_iter());
        let kept = Checkpoint {
            pairs: self.pairs.drain(..).map(|pair| pair.map(Pair::left)).collect(),
            spares: std::mem::take(&mut self.spares),
            oob,
            addresses,
            port_words: self.ports.words(),
            nics: std::mem::take(&mut self.nics),
            destroys: std::mem::take(&mut self.destroys),
            unfenced,
            reporter: std::mem::replace(&mut self.reporter, Reporter::new(self.words.root().my_pe, 0)),
            records_seen: self.records_seen,
            board: self.board.take(),
            events,
            arrivals,
            lives: self.lives,
        };
        self.cell.put(kept);
    }

    /// When it last looked.
    pub(super) const fn looked(&self) -> Nanos {
        self.looked_ns
    }

    /// The options that it was given.
    pub(super) const fn given(&self) -> AgentOptions {
        self.given
    }

    /// Hands on every event now.
    pub(super) fn release_events(&mut self) {
        self.reporter.release_all();
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
    fn note(&mut self, now: Nanos, text: String) {
        self.report(now, Event::Remark { text });
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

    fn tell(&mut self, now: Nanos, index: usize, message: Message) {
        let peer = self.place(index).peer;
        self.links.send(now, peer, message.to_bytes(), Reach::Link, &self.ports);
    }

    /// The lower PE leads a revival (rule 17).
    fn leads(&self, index: usize) -> bool {
        self.words.root().my_pe < self.place(index).peer
    }

    /// Moves a pair along the health table; answers with what to do.
    fn observe(&mut self, now: Nanos, index: usize, what: Observation) -> Action {
        let Some(pair) = &mut self.pairs[index] else { return Action::Keep };
        let (next, action) = pair.health.observe(what);
        if next != pair.health {
            let before_ns = std::mem::replace(&mut pair.since_ns, now);
            pair.health = next;
            self.moved(now, index, what, next, before_ns);
        }
        action
    }

    fn receive(&mut self, now: Nanos, from: u32, message: Message) {
        let (id, made) = match message {
            Message::Port { rail, down, at_ns } => {
                return self.peer_port(now, from, rail, down, at_ns.into());
            }
            Message::Rail { card, at_ns } => return self.peer_rail(from, card, at_ns.into()),
            Message::Retire(id, _) | Message::Readmit(id, _) | Message::Vacate(id) => (id, false),
            Message::Home { channel, home } => return self.adopt_home(now, from, channel, home),
            Message::AskHome { channel, version, rails, pressing } => {
                return self.home_asked(now, from, channel, version, rails, pressing);
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
            return self.note(now, format!("PE {from} names a pair that does not exist: {id:?}"));
        }
        let index = self.index(Place { peer: from, channel: id.channel, slot: id.slot });
        if self.pairs[index].is_none() {
            return self.note(now, format!("PE {from} names a pair that does not exist: {id:?}"));
        }
        if made {
            self.receive_revival(now, index, id, message)
        } else {
            self.receive_fence(now, index, id, message)
        }
    }

    fn scan_requests(&mut self, now: Nanos) -> bool {
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
            self.ask_fence(now, Place { peer, channel, slot: request.slot }, request);
        }
        true
    }

    /// Carries one pair on.
    fn progress(&mut self, now: Nanos, index: usize) -> bool {
        match self.pairs[index].as_ref().map(|pair| pair.health) {
            Some(Health::Ready) => self.mind_leaving(now, index),
            None | Some(Health::Retired) => false,
            Some(Health::Fencing) => {
                let busy = self.await_truth(now, index);
                self.say_in_hand(index);
                busy
            }
            Some(Health::Fenced) => self.await_left(now, index),
            Some(Health::Released) => self.rest(now, index),
            Some(Health::Connecting) => self.await_connected(now, index),
            Some(Health::Probing) => self.probe(now, index),
        }
    }
}
