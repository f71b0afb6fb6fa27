//! The sending end: fills a slot, writes it, and waits until the receiver gives it back.

use crate::cancels::Cancels;
use crate::end::{CREDIT, DONE, End, FINISH, SLOTS, SPOILT};
use crate::options::{CancelHow, Mode, Options};
use crate::pattern;
use crate::phases::Phases;
use crate::verdict::Part;
use anyhow::Result;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::engine::{OnDone, Paged, Write};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_engine::transfer::{Cancel, Ended};
use std::sync::mpsc::{Receiver, Sender as Tell, channel};

/// A slot's memory.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    turns: u64,
    /// Its transfer has not ended; its credit has not come.
    writing: bool,
    lent: bool,
    spoilt: bool,
    /// The receiver was told to use the memory of a transfer that has not ended.
    left: bool,
}

/// What a cancelled transfer may have under way for so long, with `--cancel drain`.
const DRAIN: Nanos = Nanos::millis(2);

/// What callbacks say.
enum Heard {
    Ended(usize, Ended),
    Credit(usize),
}

/// The sending side of an end.
pub struct Sender<'a> {
    options: &'a Options,
    end: &'a mut End,
    slots: [Slot; SLOTS],
    tell: Tell<Heard>,
    heard: Receiver<Heard>,
    cancels: Cancels,
    phases: Phases,
    part: Part,
}

impl<'a> Sender<'a> {
    /// Of an end that is connected.
    pub fn new(options: &'a Options, end: &'a mut End) -> Self {
        let (tell, heard) = channel();
        let (slots, cancels, part) = ([Slot::default(); SLOTS], Cancels::default(), Part::default());
        let phases = Phases::new(end.now(), end.rails());
        Self { options, end, slots, tell, heard, cancels, phases, part }
    }

    /// Sends for as long as was asked, and says how often each slot was used.
    pub fn run(mut self) -> Result<Part> {
        let peer = self.end.peer;
        self.end.meet()?;
        let began = self.end.now();
        self.phases = Phases::new(began, self.end.rails());
        let until = began + Nanos::new(self.options.duration());
        let enough = self.options.cancels.map_or(u64::MAX, u64::from);
        while self.end.now() < until && !self.is_lost() && self.part.cancelled < enough {
            let free = self.slots.iter().position(|slot| !slot.writing && !slot.lent);
            match free {
                Some(slot) => self.send(slot)?,
                None => self.end.step(),
            }
            self.cancel_due()?;
            self.take_heard()?;
            self.phases.rails(self.end.now(), self.end.rails());
        }
        let now = self.end.now();
        let phases = std::mem::replace(&mut self.phases, Phases::new(now, 0));
        (self.part.phases, self.part.phases_dropped) = phases.finish(now);
        while self.slots.iter().any(|slot| slot.writing) {
            self.end.step();
            self.cancel_due()?;
            self.take_heard()?;
        }
        self.part.took_ns = (self.end.now() - began).get();
        self.part.cancel_ns = self.cancels.percentiles();
        if self.is_lost() {
            self.part.peer_lost = true;
            return Ok(self.part);
        }
        self.finish()?;
        // The receiver waits as long for what it misses, and says so.
        let mut rails_seen = self.end.now();
        self.end.until("the receiver's word that it waits no more", |end| {
            if end.rails() > 0 {
                rails_seen = end.now();
            }
            let is_lost = end.has_left || end.now() > rails_seen + end.engine.policy().give_up;
            Ok(end.engine.counter(peer, DONE) > 0 || is_lost)
        })?;
        self.part.peer_lost = self.end.engine.counter(peer, DONE) == 0;
        Ok(self.part)
    }

    /// The receiver has left, or no rail to it works.
    const fn is_lost(&self) -> bool {
        self.part.peer_lost || self.end.has_left
    }

