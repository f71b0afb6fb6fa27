//! Random transfers through random faults, and a judge of what came of them.
//!
//! Every transfer has memory and an immediate of its own. The judge takes promises at their word and at once: a source
//! is overwritten as soon as its transfer has ended, a target as soon as its expectation is reached or its transfer has
//! ended with a proof, as programs do that reuse memory. What lands later is seen at the end.

use super::faults::Fault;
use super::{Config, Counts, Rng, Sim, SimDomain, key};
use crate::engine::{Engine, OnDone, Paged, Policy, Read, Write};
use crate::error::TransferError;
use crate::ids::{PeerId, TransferId};
use crate::region::{Mr, MrDesc, Rights};
use crate::shard::Pages;
use crate::transfer::{Cancel, Ended};
use shunt_recovery::nanos::Nanos;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of memory that a transfer has at each end.
const SLOT: u64 = 4096;
/// Stands where a source may be reused, a target was read, or a target may be reused.
const REUSED: u8 = 0xaa;
const READ: u8 = 0xcc;
const REVOKED: u8 = 0xee;
/// Expectations end by then, and everything else well before.
const DEADLINE: Nanos = Nanos::secs(1);

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Promises that were broken.
    pub wrong: Vec<String>,
    /// What the network did.
    pub counts: Counts,
    /// Transfers that were written, and that ended otherwise.
    pub written: u64,
    /// See [`Report::written`].
    pub cancelled: u64,
    /// See [`Report::written`].
    pub lost: u64,
    /// See [`Report::written`].
    pub uncertain: u64,
    /// See [`Report::written`].
    pub unproven: u64,
    /// Times that pieces were written again because their receiver had only counted them.
    pub replays: u64,
}

/// A transfer, as it is planned and as it goes.
#[derive(Debug)]
struct Case {
    from: u32,
    to: u32,
    /// Pages of this many bytes, or one write of so many.
    paged: Option<(u64, Pages, Pages)>,
    len: u64,
    imm: Option<u32>,
    /// The receiver reads it.
    pulled: bool,
    id: Option<TransferId>,
    ended: Vec<Ended>,
    reached: Vec<(Result<(), TransferError>, Nanos)>,
    was_cancelled: bool,
    revoked: bool,
    pieces: u64,
}

impl Case {
    /// Whose engine moves it.
    const fn owner(&self) -> usize {
        if self.pulled { self.to as usize } else { self.from as usize }
    }
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Submit(usize),
    Expect(usize),
    Cancel(usize, Cancel),
}

#[derive(Default)]
struct Told {
    ended: Vec<(usize, Ended)>,
    reached: Vec<(usize, Result<(), TransferError>)>,
}

struct Run {
    sim: Sim,
    engines: Vec<Engine<SimDomain>>,
    policy: Policy,
    cases: Vec<Case>,
    told: Arc<Mutex<Told>>,
    regions: Vec<(Mr, MrDesc)>,
    wrong: Vec<String>,
}

/// What a byte of a transfer is.
const fn shape(case: usize, at: u64) -> u8 {
    let value = (case as u64 + 1).wrapping_mul(0x9e37_79b9).wrapping_add(at.wrapping_mul(0x85eb_ca6b));
    // No byte looks like one of those that mark memory.
    ((value >> 7) & 0x7f) as u8
}

fn draw_case(rng: &mut Rng, nodes: u32, number: usize) -> Case {
    let from = rng.below(nodes.into()) as u32;
    let to = (from + 1 + rng.below(u64::from(nodes) - 1) as u32) % nodes;
    let pulled = rng.one_in(5);
    let imm = (!pulled && !rng.one_in(4)).then_some(number as u32 + 1);
    let paged = (!pulled && rng.one_in(2)).then(|| {
        let stride = 64 << rng.below(3);
        let all = SLOT / stride;
        let pages = |rng: &mut Rng, count: u64| {
            let (first, step) = (rng.below(all), 1 + 2 * rng.below(all / 2));
            let indices = (0..count).map(|i| ((first + i * step) % all) as u32).collect();
            Pages { indices, stride, offset: number as u64 * SLOT }
        };
        let count = rng.between(1, all);
        (rng.between(1, stride), pages(rng, count), pages(rng, count))
    });
    let len = match rng.below(6) {
        0 if imm.is_some() => 0,
        1 => SLOT,
        _ => rng.between(1, SLOT),
    };
    Case {
        from,
        to,
        paged,
        len,
        imm,
        pulled,
        id: None,
        ended: Vec::new(),
        reached: Vec::new(),
        was_cancelled: false,
        revoked: false,
        pieces: 0,
    }
}

