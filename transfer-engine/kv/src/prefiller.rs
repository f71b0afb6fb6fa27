//! A prefiller on a node: it takes requests, lets the caller compute one layer after the other, and writes each as soon
//! as it is there.

use crate::cache::Cache;
use crate::words::{Ask, Shape, Word};
use shunt::host::gpu::OwnedSpan;
use shunt_transfer::pending::CancelHow;
use shunt_transfer::{CallError, Change, Node, Region, Transfer};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::region::{MrDesc, Rights};
use shunt_transfer_engine::shard::Pages;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two words to a decoder that has not answered.
const AGAIN: Duration = Duration::from_millis(100);

/// What the caller computes: the pages of a layer, or the context behind the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Of which prompt.
    pub prompt: u64,
    /// Of which layer; `None`: the context.
    pub layer: Option<u32>,
    /// Where its bytes go, in memory of the caller's.
    pub at: u64,
    /// How many.
    pub bytes: u64,
}

/// A decoder that is there.
struct Peer {
    /// Its cache, once it has described it.
    cache: Option<(Cache, MrDesc)>,
    said: Option<Instant>,
}

struct Running {
    peer: u32,
    ask: Ask,
    slot: u32,
    /// Layers that were written; one more for the context.
    written: u32,
    transfers: Vec<Transfer>,
    /// Nothing more of it is written. Why, if not by the decoder's wish.
    stopped: Option<Option<String>>,
    /// What was written as a whole is being brought into the decoder's memory: it no more counts its immediates.
    flushed: bool,
    /// Some of it may land for ever.
    unproven: bool,
}

/// A prefiller.
pub struct Prefiller {
    node: Arc<Node>,
    region: Region,
    name: u32,
    shape: Shape,
    pages_max: u32,
    free: Vec<u32>,
    peers: BTreeMap<u32, Peer>,
    waiting: VecDeque<(u32, Ask)>,
    running: Vec<Running>,
    /// Requests that were cancelled when all was written: the decoder, its number, what brings the rest into its
    /// memory.
    ended: Vec<(u32, u32, Transfer)>,
    served: u64,
    refusal: Option<String>,
}

impl Prefiller {
    /// Bytes of memory of a prefiller that works on so many requests at once, of at most so many pages each.
    pub const fn bytes(shape: Shape, pages_max: u32, requests: u32) -> u64 {
        Self::slot_bytes(shape, pages_max) * requests as u64
    }

    const fn slot_bytes(shape: Shape, pages_max: u32) -> u64 {
        shape.layers as u64 * pages_max as u64 * shape.page_len + shape.context_len
    }

    /// On a node, under a name of the application's, with memory for as many requests as fit.
    ///
    /// # Errors
    /// The memory is too small for one, or a NIC refuses it.
    pub fn new(
        name: u32,
        node: Arc<Node>,
        memory: Arc<OwnedSpan>,
        shape: Shape,
        pages_max: u32,
    ) -> Result<Self, CallError> {
        let (met, each) = (memory.span().bytes, Self::slot_bytes(shape, pages_max));
        let slots = u32::try_from(met / each.max(1)).unwrap_or(u32::MAX);
        if slots == 0 {
            let (what, want) = ("memory of a prefiller", "as many bytes as a request has");
            return Err(TransferError::Refused { what, want, met: format!("{met} of {each}") }.into());
        }
        let region = node.register(memory, Rights::Local)?;
        Ok(Self {
            node,
            region,
            name,
            shape,
            pages_max,
            free: (0..slots).collect(),
            peers: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            ended: Vec::new(),
            served: 0,
            refusal: None,
        })
    }

    /// Its node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Requests that were written whole.
    pub fn served(&self) -> u64 {
        self.served
    }

    /// Why the last request that it did not take was refused.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Requests that it works on, and that wait.
    pub fn open(&self) -> usize {
        self.running.len() + self.waiting.len() + self.ended.len()
    }

    /// Takes what has come, for as long as `patience` if nothing does and there is nothing to compute, and carries each
    /// request on by a layer.
    ///
    /// # Errors
    /// The node is closed.
    pub fn step(&mut self, patience: Duration, mut compute: impl FnMut(Job)) -> Result<(), CallError> {
        let mut patience = if self.open() > 0 { Duration::ZERO } else { patience };
        while let Some((from, bytes)) = self.node.receive(patience)? {
            patience = Duration::ZERO;
            if let Some(word) = Word::from_bytes(&bytes) {
                self.hear(from, word)?;
            }
        }
        while let Some(change) = self.node.next_change(Duration::ZERO)? {
            match change {
                Change::Joined(peer) => _ = self.peers.insert(peer, Peer { cache: None, said: None }),
                Change::Left(peer) => {
                    self.peers.remove(&peer);
                    self.waiting.retain(|(of, _)| *of != peer);
                }
            }
        }
        self.greet()?;
        self.begin()?;
        for at in 0..self.running.len() {
            self.carry_on(at, &mut compute)?;
        }
        self.settle()
    }

