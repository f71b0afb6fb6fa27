//! Atomics and signals: by the NIC at the peer, or by this processor on this PE's own words. Also where the peer's heap
//! is mapped here: a processor's change of a word is not atomic with those that NICs make of it, for other PEs or for
//! this one's kernels, so all of a word's changes go the same way. A signal is one of them, a store among them: between
//! the two halves of a NIC's add it would be lost.

use super::{Session, lock, memory};
use crate::failure::Failure;
use shunt_device::{Amo, Deadline, FaultKind, HeapOffset, Resolution, Solo, Ticket};
use shunt_host::rail::{FetchError, FetchPatience};
use std::sync::atomic::Ordering::SeqCst;

/// What is done to a word. Values are as wide as the word; what is above is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds.
    Add(u64),
    /// Stores.
    Set(u64),
    /// Keeps the bits that are set here.
    And(u64),
    /// Sets bits.
    Or(u64),
    /// Flips bits.
    Xor(u64),
    /// Stores and tells the old value.
    Swap(u64),
    /// Stores the second where the word is the first.
    CompareSwap(u64, u64),
}

/// What a caller wants of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// That it is made.
    Nothing,
    /// What the word was.
    OldValue,
}

impl Change {
    /// For a word of four or eight bytes.
    fn amo(self, bytes: u64) -> Amo {
        let narrow = bytes == 4;
        match self {
            Self::Add(value) if narrow => Amo::Add32(value as u32),
            Self::Add(value) => Amo::Add64(value),
            Self::Set(value) if narrow => Amo::Set32(value as u32),
            Self::Set(value) => Amo::Set64(value),
            Self::And(value) if narrow => Amo::And32(value as u32),
            Self::And(value) => Amo::And64(value),
            Self::Or(value) if narrow => Amo::Or32(value as u32),
            Self::Or(value) => Amo::Or64(value),
            Self::Xor(value) if narrow => Amo::Xor32(value as u32),
            Self::Xor(value) => Amo::Xor64(value),
            Self::Swap(value) if narrow => Amo::Swap32(value as u32),
            Self::Swap(value) => Amo::Swap64(value),
            Self::CompareSwap(expect, new) if narrow => {
                Amo::CompareSwap32 { expect: expect as u32, new: new as u32 }
            }
            Self::CompareSwap(expect, new) => Amo::CompareSwap64 { expect, new },
        }
    }

    /// What the word becomes.
    fn applied(self, old: u64) -> u64 {
        match self {
            Self::Add(value) => old.wrapping_add(value),
            Self::Set(value) | Self::Swap(value) => value,
            Self::And(value) => old & value,
            Self::Or(value) => old | value,
            Self::Xor(value) => old ^ value,
            Self::CompareSwap(expect, new) => {
                if old == expect {
                    new
                } else {
                    old
                }
            }
        }
    }
}

impl Session {
    /// Checks a word; answers with its PE and its heap offset.
    fn word(&self, at: u64, bytes: u64, pe: i32) -> Result<(u32, u64), Failure> {
        let (pe, offset) = (self.peers.check(pe)?, self.heap.offset(at, bytes)?);
        if !offset.is_multiple_of(bytes) {
            return Err(Failure::Unaligned { at, bytes });
        }
        Ok((pe, offset))
    }

    /// Changes a word of this PE. Atomic among this processor's changes, not among those of NICs: for words that only
    /// this processor changes, and where nobody can do better. A word in a device's memory is changed by its NIC.
    ///
    /// # Errors
    /// The NIC does not execute it.
    fn change_here(&self, at: u64, bytes: u64, change: Change) -> Result<u64, Failure> {
        match self.map.split {
            None => Ok(self.change_by_processor(at, bytes, change)),
            Some(_) => self.change_by_nic(at - self.base, bytes, change),
        }
    }

