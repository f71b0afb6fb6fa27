//! The part of a decoder.

use crate::model::{Checked, Draws};
use crate::options::Options;
use crate::verdict::{Part, spread};
use anyhow::Result;
use shunt_kv::cache::Cache;
use shunt_kv::requests::Patience;
use shunt_kv::{Decoder, Ended, How};
use shunt_transfer::{Node, Place};
use shunt_transfer_program::faults::Planned;
use shunt_transfer_program::place::heap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What comes late comes within this time.
const REST: Duration = Duration::from_millis(300);
/// A look around at least so often.
const LOOK: Duration = Duration::from_millis(1);

/// What is known of a request that is open.
struct Open {
    begun: Instant,
    /// When it is cancelled, and when it was.
    cancel_at: Option<Instant>,
    cancelled: Option<Instant>,
}

struct Run<'a> {
    options: &'a Options,
    decoder: Decoder,
    checked: Checked,
    draws: Draws,
    open: BTreeMap<u32, Open>,
    asked: u32,
    part: Part,
    complete_ns: Vec<u64>,
    cancel_ns: Vec<u64>,
}

/// Runs a decoder until its requests have ended.
///
/// # Errors
/// A NIC refuses, or the address cannot be used.
pub fn run(options: &Options, place: &Arc<Place>, listen: &str) -> Result<Part> {
    let end = options.end;
    let node = Node::open(place, end, options.nics.rails(), listen)?;
    shunt::host::complain!("kv_disagg: decode.{end} listens at {}", node.listens_at()?);
    let (pages, contexts) = (options.cache_pages(), options.concurrent);
    let cache = Cache { shape: options.shape(), pages, contexts };
    let memory = heap(cache.bytes())?;
    let checked = Checked::new(memory.clone(), cache)?;
    let patience = if place.nics.are_soft() { Patience::SOFT } else { Patience::HARDWARE };
    let decoder = Decoder::new(node, memory, cache, patience)?;
    let mut run = Run {
        options,
        decoder,
        checked,
        draws: Draws(options.seed ^ u64::from(end) << 32),
        open: BTreeMap::new(),
        asked: 0,
        part: Part::default(),
        complete_ns: Vec::new(),
        cancel_ns: Vec::new(),
    };
    let until = Instant::now() + options.within();
    // All prefillers that it was told of, so that none is idle because it came late.
    let mut refused = None;
    while run.decoder.serving() < options.prefill as usize && Instant::now() < until {
        run.step()?;
        run.tell_refused(&mut refused)?;
    }
    let serving = run.decoder.serving();
    shunt::host::complain!("kv_disagg: decode.{end} begins, {serving} prefillers serve");
    if serving == 0 {
        let (want, within) = (options.prefill, options.within());
        shunt::host::complain!(
            "kv_disagg: decode.{end}: prefillers: expected {want} within {within:?}, got none"
        );
    }
    let planned = Planned::begin(&options.nics.inject, end, &place.nics).map_err(anyhow::Error::msg)?;
    let begun = Instant::now();
    while Instant::now() < until && (run.asked < options.requests || !run.open.is_empty()) {
        run.ask()?;
        run.step()?;
    }
    run.part.took_ns = begun.elapsed().as_nanos() as u64;
    let rest = Instant::now() + REST;
    while Instant::now() < rest {
        run.step()?;
    }
    run.part.faults = planned.struck(&place.nics).map_err(anyhow::Error::msg)?;
    run.part.returns = run.decoder.node().counts()?.returned;
    run.finish()
}

impl Run<'_> {
    /// Says what cannot be a prefiller, and why. One that tries again and again is told of once.
    fn tell_refused(&self, said: &mut Option<String>) -> Result<()> {
        let refused = self.decoder.node().last_refused()?;
        if let Some(why) = refused.as_ref().filter(|_| refused != *said) {
            shunt::host::complain!("kv_disagg: decode.{}: refused {why}", self.options.end);
        }
        *said = refused;
        Ok(())
    }

    /// Asks for as much as may be open.
    fn ask(&mut self) -> Result<()> {
        while self.asked < self.options.requests && self.decoder.open() < self.options.concurrent as usize {
            let pages = 1 + self.draws.below(self.options.pages.into()) as usize;
            let next: Vec<u32> = self.decoder.free_pages().take(pages).collect();
            self.part.late_writes += self.checked.written(next.into_iter())?;
            let prompt = u64::from(self.options.end) << 32 | u64::from(self.asked);
            let Some(id) = self.decoder.ask(prompt, pages)? else { return Ok(()) };
            let begun = Instant::now();
            let is_cancelled = self.draws.below(100) < self.options.cancel.into();
            // Before, in the middle of, and after what it takes.
            let most = 2 * u64::from(self.options.layers) * self.options.layer_time.max(50_000);
            let cancel_at = is_cancelled.then(|| begun + Duration::from_nanos(self.draws.below(most)));
            self.open.insert(id, Open { begun, cancel_at, cancelled: None });
            self.asked += 1;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let now = Instant::now();
        let due = |open: &Open| open.cancel_at.is_some_and(|at| at <= now);
        let cancelled: Vec<u32> = self.open.iter().filter(|(_, open)| due(open)).map(|(id, _)| *id).collect();
        for id in cancelled {
            self.decoder.cancel(id)?;
            if let Some(open) = self.open.get_mut(&id) {
                (open.cancel_at, open.cancelled) = (None, Some(now));
            }
        }
        for ended in self.decoder.step(LOOK)? {
            self.take(&ended)?;
        }
        Ok(())
    }

    fn take(&mut self, ended: &Ended) -> Result<()> {
        let Some(open) = self.open.remove(&ended.id) else { return Ok(()) };
        match &ended.how {
            How::Complete => {
                self.part.complete += 1;
                self.part.pages += u64::from(self.options.layers) * ended.pages.len() as u64;
                let wrong = self.checked.wrong(ended.prompt, &ended.pages, ended.context)?;
                self.part.pages_wrong += wrong;
                *self.part.by_prefiller.entry(ended.prefiller).or_default() += 1;
                self.complete_ns.push(open.begun.elapsed().as_nanos() as u64);
            }
            How::Cancelled(None) => {
                self.part.cancelled += 1;
                let since = open.cancelled.unwrap_or(open.begun);
                self.cancel_ns.push(since.elapsed().as_nanos() as u64);
            }
            How::Cancelled(Some(why)) => {
                self.part.refused += 1;
                if self.part.failure.is_empty() {
                    self.part.failure.clone_from(why);
                }
            }
            How::Lost => {
                self.part.lost += 1;
                let (end, prefiller) = (self.options.end, ended.prefiller);
                shunt::host::complain!(
                    "kv_disagg: decode.{end}: request {} is lost with its prefiller, end {prefiller}; its pages are \
                     free",
                    ended.id
                );
            }
        }
        // From here on nothing may write them.
        self.checked.free(&ended.pages)?;
        self.decoder.release(ended);
        Ok(())
    }

    fn finish(mut self) -> Result<Part> {
        let free: Vec<u32> = self.decoder.free_pages().collect();
        self.part.late_writes += self.checked.written(free.into_iter())?;
        self.part.requests = self.asked.into();
        self.part.unasked = (self.options.requests - self.asked).into();
        self.part.open = self.open.len() as u64;
        self.part.again = self.decoder.again();
        self.part.stuck_pages = self.decoder.used_pages() as u64;
        self.part.failovers = self.decoder.node().counts()?.closed;
        (self.part.complete_ns, self.part.cancel_ns) = (spread(self.complete_ns), spread(self.cancel_ns));
        Ok(self.part)
    }
}
