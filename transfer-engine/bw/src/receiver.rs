//! The receiving end: checks a slot when its immediates were counted, marks it as read, and gives it back a while
//! later, if nothing has written it since.

use crate::end::{CREDIT, DONE, End, FINISH, MISSING, SLOTS, SPOILT, TURNS_BYTES};
use crate::options::{Mode, Options};
use crate::pattern;
use crate::phases::Phases;
use crate::verdict::Part;
use anyhow::Result;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::engine::{FLAG_RUNNING, OnDone, Read, Write};
use shunt_transfer_engine::error::TransferError;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver as Heard, Sender as Tell, channel};

/// How long a slot lies between its reading and its return: what comes late is seen then.
const REST: Nanos = Nanos::millis(4);
/// The last slots rest longer: as long as anything can be late.
const LAST_REST: Nanos = Nanos::millis(200);

/// The receiver gives up so much later than the sender, which may see the last rail fail later.
const LATER: Nanos = Nanos::secs(2);

/// What callbacks say of a slot.
enum Said {
    /// Its immediates were counted.
    Counted(usize, Result<(), TransferError>),
    /// Its read has ended.
    Pulled(usize, Result<(), TransferError>),
}

/// The receiving side of an end.
pub struct Receiver<'a> {
    options: &'a Options,
    end: &'a mut End,
    turns: [u64; SLOTS],
    resting: VecDeque<(Nanos, usize)>,
    tell: Tell<Said>,
    heard: Heard<Said>,
    last: Option<Nanos>,
    /// When a rail to the sender worked last.
    rails_seen: Nanos,
    phases: Phases,
    part: Part,
}

impl<'a> Receiver<'a> {
    /// Of an end that is connected.
    pub fn new(options: &'a Options, end: &'a mut End) -> Self {
        let (tell, heard) = channel();
        let (resting, part) = (VecDeque::new(), Part::default());
        let (rails_seen, phases) = (end.now(), Phases::new(end.now(), end.rails()));
        Self { options, end, turns: [0; SLOTS], resting, tell, heard, last: None, rails_seen, phases, part }
    }

    /// Receives until the sender has said how often each slot was used, and every use has come.
    pub fn run(mut self) -> Result<Part> {
        (0..SLOTS).try_for_each(|slot| self.expect(slot))?;
        let slots = self.end.memory.span().part(0, self.options.transfer_bytes() * SLOTS as u64);
        self.end.memory.memory().fill(slots, pattern::READ)?;
        self.end.meet()?;
        let peer = self.end.peer;
        self.phases = Phases::new(self.end.now(), self.end.rails());
        while self.end.engine.counter(peer, FINISH) == 0 {
            self.round()?;
            self.phases.rails(self.end.now(), self.end.rails());
            if self.is_lost() {
                self.part.peer_lost = true;
                return Ok(self.part);
            }
        }
        let now = self.end.now();
        let phases = std::mem::replace(&mut self.phases, Phases::new(now, 0));
        (self.part.phases, self.part.phases_dropped) = phases.finish(now);
        let words = self.words()?;
        let (wanted, spoilt) = (words.map(|word| word & !SPOILT), words.map(|word| word & SPOILT != 0));
        let until = self.end.now() + MISSING;
        while self.turns != wanted && self.end.now() < until {
            self.round()?;
            if self.end.has_left {
                self.part.peer_lost = true;
                return Ok(self.part);
            }
        }
        self.part.imm_missing = wanted.iter().zip(&self.turns).map(|(want, got)| want.abs_diff(*got)).sum();
        let rest = self.end.now() + LAST_REST;
        while self.end.now() < rest || !self.resting.is_empty() {
            self.round()?;
        }
        let whole = (0..SLOTS as u32).zip(&spoilt).filter(|(_, spoilt)| !**spoilt);
        self.part.imm_doubled += whole.map(|(slot, _)| self.end.engine.counter(peer, slot)).sum::<u64>();
        let heard = Arc::new(AtomicU8::new(FLAG_RUNNING));
        self.say_and(DONE, OnDone::Flag(heard.clone()))?;
        self.end.until("the end of the last word", |_| Ok(heard.load(Ordering::Acquire) != FLAG_RUNNING))?;
        Ok(self.part)
    }

    fn round(&mut self) -> Result<()> {
        self.end.step();
        while let Ok(said) = self.heard.try_recv() {
            match said {
                Said::Counted(slot, Ok(())) if self.options.mode == Mode::Read => self.pull(slot)?,
                Said::Counted(slot, Ok(())) if self.options.mode == Mode::Cancel => self.look(slot)?,
                Said::Counted(slot, Ok(())) | Said::Pulled(slot, Ok(())) => self.check(slot)?,
                Said::Counted(_, Err(_)) => {}
                // Its slot stays lent.
                Said::Pulled(slot, Err(error)) => {
                    self.turns[slot] += 1;
                    self.part.transfers_failed += 1;
                    self.part.failure = error.to_string();
                }
            }
        }
        let now = self.end.now();
        while let Some((_, slot)) = self.resting.pop_front_if(|(until, _)| *until <= now) {
            self.give_back(slot)?;
        }
        Ok(())
    }

