//! A warp that posts: reserve, find room, write, publish in order, ring. One access a step, as in the code that ships.

use shunt_device::ring;
use shunt_layout::state::{CLOSED, ReadyWord, Word};

use super::setup::{Break, Setup};
use super::state::{At, Block, System, Warp, words};

impl Setup {
    fn fits(&self, first: u64, count: u64, done: u64) -> bool {
        ring::fits(first, count, done, self.depth)
    }

    pub(super) fn warp_can_go(&self, s: &System, warp: &Warp) -> bool {
        match warp.at {
            _ if warp.left == 0 => false,
            At::Publish => ReadyWord(s.ready).index() == Word(warp.word).index(),
            At::Lock => !s.locked,
            _ => true,
        }
    }

    /// True if a whole look of a waiting warp, done now, would change nothing.
    pub(super) fn warp_would_only_look(&self, s: &System, number: usize) -> bool {
        let warp = &s.warps[number];
        if warp.at != At::Look {
            return false;
        }
        let (reserved, done) = (Word(warp.word), Word(s.done));
        let (own, newer) = of_generation(reserved, done, Word(s.ticket));
        let admitted = (own || newer) && self.fits(reserved.index(), self.group[number], done.index());
        let speaks = (own || newer) && done.flag() && self.would_announce(s.ready, reserved, done);
        !admitted && !speaks
    }

    fn would_announce(&self, ready: u64, reserved: Word, done: Word) -> bool {
        let silent = self.lacks(Break::NoBlocked) || self.lacks(Break::LimitByDepth);
        let ready = ReadyWord(ready);
        !silent && ready.index() == reserved.index() && !ready.blocked_in(done.generation())
    }

    pub(super) fn step_warp(&self, s: &mut System, number: usize) -> Result<(), String> {
        let mut warp = s.warps[number];
        let (count, word) = (self.group[number], Word(warp.word));
        match warp.at {
            At::Reserve => {
                warp.word = s.ticket;
                s.ticket += count;
                warp.at = At::Room;
            }
            At::Room => {
                let done = Word(s.done);
                let same = done.same_generation(word) || self.lacks(Break::RoomWithoutGeneration);
                let room = !word.flag() && same && self.fits(word.index(), count, done.index());
                warp.at = if room { At::Write } else { At::Look };
            }
            At::Look => (warp.done, warp.at) = (s.done, At::Judge),
            At::Judge => self.judge(&mut warp, Word(s.ticket), count),
            At::Head => {
                let speaks = self.would_announce(s.ready, word, Word(warp.done));
                (warp.ready, warp.at) = (s.ready, At::Announce);
                if !speaks {
                    (warp.done, warp.ready, warp.at) = (0, 0, At::Look);
                }
            }
            At::Announce => {
                if s.ready == warp.ready {
                    s.ready = ReadyWord(s.ready).with_blocked(Word(warp.done).generation()).0;
                }
                (warp.done, warp.ready, warp.at) = (0, 0, At::Look);
            }
            At::Write => {
                self.write(s, word, count)?;
                warp.at = At::Publish;
            }
            At::Publish => {
                s.ready = word.index() + count;
                warp.at = At::Lock;
            }
            At::Lock => {
                let ticket = Word(s.ticket);
                let late = ticket.flag() || !ticket.same_generation(word);
                if late && !self.lacks(Break::LateDoorbell) {
                    finish(&mut warp);
                } else {
                    s.locked = true;
                    warp.at = At::Ring;
                }
            }
            At::Ring => {
                let end = word.index() + count;
                if s.posted < end || self.lacks(Break::LateDoorbell) {
                    s.posted = s.posted.max(end);
                    let ring = &mut s.rings[word.slot() as usize];
                    ring.rung = ring.rung.max(end.wrapping_sub(ring.base));
                }
                s.locked = false;
                finish(&mut warp);
            }
        }
        s.warps[number] = warp;
        Ok(())
    }

    /// Rule 5: room in the own generation, or in a newer one that both words show.
    fn judge(&self, warp: &mut Warp, ticket: Word, count: u64) {
        let (word, done) = (Word(warp.word), Word(warp.done));
        let (own, newer) = of_generation(word, done, ticket);
        if (own || newer) && self.fits(word.index(), count, done.index()) {
            warp.word = done.with_index(word.index()).0 & !CLOSED;
            (warp.done, warp.at) = (0, At::Write);
        } else if (own || newer) && done.flag() {
            warp.at = At::Head;
        } else {
            (warp.done, warp.at) = (0, At::Look);
        }
    }

    fn write(&self, s: &mut System, word: Word, count: u64) -> Result<(), String> {
        let ring = &mut s.rings[word.slot() as usize];
        for ticket in word.index()..word.index() + count {
            let Some(physical) = ticket.checked_sub(ring.base) else {
                return Err(format!("one switcher: ticket {ticket} is written below the base {}", ring.base));
            };
            if ring.alive && physical >= ring.executed + self.depth {
                return Err(format!("no loss: ticket {ticket} overwrites a block that was not executed yet"));
            }
            let block = &mut ring.blocks[(physical % self.depth) as usize];
            *block = Block { ticket: ticket as u8, placeholder: false };
        }
        Ok(())
    }

    pub(super) fn warp_words(&self, s: &System, number: usize) -> String {
        let warp = &s.warps[number];
        let (first, count) = (Word(warp.word).index(), self.group[number]);
        let what = match warp.at {
            At::Reserve => format!("reserves {count} at {}", words(Word(s.ticket))),
            At::Room => format!("reads done for room: {}", words(Word(s.done))),
            At::Look => format!("waits, reads done: {}", words(Word(s.done))),
            At::Judge => format!("waits, reads the ticket word: {}", words(Word(s.ticket))),
            At::Head => format!("waits, reads ready: {}", ReadyWord(s.ready).index()),
            At::Announce => format!("says BLOCKED at {first}"),
            At::Write => format!("writes {first}..{} on path {}", first + count, Word(warp.word).slot()),
            At::Publish => format!("publishes up to {}", first + count),
            At::Lock => format!("takes the post lock, reads the ticket word: {}", words(Word(s.ticket))),
            At::Ring => format!("rings path {} up to {}", Word(warp.word).slot(), first + count),
        };
        format!("warp {number} {what}")
    }
}

/// Whether `done` is of the generation of `reserved`, or of a newer one that the ticket word shows as well (rule 5).
fn of_generation(reserved: Word, done: Word, ticket: Word) -> (bool, bool) {
    let own = !reserved.flag() && done.same_generation(reserved);
    let newer = done.same_generation(ticket) && !done.same_generation(reserved);
    (own, newer)
}

fn finish(warp: &mut Warp) {
    *warp = Warp { left: warp.left - 1, ..Warp::AT_REST };
}
