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
    /// Bytes of transfers that ended in the measured time.
    pub bytes: u64,
    /// That time, nanoseconds.
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
    let mut clock = Clock { start, slots, ended: 0, from: None, to: start };
    let until = start + Nanos::new(options.duration());
    while load.under_way > 0 {
        end.step();
        let (now, mut count) = (end.now(), 0);
        while let Some(slot) = load.ended()? {
            count += 1;
            if now < until {
                load.begin(end, slot)?;
            }
        }
        if count > 0 {
            clock.ended(now, count);
        }
    }
    say(end, FINISH)?;
    let peer = end.peer;
    end.until("the receiver's last word", |end| Ok(end.engine.counter(peer, DONE) > 0))?;
    let (transfers, took) = clock.measured();
    Ok(Seen { bytes: transfers * bytes, took_ns: took.get(), ..Seen::default() })
}

/// How many transfers ended in how long. Several may end in one step of the engine.
struct Clock {
    start: Nanos,
    /// Transfers that began together.
    slots: u64,
    ended: u64,
    /// When as many had ended as began together, and how many that were.
    from: Option<(Nanos, u64)>,
    to: Nanos,
}

impl Clock {
    fn ended(&mut self, now: Nanos, count: u64) {
        (self.ended, self.to) = (self.ended + count, now);
        if self.ended >= self.slots {
            self.from.get_or_insert((now, self.ended));
        }
    }

    /// From there to the last end: no start is measured. Where too few went on behind those that began together all of
    /// it counts.
    fn measured(&self) -> (u64, Nanos) {
        match self.from {
            Some((from, before)) if self.ended >= before + self.slots => {
                (self.ended - before, self.to - from)
            }
            _ => (self.ended, self.to - self.start),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Causes: a machine that was too slow for its rails ended all transfers of a row together, and 25,236 GB/s were
    /// shown; transfers that ended in one step with the first one counted as if they had begun there.
    #[test]
    fn transfers_that_end_together_are_no_rate() {
        let start = Nanos::new(100);
        let clock = |ends: &[(u64, u64)]| {
            let mut clock = Clock { start, slots: 2, ended: 0, from: None, to: start };
            ends.iter().for_each(|(at, count)| clock.ended(Nanos::new(*at), *count));
            clock.measured()
        };
        assert_eq!(clock(&[(1_100, 1), (1_101, 1)]), (2, Nanos::new(1_001)));
        assert_eq!(clock(&[(1_100, 2), (2_100, 1)]), (3, Nanos::new(2_000)));
        assert_eq!(clock(&[(1_100, 2), (2_100, 2), (3_100, 2)]), (4, Nanos::new(2_000)));
        assert_eq!(clock(&[(1_100, 1), (1_101, 1), (2_100, 1), (3_101, 1)]), (2, Nanos::new(2_000)));
    }
}
