//! What joins the machines. [`Agent`] holds the engine and the channels it works for; each file here routes what one
//! machine decides to those who carry it out.
//!
//! One [`Agent::step`] looks at everything once: port events, messages of other agents, requests of switchers, paths
//! that are not ready, and channels that no kernel looks after. It calls no CUDA function.

mod datagrams;
mod fetches;
mod hand_on;
mod homes;
mod localize;
mod look;
mod membership;
mod orders;
mod ports;
mod proof;
mod requests;
mod restore;
mod slots;
mod status;
mod take;
mod watch;

use super::agreement::Agreement;
use super::atomic_owner::AtomicOwner;
use super::channels::Channels;
use super::checkpoint::{Checkpoint, CheckpointCell, NicEvent, PairCheckpoint};
use super::engine::{Engine, Parts};
use super::health::Health;
use super::links::arrival::Arrival;
use super::links::{Heard, LinkParts, Links, PeerAddress};
use super::message::Message;
use super::nic_job::{JobId, Outcome};
use super::options::AgentOptions;
use super::path::PathMachine;
use super::path_pool::PathPool;
use super::port_table::PortTable;
use super::reader::Cursor;
use super::recovery::Recovery;
use super::reporter::Reporter;
use super::status_page::StatusBoard;
use super::words::{Place, StateWords};
use super::worker::{Crew, Threads};
use crate::connect::oob::Oob;
use crate::events::control::Order;
use crate::events::{Event, Sink, Told, Watching};
use crate::nanos::Nanos;
use crate::pe::{Pe, PeerInfo};
use crate::ranks;
use shunt_device::{AbiMismatch, StallDetector};
use shunt_layout::mutant::Mutant;
use std::collections::VecDeque;

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
        if self.config().host_channels == Some(0) {
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
    recovery: Recovery,
    /// As it was given.
    given: AgentOptions,
    /// One a channel: silence on one must not hide behind traffic on another.
    stalls: Vec<StallDetector>,
    next_row: usize,
    next_touch: Nanos,
    wake_seen: u64,
    records_seen: Cursor,
    /// What others look at, if anybody asked for it.
    board: Option<Box<StatusBoard>>,
    agreement: Agreement,
    /// Agents of this PE so far, with this one.
    lives: u32,
    /// What has arrived and was not looked at: of a step that panics, the next agent looks at the rest.
    arrived: Inputs,
    /// When it last looked.
    looked: Nanos,
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
        let words = unsafe { StateWords::new(pe.host_state(), pe.world().clone()) }?;
        let (root, rows) = (*words.root(), kept.spares.len());
        let mut ports = PortTable::new(root.pe_count, root.rails);
        ports.keep_words(&kept.port_words);
        let rails_of = pe.peers().iter().map(|peer| peer.rails.len() as u32).collect();
        let now = Nanos::new(words.world().now_ns());
        let channels = Channels {
            pool: PathPool::new(root.my_pe, rails_of, rows),
            atomics: AtomicOwner::new(root.channels_per_pe as usize, rows, kept.unfenced),
            reporter: kept.reporter,
            rings: kept.pairs.iter().map(|held| held.as_ref().map(|held| held.rings)).collect(),
            spares: kept.spares,
            entered_before: Channels::entered_by_nobody(&root),
            left_before: Channels::left_at_start(&root),
            requests_seen: vec![0; rows],
            fetches: fetches::of(pe),
            tuning: pe.config().tuning,
            words,
        };
        let parts = Parts {
            world: pe.world().clone(),
            rails: pe.rails().to_vec(),
            ports,
            links: Links::new(link_parts(pe, kept.oob), kept.addresses),
            nics: kept.nics,
            destroys: kept.destroys,
            timing: options.timing(&root.policy, root.slots),
            nic_patience: options.nic_ns.into(),
            peers: root.pe_count as usize,
        };
        let mut engine = Engine::new(parts, now);
        for (key, held) in kept.pairs.into_iter().enumerate() {
            let peer = channels.place(key).peer;
            engine
                .paths_mut()
                .add(peer, held.map(|held| PathMachine::found(held.start, root.my_pe < peer, now)));
        }
        let mut agent = Self {
            recovery: Recovery { engine, channels },
            given: options,
            stalls: vec![StallDetector::new(now.get()); rows],
            next_row: 0,
            next_touch: Nanos::ZERO,
            wake_seen: 0,
            records_seen: kept.records_seen,
            board: kept.board,
            agreement: Agreement::new(pe.ranks(), kept.lives > 0),
            lives: kept.lives + 1,
            arrived: Inputs { events: kept.events, arrivals: kept.arrivals, ..Inputs::default() },
            looked: now,
            cell: pe.checkpoint().clone(),
            ended: false,
            taking_over: kept.lives > 0,
        };
        if !agent.taking_over {
            hand_on::introduce(&mut agent.recovery, now, &options);
        }
        Ok(Some(agent))
    }

    /// What has arrived since the last step. Read it first and the clock afterwards: what a step is told is then never
    /// younger than the time it is told, and nothing that must last a packet lifetime begins too early.
    pub fn inputs(&mut self) -> Inputs {
        let engine = &mut self.recovery.engine;
        if self.taking_over {
            engine.nics.take_over();
        }
        let mut inputs = std::mem::take(&mut self.arrived);
        inputs.outcomes.extend(engine.nics.take_done());
        for (rail, one) in engine.rails.iter().enumerate() {
            loop {
                let event = one.devx.next_event();
                let last = !matches!(event, Ok(Some(_)));
                // An empty queue is told only of a NIC whose events could not be read: now they can.
                if !matches!(event, Ok(None)) || engine.ports.is_silent(rail) {
                    inputs.events.push_back((rail as u32, event));
                }
                if last {
                    break;
                }
            }
        }
        // No more at a time: a flood of words is not to keep the agent from its other work.
        for _ in 0..HEARD_MAX {
            if !engine.links.receive(&mut inputs.arrivals) {
                break;
            }
        }
        inputs
    }

    /// Looks at everything once, at `now`. True if there was something to do, so that an idle thread may sleep. Then
    /// comes [`Agent::hand_on`].
    pub fn step(&mut self, now: Nanos, inputs: Inputs) -> bool {
        self.arrived = inputs;
        self.looked = now;
        self.recovery.engine.grow(now);
        if std::mem::take(&mut self.taking_over) {
            restore::take_over(&mut self.recovery, now, self.lives);
        }
        let mut busy = self.take_arrived(now);
        busy |= self.take_requests(now);
        for key in self.recovery.engine.paths().keys() {
            busy |= look::at_path(&mut self.recovery, now, key);
        }
        let touch = Nanos::new(self.given.touch_ns);
        let recovery = &mut self.recovery;
        busy |= homes::look(recovery, now) | fetches::look(recovery, now);
        busy |= slots::look(recovery, now);
        busy |= recovery.engine.look_at_destroys(now);
        busy |= proof::look(recovery, now, self.given.prove_ns.into());
        busy |= localize::look(recovery, now);
        busy |= membership::look(recovery, &mut self.agreement, now, touch);
        if now >= self.next_touch && touch != Nanos::MAX && !Mutant::SilentNotTouched.on() {
            self.next_touch = now + membership::touch_the_silent(recovery, now, touch);
            look::at_strangers(recovery, now);
        }
        let looks = if Mutant::AgentNeverSwitches.on() { 0 } else { self.given.looks };
        let words = &self.recovery.channels.words;
        let (per, attended) = (words.root().channels_per_pe as usize, words.attended() as usize);
        for _ in 0..looks.min(self.stalls.len() / per * attended) {
            self.next_row = (self.next_row + 1) % self.stalls.len();
            if self.next_row % per >= attended {
                self.next_row = (self.next_row / per + 1) * per % self.stalls.len();
            }
            words.attend_to(self.next_row as u32, &mut self.stalls[self.next_row]);
        }
        busy
    }

    /// Takes what has arrived, in this order: what NICs have done, what became of ports, what other agents say.
    fn take_arrived(&mut self, now: Nanos) -> bool {
        let mut busy = false;
        while let Some((rail, id, outcome)) = self.arrived.outcomes.pop_front() {
            look::at_outcome(&mut self.recovery, now, rail, id, outcome);
            busy = true;
        }
        while let Some(event) = self.arrived.events.pop_front() {
            busy |= ports::hear_nic(&mut self.recovery, now, event);
        }
        ports::ask_again(&mut self.recovery, now, self.given.port_poll_ns.into());
        while let Some(arrival) = self.arrived.arrivals.pop_front() {
            let Some(heard) = self.recovery.engine.links.hear(now, arrival) else { continue };
            busy = true;
            match heard {
                Heard::Message(from, bytes) => self.hear(now, from, &bytes),
                Heard::Pong(pong) => localize::answered(&mut self.recovery, now, pong),
            }
        }
        busy
    }

    /// A message arrived, over whichever link.
    fn hear(&mut self, now: Nanos, from: u32, bytes: &[u8]) {
        let recovery = &mut self.recovery;
        recovery.engine.peers.heard(recovery.engine.awake.age_ns, from);
        if ranks::message::Message::is_one(bytes) {
            return membership::hear(recovery, &mut self.agreement, now, from, bytes);
        }
        match Message::from_bytes(bytes) {
            Ok(message) => requests::hear(recovery, now, from, message),
            Err(error) => {
                recovery.report(now, Event::MessageRefused { peer: from, error: error.to_string() });
            }
        }
    }

    fn take_requests(&mut self, now: Nanos) -> bool {
        let wake = self.recovery.channels.words.wake();
        let any = wake != self.wake_seen;
        if any {
            self.wake_seen = wake;
            requests::scan(&mut self.recovery, now);
        }
        any
    }

    /// The agent dies here, as a panic or a fault has it: it tells nobody, and all it knew is lost. What lies in memory
    /// and in NICs stays; `Agent::new` gives it to the next agent of the PE.
    pub fn abandon(mut self) {
        self.ended = true;
        let Inputs { outcomes, events, arrivals } = std::mem::take(&mut self.arrived);
        let Recovery { engine, channels } = &mut self.recovery;
        engine.settle(channels, self.looked);
        let (oob, addresses) = engine.links.give_up();
        engine.nics.give_back(outcomes.into_iter());
        let rings = channels.rings.iter().copied();
        let held = |(path, rings): (Option<PathMachine<_>>, Option<_>)| {
            path.zip(rings).map(|(path, rings)| PairCheckpoint { start: path.left(), rings })
        };
        let kept = Checkpoint {
            pairs: engine.paths_mut().take_all().into_iter().zip(rings).map(held).collect(),
            spares: std::mem::take(&mut channels.spares),
            oob,
            addresses,
            port_words: engine.ports.words(),
            nics: std::mem::take(&mut engine.nics),
            destroys: std::mem::take(&mut engine.destroys),
            unfenced: channels.atomics.all_unfenced(),
            reporter: std::mem::replace(&mut channels.reporter, Reporter::new(0, 0)),
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
        self.looked
    }

    /// Its options.
    pub(super) const fn given(&self) -> AgentOptions {
        self.given
    }

    /// Hands on every event now.
    pub(super) fn release_events(&mut self) {
        self.recovery.channels.reporter.release_all();
    }

    /// Everything told since the last call, in order, and how many were dropped because nobody asked in time.
    pub fn take_events(&mut self) -> (Vec<Told>, u64) {
        self.recovery.channels.reporter.take_events()
    }

    /// Adds somebody who is told of every event from here on.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>) {
        self.recovery.channels.reporter.add_sink(sink);
    }

    /// Tells an event that happens now.
    pub(super) fn report(&mut self, now: Nanos, event: Event) {
        self.recovery.report(now, event);
    }

    /// Switch records since the last call, and how many were lost.
    pub fn records(&mut self) -> (Vec<shunt_layout::state::SwitchRecord>, u64) {
        self.recovery.channels.words.records_since(&mut self.records_seen)
    }

    /// The view of the device state.
    pub fn words(&self) -> &StateWords {
        &self.recovery.channels.words
    }

    /// Health of a path.
    pub fn health(&self, at: Place) -> Option<Health> {
        self.recovery.path(self.recovery.key(at)).map(PathMachine::health)
    }

    /// True once every path is ready whose ports are up, and no backup is waiting to be proved or being proved.
    pub fn is_settled(&self) -> bool {
        proof::is_settled(&self.recovery)
    }

    /// Takes a path out: drained, if it works and its channel has another one, and else fenced like one that failed; it
    /// is not made again. Nothing on it is lost. False if there is no such path.
    pub fn retire(&mut self, now: Nanos, at: Place) -> bool {
        orders::retire(&mut self.recovery, now, at)
    }

    /// Brings a path back that was taken out: it is made again, probed, and ready after its recovery window. False if
    /// there is no such path.
    pub fn readmit(&mut self, now: Nanos, at: Place) -> bool {
        orders::readmit(&mut self.recovery, now, at)
    }

    /// Carries out an order; answers with what was done, or why nothing was.
    pub fn obey(&mut self, now: Nanos, order: Order) -> Result<String, String> {
        orders::obey(&mut self.recovery, now, order)
    }

    /// Takes what device code recorded, and hands on what is ripe. With nothing new it reads two words. Comes after
    /// each step, which may have waited for locks of device code: read the clock again before.
    pub fn hand_on(&mut self, now: Nanos) {
        self.looked = now;
        let recovery = &mut self.recovery;
        // In this order: a switch that ends in between is over before its record is missed. So is the one that made
        // all well: its record is there once it is over.
        let look = recovery.channels.reporter.is_due(now);
        let troubled = recovery.channels.reporter.trouble_since().is_some();
        let calm = look && troubled && hand_on::is_calm(recovery);
        let waiting = recovery.channels.reporter.is_waiting();
        let switching = if waiting { hand_on::oldest_switch(recovery) } else { None };
        hand_on::gather_records(recovery, now);
        hand_on::gather_steps(recovery, now);
        if look {
            hand_on::look_at_links(recovery, now);
            recovery.channels.reporter.sum_up(now);
            self.hear_operator(now);
            if calm {
                self.recovery.channels.reporter.recovered(now);
            }
        }
        self.recovery.channels.reporter.release(now, switching);
        self.refresh_board(now);
    }
}

/// What the links of a PE's agent are made of.
fn link_parts(pe: &Pe, oob: Box<dyn Oob>) -> LinkParts {
    let address = |peer: &PeerInfo| PeerAddress {
        rails: peer.rails.clone(),
        datagrams: peer.datagrams.clone(),
        qkey: peer.qkey,
    };
    LinkParts {
        me: pe.root().my_pe,
        world: pe.world().clone(),
        oob,
        rails: pe.rails().to_vec(),
        peers: pe.peers().iter().map(address).collect(),
        seal: pe.seal().clone(),
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // What is not handed on now never will be. A panic's own words come first.
        if self.ended {
            return;
        }
        if !std::thread::panicking() {
            let now = self.looked;
            hand_on::gather_records(&mut self.recovery, now);
            self.report(now, Event::AgentEnded {});
        }
        self.release_events();
    }
}