    /// Has one of this PE's own NICs execute a change, on a pair to itself.
    fn change_by_nic(&self, offset: u64, bytes: u64, change: Change) -> Result<u64, Failure> {
        let (pe, amo) = (self.peers.pe(), change.amo(bytes));
        let log2_chunk = pe.config().log2_chunk;
        let patience = FetchPatience::of(pe.config().packet_lifetime_ns, pe.root().policy.give_up_ns);
        let mut refusals = Vec::new();
        for rail in pe.rails() {
            match rail.fetch(amo, offset, log2_chunk, patience) {
                Ok(value) => return Ok(value),
                Err(FetchError::NotExecuted(error)) => refusals.push(error.to_string()),
                Err(FetchError::NoAtomic) => refusals.push("it has no masked atomics".to_owned()),
                Err(FetchError::Contended) => refusals.push("others keep changing the word".to_owned()),
                Err(FetchError::NoWord) => refusals.push("no key covers it".to_owned()),
                Err(FetchError::Unknown(error)) => {
                    return Err(Failure::OwnAtomic { uncertain: true, why: error.to_string() });
                }
            }
        }
        Err(Failure::OwnAtomic { uncertain: false, why: refusals.join("; ") })
    }

    fn change_by_processor(&self, at: u64, bytes: u64, change: Change) -> u64 {
        if bytes == 4 {
            // SAFETY: a word of the heap (checked by the caller), which is reached atomically only.
            let word = unsafe { memory::word32(at) };
            let new = |old: u32| Some(change.applied(old.into()) as u32);
            return word.fetch_update(SeqCst, SeqCst, new).unwrap_or_else(|old| old).into();
        }
        // SAFETY: as above.
        let word = unsafe { memory::word64(at) };
        word.fetch_update(SeqCst, SeqCst, |old| Some(change.applied(old))).unwrap_or_else(|old| old)
    }

    /// Has the owner of a word execute a change and keep the answer. Not repeated when its time is over: it may still
    /// be executed then.
    fn change_exactly(&self, pe: u32, offset: u64, bytes: u64, change: Change) -> Result<u64, Failure> {
        let since = self.peers.now_ns();
        let deadline = Deadline::after(since, self.peers.deadline_ns());
        let answer =
            self.peers.channel(pe).fetch_exact(Solo, HeapOffset(offset), change.amo(bytes), deadline);
        answer.map_err(|fault| match fault.kind {
            FaultKind::Overdue => {
                let what = format!("an atomic that PE {pe} executes, and may still execute once");
                self.peers.overdue(what, self.peers.now_ns() - since)
            }
            FaultKind::Uncertain => self.peers.failure(&fault).asked_for(),
            _ => self.peers.failure(&fault),
        })
    }

    /// Changes a word; nobody wants its old value.
    ///
    /// # Errors
    /// No such PE or word, or a channel that carries nothing.
    pub fn change(&self, at: u64, bytes: u64, change: Change, pe: i32) -> Result<(), Failure> {
        let (pe, offset) = self.word(at, bytes, pe)?;
        let amo = change.amo(bytes);
        if self.owners_execute(pe, Wanted::Nothing, amo) {
            return self.change_exactly(pe, offset, bytes, change).map(|_| ());
        }
        if pe == self.me() {
            return self.change_here(at, bytes, change).map(|_| ());
        }
        let channel = self.peers.channel(pe);
        let post = |_| channel.amo_nbi(Solo, HeapOffset(offset), amo);
        self.peers.patiently(|| format!("a path for atomics to PE {pe}"), post).map(|_| ())
    }

    /// Tells a signal word: as [`Session::change`], but that an add stands between two ledger words.
    ///
    /// # Errors
    /// As [`Session::change`].
    pub fn signal(&self, at: u64, change: Change, pe: i32) -> Result<(), Failure> {
        let (peer, offset) = self.word(at, 8, pe)?;
        let Change::Add(value) = change else { return self.change(at, 8, change, pe) };
        if peer == self.me() || self.owners_execute(peer, Wanted::Nothing, change.amo(8)) {
            return self.change(at, 8, change, pe);
        }
        let channel = self.peers.channel(peer);
        let post = |_| channel.bracketed_add_nbi(Solo, HeapOffset(offset), value);
        self.peers.patiently(|| format!("a path for signals to PE {peer}"), post).map(|_| ())
    }

