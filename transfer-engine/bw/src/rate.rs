//! One row of the table: the rate of transfers of one kind, without faults. As many are under way as memory has room
//! for. The receiver does nothing meanwhile; it compares every byte once, at the end.

use crate::end::{DONE, End, FINISH, SLOTS};
use crate::options::{Mode, Options};
use crate::pattern;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use shunt::Member;
use shunt::host::nanos::Nanos;
use shunt_transfer::Carriers;
use shunt_transfer_engine::engine::{OnDone, Paged, Write};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_engine::transfer::Ended;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Bytes of memory under way, unless a single transfer has more.
const WINDOW: u64 = 64 << 20;

/// What an end of a row saw.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Bytes of all transfers.
    pub bytes: u64,
    /// From the beginning of the first one to the end of the last, nanoseconds.
    pub took_ns: u64,
    /// Pages that held other bytes than were sent.
    pub pages_wrong: u64,
}

/// Connects, runs its side, and answers with what both ends saw.
pub fn run(options: &Options, member: Member, nics: &Carriers) -> Result<Vec<Seen>> {
    let pe = member.pe;
    let slots = (WINDOW / options.transfer_bytes()).clamp(2, SLOTS as u64);
    let (mut end, exchange) = End::connect(options, member, nics, slots * options.transfer_bytes())?;
    let seen = if pe == 0 { send(options, &mut end, slots)? } else { receive(options, &mut end, slots)? };
    end.linger();
    end.tell_remarks();
    let all = exchange.all_gather(&serde_json::to_vec(&seen)?)?;
    all.iter().map(|bytes| serde_json::from_slice(bytes).context("what the other end saw")).collect()
}

/// Transfers of the sender, and what it hears of them.
struct Load<'a> {
    options: &'a Options,
    tell: Sender<(usize, Ended)>,
    heard: Receiver<(usize, Ended)>,
    under_way: u64,
}

impl Load<'_> {
    fn begin(&mut self, end: &mut End, slot: usize) -> Result<()> {
        let (size, bytes) = (self.options.size, self.options.transfer_bytes());
        let (now, peer, at) = (end.now(), end.peer, slot as u64 * bytes);
        let tell = self.tell.clone();
        let done = OnDone::Call(Box::new(move |ended| _ = tell.send((slot, ended))));
        if self.options.mode == Mode::Single {
            let write = Write { peer, len: size, imm: None, from: (&end.region, at), to: (&end.target, at) };
            end.engine.submit_write(now, &write, done)?;
        } else {
            let indices = (0..self.options.pages() as u32).collect();
            let pages = Pages { indices, stride: size, offset: at };
            let (from, to) = ((&end.region, &pages), (&end.target, &pages));
            end.engine.submit_paged(now, &Paged { peer, page_len: size, imm: None, from, to }, done)?;
        }
        self.under_way += 1;
        Ok(())
    }

    /// The slot of a transfer that has ended.
    fn ended(&mut self) -> Result<Option<usize>> {
        let Ok((slot, ended)) = self.heard.try_recv() else { return Ok(None) };
        self.under_way -= 1;
        match ended.result {
            Ok(()) => Ok(Some(slot)),
            Err(error) => bail!("a transfer without a fault: {error}"),
        }
    }
}

fn send(options: &Options, end: &mut End, slots: u64) -> Result<Seen> {
    let (size, bytes) = (options.size, options.transfer_bytes());
    for slot in 0..slots {
        for page in 0..options.pages() {
            let content = pattern::bytes(slot as usize, 0, page, size);
            let at = end.memory.span().address + slot * bytes + page * size;
            end.memory.memory().write(at, &content)?;
        }
    }
    end.meet()?;
    let (tell, heard) = channel();
    let mut load = Load { options, tell, heard, under_way: 0 };
    let start = end.now();
    (0..slots as usize).try_for_each(|slot| load.begin(end, slot))?;
    let mut transfers = 0;
    let until = start + Nanos::new(options.duration());
    while load.under_way > 0 {
        end.step();
        while let Some(slot) = load.ended()? {
            transfers += 1;
            if end.now() < until {
                load.begin(end, slot)?;
            }
        }
    }
    // Of those that are under way at some time in between it is not known how far they are.
    let took = end.now() - start;
    say(end, FINISH)?;
    let peer = end.peer;
    end.until("the receiver's last word", |end| Ok(end.engine.counter(peer, DONE) > 0))?;
    Ok(Seen { bytes: transfers * bytes, took_ns: took.get(), ..Seen::default() })
}

fn receive(options: &Options, end: &mut End, slots: u64) -> Result<Seen> {
    let (peer, bytes, span) = (end.peer, options.transfer_bytes(), end.memory.span());
    end.memory.memory().fill(span, pattern::READ)?;
    end.meet()?;
    let until = end.now() + Nanos::new(options.duration());
    while end.now() < until && end.engine.counter(peer, FINISH) == 0 {
        end.step();
    }
    end.until("the sender's last word", |end| Ok(end.engine.counter(peer, FINISH) > 0))?;
    let mut seen = Seen::default();
    let mut content = vec![0; bytes as usize];
    for slot in 0..slots {
        end.memory.memory().read(span.address + slot * bytes, &mut content)?;
        seen.pages_wrong += pattern::wrong(slot as usize, 0, &content, options.size);
    }
    say(end, DONE)?;
    Ok(seen)
}

/// A bare immediate to the other end.
fn say(end: &mut End, imm: u32) -> Result<()> {
    let (from, to) = ((&end.region, 0), (&end.target, 0));
    let write = Write { peer: end.peer, len: 0, imm: Some(imm), from, to };
    end.engine.submit_write(end.now(), &write, OnDone::None)?;
    Ok(())
}
