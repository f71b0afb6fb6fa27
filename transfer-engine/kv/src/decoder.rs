//! A decoder on a node: it owns the pages, asks for prompts, and hands over what has come.

use crate::cache::Cache;
use crate::pool::Pool;
pub use crate::requests::How;
use crate::requests::{Do, Patience, Requests};
use crate::words::Word;
use shunt::host::gpu::OwnedSpan;
use shunt_transfer::{CallError, Change, Expectation, Node, Region};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::region::Rights;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the proof that a peer is cut off may take.
const PROOF: Duration = Duration::from_secs(5);

/// A request that its prefiller could not write is asked for so often in all, under a number of its own each time.
/// Where the fate of a write is not known its immediates cannot be counted on.
const TRIES: u32 = 3;

/// A request that has ended. Its pages are the caller's until [`Decoder::release`].
#[derive(Debug)]
pub struct Ended {
    /// Which.
    pub id: u32,
    /// What was asked for.
    pub prompt: u64,
    /// Of which prefiller, as the application calls it.
    pub prefiller: u32,
    /// How.
    pub how: How,
    /// Its pages, in the order of the prompt.
    pub pages: Vec<u32>,
    /// Its context.
    pub context: u32,
}

struct Open {
    /// The number that the caller knows it by.
    first: u32,
    tries: u32,
    prompt: u64,
    pages: Vec<u32>,
    context: u32,
    prefiller: u32,
    expected: Expectation,
}

/// A decoder.
pub struct Decoder {
    node: Node,
    region: Region,
    cache: Cache,
    pool: Pool,
    contexts: Pool,
    requests: Requests,
    open: BTreeMap<u32, Open>,
    /// By the caller's number: the number that a request has now.
    now: BTreeMap<u32, u32>,
    /// How often a request was asked for again.
    again: u64,
    /// Requests that have ended and were not handed over.
    ended: Vec<Ended>,
    /// Requests of peers that were to be cut off, without a proof that they are.
    unproven: usize,
}

impl Decoder {
    /// On a node, with a cache in memory that is registered here.
    ///
    /// # Errors
    /// The memory is too small, or a NIC refuses it.
    pub fn new(
        node: Node,
        memory: Arc<OwnedSpan>,
        cache: Cache,
        patience: Patience,
    ) -> Result<Self, CallError> {
        let met = memory.span().bytes;
        if met < cache.bytes() {
            let (what, want) = ("memory of a cache", "as many bytes as its pages and contexts have");
            return Err(
                TransferError::Refused { what, want, met: format!("{met} of {}", cache.bytes()) }.into()
            );
        }
        let region = node.register(memory, Rights::Write)?;
        let (pool, contexts) = (Pool::new(cache.pages), Pool::new(cache.contexts));
        let (requests, open) = (Requests::new(patience), BTreeMap::new());
        Ok(Self {
            node,
            region,
            cache,
            pool,
            contexts,
            requests,
            open,
            now: BTreeMap::new(),
            again: 0,
            ended: Vec::new(),
            unproven: 0,
        })
    }

    /// Its node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The memory of the cache.
    pub fn memory(&self) -> &Arc<OwnedSpan> {
        self.region.memory()
    }

    /// Pages that belong to no request, in the order in which they are taken.
    pub fn free_pages(&self) -> impl Iterator<Item = u32> {
        self.pool.free()
    }

    /// Pages that belong to requests, or to ended ones that were not released.
    pub fn used_pages(&self) -> usize {
        self.pool.used()
    }

    /// Prefillers that serve.
    pub fn serving(&self) -> usize {
        self.requests.serving()
    }

    /// Requests that have not ended.
    pub fn open(&self) -> usize {
        self.requests.open()
    }

    /// How often a request was asked for again, because its prefiller could not write it.
    pub fn again(&self) -> u64 {
        self.again
    }

    /// Requests whose prefiller could not be cut off: their pages are not used again.
    pub fn unproven(&self) -> usize {
        self.unproven
    }

    /// Asks the prefiller with the fewest requests for a prompt of so many pages. `None`: none serves, or there are not
    /// as many pages or no context free.
    ///
    /// # Errors
    /// The node is closed.
    pub fn ask(&mut self, prompt: u64, pages: usize) -> Result<Option<u32>, CallError> {
        let Some(peer) = self.requests.least_busy() else { return Ok(None) };
        let Some(pages) = self.pool.take(pages) else { return Ok(None) };
        let Some(contexts) = self.contexts.take(1) else {
            self.pool.put_back(&pages);
            return Ok(None);
        };
        let (first, context) = (self.requests.next_id(), contexts[0]);
        let prefiller = self.requests.name(peer).unwrap_or_default();
        let Some(expected) = self.expect(peer, pages.len())? else {
            self.pool.put_back(&pages);
            self.contexts.put_back(&contexts);
            return Ok(None);
        };
        self.begin(peer, Open { first, tries: 1, prompt, pages, context, prefiller, expected });
        self.act()?;
        Ok(Some(first))
    }