impl Run {
    fn new(seed: u64, rng: &mut Rng, faults: bool) -> Self {
        let (nodes, rails) = (rng.between(2, 3) as u32, rng.between(1, 4) as u32);
        let count = rng.between(4, 40) as usize;
        let memory = 2 * SLOT * count as u64;
        let number = if faults { rng.below(8) } else { 0 };
        let config = Config {
            seed,
            nodes,
            rails,
            memory: memory as usize,
            depth: rng.between(1, 16) as u32,
            unordered: rng.one_in(2),
            late: rng.one_in(2),
            no_truth: if rng.one_in(4) { 4 } else { 0 },
            unproven: if rng.one_in(8) { 6 } else { 0 },
            faults: (0..number).map(|_| Fault::random(rng, nodes, rails, 3_000_000)).collect(),
        };
        let (sim, domains) = Sim::new(config);
        let give_up = Nanos::micros(rng.between(2_000, 60_000));
        let policy = Policy { piece_min: 256, give_up, ..Policy::of_rails(rails) };
        let keys = |node| (0..rails).map(|rail| key(node, rail)).collect::<Vec<_>>();
        let region = |node| {
            let mr = Mr::new(0, memory, &keys(node)).expect("a region of this run");
            let desc =
                MrDesc::from_bytes(&mr.describe(Rights::ReadWrite).to_bytes()).expect("as it was sent");
            (mr, desc)
        };
        let cases: Vec<_> = (0..count).map(|number| draw_case(rng, nodes, number)).collect();
        for (number, case) in cases.iter().enumerate() {
            let bytes: Vec<u8> = (0..SLOT).map(|at| shape(number, at)).collect();
            sim.write(case.from, number as u64 * SLOT, &bytes);
        }
        Self {
            sim,
            engines: domains.into_iter().map(|domain| Engine::new(domain, policy)).collect(),
            policy,
            cases,
            told: Arc::default(),
            regions: (0..nodes).map(region).collect(),
            wrong: Vec::new(),
        }
    }

    /// Where a transfer's target begins: behind all sources.
    fn target(&self, case: usize) -> u64 {
        SLOT * (self.cases.len() + case) as u64
    }

    fn submit(&mut self, now: Nanos, number: usize) {
        let half = SLOT * self.cases.len() as u64;
        let case = &self.cases[number];
        let told = self.told.clone();
        let done = OnDone::Call(Box::new(move |ended| {
            told.lock().unwrap_or_else(PoisonError::into_inner).ended.push((number, ended));
        }));
        let (peer, imm) = (PeerId(case.to), case.imm);
        let (source, target) = (&self.regions[case.from as usize], &self.regions[case.to as usize]);
        let engine = &mut self.engines[case.owner()];
        let (id, pieces) = match &case.paged {
            None if case.pulled => {
                let (len, at) = (case.len, number as u64 * SLOT);
                let (from, to) = ((&source.1, at), (&target.0, half + at));
                let read = Read { peer: PeerId(case.from), len, from, to };
                (engine.submit_read(now, &read, done), self.policy.writes_of(len).into())
            }
            Some((page_len, from, to)) => {
                let to = Pages { offset: half + to.offset, ..to.clone() };
                let (page_len, from, to) = (*page_len, (&source.0, from), (&target.1, &to));
                let pages = from.1.indices.len() as u64;
                (engine.submit_paged(now, &Paged { peer, page_len, imm, from, to }, done), pages)
            }
            None => {
                let (len, at) = (case.len, number as u64 * SLOT);
                let write = Write { peer, len, imm, from: (&source.0, at), to: (&target.1, half + at) };
                (engine.submit_write(now, &write, done), self.policy.writes_of(len).into())
            }
        };
        let case = &mut self.cases[number];
        (case.id, case.pieces) = (id.ok(), pieces);
    }

