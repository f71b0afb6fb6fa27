//! An end and the thread that drives its engine. Calls come from any thread, as work for that one.

use crate::asker::{Asker, Told};
use crate::connect::{Connected, connect};
use crate::error::{CallError, NoNode};
use crate::inbox::Inbox;
use crate::pending::{Expectation, Slot, Transfer};
use crate::place::Place;
use shunt::Member;
use shunt::host::connect::Bootstrap;
use shunt::host::gpu::OwnedSpan;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::engine::{Engine, OnDone, Paged, Read, Write};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::{PeerId, TransferId};
use shunt_transfer_engine::rc::RcDomain;
use shunt_transfer_engine::region::{Mr, MrDesc, Rights};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_engine::transfer::{Counts, Ended};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread sleeps so long at most where there was something to do a moment ago, and where there was not.
const NAP: Duration = Duration::from_micros(20);
const REST: Duration = Duration::from_micros(500);
/// Naps before it rests.
const NAPS: u32 = 500;
/// It goes on for so long after its node was dropped, so that the others' last words are answered.
const LINGER: Nanos = Nanos::millis(300);

/// Memory of this end, registered on every rail. It stays registered until [`Node::deregister`], or until the node and
/// its thread have ended.
#[derive(Clone)]
pub struct Region {
    memory: Arc<OwnedSpan>,
    mr: Mr,
    rights: Rights,
}

impl Region {
    /// What a peer must know of it.
    pub fn describe(&self) -> MrDesc {
        self.mr.describe(self.rights)
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.mr.bytes()
    }

    /// The memory.
    pub fn memory(&self) -> &Arc<OwnedSpan> {
        &self.memory
    }
}

/// An end of a job, connected to all others.
pub struct Node {
    asker: Asker,
    exchange: Mutex<Box<dyn Bootstrap + Send>>,
    end: u32,
    ends: u32,
    thread: Option<JoinHandle<()>>,
    inbox: Arc<Inbox>,
    place: Arc<Place>,
}

impl Node {
    /// Connects the ends of this process with each other and with those of other processes. Returns when lanes to all
    /// are open.
    ///
    /// # Errors
    /// The first end's that is not connected.
    pub fn start(place: Place, rails: u32) -> Result<Vec<Self>, NoNode> {
        let place = Arc::new(place);
        let begun: Vec<_> = place.members().into_iter().map(|member| begin(member, &place, rails)).collect();
        let node = |Begun { asker, ready, inbox, thread }: Begun| {
            // A thread that panicked tells nothing.
            let refused = || NoNode::Refused("an engine's thread has ended before it was ready".to_owned());
            let ready = ready.recv().map_err(|_| refused())?;
            let (exchange, end, ends) = ready?;
            let (exchange, thread, place) = (Mutex::new(exchange), Some(thread), place.clone());
            Ok(Self { asker, exchange, end, ends, thread, inbox, place })
        };
        begun.into_iter().map(node).collect()
    }

    /// The number of this end.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Ends of the job.
    pub fn ends(&self) -> u32 {
        self.ends
    }

