//! Immediates of one incarnation of a path, counted at both ends. Pure.
//!
//! The sender knows how many pieces of an immediate it posted, and how many of them are under way; the receiver, how
//! many arrived. Both forget an immediate of which none is under way: the sender says which are settled, in numbered
//! batches that are said until they are taken.

use crate::words::{Answers, Arrived, Asks, Batch};
use shunt_transfer_engine::domain::Counted;
use std::collections::{BTreeMap, BTreeSet};

/// Immediates that a ledger knows before it settles.
const LIMIT: usize = 4096;
/// Most immediates of a batch.
const BATCH: usize = 1024;

#[derive(Debug, Default)]
struct Sent {
    posted: u64,
    /// Which of them, from 0 on.
    under_way: BTreeSet<u64>,
}

/// The counts of one incarnation, both ways.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sent: BTreeMap<u32, Sent>,
    arrived: BTreeMap<u32, Arrived>,
    /// The newest batch of this end, until it is taken.
    batch: Option<Batch>,
    batches: u32,
    /// Number of the newest batch of the peer that was taken.
    taken: u32,
}

impl Ledger {
    /// A piece with this immediate is posted: which of them it is.
    pub fn post(&mut self, imm: u32) -> u64 {
        let sent = self.sent.entry(imm).or_default();
        let number = sent.posted;
        sent.under_way.insert(number);
        sent.posted += 1;
        number
    }

    /// One is executed.
    pub fn executed(&mut self, imm: u32, number: u64) {
        self.sent.get_mut(&imm).into_iter().for_each(|sent| _ = sent.under_way.remove(&number));
    }

    /// One of the peer has arrived.
    pub fn arrived(&mut self, imm: u32) {
        self.add(imm, 1);
    }

    fn add(&mut self, imm: u32, count: i64) {
        let arrived = self.arrived.entry(imm).or_insert(Arrived { count: 0, reached: 0 });
        arrived.count = arrived.count.saturating_add(count);
        // What is settled is forgotten in both.
        arrived.reached = arrived.reached.saturating_add(count.min(0));
        if arrived.count == 0 {
            self.arrived.remove(&imm);
        }
    }

    /// An expectation of this immediate was reached.
    pub fn reached(&mut self, imm: u32) {
        self.arrived.get_mut(&imm).into_iter().for_each(|arrived| arrived.reached = arrived.count);
    }

    /// A batch that is to be said, if there is one: the same until it is taken.
    pub fn settles(&mut self) -> Option<&Batch> {
        if self.batch.is_none() && self.sent.len() > LIMIT {
            let settled = self.sent.iter().filter(|(_, sent)| sent.under_way.is_empty());
            let counts: Vec<_> = settled.take(BATCH).map(|(imm, sent)| (*imm, sent.posted)).collect();
            if !counts.is_empty() {
                self.sent.retain(|imm, _| counts.binary_search_by_key(imm, |(imm, _)| *imm).is_err());
                self.batches += 1;
                self.batch = Some(Batch { number: self.batches, counts });
            }
        }
        self.batch.as_ref()
    }

    /// The peer has taken the batches up to this one.
    pub fn settled(&mut self, number: u32) {
        self.batch.take_if(|batch| batch.number <= number);
    }

    /// Takes a batch of the peer, once: the number up to which they are taken.
    pub fn take(&mut self, batch: &Batch) -> u32 {
        if batch.number == self.taken + 1 {
            self.taken = batch.number;
            for (imm, count) in &batch.counts {
                self.add(*imm, i64::try_from(*count).map_or(i64::MIN, |count| -count));
            }
        }
        self.taken
    }

    /// What is to be asked at the end.
    pub fn asks(&self, keys: Vec<u32>) -> Asks {
        let under_way = self.sent.iter().filter(|(_, sent)| !sent.under_way.is_empty());
        Asks { imms: under_way.map(|(imm, _)| *imm).collect(), keys, batch: self.batch.clone() }
    }

    /// The answer to the peer: nothing of it arrives any more.
    pub fn answers(&mut self, asks: &Asks, unknown: Vec<u32>) -> Answers {
        if let Some(batch) = &asks.batch {
            self.take(batch);
        }
        let none = Arrived { count: 0, reached: 0 };
        let counts = asks.imms.iter().map(|imm| (*imm, self.arrived.get(imm).copied().unwrap_or(none)));
        Answers { counts: counts.collect(), unknown }
    }

