//! An end and the thread that drives its engine. Calls come from any thread, as work for that one.

use crate::asker::{Asker, until};
use crate::connect::connect;
use crate::cuts::{Cuts, Why};
use crate::error::{CallError, NoNode};
use crate::mailbox::Mailbox;
use crate::mesh::{Mesh, Order};
use crate::pending::{Expectation, Slot, Transfer};
use crate::place::Place;
use crate::rails::Rails;
use crate::registering;
use crate::thread::{Begun, Ready, begin};
use shunt::Member;
use shunt::host::connect::Bootstrap;
use shunt::host::gpu::OwnedSpan;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::engine::{Engine, OnDone, Paged, Read, Write};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::{PeerId, TransferId};
use shunt_transfer_engine::region::{Mr, MrDesc, Rights};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_engine::transfer::{Counts, Ended};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// An end that has not come to an exchange for so long is missing, where nothing else is said.
pub const EXCHANGE: Duration = Duration::from_secs(60);

/// Memory of this end, registered on every rail. It stays registered until [`Node::deregister`], or until the node and
/// its thread have ended.
#[derive(Clone)]
pub struct Region {
    memory: Arc<OwnedSpan>,
    mr: Mr,
    rights: Rights,
    /// Of which node.
    node: NodeId,
}

/// A node of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(u64);

impl NodeId {
    /// One that no other node of this process has.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
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

/// What has become of the others of a node that connects to them one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A peer is there, under this number.
    Joined(u32),
    /// A peer has left, has ended, or did not answer for the give-up time. Nothing of it lands here any more, and its
    /// number is not used again.
    Left(u32),
}

/// A message, and whose it is.
pub type Message = (u32, Vec<u8>);

/// The others of a node that connects to them one by one.
#[derive(Default)]
pub(crate) struct Known {
    pub there: Mutex<BTreeSet<u32>>,
    pub changes: Mailbox<Change>,
    pub refused: Mutex<Option<String>>,
}

/// Who the others are.
pub(crate) enum Others {
    /// All ends of a job, with the exchange that they came up by.
    Job { exchange: Arc<Mutex<Box<dyn Bootstrap + Send>>>, end: u32, ends: u32 },
    /// Those that are connected.
    Connected { mesh: Mesh, known: Arc<Known>, listens_at: SocketAddr },
}

/// An end of a job, connected to all others; or a node that connects to others one by one.
pub struct Node {
    pub(crate) id: NodeId,
    pub(crate) asker: Asker,
    /// Whose NICs of the place it has.
    pub(crate) nics_of: u32,
    pub(crate) others: Others,
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) inbox: Arc<Mailbox<Message>>,
    pub(crate) cuts: Cuts,
    pub(crate) place: Arc<Place>,
}

impl Node {
    /// Connects the ends of this process with each other and with those of other processes. Returns when lanes to all
    /// are open.
    ///
    /// # Errors
    /// The first end's that is not connected.
    pub fn start(place: Place, rails: u32) -> Result<Vec<Self>, NoNode> {
        let place = Arc::new(place);
        let start = |member: Member| {
            let (nics, pe) = (place.nics.clone(), member.pe);
            begin(pe, move || connect(member, &nics, rails))
        };
        let begun: Vec<_> = place.members().into_iter().map(start).collect();
        let node = |begun: Begun<_>| {
            let Ready { told: (exchange, end, ends), asker, inbox, cuts, thread } = begun.ready()?;
            let others = Others::Job { exchange: Arc::new(Mutex::new(exchange)), end, ends };
            let (id, thread, place) = (NodeId::new(), Some(thread), place.clone());
            Ok(Self { id, asker, nics_of: end, others, thread, inbox, cuts, place })
        };
        begun.into_iter().map(node).collect()
    }

    /// The number of this end in its job; 0 of a node that connects to others one by one.
    pub fn end(&self) -> u32 {
        match self.others {
            Others::Job { end, .. } => end,
            Others::Connected { .. } => 0,
        }
    }

    /// Ends of the job; of a node that connects to others one by one, how many are there now, itself among them.
    pub fn ends(&self) -> u32 {
        match &self.others {
            Others::Job { ends, .. } => *ends,
            Others::Connected { known, .. } => {
                known.there.lock().unwrap_or_else(PoisonError::into_inner).len() as u32 + 1
            }
        }
    }

    /// Whose NICs of its place it has: the end that they fail as.
    pub fn nics_of(&self) -> u32 {
        self.nics_of
    }