    /// Whether the owner of a word executes it: where it can, and the NIC would not do as well. A processor's own
    /// changes are not atomic among those of NICs, so the owner's agent makes them, too: a store among them, which a
    /// NIC that has read the word and not yet written it would lose. And one that not every NIC has: the owner compares
    /// and swaps for it.
    fn owners_execute(&self, pe: u32, wanted: Wanted, amo: Amo) -> bool {
        let root = self.peers.pe().root();
        let own = pe == self.me();
        let lacked = root.plain_atomics != 0 && amo.is_masked();
        root.fetch != 0 && (root.fetch_exact != 0 || own || lacked || wanted == Wanted::OldValue)
    }

    /// Changes a word and answers with what it was.
    ///
    /// # Errors
    /// As [`Session::change`].
    pub fn fetch(&self, at: u64, bytes: u64, change: Change, pe: i32) -> Result<u64, Failure> {
        let (pe, offset) = self.word(at, bytes, pe)?;
        let amo = change.amo(bytes);
        if self.owners_execute(pe, Wanted::OldValue, amo) {
            return self.change_exactly(pe, offset, bytes, change);
        }
        if pe == self.me() {
            return self.change_here(at, bytes, change);
        }
        // One answer at a time.
        let _stage = lock(&self.stage);
        let channel = self.peers.channel(pe);
        let answer = HeapOffset(self.map.answer);
        let post = |_| channel.amo_fetch_nbi(Solo, HeapOffset(offset), amo, answer);
        let ticket = self.peers.patiently(|| format!("a path for atomics to PE {pe}"), post)?;
        self.peers.finish(pe, ticket)?;
        // The answer's word lies in the control area.
        Ok(self.peers.device().fetched(amo, answer))
    }

    /// Changes a word by a function of what it is: reads it, and tries until nobody came between.
    ///
    /// # Errors
    /// As [`Session::change`].
    pub fn update(&self, at: u64, bytes: u64, pe: i32, new: impl Fn(u64) -> u64) -> Result<u64, Failure> {
        let since = self.peers.now_ns();
        let mut old = self.fetch(at, bytes, Change::Add(0), pe)?;
        loop {
            let met = self.fetch(at, bytes, Change::CompareSwap(old, new(old)), pe)?;
            if met == old {
                return Ok(old);
            }
            old = met;
            let waited = self.peers.now_ns() - since;
            if waited > self.peers.deadline_ns() {
                return Err(self
                    .peers
                    .overdue(format!("a word of PE {pe} that others keep changing"), waited));
            }
        }
    }

    /// Answers what a channel asks: whether the operation of a ticket was applied.
    ///
    /// # Errors
    /// It does not ask about that.
    pub fn resolve(&self, pe: i32, ticket: u64, applied: bool) -> Result<(), Failure> {
        let pe = self.peers.check(pe)?;
        if pe == self.me() {
            return Err(Failure::Argument { what: "peer", met: pe.into(), want: "another PE" });
        }
        let resolution = if applied { Resolution::Applied } else { Resolution::NotApplied };
        let answer = self.peers.channel(pe).resolve(Ticket(ticket), resolution);
        answer.map_err(|fault| match fault.kind {
            FaultKind::BadResolution => Failure::NotAsked { pe, ticket },
            _ => self.peers.failure(&fault).too_late(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_those_of_a_nic() {
        let cases = [
            (Change::Add(3), 8),
            (Change::Set(9), 9),
            (Change::And(4), 4),
            (Change::Or(2), 7),
            (Change::Xor(1), 4),
            (Change::Swap(7), 7),
            (Change::CompareSwap(5, 1), 1),
            (Change::CompareSwap(4, 1), 5),
        ];
        for (change, want) in cases {
            assert_eq!(change.applied(5), want, "{change:?}");
            assert_eq!((change.amo(4).bytes(), change.amo(8).bytes()), (4, 8), "{change:?}");
        }
    }
}