    fn expect(&mut self, number: usize) {
        let case = &self.cases[number];
        let Some(imm) = case.imm else { return };
        let want = match &case.paged {
            Some((_, pages, _)) => pages.indices.len() as u64,
            None => self.policy.writes_of(case.len).into(),
        };
        let told = self.told.clone();
        let reached = Box::new(move |result| {
            told.lock().unwrap_or_else(PoisonError::into_inner).reached.push((number, result));
        });
        let engine = &mut self.engines[case.to as usize];
        if let Err(error) = engine.expect((PeerId(case.from), imm), want, DEADLINE, reached) {
            self.wrong.push(format!("transfer {number}: expected an expectation, got {error}"));
        }
    }

    fn act(&mut self, now: Nanos, deed: Deed) {
        match deed {
            Deed::Submit(number) => self.submit(now, number),
            Deed::Expect(number) => self.expect(number),
            Deed::Cancel(number, how) => {
                let case = &mut self.cases[number];
                if let Some(id) = case.id {
                    case.was_cancelled |= self.engines[case.owner()].cancel(now, id, how);
                }
            }
        }
    }

    /// Steps every engine until none has anything to do.
    fn settle(&mut self) {
        loop {
            let now = self.sim.now();
            let busy = self.engines.iter_mut().fold(false, |busy, engine| engine.step(now) | busy);
            self.take_told(now);
            if !busy {
                return;
            }
        }
    }

    /// Ranges of a transfer's target, and what belongs there.
    fn wanted(&self, number: usize) -> Vec<(u64, Vec<u8>)> {
        let (case, target) = (&self.cases[number], self.target(number));
        let shape = |at: u64, len: u64| (at..at + len).map(|at| shape(number, at)).collect();
        let Some((len, from, to)) = &case.paged else { return vec![(target, shape(0, case.len))] };
        let at = |pages: &Pages, i: usize| u64::from(pages.indices[i]) * pages.stride;
        (0..from.indices.len()).map(|i| (target + at(to, i), shape(at(from, i), *len))).collect()
    }

    fn look(&mut self, number: usize, when: &str) {
        let to = self.cases[number].to;
        for (at, bytes) in self.wanted(number) {
            if self.sim.read(to, at, bytes.len() as u64) != bytes {
                self.wrong.push(format!("transfer {number}: bytes at {at} are not what was sent, {when}"));
                return;
            }
        }
    }

    fn mark(&self, node: u32, at: u64, mark: u8) {
        self.sim.write(node, at, &[mark; SLOT as usize]);
    }

    fn take_told(&mut self, now: Nanos) {
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        for (number, result) in told.reached {
            if result.is_ok() && !self.cases[number].revoked {
                self.look(number, "when its immediates were counted");
                self.mark(self.cases[number].to, self.target(number), READ);
            }
            self.cases[number].reached.push((result, now));
        }
        for (number, ended) in told.ended {
            let case = &self.cases[number];
            let (from, to, bare) = (case.from, case.to, case.imm.is_none());
            if ended.quiesced.is_some() {
                self.mark(from, number as u64 * SLOT, REUSED);
            }
            match (&ended.result, &ended.quiesced) {
                (Ok(()), _) if bare => {
                    self.look(number, "when it had ended");
                    self.mark(to, self.target(number), READ);
                }
                (Err(_), Some(_)) if self.cases[number].reached.is_empty() => {
                    self.mark(to, self.target(number), REVOKED);
                    self.cases[number].revoked = true;
                }
                _ => {}
            }
            self.cases[number].ended.push(ended);
        }
    }