    /// Expects the immediates of the next request. `None`: the peer has left, which is told soon.
    fn expect(&self, peer: u32, pages: usize) -> Result<Option<Expectation>, CallError> {
        let shape = self.cache.shape;
        let writes = u64::from(shape.layers) * pages as u64;
        let count = writes + u64::from(self.node.writes_of(shape.context_len)?);
        match self.node.expect(peer, self.requests.next_id(), count, None) {
            Err(CallError::Closed) => Err(CallError::Closed),
            expected => Ok(expected.ok()),
        }
    }

    /// Asks for what is expected.
    fn begin(&mut self, peer: u32, open: Open) {
        let at = self.cache.context_at(open.context);
        let id = self.requests.ask(peer, open.prompt, open.pages.clone(), at);
        self.now.insert(open.first, id);
        self.open.insert(id, open);
    }

    /// Cancels a request. It ends later: see [`How`]. False if it has ended.
    ///
    /// # Errors
    /// The node is closed.
    pub fn cancel(&mut self, id: u32) -> Result<bool, CallError> {
        let Some(now) = self.now.get(&id) else { return Ok(false) };
        let is_open = self.requests.cancel(*now);
        self.act()?;
        Ok(is_open)
    }

    /// The pages of a request that has ended are free again.
    pub fn release(&mut self, ended: &Ended) {
        self.pool.put_back(&ended.pages);
        self.contexts.put_back(&[ended.context]);
    }

    /// Takes what has come, for as long as `patience` if nothing does, and answers with the requests that have ended.
    ///
    /// # Errors
    /// The node is closed.
    pub fn step(&mut self, patience: Duration) -> Result<Vec<Ended>, CallError> {
        let mut patience = if self.ended.is_empty() { patience } else { Duration::ZERO };
        while let Some((from, bytes)) = self.node.receive(patience)? {
            patience = Duration::ZERO;
            let Some(word) = Word::from_bytes(&bytes) else { continue };
            if matches!(word, Word::Serves(_)) {
                let description = self.region.describe().to_bytes();
                self.say(from, &Word::Cache(self.cache.shape, description, self.cache.pages))?;
            }
            self.requests.heard(Instant::now(), from, &word);
        }
        for (id, open) in &self.open {
            // One that ended with an error ends with its peer.
            if open.expected.wait(Duration::ZERO)? == Some(Ok(())) {
                self.requests.reached(*id);
            }
        }
        while let Some(change) = self.node.next_change(Duration::ZERO)? {
            if let Change::Left(peer) = change {
                self.requests.left(peer);
            }
        }
        self.requests.tick(Instant::now());
        self.act()?;
        Ok(std::mem::take(&mut self.ended))
    }

    fn say(&self, peer: u32, word: &Word) -> Result<(), CallError> {
        match self.node.send(peer, &word.to_bytes()) {
            Err(CallError::Closed) => Err(CallError::Closed),
            // It has left, which is told soon.
            _ => Ok(()),
        }
    }

    fn act(&mut self) -> Result<(), CallError> {
        loop {
            let all = self.requests.take();
            if all.is_empty() {
                return Ok(());
            }
            for one in all {
                self.act_on(one)?;
            }
        }
    }

    fn act_on(&mut self, one: Do) -> Result<(), CallError> {
        match one {
            Do::Say(peer, word) => self.say(peer, &word),
            Do::Forget(peer, imm) => {
                // Of one that has left there is none.
                let _ = self.node.forget(peer, imm);
                Ok(())
            }
            Do::Revoke(peer) => {
                match self.node.revoke(peer, PROOF) {
                    Ok(true) => self.requests.left(peer),
                    Ok(false) => self.unproven += 1,
                    Err(CallError::Closed) => return Err(CallError::Closed),
                    // It has left of its own, which is told once it is proven.
                    Err(_) => {}
                }
                Ok(())
            }
            Do::End(id, peer, how) => self.end(id, peer, how),
        }
    }

    fn end(&mut self, id: u32, peer: u32, how: How) -> Result<(), CallError> {
        let Some(mut open) = self.open.remove(&id) else { return Ok(()) };
        let failed = matches!(how, How::Cancelled(Some(_))) && open.tries < TRIES;
        let expected = if failed { self.expect(peer, open.pages.len())? } else { None };
        if let Some(expected) = expected {
            (open.expected, open.tries) = (expected, open.tries + 1);
            self.again += 1;
            self.begin(peer, open);
            return Ok(());
        }
        let Open { first, prompt, pages, context, prefiller, .. } = open;
        self.now.remove(&first);
        self.ended.push(Ended { id: first, prompt, prefiller, how, pages, context });
        Ok(())
    }
}