    /// Says to decoders that have not answered that it serves.
    fn greet(&mut self) -> Result<(), CallError> {
        let now = Instant::now();
        let mut due = Vec::new();
        for (number, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.cache.is_none()) {
            if peer.said.is_none_or(|said| said + AGAIN <= now) {
                peer.said = Some(now);
                due.push(*number);
            }
        }
        due.into_iter().try_for_each(|number| self.say(number, &Word::Serves(self.name)))
    }

    fn say(&self, peer: u32, word: &Word) -> Result<(), CallError> {
        match self.node.send(peer, &word.to_bytes()) {
            Err(CallError::Closed) => Err(CallError::Closed),
            // It has left, which is told soon.
            _ => Ok(()),
        }
    }

    fn hear(&mut self, from: u32, word: Word) -> Result<(), CallError> {
        match word {
            Word::Cache(shape, description, pages) => {
                if let (Ok(target), Some(peer)) =
                    (MrDesc::from_bytes(&description), self.peers.get_mut(&from))
                {
                    peer.cache = Some((Cache { shape, pages, contexts: 0 }, target));
                }
                Ok(())
            }
            Word::Ask(ask) => {
                if let Err(why) = self.check(from, &ask) {
                    self.refusal = Some(why.clone());
                    return self.say(from, &Word::Over(ask.id, Some(why)));
                }
                self.waiting.push_back((from, ask));
                Ok(())
            }
            Word::Cancel(id) => self.cancel(from, id),
            Word::Beat => self.say(from, &Word::Beat),
            Word::Serves(_) | Word::Over(..) | Word::Unproven(_) => Ok(()),
        }
    }

    fn check(&self, from: u32, ask: &Ask) -> Result<(), String> {
        let cache = self.peers.get(&from).and_then(|peer| peer.cache.as_ref());
        let Some((cache, _)) = cache else {
            return Err("a cache: expected a description, got none".to_owned());
        };
        if cache.shape != self.shape {
            let (want, met) = (self.shape, cache.shape);
            return Err(format!("shape of a cache: expected {want} as at its prefiller, got {met}"));
        }
        let (count, most) = (ask.pages.len(), self.pages_max);
        if count == 0 || count > most as usize {
            return Err(format!("pages: expected 1 to {most}, got {count}"));
        }
        match ask.pages.iter().find(|page| **page >= cache.pages) {
            Some(page) => Err(format!("page: expected 0 to {}, got {page}", cache.pages.saturating_sub(1))),
            None => Ok(()),
        }
    }

    fn cancel(&mut self, from: u32, id: u32) -> Result<(), CallError> {
        let is_it = |peer: u32, ask: &Ask| peer == from && ask.id == id;
        if let Some(running) = self.running.iter_mut().find(|running| is_it(running.peer, &running.ask)) {
            running.stop(None);
            return Ok(());
        }
        let before = self.waiting.len();
        self.waiting.retain(|(peer, ask)| !is_it(*peer, ask));
        // One that waits was not begun.
        if self.waiting.len() == before
            && let Some(flush) = self.flush(from)?
        {
            self.ended.push((from, id, flush));
            return Ok(());
        }
        self.say(from, &Word::Over(id, None))
    }

    /// Begins to bring into a decoder's memory what was written there. `None`: it has left, which is told soon.
    fn flush(&self, peer: u32) -> Result<Option<Transfer>, CallError> {
        let cache = self.peers.get(&peer).and_then(|peer| peer.cache.as_ref());
        match cache.map(|(_, target)| self.node.flush(peer, target)) {
            Some(Err(CallError::Closed)) => Err(CallError::Closed),
            flush => Ok(flush.and_then(Result::ok)),
        }
    }

    /// Begins what waits, as far as there is memory.
    fn begin(&mut self) -> Result<(), CallError> {
        while !self.waiting.is_empty() {
            let Some(slot) = self.free.pop() else { return Ok(()) };
            let Some((peer, ask)) = self.waiting.pop_front() else { return Ok(()) };
            let (transfers, stopped) = (Vec::new(), None);
            let (flushed, unproven) = (false, false);
            self.running.push(Running { peer, ask, slot, written: 0, transfers, stopped, flushed, unproven });
        }
        Ok(())
    }

