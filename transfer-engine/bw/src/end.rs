//! One end: its engine and its memory.

use crate::options::Options;
use anyhow::{Result, bail};
use shunt::Member;
use shunt::device::platform::host::World;
use shunt::host::connect::Bootstrap;
use shunt::host::gpu::OwnedSpan;
use shunt::host::nanos::Nanos;
use shunt_transfer::Carriers;
use shunt_transfer::connect::{Connected, connect};
use shunt_transfer::mates::Mates;
use shunt_transfer::rails::Rails;
use shunt_transfer::report::Report;
use shunt_transfer_engine::engine::{Barrier, Engine};
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::{Mr, MrDesc, Rights};
use shunt_transfer_program::place::heap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Transfers that have memory of their own.
pub const SLOTS: usize = 16;
/// Both ends meet before the first transfer.
const READY: u32 = 0x1000_0000;
/// The receiver says that a slot may be written again: with the slot added.
pub const CREDIT: u32 = 0x2000_0000;
/// The sender says how often it used each slot.
pub const FINISH: u32 = 0x3000_0000;
/// The receiver says that it is done.
pub const DONE: u32 = 0x4000_0000;
/// Behind the slots: how often each was used, with this bit if a transfer of it failed. Some of its immediates may have
/// come.
pub const SPOILT: u64 = 1 << 63;
/// Bytes of these words.
pub const TURNS_BYTES: u64 = 8 * SLOTS as u64;
/// Nothing that an end waits for takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The receiver waits so long for what it misses.
pub const MISSING: Nanos = Nanos::secs(10);
/// An end goes on for so long after the last word, so that the other one can end in peace.
const LINGER: Nanos = Nanos::millis(300);

/// An end that is connected.
pub struct End {
    /// Its engine.
    pub engine: Engine<Rails>,
    /// The other end.
    pub peer: PeerId,
    /// Its memory.
    pub memory: Arc<OwnedSpan>,
    /// The same, registered.
    pub region: Mr,
    /// The other's.
    pub target: MrDesc,
    /// The clock.
    pub world: Arc<dyn World>,
    /// The other end has left, before its last word.
    pub has_left: bool,
    mates: Mates,
    report: Report,
}

impl End {
    /// An end with so many bytes of memory, once a lane on each rail is open; and the exchange with the other end.
    pub fn connect(
        options: &Options,
        member: Member,
        nics: &Carriers,
        bytes: u64,
    ) -> Result<(Self, Box<dyn Bootstrap + Send>)> {
        let Connected { mut engine, world, mates, told: (exchange, end, _) } =
            connect(member, nics, options.nics.rails())?;
        let memory = heap(bytes)?;
        let region = engine.domain.register(&memory, Rights::ReadWrite)?;
        let regions = exchange.all_gather(&region.describe(Rights::ReadWrite).to_bytes())?;
        let target = MrDesc::from_bytes(&regions[1 - end as usize])?;
        let report = Report::of_end(end);
        let (peer, has_left) = (PeerId(1 - end), false);
        let own = Self { engine, peer, memory, region, target, world, has_left, mates, report };
        Ok((own, exchange))
    }

    /// Says what went wrong behind the scenes.
    pub fn tell_remarks(&mut self) {
        let end = 1 - self.peer.0;
        for remark in self.engine.domain.take_remarks() {
            shunt::host::complain!("transfer_bw: end {end}: {remark}");
        }
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        Nanos::new(self.world.now_ns())
    }

    /// One step; sleeps a little if there was nothing to do.
    pub fn step(&mut self) {
        let now = self.now();
        // Before the step, which takes what had come until then.
        let left = self.mates.look(now, |peer| self.engine.domain.has_left(PeerId(peer)));
        let busy = self.engine.step(now);
        for peer in left {
            self.has_left = true;
            self.engine.leave(now, PeerId(peer), Box::new(|| {}));
        }
        self.report.look(self.engine.counts(), || self.engine.lanes());
        if !busy {
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Rails to the other end that work.
    pub fn rails(&self) -> u32 {
        self.engine.rails_to(self.peer).len() as u32
    }

    /// Steps until so, or says what did not come.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let until = self.now() + Nanos::new(PATIENCE.as_nanos() as u64);
        while !is_so(self)? {
            self.step();
            if self.has_left && !is_so(self)? {
                bail!("{what}: expected it of the other end, got one that has left");
            }
            if self.now() > until {
                let (lanes, counts) = (self.engine.rails_to(self.peer), self.engine.counts());
                let seconds = PATIENCE.as_secs();
                bail!(
                    "{what}: expected within {seconds} s, it did not come; open lanes {lanes:?}, {counts:?}"
                );
            }
        }
        Ok(())
    }

    /// Waits until both ends have called it.
    pub fn meet(&mut self) -> Result<()> {
        let (tell, heard) = channel();
        let (from, others) = (&self.region, &[(self.peer, &self.target)]);
        let until = self.now() + Nanos::new(PATIENCE.as_nanos() as u64);
        let done = Box::new(move |met| _ = tell.send(met));
        self.engine.submit_barrier(self.now(), &Barrier { imm: READY, from, others, until }, done)?;
        let mut met = None;
        self.until("the other end", |_| {
            met = heard.try_recv().ok();
            Ok(met.is_some())
        })?;
        match met {
            Some(Err(failed)) if !failed.is_empty() => bail!("{}", failed[0].1),
            _ => Ok(()),
        }
    }

    /// Goes on for a while, for the other end's sake.
    pub fn linger(&mut self) {
        let until = self.now() + LINGER;
        while self.now() < until {
            self.step();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use shunt_transfer::{NicKind, Place, Source, Wish};
    use shunt_transfer_program::place::joined;

    /// Cause: an end was not told that the other one had left in order, and waited until it counted as lost.
    #[test]
    fn an_end_whose_partner_has_left_waits_no_longer() {
        let wish = Wish { nic: NicKind::Soft, rails: 1, soft_gbps: 1.0 };
        let place = Place::alone(&Source::find(wish).expect("software is there"), 2).expect("NICs");
        let options = Options::parse_from(["transfer_bw", "--rails", "1"]);
        let ends = place.members().into_iter().map(|member| {
            let (nics, options, pe) = (place.nics.clone(), options.clone(), member.pe);
            let run = move || {
                let (mut end, _exchange) = End::connect(&options, member, &nics, 4096)?;
                end.meet()?;
                if pe == 0 {
                    end.linger()
                } else {
                    end.until("a word that is never said", |_| Ok(false))?
                }
                Ok(())
            };
            (pe, std::thread::spawn(run))
        });
        let failed = joined(ends.collect::<Vec<_>>()).expect_err("one has left").to_string();
        let why = "end 1: a word that is never said: expected it of the other end, got one that has left";
        assert_eq!(failed, why);
    }
}
