//! The proxy of a rank: a thread that carries out what the machine says, on a node of the transfer engine.

use crate::failure::Failure;
use crate::ground::Ground;
use crate::machine::{Input, Machine, Output};
use crate::plan::{Part, What};
use crate::routes::from_bytes;
use crate::words::{Step, Words, step};
use shunt_transfer::{Expectation, Node, Scattered};
use shunt_transfer_engine::engine::Share;
use shunt_transfer_engine::ids::{PeerId, WatcherId};
use shunt_transfer_engine::watch::Goes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread looks so often for what nobody calls it for.
const LOOK: Duration = Duration::from_millis(20);
/// A rank is given up so much later than one that sends to it would give it up.
const LATER: Duration = Duration::from_secs(2);

/// What the thread is told.
enum Event {
    /// A kernel's word has changed.
    Asked(u64),
    /// What has this number has ended.
    Ended(u64),
    /// Something went wrong in this rank's kernels.
    Failed(Failure),
    /// To end.
    Stop,
}

/// What was begun and has not ended.
enum Pending {
    /// Of which rank, and what.
    Expect(u32, What, Expectation),
    Write(Scattered),
}

struct Worker {
    node: Arc<Node>,
    ground: Arc<Ground>,
    words: Arc<Words>,
    machine: Machine,
    began: Instant,
    pending: BTreeMap<u64, Pending>,
    next: u64,
    tell: Sender<Event>,
    /// When a rank that is awaited had a rail last.
    seen: BTreeMap<u32, Instant>,
    /// How long a rank may be without a rail.
    give_up: Duration,
}

/// The proxy of a rank. Dropped, it ends.
pub struct Proxy {
    node: Arc<Node>,
    watcher: WatcherId,
    tell: Sender<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts the proxy of a rank. A step that takes longer than `patience` has failed.
    ///
    /// # Errors
    /// The engine is closed.
    pub fn start(
        node: Arc<Node>,
        ground: Arc<Ground>,
        words: Arc<Words>,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let (tell, told) = channel();
        let (word, asked) = (words.clone(), tell.clone());
        let each = move |_, new| {
            // Without its thread no one is to be told.
            if asked.send(Event::Asked(new)).is_ok() { Goes::On } else { Goes::Off }
        };
        let watcher = node.watch(Box::new(move || word.asked()), Box::new(each))?;
        let worker = Worker {
            machine: Machine::new(ground.buffers, node.end(), patience),
            give_up: node.give_up()? + LATER,
            node: node.clone(),
            ground,
            words,
            began: Instant::now(),
            pending: BTreeMap::new(),
            next: 0,
            tell: tell.clone(),
            seen: BTreeMap::new(),
        };
        let thread = std::thread::Builder::new().name(format!("proxy {}", node.end()));
        let thread = thread.spawn(move || worker.run(&told));
        let thread = thread.map_err(|error| Failure::broken(format!("a thread for the proxy: {error}")))?;
        Ok(Self { node, watcher, tell, thread: Some(thread) })
    }

    /// Has the others told that this rank does not go on.
    pub fn fail(&self, failure: Failure) {
        // A thread that has ended has told them already.
        let _ = self.tell.send(Event::Failed(failure));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.tell.send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
        // The engine may have ended before.
        let _ = self.node.unwatch(self.watcher);
    }
}

