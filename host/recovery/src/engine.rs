//! The recovery engine: paths by key, the NICs and links that carry out what their machines decide, and what is known
//! of ports, peers and rails. Who owns a path is told by [`Owner`], in the states and answers that device code has; the
//! engine reads and writes no device memory.

use super::age::Age;
use super::datagram_renewal::Renewal;
use super::destroy_queue::DestroyQueue;
use super::endpoint::Half;
use super::fault_localizer::FaultLocalizer;
use super::health::Health;
use super::links::{Links, PeerAddress, Reach};
use super::nic_dispatch::Nics;
use super::nic_job::{Job, JobId, Making, Outcome, Urgency};
use super::owner::{Owner, tell};
pub use super::parts::{Around, Parts};
use super::path::{self, Adopted, Command, Output, PathMachine, Step, Task, Timing, Word, is_stuck};
use super::path_proof::Proofs;
use super::paths::{Entry, Paths};
use super::peer_silence::PeerSilence;
use super::port_table::PortTable;
use super::seen::Seen;
use crate::nanos::Nanos;
use shunt_device::platform::host::World;
use shunt_layout::mlx5::prm::qp::State;
use shunt_mlx5::rail::Rail;
use std::collections::VecDeque;
use std::sync::Arc;

/// The engine of one process.
pub struct Engine {
    /// Its clock.
    pub world: Arc<dyn World>,
    /// Its rails.
    pub rails: Vec<Arc<Rail>>,
    paths: Paths,
    /// What is known of ports.
    pub ports: PortTable,
    /// The links to other engines.
    pub links: Links,
    /// The workers of its NICs.
    pub nics: Nics,
    /// Endpoints that are not known to be gone.
    pub destroys: DestroyQueue<Half>,
    /// What real paths have shown of their NICs' counts.
    pub proofs: Proofs,
    /// Searches for rails that are at fault.
    pub localizer: FaultLocalizer,
    /// Since when peers owe answers.
    pub peers: PeerSilence,
    /// By rail: what is being done about its datagrams.
    pub renewals: Vec<Renewal>,
    /// Packet lifetimes are counted by it.
    pub age: Age,
    /// The same for patience: neither a jump of the clock nor a pause of this process is somebody else's silence.
    pub awake: Age,
    /// How patient it is.
    pub timing: Timing,
    /// How long a NIC may owe an answer.
    pub nic_patience: Nanos,
    /// What the machine of the path of this key decided and was not carried out yet: after a panic, what is left.
    out: (usize, VecDeque<Output<Half>>),
}

impl Engine {
    /// An engine without paths.
    pub fn new(parts: Parts, now: Nanos) -> Self {
        let Parts { world, rails, ports, links, nics, destroys, timing, nic_patience, peers } = parts;
        Self {
            renewals: vec![Renewal::default(); rails.len()],
            world,
            rails,
            paths: Paths::default(),
            ports,
            links,
            nics,
            destroys,
            proofs: Proofs::default(),
            localizer: FaultLocalizer::default(),
            peers: PeerSilence::new(peers),
            age: Age::new(now),
            awake: Age::new(now),
            timing,
            nic_patience,
            out: (0, VecDeque::new()),
        }
    }

    /// The paths, by key.
    pub const fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The same, to add some or to change one without any output.
    pub const fn paths_mut(&mut self) -> &mut Paths {
        &mut self.paths
    }

    /// A path.
    pub fn path(&self, key: usize) -> Option<&PathMachine<Half>> {
        self.paths.get(key)
    }

    /// A path to a peer, by a key that is free and of which no NIC has anything, or else by the next one.
    pub fn insert(&mut self, peer: u32, path: PathMachine<Half>) -> usize {
        let destroys = &self.destroys;
        self.paths.insert(peer, path, |key| !destroys.has_any(key))
    }