    /// What is wrong with a transfer in the end.
    fn judge(&mut self, number: usize) {
        let mut wrong = |text: String| self.wrong.push(format!("transfer {number}: {text}"));
        let case = &self.cases[number];
        let [ended] = &case.ended[..] else {
            return wrong(format!("expected one end, got {:?}", case.ended));
        };
        let (is_unproven, written) = (
            matches!(ended.result, Err(TransferError::Unproven { .. })),
            ended.quiesced.as_ref().map_or(0, |proof| proof.written()),
        );
        if is_unproven == ended.quiesced.is_some() {
            wrong(format!("a proof does not go with {:?}", ended.result));
        }
        if matches!(ended.result, Err(TransferError::Cancelled { .. })) && !case.was_cancelled {
            wrong("was not cancelled".to_owned());
        }
        if ended.result.is_ok() && written != case.pieces {
            wrong(format!("is written with {written} of {} pieces", case.pieces));
        }
        let Some(imm) = case.imm else { return };
        let counter = self.engines[case.to as usize].counter(PeerId(case.from), imm);
        let [(reached, at)] = &case.reached[..] else {
            return wrong(format!("expected one end of its expectation, got {:?}", case.reached));
        };
        let taken = if reached.is_ok() { case.pieces } else { 0 };
        let arrived = counter + taken;
        let may = match &ended.result {
            Err(TransferError::Unproven { .. }) => 0..=case.pieces,
            Err(TransferError::Uncertain { pieces, .. }) => written..=written + pieces,
            _ => written..=written,
        };
        if !may.contains(&arrived) {
            wrong(format!("expected {may:?} immediates, got {arrived}; {:?}", ended.result));
        }
        if ended.result.is_ok() && reached.is_err() && *at >= DEADLINE {
            wrong(format!("was written, and its expectation ended with {reached:?}"));
        }
    }

    /// What lies in a transfer's target in the end.
    fn look_at_the_end(&mut self, number: usize) {
        let case = &self.cases[number];
        let [ended] = &case.ended[..] else { return };
        let was_read = case.reached.iter().any(|(result, _)| result.is_ok())
            || (case.imm.is_none() && ended.result.is_ok());
        let mark = match () {
            () if case.revoked => REVOKED,
            () if was_read => READ,
            () if ended.result.is_ok() => return self.look(number, "in the end"),
            () => return,
        };
        let bytes = self.sim.read(case.to, self.target(number), SLOT);
        if let Some(at) = bytes.iter().position(|byte| *byte != mark) {
            let text = format!("transfer {number}: byte {at} was written after the memory was free");
            self.wrong.push(text);
        }
    }
}

/// Transfers between engines of a network that fails as the seed has it; without faults if there are to be none.
pub fn run(seed: u64, faults: bool) -> Report {
    let mut rng = Rng::new(seed ^ 0x6f72_6163_6c65);
    let mut run = Run::new(seed, &mut rng, faults);
    let mut deeds = Vec::new();
    for number in 0..run.cases.len() {
        let at = rng.below(2_000_000);
        deeds.push((at, Deed::Submit(number)));
        deeds.push((rng.below(4_000_000), Deed::Expect(number)));
        if rng.one_in(5) {
            let at = at + rng.below(rng.clone().between(1, 1_000_000));
            let how = match rng.below(3) {
                0 => Cancel::Unposted,
                1 => Cancel::Drain(Nanos::new(at + rng.below(500_000))),
                _ => Cancel::Now,
            };
            deeds.push((at, Deed::Cancel(number, how)));
        }
    }
    deeds.sort_by_key(|(at, _)| *at);
    let mut deeds = deeds.into_iter().peekable();
    loop {
        run.settle();
        let next = run.engines.iter().map(Engine::next_deadline).chain([run.sim.next_time()]);
        let next = next.chain(deeds.peek().map(|(at, _)| Nanos::new(*at))).min().unwrap_or(Nanos::MAX);
        if next > DEADLINE {
            break;
        }
        run.sim.advance(next);
        while let Some((_, deed)) = deeds.next_if(|(at, _)| Nanos::new(*at) <= next) {
            run.act(next, deed);
        }
    }
    (0..run.cases.len()).for_each(|number| {
        run.judge(number);
        run.look_at_the_end(number);
    });
    let of = |is: fn(&Result<(), TransferError>) -> bool| {
        run.cases.iter().flat_map(|case| &case.ended).filter(|ended| is(&ended.result)).count() as u64
    };
    Report {
        counts: run.sim.counts(),
        replays: run.engines.iter().map(|engine| engine.counts().replays).sum(),
        written: of(Result::is_ok),
        cancelled: of(|result| matches!(result, Err(TransferError::Cancelled { .. }))),
        lost: of(|result| matches!(result, Err(TransferError::PeerLost { .. }))),
        uncertain: of(|result| matches!(result, Err(TransferError::Uncertain { .. }))),
        unproven: of(|result| matches!(result, Err(TransferError::Unproven { .. }))),
        wrong: run.wrong,
    }
}
