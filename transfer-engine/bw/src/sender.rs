//! The sending end: fills a slot, writes it, and waits until the receiver gives it back.

use crate::end::{CREDIT, DONE, End, FINISH, SLOTS, SPOILT};
use crate::options::{Mode, Options};
use crate::pattern;
use crate::verdict::Part;
use anyhow::Result;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::engine::{OnDone, Paged, Write};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::shard::Pages;
use std::sync::mpsc::{Receiver, Sender as Tell, channel};

/// A slot's memory.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    turns: u64,
    /// Its transfer has not ended; its credit has not come.
    writing: bool,
    lent: bool,
    spoilt: bool,
}

/// What callbacks say.
enum Heard {
    Ended(usize, Result<(), TransferError>),
    Credit(usize),
}

/// The sending side of an end.
pub struct Sender<'a> {
    options: &'a Options,
    end: &'a mut End,
    slots: [Slot; SLOTS],
    tell: Tell<Heard>,
    heard: Receiver<Heard>,
    part: Part,
}

impl<'a> Sender<'a> {
    /// Of an end that is connected.
    pub fn new(options: &'a Options, end: &'a mut End) -> Self {
        let (tell, heard) = channel();
        Self { options, end, slots: [Slot::default(); SLOTS], tell, heard, part: Part::default() }
    }

    /// Sends for as long as was asked, and says how often each slot was used.
    pub fn run(mut self) -> Result<Part> {
        let peer = self.end.peer;
        self.end.meet()?;
        let began = self.end.now();
        let until = began + Nanos::new(self.options.duration);
        while self.end.now() < until {
            let free = self.slots.iter().position(|slot| !slot.writing && !slot.lent);
            match free {
                Some(slot) => self.send(slot)?,
                None => self.end.step(),
            }
            self.take_heard();
        }
        let mut left = std::mem::take(&mut self.slots);
        while left.iter().any(|slot| slot.writing) {
            self.end.step();
            self.slots = left;
            self.take_heard();
            left = std::mem::take(&mut self.slots);
        }
        self.part.took_ns = (self.end.now() - began).get();
        self.slots = left;
        self.finish()?;
        // The receiver waits as long for what it misses, and says so.
        self.end.until("the receiver's word that it waits no more", |end| {
            Ok(end.engine.counter(peer, DONE) > 0)
        })?;
        Ok(self.part)
    }

    fn send(&mut self, slot: usize) -> Result<()> {
        let (size, pages, bytes) = (self.options.size, self.options.pages(), self.options.transfer_bytes());
        let (at, turn) = (slot as u64 * bytes, self.slots[slot].turns);
        let span = self.end.memory.span();
        for page in 0..pages {
            let content = pattern::bytes(slot, turn, page, size);
            self.end.memory.memory().write(span.address + at + page * size, &content)?;
        }
        self.slots[slot] = Slot { turns: turn + 1, writing: true, lent: true, spoilt: false };
        let (now, peer) = (self.end.now(), self.end.peer);
        let tell = self.tell.clone();
        let credit = Box::new(move |_| _ = tell.send(Heard::Credit(slot)));
        self.end.engine.expect((peer, CREDIT + slot as u32), 1, Nanos::MAX, credit)?;
        let tell = self.tell.clone();
        let done = OnDone::Call(Box::new(move |ended| _ = tell.send(Heard::Ended(slot, ended.result))));
        let (source, target, imm) = (&self.end.region, &self.end.target, Some(slot as u32));
        match self.options.mode {
            Mode::Single => {
                let (from, to) = ((source, at), (target, at));
                self.end.engine.submit_write(now, &Write { peer, len: size, imm, from, to }, done)?
            }
            Mode::Paged => {
                let pages = Pages { indices: (0..pages as u32).collect(), stride: size, offset: at };
                let (from, to) = ((source, &pages), (target, &pages));
                self.end.engine.submit_paged(now, &Paged { peer, page_len: size, imm, from, to }, done)?
            }
            // The receiver reads it. A bare immediate tells that it is there.
            Mode::Read => {
                let (from, to) = ((source, at), (target, at));
                self.end.engine.submit_write(now, &Write { peer, len: 0, imm, from, to }, done)?
            }
        };
        Ok(())
    }

    fn take_heard(&mut self) {
        while let Ok(heard) = self.heard.try_recv() {
            match heard {
                Heard::Credit(slot) => self.slots[slot].lent = false,
                Heard::Ended(slot, result) => {
                    self.slots[slot].writing = false;
                    let Err(error) = result else {
                        self.part.transfers += 1;
                        continue;
                    };
                    // The receiver waits for none that failed. Its slot stays lent: no credit comes for it.
                    self.slots[slot].turns -= 1;
                    self.slots[slot].spoilt = true;
                    if self.part.transfers_failed == 0 {
                        self.part.failure = error.to_string();
                    }
                    self.part.transfers_failed += 1;
                }
            }
        }
    }

    /// Writes how often each slot was used behind the receiver's slots.
    fn finish(&mut self) -> Result<()> {
        let at = self.options.transfer_bytes() * SLOTS as u64;
        let word = |slot: &Slot| slot.turns | if slot.spoilt { SPOILT } else { 0 };
        let turns: Vec<u8> = self.slots.iter().flat_map(|slot| word(slot).to_le_bytes()).collect();
        let span = self.end.memory.span();
        self.end.memory.memory().write(span.address + at, &turns)?;
        let (peer, imm, len) = (self.end.peer, Some(FINISH), turns.len() as u64);
        let (from, to) = ((&self.end.region, at), (&self.end.target, at));
        let write = Write { peer, len, imm, from, to };
        self.end.engine.submit_write(self.end.now(), &write, OnDone::None)?;
        Ok(())
    }
}