impl Worker {
    fn run(mut self, told: &Receiver<Event>) {
        let mut looked = Instant::now();
        loop {
            let event = match told.recv_timeout(LOOK) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
            };
            if let Err(failure) = event.map_or(Ok(()), |event| self.happened(event)) {
                self.take(Input::Failed(failure));
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                if let Err(failure) = self.look() {
                    self.take(Input::Failed(failure));
                }
            }
            while let Some(output) = self.machine.next_output() {
                if let Err(failure) = self.carry_out(output) {
                    self.take(Input::Failed(failure));
                }
            }
        }
    }

    fn take(&mut self, input: Input) {
        self.machine.take(self.began.elapsed(), input);
    }

    fn happened(&mut self, event: Event) -> Result<(), Failure> {
        let number = match event {
            Event::Asked(number) => {
                let input = self.asked(number)?;
                self.take(input);
                return Ok(());
            }
            Event::Failed(failure) => return Err(failure),
            Event::Ended(number) => number,
            Event::Stop => return Ok(()),
        };
        match self.pending.remove(&number) {
            Some(Pending::Expect(of, what, expectation)) => {
                if let Some(result) = expectation.wait(Duration::ZERO)? {
                    result.map_err(|error| Failure::not_arrived(error, of, what))?;
                    let is_counts = what == What::Counts;
                    let input = if is_counts {
                        Input::Counts(of, self.counts_of(of)?)
                    } else {
                        Input::Arrived(of, what)
                    };
                    self.take(input);
                }
            }
            Some(Pending::Write(scattered)) => {
                let ends = scattered.wait(Duration::ZERO)?.unwrap_or_default();
                let parts = ends.len();
                ends.into_iter().try_for_each(|end| end.result)?;
                self.take(Input::Written(parts));
            }
            None => {}
        }
        Ok(())
    }

    fn asked(&self, number: u64) -> Result<Input, Failure> {
        let mut counts = Vec::new();
        if step(number).1 == Step::Dispatch {
            counts.resize(self.ground.buffers.counts_bytes() as usize, 0);
            self.ground.send.read(0, &mut counts)?;
        }
        Ok(Input::Asked(number, from_bytes(&counts)))
    }

    fn counts_of(&self, rank: u32) -> Result<Vec<u32>, Failure> {
        let mut counts = vec![0; self.ground.buffers.counts_bytes() as usize];
        self.ground.receive.read(self.ground.buffers.counts(rank), &mut counts)?;
        Ok(from_bytes(&counts))
    }

    fn carry_out(&mut self, output: Output) -> Result<(), Failure> {
        match output {
            Output::Expect(of, what, count) => {
                let (number, layer, tell) = (self.next, self.machine.layer(), self.tell.clone());
                let expectation = self.node.expect(of, what.imm(layer), count, None)?;
                expectation.when_ended(move || _ = tell.send(Event::Ended(number)));
                self.pending.insert(number, Pending::Expect(of, what, expectation));
                self.next += 1;
            }
            Output::Write(parts) => self.scatter(&parts)?,
            Output::Answer(number) => {
                self.words.answer(number);
            }
            Output::Fail(failure, is_new) => self.fail(failure, is_new),
        }
        Ok(())
    }

    /// Posts parts, under the next number.
    fn scatter(&mut self, parts: &[Part]) -> Result<(), Failure> {
        let (number, layer, tell) = (self.next, self.machine.layer(), self.tell.clone());
        let share = |part: &Part| {
            let Part { to, what, from, at, len } = *part;
            let target = self.ground.targets.get(to as usize);
            let target = target.ok_or_else(|| Failure::broken(format!("rank {to}: expected its memory")))?;
            Ok(Share { peer: PeerId(to), len, imm: Some(what.imm(layer)), from, to: (target, at) })
        };
        let shares = parts.iter().map(share).collect::<Result<Vec<_>, Failure>>()?;
        let scattered = self.node.scatter(&self.ground.send.region, &shares)?;
        scattered.when_ended(move || _ = tell.send(Event::Ended(number)));
        self.pending.insert(number, Pending::Write(scattered));
        self.next += 1;
        Ok(())
    }

    fn fail(&self, failure: Failure, is_new: bool) {
        if is_new {
            // One that does not get it finds out by itself.
            let text = serde_json::to_vec(&failure).unwrap_or_default();
            for other in (0..self.node.ends()).filter(|other| *other != self.node.end()) {
                let _ = self.node.send(other, &text);
            }
        }
        self.words.fail(failure);
    }

    /// Looks at what no one calls for: what other proxies say, ranks without a rail, steps that take too long.
    fn look(&mut self) -> Result<(), Failure> {
        while let Ok(Some((rank, text))) = self.node.receive(Duration::ZERO) {
            let failure = serde_json::from_slice(&text)
                .map_err(|error| Failure::broken(format!("a message of rank {rank}: {error}")))?;
            self.take(Input::Heard(rank, failure));
        }
        self.look_at_rails()?;
        self.machine.tick(self.began.elapsed());
        Ok(())
    }

    fn look_at_rails(&mut self) -> Result<(), Failure> {
        let awaited = self.machine.awaited();
        self.seen.retain(|rank, _| awaited.contains(rank));
        for rank in awaited {
            let has_rail = !self.node.rails_to(rank)?.is_empty();
            let seen = self.seen.entry(rank).or_insert_with(Instant::now);
            if has_rail {
                *seen = Instant::now();
            } else if seen.elapsed() > self.give_up {
                let why =
                    format!("rank {rank}: expected a rail that works within {:?}, got none", self.give_up);
                return Err(Failure::lost(why));
            }
        }
        Ok(())
    }
}