    /// The NICs: to name, and to make fail where they are software.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Gives bytes to all ends and returns everyone's, by number. All ends call it equally often.
    ///
    /// # Errors
    /// An end did not answer in time, or is gone.
    pub fn exchange(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, CallError> {
        let exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(exchange.all_gather(mine)?)
    }

    /// Registers memory on every rail.
    ///
    /// # Errors
    /// A NIC refuses.
    pub fn register(&self, memory: Arc<OwnedSpan>, rights: Rights) -> Result<Region, CallError> {
        let lent = memory.clone();
        let mr = self.asker.ask(move |engine, _| engine.domain.register(&lent, rights))??;
        Ok(Region { memory, mr, rights })
    }

    /// Has every NIC take a region's keys back. Once this returns nothing of any peer lands in it, whether the peer
    /// answers or not, and its memory may be used for something else. What a peer still sends to it is refused, and
    /// ends there with [`TransferError::Denied`].
    ///
    /// # Errors
    /// A transfer of this end uses it, or a NIC refuses: then peers may still write into it.
    pub fn deregister(&self, region: &Region) -> Result<(), CallError> {
        let mr = region.mr.clone();
        self.asker.ask(move |engine, _| {
            if engine.is_used(&mr) {
                let (what, want) = ("a region to deregister", "one that no transfer of this end uses");
                let met = "one of a transfer that has not ended".to_owned();
                return Err(CallError::from(TransferError::Refused { what, want, met }));
            }
            Ok(engine.domain.deregister(&mr)?)
        })?
    }

    /// Cuts a peer off, for good, whether it answers or not. Transfers to it and expectations of it end. Once this
    /// returns `true` nothing of the peer lands in memory of this end any more; `false`: its queue pairs at this end
    /// were not destroyed within this time, as far as is known.
    ///
    /// # Errors
    /// There is no such peer, or it was cut off before.
    pub fn revoke(&self, peer: u32, patience: Duration) -> Result<bool, CallError> {
        let (of, (slot, filler)) = (self.peer(peer)?, Slot::new());
        let new =
            self.asker.ask(move |engine, now| engine.leave(now, of, Box::new(move || filler.fill(()))))?;
        if !new {
            let (what, want) = ("peer", "one that is there");
            return Err(
                TransferError::Refused { what, want, met: format!("{peer}, which was cut off") }.into()
            );
        }
        Ok(slot.wait(patience)?.is_some())
    }

    fn begin<F>(&self, submit: F) -> Result<Transfer, CallError>
    where
        F: FnOnce(&mut Engine<RcDomain>, Nanos, OnDone) -> Result<TransferId, TransferError> + Send + 'static,
    {
        let (slot, filler) = Slot::new();
        let done = OnDone::Call(Box::new(move |ended: Ended| filler.fill(ended.into())));
        let id = self.asker.ask(move |engine, now| submit(engine, now, done))??;
        Ok(Transfer { id, slot, asker: self.asker.clone() })
    }

    /// The peers of this end: all others.
    fn peer(&self, peer: u32) -> Result<PeerId, CallError> {
        if peer < self.ends && peer != self.end {
            return Ok(PeerId(peer));
        }
        let want = "another end of the job";
        Err(TransferError::Refused { what: "peer", want, met: format!("{peer} at end {}", self.end) }.into())
    }

    /// Begins to write bytes of a region into a peer's.
    ///
    /// # Errors
    /// They leave a region, or the target is not for peers to write. Nothing was posted.
    pub fn write(
        &self,
        peer: u32,
        len: u64,
        imm: Option<u32>,
        (from, from_at): (&Region, u64),
        (to, to_at): (&MrDesc, u64),
    ) -> Result<Transfer, CallError> {
        let (peer, from, to) = (self.peer(peer)?, from.mr.clone(), to.clone());
        self.begin(move |engine, now, done| {
            engine.submit_write(
                now,
                &Write { peer, len, imm, from: (&from, from_at), to: (&to, to_at) },
                done,
            )
        })
    }

    /// Begins to write pages of a region into a peer's, each with its immediate.
    ///
    /// # Errors
    /// As [`Node::write`]; or there are not as many pages on both sides.
    pub fn write_pages(
        &self,
        peer: u32,
        page_len: u64,
        imm: Option<u32>,
        (from, from_pages): (&Region, Pages),
        (to, to_pages): (&MrDesc, Pages),
    ) -> Result<Transfer, CallError> {
        let (peer, from, to) = (self.peer(peer)?, from.mr.clone(), to.clone());
        self.begin(move |engine, now, done| {
            let (from, to) = ((&from, &from_pages), (&to, &to_pages));
            engine.submit_paged(now, &Paged { peer, page_len, imm, from, to }, done)
        })
    }

    /// Begins to read bytes of a peer's region into one of this end.
    ///
    /// # Errors
    /// They leave a region, or the source is not for peers to read. Nothing was posted.
    pub fn read(
        &self,
        peer: u32,
        len: u64,
        (from, from_at): (&MrDesc, u64),
        (to, to_at): (&Region, u64),
    ) -> Result<Transfer, CallError> {
        let (peer, from, to) = (self.peer(peer)?, from.clone(), to.mr.clone());
        self.begin(move |engine, now, done| {
            engine.submit_read(now, &Read { peer, len, from: (&from, from_at), to: (&to, to_at) }, done)
        })
    }

    /// Begins to send a message of at most [`MESSAGE_MAX`](shunt_transfer_engine::message::MESSAGE_MAX) bytes. The peer
    /// gets the messages of this end in order, each once.
    ///
    /// # Errors
    /// It is longer. Nothing was posted.
    pub fn send(&self, peer: u32, message: &[u8]) -> Result<Transfer, CallError> {
        let (peer, message) = (self.peer(peer)?, message.to_vec());
        self.begin(move |engine, now, done| engine.submit_send(now, peer, &message, done))
    }

    /// The oldest message that nobody has taken, and whose it is; `None` if none comes within this time. Messages wait
    /// in memory until they are taken.
    ///
    /// # Errors
    /// The engine was closed.
    pub fn receive(&self, patience: Duration) -> Result<Option<(u32, Vec<u8>)>, CallError> {
        self.inbox.take(patience)
    }

    /// How many immediates a single write of so many bytes counts.
    pub fn writes_of(&self, len: u64) -> Result<u32, CallError> {
        self.asker.ask(move |engine, _| engine.policy().writes_of(len))
    }

    /// Awaits so many immediates of a peer. Those that came before are counted.
    ///
    /// # Errors
    /// None are awaited, or the same immediate is awaited already.
    pub fn expect(
        &self,
        peer: u32,
        imm: u32,
        count: u64,
        patience: Option<Duration>,
    ) -> Result<Expectation, CallError> {
        let (peer, (slot, filler)) = (self.peer(peer)?, Slot::new());
        self.asker.ask(move |engine, now| {
            let until = patience.map_or(Nanos::MAX, |patience| {
                Nanos::new(now.get().saturating_add(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX)))
            });
            engine.expect((peer, imm), count, until, Box::new(move |reached| filler.fill(reached)))
        })??;
        Ok(Expectation { slot })
    }