    /// The NICs: to name, and to make fail where they are software.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Gives bytes to all ends and returns everyone's, by number. All ends call it equally often.
    ///
    /// # Errors
    /// An end did not answer within a minute, or is gone. A node that connects to others one by one has no exchange.
    pub fn exchange(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, CallError> {
        self.exchange_within(mine, EXCHANGE)
    }

    /// The same, with so long a wait for the next end that is missing. A call that fails counts as one.
    ///
    /// # Errors
    /// As [`Node::exchange`].
    pub fn exchange_within(&self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>, CallError> {
        let Others::Job { exchange, .. } = &self.others else {
            let (what, want) = ("an exchange", "a node of a job whose ends are all known");
            return Err(
                TransferError::Refused { what, want, met: "one that connects to others".to_owned() }.into()
            );
        };
        if !self.asker.process().is_here() {
            return Err(CallError::Closed);
        }
        let exchange = exchange.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(exchange.all_gather_within(mine, u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX))?)
    }

    /// Registers memory on every rail. Where NICs do it, only the thread that calls waits for them.
    ///
    /// # Errors
    /// A NIC refuses.
    pub fn register(&self, memory: Arc<OwnedSpan>, rights: Rights) -> Result<Region, CallError> {
        let mr = registering::register(&self.asker, &memory, rights)?;
        Ok(Region { memory, mr, rights, node: self.id })
    }

    /// Has every NIC take a region's keys back. Once this returns nothing of any peer lands in it, whether the peer
    /// answers or not, and its memory may be used for something else. What a peer still sends to it is refused, and
    /// ends there with [`TransferError::Denied`].
    ///
    /// # Errors
    /// It is another node's, a transfer of this end uses it, or a NIC refuses: then peers may still write into it. Over
    /// libfabric that may be a NIC that did not close an endpoint in time: ask again, and it may have closed it since.
    pub fn deregister(&self, region: &Region) -> Result<(), CallError> {
        registering::deregister(&self.asker, &self.own(region)?)
    }

    /// Cuts a peer off, for good, whether it answers or not. Transfers to it and expectations of it end. Once this
    /// returns `true` nothing of the peer lands in memory of this end any more; `false`: its queue pairs at this end
    /// were not destroyed within this time, as far as is known. Asked again it waits for the same proof, and has it
    /// once they are. So it does of another end of a job that has left.
    ///
    /// # Errors
    /// There is no such peer; or it connected by itself and has left, which [`Node::next_change`] tells with its proof.
    pub fn revoke(&self, peer: u32, patience: Duration) -> Result<bool, CallError> {
        if let Some(proof) = self.cuts.proof(peer) {
            return Ok(proof.wait(patience)?.is_some());
        }
        let (PeerId(of), cuts) = (self.peer(peer)?, self.cuts.clone());
        let cut = self.asker.ask(move |engine, now| {
            // False: it has left meanwhile.
            let _ = cuts.cut(engine, now, of, Why::CutOff);
            cuts.proof(of)
        })?;
        let Some(proof) = cut else {
            let (what, want) = ("peer", "one that is there");
            let met = format!("{peer}, which has left");
            return Err(TransferError::Refused { what, want, met }.into());
        };
        if let Others::Connected { mesh, known, .. } = &self.others {
            known.there.lock().unwrap_or_else(PoisonError::into_inner).remove(&peer);
            mesh.order(Order::Cut(peer));
        }
        Ok(proof.wait(patience)?.is_some())
    }

    /// A region of this node, as its engine knows it: the keys of another one would name other memory here.
    pub(crate) fn own(&self, region: &Region) -> Result<Mr, CallError> {
        if region.node == self.id {
            return Ok(region.mr.clone());
        }
        let (what, want) = ("region", "one of this node");
        Err(TransferError::Refused { what, want, met: "one of another node".to_owned() }.into())
    }

    fn begin<F>(&self, submit: F) -> Result<Transfer, CallError>
    where
        F: FnOnce(&mut Engine<Rails>, Nanos, OnDone) -> Result<TransferId, TransferError> + Send + 'static,
    {
        let (slot, filler) = Slot::new(self.asker.process());
        let done = OnDone::Call(Box::new(move |ended: Ended| filler.fill(ended.into())));
        let id = self.asker.ask(move |engine, now| submit(engine, now, done))??;
        Ok(Transfer { id, slot, asker: self.asker.clone() })
    }

    /// A peer of this end: another one that is there.
    pub(crate) fn peer(&self, peer: u32) -> Result<PeerId, CallError> {
        let (is_there, want, end) = match &self.others {
            Others::Job { end, ends, .. } => (peer < *ends && peer != *end, "another end of the job", *end),
            Others::Connected { known, .. } => {
                let there = known.there.lock().unwrap_or_else(PoisonError::into_inner);
                (there.contains(&peer), "one that is connected", 0)
            }
        };
        if is_there {
            return Ok(PeerId(peer));
        }
        Err(TransferError::Refused { what: "peer", want, met: format!("{peer} at end {end}") }.into())
    }

    /// Begins to write bytes of a region into a peer's.
    ///
    /// # Errors
    /// The region is another node's, they leave it, or the target is not for peers to write. Nothing was posted.
    pub fn write(
        &self,
        peer: u32,
        len: u64,
        imm: Option<u32>,
        (from, from_at): (&Region, u64),
        (to, to_at): (&MrDesc, u64),
    ) -> Result<Transfer, CallError> {
        let (peer, from, to) = (self.peer(peer)?, self.own(from)?, to.clone());
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
        let (peer, from, to) = (self.peer(peer)?, self.own(from)?, to.clone());
        self.begin(move |engine, now, done| {
            let (from, to) = ((&from, &from_pages), (&to, &to_pages));
            engine.submit_paged(now, &Paged { peer, page_len, imm, from, to }, done)
        })
    }

    /// Begins to bring into a peer's memory what was written there by transfers that have ended, before it is used or
    /// told of by another way than immediates. A write without an immediate is there once it has ended.
    ///
    /// # Errors
    /// The region is not for peers to write.
    pub fn flush(&self, peer: u32, to: &MrDesc) -> Result<Transfer, CallError> {
        let (peer, to) = (self.peer(peer)?, to.clone());
        self.begin(move |engine, _, done| engine.submit_flush(peer, &to, done))
    }

    /// Begins to read bytes of a peer's region into one of this end.
    ///
    /// # Errors
    /// The region is another node's, they leave it, or the source is not for peers to read. Nothing was posted.
    pub fn read(
        &self,
        peer: u32,
        len: u64,
        (from, from_at): (&MrDesc, u64),
        (to, to_at): (&Region, u64),
    ) -> Result<Transfer, CallError> {
        let (peer, from, to) = (self.peer(peer)?, from.clone(), self.own(to)?);
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
    pub fn receive(&self, patience: Duration) -> Result<Option<Message>, CallError> {
        self.inbox.take(patience)
    }

    /// As [`Node::receive`], where there is room for so many bytes. One that is longer is left where it is, and its
    /// length is the answer.
    ///
    /// # Errors
    /// The engine was closed.
    pub fn receive_within(
        &self,
        room: usize,
        patience: Duration,
    ) -> Result<Option<Result<Message, usize>>, CallError> {
        let is_short = |(_, message): &Message| match message.len() {
            len if len > room => Err(len),
            _ => Ok(()),
        };
        self.inbox.take_if(patience, is_short)
    }

    /// Begins to end, as dropping it does: whoever waits in a call is told. The node is still to be dropped.
    pub fn stop(&self) {
        if !self.asker.process().is_here() {
            return;
        }
        self.asker.stop();
        if let Others::Connected { mesh, known, .. } = &self.others {
            known.changes.close();
            mesh.order(Order::Refuse);
        }
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
        let (peer, (slot, filler)) = (self.peer(peer)?, Slot::new(self.asker.process()));
        self.asker.ask(move |engine, now| {
            let until = patience.map_or(Nanos::MAX, |patience| until(now, patience));
            engine.expect((peer, imm), count, until, Box::new(move |reached| filler.fill(reached)))
        })??;
        Ok(Expectation { slot })
    }

    /// Drops the count of an immediate that is of no use any more, of a transfer that was cancelled. An expectation of
    /// it ends with [`TransferError::Missing`].
    ///
    /// # Errors
    /// There is no such peer.
    pub fn forget(&self, peer: u32, imm: u32) -> Result<(), CallError> {
        let peer = self.peer(peer)?;
        self.asker.ask(move |engine, _| engine.forget(peer, imm))
    }

    /// How many immediates of a peer have arrived and were not taken by an expectation.
    ///
    /// # Errors
    /// There is no such peer, or the engine is closed.
    pub fn counter(&self, peer: u32, imm: u32) -> Result<u64, CallError> {
        let peer = self.peer(peer)?;
        self.asker.ask(move |engine, _| engine.counter(peer, imm))
    }

    /// How long a peer may be without a rail before it counts as lost.
    ///
    /// # Errors
    /// The engine is closed.
    pub fn give_up(&self) -> Result<Duration, CallError> {
        self.asker.ask(|engine, _| Duration::from_nanos(engine.policy().give_up.get()))
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

impl Node {
    /// In a child of its process: all that its threads would end, and what others hear of, stays as it is.
    fn leave_to_the_parent(&mut self) {
        std::mem::forget((self.thread.take(), self.place.clone()));
        if let Others::Job { exchange, .. } = &self.others {
            std::mem::forget(exchange.clone());
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.asker.process().is_here() {
            return self.leave_to_the_parent();
        }
        self.asker.stop();
        // In a callback it is this thread, which ends by itself.
        if let Some(thread) = self.thread.take().filter(|_| !self.asker.is_here()) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}