    /// What became of the immediates under way. Of one that the peer does not name none arrived.
    ///
    /// An expectation that was reached by no more than were posted before the oldest of them is about those.
    pub fn fence(&self, answers: &Answers) -> BTreeMap<u32, Counted> {
        let named: BTreeMap<u32, Arrived> = answers.counts.iter().copied().collect();
        let under_way = self.sent.iter().filter(|(_, sent)| !sent.under_way.is_empty());
        let counted = |(imm, sent): (&u32, &Sent)| {
            let arrived = named.get(imm);
            let count = arrived.map_or(0, |arrived| u64::try_from(arrived.count).unwrap_or(0));
            let missing = sent.posted.saturating_sub(count).min(sent.under_way.len() as u64);
            let before = sent.under_way.first().map_or(sent.posted, |oldest| *oldest);
            let by = arrived.map_or(0, |arrived| u64::try_from(arrived.reached).unwrap_or(0));
            (*imm, Counted { missing, reached: by > before })
        };
        under_way.map(counted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fence(sender: &Ledger, receiver: &mut Ledger) -> BTreeMap<u32, Counted> {
        let asks = sender.asks(Vec::new());
        sender.fence(&receiver.answers(&asks, Vec::new()))
    }

    #[test]
    fn what_did_not_arrive_of_what_is_under_way_is_missing() {
        let (mut sender, mut receiver) = (Ledger::default(), Ledger::default());
        (0..5).for_each(|_| _ = sender.post(7));
        sender.post(8);
        (0..3).for_each(|_| receiver.arrived(7));
        receiver.reached(7);
        sender.executed(7, 0);
        assert_eq!(
            fence(&sender, &mut receiver),
            BTreeMap::from([
                (7, Counted { missing: 2, reached: true }),
                (8, Counted { missing: 1, reached: false })
            ])
        );
        // Completions that were lost: as many arrived as were posted.
        (0..2).for_each(|_| receiver.arrived(7));
        assert_eq!(fence(&sender, &mut receiver)[&7].missing, 0);
    }

    #[test]
    fn an_immediate_that_is_used_again_is_reached_by_what_was_under_way_alone() {
        let (mut sender, mut receiver) = (Ledger::default(), Ledger::default());
        let posted = [0, 1].map(|_| sender.post(7));
        posted.iter().for_each(|_| receiver.arrived(7));
        receiver.reached(7);
        assert!(fence(&sender, &mut receiver)[&7].reached, "both are under way as far as the sender knows");
        // Executed in another order than posted: the older one is still open.
        sender.executed(7, posted[1]);
        assert!(fence(&sender, &mut receiver)[&7].reached);
        sender.executed(7, posted[0]);
        (0..2).for_each(|_| _ = sender.post(7));
        receiver.arrived(7);
        let of_the_next = Counted { missing: 1, reached: false };
        assert_eq!(fence(&sender, &mut receiver), BTreeMap::from([(7, of_the_next)]));
        // The next round is reached too.
        receiver.arrived(7);
        receiver.reached(7);
        assert!(fence(&sender, &mut receiver)[&7].reached);
        // What is settled counts no more.
        let mut sender = Ledger { batches: 1, ..Ledger::default() };
        sender.batch = Some(Batch { number: 1, counts: vec![(7, 4)] });
        sender.post(7);
        assert_eq!(fence(&sender, &mut receiver), BTreeMap::from([(7, of_the_next)]));
    }

    #[test]
    fn a_batch_is_taken_once_and_may_be_read_before_what_it_counts() {
        let (mut sender, mut receiver) = (Ledger::default(), Ledger::default());
        for imm in 0..=LIMIT as u32 {
            let number = sender.post(imm);
            sender.executed(imm, number);
            if imm > 0 {
                receiver.arrived(imm);
            }
        }
        let batch = sender.settles().cloned().expect("too many");
        assert_eq!((batch.number, batch.counts.len()), (1, BATCH));
        assert_eq!((receiver.take(&batch), receiver.take(&batch)), (1, 1));
        receiver.arrived(0);
        assert_eq!(receiver.arrived.len(), LIMIT + 1 - BATCH);
        // Not told yet that it was taken: it goes with the question.
        sender.post(0);
        assert_eq!(
            fence(&sender, &mut receiver),
            BTreeMap::from([(0, Counted { missing: 1, reached: false })])
        );
        receiver.arrived(0);
        assert_eq!(fence(&sender, &mut receiver)[&0].missing, 0);
        sender.settled(1);
        assert_eq!((sender.batch.is_none(), sender.sent.len()), (true, LIMIT + 2 - BATCH));
    }

    proptest! {
        /// Whatever arrives, settles and is told late: missing is what was posted and did not arrive.
        #[test]
        fn missing_is_exact(steps in proptest::collection::vec((0..6u8, 0..5u32), 1..200)) {
            let (mut sender, mut receiver) = (Ledger::default(), Ledger::default());
            let (mut out, mut there) = (BTreeMap::<u32, u64>::new(), BTreeMap::<u32, u64>::new());
            for (step, imm) in steps {
                let (out, there) = (out.entry(imm).or_default(), there.entry(imm).or_default());
                match step {
                    0 | 1 => { sender.post(imm); *out += 1; }
                    2 if *out > 0 => { receiver.arrived(imm); *out -= 1; *there += 1; }
                    3 if *there > 0 => {
                        let oldest = sender.sent[&imm].under_way.first().copied();
                        oldest.into_iter().for_each(|number| sender.executed(imm, number));
                        *there -= 1;
                    }
                    4 => {
                        // As if the limit were passed.
                        if sender.batch.is_none() {
                            let done: Vec<_> = sender.sent.iter().filter(|(_, sent)| sent.under_way.is_empty())
                                .map(|(imm, sent)| (*imm, sent.posted)).collect();
                            sender.sent.retain(|_, sent| !sent.under_way.is_empty());
                            sender.batches += 1;
                            sender.batch = Some(Batch { number: sender.batches, counts: done });
                        }
                        let batch = sender.settles().cloned();
                        let _ = batch.map(|batch| receiver.take(&batch));
                    }
                    5 => sender.settled(receiver.taken),
                    _ => {}
                }
            }
            for (imm, counted) in fence(&sender, &mut receiver) {
                prop_assert_eq!(counted.missing, out[&imm], "immediate {}", imm);
            }
        }
    }
}