    /// Gives a path up: its half is destroyed, what was ordered for it is taken back, nobody is told, and its key is
    /// free.
    pub fn remove(&mut self, now: Nanos, key: usize) {
        let Some(path) = self.paths.remove(key) else { return };
        if let Task::Make(number) | Task::Connect(number) = path.standing().task {
            let queue = self.nics.queue(path.standing().rail_at_work);
            if let Some(Job::Make(making)) = queue.and_then(|queue| queue.cancel(number)) {
                making.old.into_iter().for_each(|old| self.destroy(now, key, old));
            }
        }
        path.left().half.into_iter().for_each(|half| self.destroy(now, key, half));
    }

    /// Takes a path away and leaves its half to its owner, as it is. Its key is free.
    pub fn forget(&mut self, key: usize) {
        self.paths.remove(key);
    }

    /// Another process joins: answers with its number.
    pub fn join(&mut self, address: PeerAddress) -> u32 {
        self.ports.join(address.rails.len());
        self.peers.join();
        self.links.join(address)
    }

    /// A process leaves, and every path to it with it. Its number is not used again.
    pub fn leave(&mut self, now: Nanos, peer: u32) {
        let theirs: Vec<usize> = self.paths.keys_to(peer).collect();
        theirs.into_iter().for_each(|key| self.remove(now, key));
        self.ports.leave(peer);
        self.links.leave(peer);
    }

    /// Carries one path on. True if something was done.
    pub fn look(&mut self, owner: &mut dyn Owner, now: Nanos, key: usize, around: Around) -> bool {
        let Some(path) = self.path(key) else { return false };
        let busy = match path.health() {
            Health::Ready if path.standing().leaving => {
                self.with(owner, now, key, |path, cx| path::orders::look_leaving(path, cx, around.standby))
            }
            Health::Ready | Health::Retired => None,
            Health::Fencing => {
                let busy = self.await_truth(owner, now, key);
                self.with(owner, now, key, |path, cx| path.say_in_hand(cx));
                Some(busy)
            }
            Health::Fenced => self.with(owner, now, key, |path, cx| path.look_fenced(cx)),
            Health::Released => self.with(owner, now, key, |path, cx| path.look_released(cx)),
            Health::Connecting => self.with(owner, now, key, |path, cx| path.look_connecting(cx)),
            Health::Probing => {
                let polled =
                    self.paths.entry(key).map(|entry| entry.poll_probes(&*self.world)).unwrap_or_default();
                self.with(owner, now, key, |path, cx| path.look_probing(cx, &polled, around.gives_way))
            }
        };
        busy == Some(true)
    }