    /// The sender has left, or no rail to it has worked for as long as it waits itself, and a little longer.
    fn is_lost(&mut self) -> bool {
        let now = self.end.now();
        if !self.end.engine.rails_to(self.end.peer).is_empty() {
            self.rails_seen = now;
        }
        self.end.has_left || now > self.rails_seen + self.end.engine.policy().give_up + LATER
    }

    fn read(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.end.memory.memory().read(self.end.memory.span().address + at, &mut bytes)?;
        Ok(bytes)
    }

    /// See [`SPOILT`].
    fn words(&self) -> Result<[u64; SLOTS]> {
        let bytes = self.read(self.options.transfer_bytes() * SLOTS as u64, TURNS_BYTES)?;
        let mut words = [0; SLOTS];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        Ok(words)
    }

    fn pull(&mut self, slot: usize) -> Result<()> {
        let len = self.options.transfer_bytes();
        let (at, peer, now) = (slot as u64 * len, self.end.peer, self.end.now());
        let tell = self.tell.clone();
        let done = OnDone::Call(Box::new(move |ended| _ = tell.send(Said::Pulled(slot, ended.result))));
        let read = Read { peer, len, from: (&self.end.target, at), to: (&self.end.region, at) };
        self.end.engine.submit_read(now, &read, done)?;
        Ok(())
    }

    fn check(&mut self, slot: usize) -> Result<()> {
        let (bytes, size) = (self.options.transfer_bytes(), self.options.size);
        let content = self.read(slot as u64 * bytes, bytes)?;
        self.part.pages_wrong += pattern::wrong(slot, self.turns[slot], &content, size);
        self.mark(slot)
    }

    /// The memory of a cancelled transfer: some of it may have come, and nothing of another one.
    fn look(&mut self, slot: usize) -> Result<()> {
        let (bytes, size) = (self.options.transfer_bytes(), self.options.size);
        let content = self.read(slot as u64 * bytes, bytes)?;
        let is_late = pattern::is_foreign(slot, self.turns[slot], &content, size);
        self.part.late_writes += u64::from(is_late);
        self.mark(slot)
    }

    /// Marks a slot's memory as read, and gives it back later.
    fn mark(&mut self, slot: usize) -> Result<()> {
        let bytes = self.options.transfer_bytes();
        let at = slot as u64 * bytes;
        self.part.pages += self.options.pages();
        self.turns[slot] += 1;
        let span = self.end.memory.span().part(at, bytes);
        self.end.memory.memory().fill(span, pattern::READ)?;
        let now = self.end.now();
        self.phases.wrote(now, bytes);
        if let Some(last) = self.last.replace(now) {
            self.part.max_gap_ns = self.part.max_gap_ns.max((now - last).get());
        }
        self.resting.push_back((now + REST, slot));
        Ok(())
    }

    fn give_back(&mut self, slot: usize) -> Result<()> {
        let bytes = self.options.transfer_bytes();
        let content = self.read(slot as u64 * bytes, bytes)?;
        self.part.late_writes += u64::from(content.iter().any(|byte| *byte != pattern::READ));
        let peer = self.end.peer;
        self.part.imm_doubled += self.end.engine.counter(peer, slot as u32);
        self.expect(slot)?;
        self.say(CREDIT + slot as u32)
    }

    fn expect(&mut self, slot: usize) -> Result<()> {
        let pages = self.options.pages();
        let count = match self.options.mode {
            Mode::Paged | Mode::Revoke => pages,
            Mode::Read | Mode::Cancel => 1,
            Mode::Single => self.end.engine.policy().writes_of(self.options.size).into(),
        };
        let tell = self.tell.clone();
        let call = Box::new(move |result| _ = tell.send(Said::Counted(slot, result)));
        self.end.engine.expect((self.end.peer, slot as u32), count, Nanos::MAX, call)?;
        Ok(())
    }

    /// A bare immediate to the sender.
    fn say(&mut self, imm: u32) -> Result<()> {
        self.say_and(imm, OnDone::None)
    }

    fn say_and(&mut self, imm: u32, done: OnDone) -> Result<()> {
        let (peer, now) = (self.end.peer, self.end.now());
        let (from, to) = ((&self.end.region, 0), (&self.end.target, 0));
        let write = Write { peer, len: 0, imm: Some(imm), from, to };
        self.end.engine.submit_write(now, &write, done)?;
        Ok(())
    }
}