    /// Computes and writes the next layer of a request, or its context.
    fn carry_on(&mut self, at: usize, compute: &mut impl FnMut(Job)) -> Result<(), CallError> {
        let Self { node, region, shape, pages_max, peers, running, .. } = self;
        let Some(running) = running.get_mut(at) else { return Ok(()) };
        if running.stopped.is_some() || running.written > shape.layers {
            return Ok(());
        }
        let Some((cache, target)) = peers.get(&running.peer).and_then(|peer| peer.cache.as_ref()) else {
            running.stop(None);
            return Ok(());
        };
        let slot = u64::from(running.slot) * Self::slot_bytes(*shape, *pages_max);
        let layer = (running.written < shape.layers).then_some(running.written);
        let Ask { id, prompt, pages, context } = &running.ask;
        let (count, base) = (pages.len() as u32, region.memory().span().address);
        let offset = slot + u64::from(running.written) * u64::from(*pages_max) * shape.page_len;
        let bytes = layer.map_or(shape.context_len, |_| u64::from(count) * shape.page_len);
        compute(Job { prompt: *prompt, layer, at: base + offset, bytes });
        let begun = match layer {
            Some(layer) => {
                let from = Pages { indices: (0..count).collect(), stride: shape.page_len, offset };
                let to = cache.pages_of(layer, pages);
                node.write_pages(running.peer, shape.page_len, Some(*id), (region, from), (target, to))
            }
            None => {
                let (from, to) = ((&*region, offset), (target, *context));
                node.write(running.peer, shape.context_len, Some(*id), from, to)
            }
        };
        match begun {
            Ok(transfer) => {
                running.transfers.push(transfer);
                running.written += 1;
            }
            Err(CallError::Closed) => return Err(CallError::Closed),
            Err(error) => running.stop(Some(error.to_string())),
        }
        Ok(())
    }

    /// Ends requests of which nothing is under way.
    fn settle(&mut self) -> Result<(), CallError> {
        self.settle_ended()?;
        let mut over = Vec::new();
        for at in 0..self.running.len() {
            self.running[at].look()?;
            let Running { peer, ref transfers, ref stopped, flushed, .. } = self.running[at];
            if transfers.is_empty() && stopped.is_some() && !flushed {
                let flush = self.flush(peer)?;
                self.running[at].transfers.extend(flush);
                self.running[at].flushed = true;
            }
            let running = &self.running[at];
            let whole = running.stopped.is_none() && running.written > self.shape.layers;
            if running.transfers.is_empty() && (whole || running.stopped.is_some()) {
                over.push(at);
            }
        }
        for at in over.into_iter().rev() {
            let Running { peer, ask, slot, stopped, unproven, .. } = self.running.swap_remove(at);
            if !unproven {
                self.free.push(slot);
            }
            match stopped {
                None => self.served += 1,
                Some(_) if unproven => self.say(peer, &Word::Unproven(ask.id))?,
                Some(why) => self.say(peer, &Word::Over(ask.id, why))?,
            }
        }
        Ok(())
    }
}

impl Prefiller {
    /// Says of requests that were cancelled late that nothing of them lands any more.
    fn settle_ended(&mut self) -> Result<(), CallError> {
        for (peer, id, flush) in std::mem::take(&mut self.ended) {
            match flush.wait(Duration::ZERO)? {
                None => self.ended.push((peer, id, flush)),
                Some(end) if end.is_quiet => self.say(peer, &Word::Over(id, None))?,
                Some(_) => self.say(peer, &Word::Unproven(id))?,
            }
        }
        Ok(())
    }
}

impl Running {
    /// Nothing more of it is written, and what is under way is cut short.
    fn stop(&mut self, why: Option<String>) {
        if self.stopped.is_none() {
            self.stopped = Some(why);
            self.transfers.iter().for_each(|transfer| transfer.cancel(CancelHow::Now));
        }
    }

    /// Forgets transfers that have ended.
    fn look(&mut self) -> Result<(), CallError> {
        let mut failed = None;
        let mut at = 0;
        while let Some(transfer) = self.transfers.get(at) {
            let Some(end) = transfer.wait(Duration::ZERO)? else {
                at += 1;
                continue;
            };
            self.transfers.swap_remove(at);
            self.unproven |= !end.is_quiet;
            failed = failed.or_else(|| end.result.err());
        }
        if let Some(error) = failed {
            self.stop(Some(error.to_string()));
        }
        Ok(())
    }
}