    /// Lanes that were left because of a fault and opened, pieces that were sent again.
    pub fn counts(&self) -> Result<Counts, CallError> {
        self.asker.ask(|engine, _| engine.counts())
    }

    /// Pairs of rails, of this end and of the peer, that work now.
    pub fn rails_to(&self, peer: u32) -> Result<Vec<(u32, u32)>, CallError> {
        let peer = self.peer(peer)?;
        self.asker.ask(move |engine, _| engine.rails_to(peer))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.asker.stop();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// A thread that connects: how to give it work, what it says once it is ready, and where messages come.
struct Begun {
    asker: Asker,
    ready: Receiver<Result<Ready, NoNode>>,
    inbox: Arc<Inbox>,
    thread: JoinHandle<()>,
}
/// The exchange with the others, the number of this end, and ends of the job.
type Ready = (Box<dyn Bootstrap + Send>, u32, u32);

fn begin(member: Member, place: &Arc<Place>, rails: u32) -> Begun {
    let (asker, told) = Asker::new();
    let (tell, ready) = channel();
    let (place, name, inbox) = (place.clone(), format!("transfer {}", member.pe), Arc::new(Inbox::default()));
    let mail = inbox.clone();
    let thread =
        std::thread::Builder::new().name(name).spawn(move || match connect(member, &place.nics, rails) {
            Ok(Connected { engine, exchange, world, end, ends }) => {
                let _ = tell.send(Ok((exchange, end, ends)));
                drive(engine, &|| Nanos::new(world.now_ns()), &told, &mail);
                mail.close();
            }
            Err(error) => _ = tell.send(Err(error)),
        });
    Begun { asker, ready, inbox, thread: thread.expect("a thread can be made") }
}

/// Steps an engine and does what comes, until it is told to stop and the others had time for their last words.
fn drive(mut engine: Engine<RcDomain>, now: &dyn Fn() -> Nanos, told: &Receiver<Told>, inbox: &Inbox) {
    let (mut idle, mut end) = (0, Nanos::MAX);
    while now() < end {
        if engine.step(now()) {
            idle = 0;
        }
        while let Some((peer, message)) = engine.take_message() {
            inbox.put(peer.0, message);
        }
        for remark in engine.domain.take_remarks() {
            shunt::host::complain!("shunt transfer: {remark}");
        }
        let nap = match idle {
            0 => Duration::ZERO,
            1..NAPS => NAP,
            _ => REST,
        };
        match told.recv_timeout(nap) {
            Ok(Told::Work(work)) => {
                work(&mut engine, now());
                idle = 0;
            }
            Ok(Told::Stop) => end = now() + LINGER,
            Err(RecvTimeoutError::Timeout) => idle = (idle + 1).min(NAPS),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