    fn send(&mut self, slot: usize) -> Result<()> {
        let (size, pages, bytes) = (self.options.size, self.options.pages(), self.options.transfer_bytes());
        let (at, turn) = (slot as u64 * bytes, self.slots[slot].turns);
        let span = self.end.memory.span();
        for page in 0..pages {
            let content = pattern::bytes(slot, turn, page, size);
            self.end.memory.memory().write(span.address + at + page * size, &content)?;
        }
        self.slots[slot] = Slot { turns: turn + 1, writing: true, lent: true, ..Slot::default() };
        let (now, peer) = (self.end.now(), self.end.peer);
        let tell = self.tell.clone();
        let credit = Box::new(move |_| _ = tell.send(Heard::Credit(slot)));
        self.end.engine.expect((peer, CREDIT + slot as u32), 1, Nanos::MAX, credit)?;
        let tell = self.tell.clone();
        let done = OnDone::Call(Box::new(move |ended| _ = tell.send(Heard::Ended(slot, ended))));
        let is_cancelled = self.options.mode == Mode::Cancel;
        if is_cancelled && self.options.cancel == CancelHow::Never {
            self.slots[slot].left = true;
            self.part.cancelled += 1;
            self.say_quiet(slot)?;
        }
        let (source, target, imm) = (&self.end.region, &self.end.target, Some(slot as u32));
        let imm = imm.filter(|_| !is_cancelled);
        let transfer = match self.options.mode {
            Mode::Single => {
                let (from, to) = ((source, at), (target, at));
                self.end.engine.submit_write(now, &Write { peer, len: size, imm, from, to }, done)?
            }
            Mode::Paged | Mode::Cancel | Mode::Revoke => {
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
        if is_cancelled {
            self.cancels.begun(now, slot, transfer);
        }
        Ok(())
    }

    fn cancel_due(&mut self) -> Result<()> {
        let now = self.end.now();
        while let Some(transfer) = self.cancels.due(now) {
            let how = match self.options.cancel {
                CancelHow::Now => Cancel::Now,
                CancelHow::Drain => Cancel::Drain(now + DRAIN),
                CancelHow::Unposted => Cancel::Unposted,
                CancelHow::Never => continue,
            };
            self.end.engine.cancel(now, transfer, how);
        }
        Ok(())
    }

    /// Tells the receiver that the memory of a slot is its own again: a bare immediate.
    fn say_quiet(&mut self, slot: usize) -> Result<()> {
        let (peer, imm) = (self.end.peer, Some(slot as u32));
        let (from, to) = ((&self.end.region, 0), (&self.end.target, 0));
        self.end.engine.submit_write(self.end.now(), &Write { peer, len: 0, imm, from, to }, OnDone::None)?;
        Ok(())
    }

    fn take_heard(&mut self) -> Result<()> {
        while let Ok(heard) = self.heard.try_recv() {
            match heard {
                Heard::Credit(slot) => self.slots[slot].lent = false,
                Heard::Ended(slot, ended) => self.ended(slot, &ended)?,
            }
        }
        Ok(())
    }

    fn ended(&mut self, slot: usize, ended: &Ended) -> Result<()> {
        self.slots[slot].writing = false;
        let left = std::mem::take(&mut self.slots[slot].left);
        let (whole, is_quiet) = (ended.result.is_ok(), ended.quiesced.is_some());
        self.cancels.ended(self.end.now(), slot, whole);
        let error = match &ended.result {
            _ if left => return Ok(()),
            Ok(()) => None,
            Err(TransferError::Cancelled { .. }) if is_quiet => None,
            Err(error) => Some(error),
        };
        let Some(error) = error else {
            let bytes = if whole { self.options.transfer_bytes() } else { 0 };
            self.phases.wrote(self.end.now(), bytes);
            self.part.transfers += u64::from(whole);
            self.part.cancelled += u64::from(!whole);
            return if self.options.mode == Mode::Cancel { self.say_quiet(slot) } else { Ok(()) };
        };
        // The receiver waits for none that failed. Its slot stays lent: no credit comes for it.
        self.slots[slot].turns -= 1;
        self.slots[slot].spoilt = true;
        if self.part.transfers_failed == 0 {
            self.part.failure = error.to_string();
        }
        self.part.transfers_failed += 1;
        match error {
            TransferError::Uncertain { .. } => self.part.transfers_uncertain += 1,
            TransferError::PeerLost { .. } | TransferError::PeerLeft { .. } => {
                self.part.transfers_lost += 1;
                self.part.peer_lost = true;
            }
            _ => {}
        }
        Ok(())
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