    /// The other end of a path says something about an incarnation. False if that cannot be.
    pub fn hear(
        &mut self,
        owner: &mut dyn Owner,
        now: Nanos,
        key: usize,
        (incarnation, word): (u32, Word),
        standby: bool,
    ) -> bool {
        if word == Word::Vacate {
            let may =
                standby && self.path(key).is_some_and(|path| path::orders::may_do_without(path, incarnation));
            if may {
                self.with(owner, now, key, path::orders::do_without);
            }
            return true;
        }
        if matches!(word, Word::Fence | Word::Leave | Word::Truth(_) | Word::Left) {
            match self.with(owner, now, key, |path, cx| path::hearing::adopt(path, cx, incarnation)) {
                Some(Adopted::Hear) => {}
                Some(Adopted::Later) => return true,
                Some(Adopted::Refused) | None => return false,
            }
        }
        let act = |path: &mut PathMachine<Half>, cx: &mut Step<'_, Half>| {
            path::hearing::hear(path, cx, incarnation, word, standby)
        };
        if self.with(owner, now, key, act) == Some(true) {
            self.await_truth(owner, now, key);
        }
        true
    }

    /// Time passes.
    pub fn grow(&mut self, now: Nanos) {
        self.awake.grow(now, self.nic_patience / 8 + Nanos::new(1));
        self.age.grow(now, self.timing.lifetime / 8 + Nanos::new(1));
    }

    /// Has a path's machine `act`, and carries out what it decides.
    pub fn with<R>(
        &mut self,
        owner: &mut dyn Owner,
        now: Nanos,
        key: usize,
        act: impl FnOnce(&mut PathMachine<Half>, &mut Step<'_, Half>) -> R,
    ) -> Option<R> {
        let Entry { peer, path, .. } = self.paths.entry(key)?;
        self.out.0 = key;
        let mut seen = Seen {
            ports: &self.ports,
            links: &mut self.links,
            nics: &self.nics,
            destroys: &self.destroys,
            proofs: &self.proofs,
            peers: &mut self.peers,
            rails: &self.rails,
            awake: self.awake.age_ns,
            nic_patience: self.nic_patience,
            owner: &mut *owner,
            key,
            peer: *peer,
        };
        let mut step = Step {
            now,
            age: self.age.age_ns,
            awake: self.awake.age_ns,
            timing: &self.timing,
            facts: &mut seen,
            out: &mut self.out.1,
        };
        let result = act(path, &mut step);
        while let Some(output) = self.out.1.pop_front() {
            self.carry_out(owner, now, key, output);
        }
        Some(result)
    }

    /// After a panic: halves that a machine gave up are kept until they are gone, and rails marked, before another
    /// engine takes over.
    pub fn settle(&mut self, owner: &mut dyn Owner, now: Nanos) {
        let (key, out) = (self.out.0, std::mem::take(&mut self.out.1));
        for output in out {
            match output {
                Output::Destroy(half) | Output::Command(_, Command::Make { old: Some(half), .. }) => {
                    self.destroy(now, key, half);
                }
                Output::Unproven(rail) => owner.unproven(key, rail),
                _ => {}
            }
        }
    }

    fn carry_out(&mut self, owner: &mut dyn Owner, now: Nanos, key: usize, output: Output<Half>) {
        let Some(Entry { peer, path, prober }) = self.paths.entry(key) else {
            return;
        };
        let peer = *peer;
        match output {
            Output::Tell(incarnation, word) => {
                let message = owner.message(key, incarnation, word);
                self.links.send(now, peer, message, Reach::Link, &self.ports);
            }
            Output::Command(urgency, command) => self.command(owner, now, key, urgency, command),
            Output::Hasten(urgency, rail, number) => {
                self.nics.queue(rail).into_iter().for_each(|queue| queue.raise_priority(urgency, number));
            }
            Output::Count(rail, number) => {
                if self.nics.queue(rail).is_some_and(|queue| queue.lighten(number)) {
                    path.given(Task::Count(number));
                }
            }
            Output::CancelConnect(rail, number) => {
                self.nics.queue(rail).and_then(|queue| queue.cancel(number));
            }
            Output::CancelMake(rail, number) => {
                let cancelled = self.nics.queue(rail).and_then(|queue| queue.cancel(number));
                if let Some(Job::Make(making)) = cancelled {
                    path.given(Task::None);
                    making.old.into_iter().for_each(|old| self.destroy(now, key, old));
                }
            }
            Output::Destroy(half) => self.destroy(now, key, half),
            Output::OpenProbes => {
                // SAFETY: the path is not `Ready`, so no owner posts on it, and the prober is dropped before it is. The
                // half is kept beside the prober, and dropped after it.
                *prober = path.half().map(|half| (unsafe { half.prober() }, half.clone()));
            }
            Output::PostProbe => {
                if let Some((prober, _)) = prober {
                    prober.post(&*self.world);
                }
            }
            Output::CloseProbes => *prober = None,
            Output::HandOver(since) => {
                if let Some((prober, _)) = prober.take() {
                    owner.hand_over(key, prober.next_index(), since);
                }
            }
            Output::Publish => {
                if let (Some(half), Some(remote)) = (path.half(), path.remote()) {
                    owner.publish(key, &**half, remote);
                }
            }
            Output::Doubt => self.links.doubt(now, peer),
            Output::Moved(card) => self.links.moved(peer, &card),
            Output::RailsFailed => {
                // What a port explains is no failure of theirs.
                if self.ports.up(path.rails().local, peer, path.rails().remote) {
                    owner.rails_failed(now, peer, path.rails());
                }
            }
            Output::RailsWorked => owner.rails_worked(peer, path.rails()),
            Output::LookInto => {
                let rails = path.rails();
                self.look_into(owner, now, peer, rails);
            }
            Output::AskAddress(rail) => self.ask_address(now, rail),
            Output::Mute(there, rail) => self.mute(owner, now, peer, (there.then_some(peer), rail)),
            Output::Answers(there, rail) => self.answers(owner, there.then_some(peer), rail),
            output => tell(owner, now, key, path, output),
        }
    }

    /// Gives a command, and tells the path its number.
    fn command(
        &mut self,
        owner: &mut dyn Owner,
        now: Nanos,
        key: usize,
        urgency: Urgency,
        command: Command<Half>,
    ) {
        let (rail, job, task): (u32, Job, fn(u64) -> Task) = match command {
            Command::Fence(half) => (half.rail(), Job::Fence(half), Task::Fence),
            Command::Stop(half) => (half.rail(), Job::Stop(half), Task::Stop),
            Command::Look(half) => (half.rail(), Job::Look(half), Task::Look),
            Command::Connect(half, card) => (half.rail(), Job::Connect(half, Box::new(card)), Task::Connect),
            Command::Make { rail, old, incarnation, variant, psn, remote } => {
                let Some(maker) = owner.maker(key) else {
                    old.into_iter().for_each(|old| self.destroy(now, key, old));
                    let why = "its owner cannot make it".to_owned();
                    self.with(owner, now, key, |path, cx| path::outcomes::made(path, cx, Err(why)));
                    return;
                };
                let making = Making { old, maker, number: (incarnation, variant), psn, remote };
                (rail, Job::Make(Box::new(making)), Task::Make)
            }
        };
        let number = self.nics.submit(rail, urgency, key, job);
        self.paths.get_mut(key).into_iter().for_each(|path| path.given(task(number)));
    }

    /// Keeps a half until it is gone.
    pub fn destroy(&mut self, now: Nanos, key: usize, half: Half) {
        self.destroys.defer(now, key, half.rail(), half.variant(), half);
    }

    /// Has destroyed what is due.
    pub fn look_at_destroys(&mut self, now: Nanos) -> bool {
        let nics = &mut self.nics;
        self.destroys
            .poll(now, |key, half| nics.submit(half.rail(), Urgency::Making, key, Job::Destroy(half)))
    }

    /// True if a look has nothing to do until somebody says something: nothing is on its way, and no NIC has a command.
    pub fn is_at_rest(&self) -> bool {
        self.paths.iter().all(PathMachine::is_at_rest) && self.destroys.is_empty() && self.nics.is_idle()
    }

    /// True if a command is the fence or the count that its path waits for.
    pub fn is_about_fence(&self, id: JobId) -> bool {
        let task = self.path(id.about).map_or(Task::None, |path| path.standing().task);
        [Task::Fence(id.number), Task::Count(id.number)].contains(&task)
    }

    /// What came of a command about a path. What is over is compared by its number: a path may have moved on meanwhile.
    pub fn outcome(&mut self, owner: &mut dyn Owner, now: Nanos, id: JobId, outcome: Outcome) {
        let key = id.about;
        let task = self.path(key).map_or(Task::None, |path| path.standing().task);
        match outcome {
            Outcome::Fenced(result) if self.is_about_fence(id) => {
                let result = result.map_err(|error| error.to_string());
                self.with(owner, now, key, |path, cx| path::outcomes::fenced(path, cx, result));
            }
            Outcome::Stopped(result) if task == Task::Stop(id.number) => {
                let result = match result {
                    Ok(truth) if truth.state == Some(State::Err) => Ok(()),
                    Ok(truth) => {
                        Err(format!("the queue pair after 2ERR: expected ERR, got {:?}", truth.state))
                    }
                    Err(error) => Err(error.to_string()),
                };
                self.with(owner, now, key, |path, cx| path::outcomes::stopped(path, cx, result));
            }
            Outcome::Made(result, left) if task == Task::Make(id.number) => {
                left.into_iter().for_each(|left| self.destroy(now, key, left));
                let result = result.map_err(|error| error.to_string());
                self.with(owner, now, key, |path, cx| path::outcomes::made(path, cx, result));
            }
            Outcome::Connected(result) if task == Task::Connect(id.number) => {
                let result = result.map_err(|error| error.to_string());
                self.with(owner, now, key, |path, cx| path::outcomes::connected_here(path, cx, result));
            }
            Outcome::Looked(result) if task == Task::Look(id.number) => {
                // One that was not read shows with the first work on it.
                let works = result.map_or(true, |truth| truth.state == Some(State::Rts));
                self.with(owner, now, key, |path, cx| path::outcomes::looked(path, cx, works));
            }
            Outcome::Made(made, left) => {
                made.ok().into_iter().chain(left).for_each(|half| self.destroy(now, key, half));
            }
            Outcome::Destroyed(result) => self.destroyed(owner, now, id, result),
            _ => {}
        }
    }

    /// A NIC has destroyed a half, or has not answered. From here the packet lifetime counts again.
    fn destroyed(&mut self, owner: &mut dyn Owner, now: Nanos, id: JobId, result: Result<Option<u32>, Half>) {
        match result {
            Ok(psn) => {
                if let Some(rail) = self.destroys.destroyed(id.number) {
                    owner.proven(id.about, rail);
                }
                let age = self.age.age_ns;
                self.paths
                    .get_mut(id.about)
                    .into_iter()
                    .for_each(|path| path::outcomes::destroyed(path, age, psn));
            }
            Err(half) => {
                // The last agent of this process gave the command.
                if let Some(half) = self.destroys.failed(now, id.number, half, self.timing.backoff) {
                    self.destroy(now, id.about, half);
                }
            }
        }
    }

    /// Waits for the truths of a path's fence.
    fn await_truth(&mut self, owner: &mut dyn Owner, now: Nanos, key: usize) -> bool {
        self.with(owner, now, key, |path, cx| path.look_asking(cx));
        let known = self.with(owner, now, key, |path, cx| path.look_own_half(cx)) == Some(true);
        known && self.with(owner, now, key, |path, cx| path.look_both_halves(cx)) == Some(true)
    }

    /// Something went wrong on a rail: its address may be another one.
    fn ask_address(&mut self, now: Nanos, rail: u32) {
        let Some(renewal) = self.renewals.get_mut(rail as usize) else { return };
        if renewal.asks_address(now) {
            self.nics.submit(rail, Urgency::Idle, rail as usize, Job::AskAddress);
        }
    }

    /// True if a rail's NIC has not answered for too long to be waited for.
    pub fn nic_is_silent(&self, rail: u32) -> bool {
        self.nics.is_silent(self.awake.age_ns, rail, self.nic_patience)
    }

    /// True if a NIC does not let go of an old half of a path.
    pub fn is_stuck(&self, key: usize, rail: u32) -> bool {
        let fencing = self.path(key).is_some_and(|path| path.standing().is_fencing_at_rest(rail));
        let (pending, refused) = (self.destroys.holds(key, rail), self.destroys.was_refused(key, rail));
        is_stuck(self.nic_is_silent(rail), pending, refused, fencing)
    }

    /// False while a port of a path is known to be down.
    pub fn ports_up(&self, key: usize) -> bool {
        let Some((peer, path)) = self.paths.peer(key).zip(self.paths.get(key)) else { return false };
        self.ports.up(path.rails().local, peer, path.rails().remote)
    }

    /// What was counted and may still send is stopped now: the port of its rail is up again.
    pub fn hasten_stops(&self, rail: u32) {
        for path in self.paths.iter() {
            if let (Task::Stop(number), true) = (path.standing().task, path.standing().rail_at_work == rail) {
                self.nics
                    .queue(rail)
                    .into_iter()
                    .for_each(|queue| queue.raise_priority(Urgency::Asked, number));
            }
        }
    }
}
