//! Writes whose fate no NIC could tell. Their receiver is asked how many of the immediates it has counted; what did not
//! come is written again, without immediates, and then the missing immediates are sent alone. Pure.
//!
//! Bytes may be written again, because they are the same, and because a receiver whose count is not whole has not read
//! any of them.

use crate::failure::Failure;
use crate::plan::{Part, What};
use std::collections::BTreeMap;

/// What became of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has arrived.
    Sent,
    /// It may have arrived or not. Nothing of it lands any more.
    Unsure,
    /// It has not, and cannot.
    Failed(Failure),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// So many parts have arrived.
    Settled(usize),
    /// Ask a rank how many immediates it has counted. The number comes back with the answer.
    Ask(u32, What, u64),
    /// Write these parts without immediates.
    Repeat(Vec<Part>),
    /// Write these parts.
    Write(Vec<Part>),
}

/// Immediates of one kind to one rank, in the layer that is under way.
#[derive(Clone, Debug, Default)]
struct Key {
    /// Immediates that have arrived.
    arrived: u64,
    /// Parts that have not ended.
    open: usize,
    /// Parts whose fate is not known.
    unsure: Vec<Part>,
    /// The question that was asked last, if it is not answered.
    asked: Option<u64>,
}

/// What was posted and has not ended.
#[derive(Clone, Debug)]
enum Posted {
    /// Parts with immediates.
    Parts(Vec<Part>),
    /// Parts without, and how many immediates are missing of their kind.
    Repeated(u32, What, u64),
}

/// All writes of a rank in a layer.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    keys: BTreeMap<(u32, What), Key>,
    posted: BTreeMap<u64, Posted>,
    /// What is repeated next: of which kind, and immediates that are missing.
    repeats: BTreeMap<(u32, What), u64>,
    questions: u64,
    asked: u64,
}

impl Deliveries {
    /// Another layer: everything of the one before was settled.
    pub fn next_layer(&mut self) {
        self.keys.clear();
    }

    /// Ranks that have not answered.
    pub fn awaited(&self) -> impl Iterator<Item = u32> {
        self.keys.iter().filter(|(_, key)| key.asked.is_some()).map(|((to, _), _)| *to)
    }

    /// Parts whose receiver was asked, so far.
    pub const fn asked(&self) -> u64 {
        self.asked
    }

    /// Parts were posted, under a number.
    pub fn posted(&mut self, number: u64, parts: &[Part]) {
        for part in parts {
            let key = self.keys.entry((part.to, part.what)).or_default();
            key.open += 1;
            // An answer may count it or not.
            key.asked = None;
        }
        self.posted.insert(number, Posted::Parts(parts.to_vec()));
    }

    /// Parts that are repeated were posted, under a number. All are of one kind.
    pub fn repeated(&mut self, number: u64, parts: &[Part]) {
        let Some(Part { to, what, .. }) = parts.first() else { return };
        let missing = self.repeats.remove(&(*to, *what)).unwrap_or(0);
        self.posted.insert(number, Posted::Repeated(*to, *what, missing));
    }

    /// What was posted under a number has ended, each part with its fate.
    ///
    /// # Errors
    /// A part's failure; or nothing was posted under it.
    pub fn ended(&mut self, number: u64, fates: &[Fate]) -> Result<Vec<Act>, Failure> {
        let unknown =
            || Failure::broken(format!("a write: expected one that was posted, got number {number}"));
        match self.posted.remove(&number).ok_or_else(unknown)? {
            Posted::Repeated(to, what, missing) => {
                if let Some(fate) = fates.iter().find(|fate| **fate != Fate::Sent) {
                    let why = "a write without an immediate: expected its end, got one that is uncertain";
                    let failure = Failure { is_uncertain: true, ..Failure::broken(why) };
                    return Err(if let Fate::Failed(failure) = fate { failure.clone() } else { failure });
                }
                Ok(vec![Act::Write(bare(to, what, missing))])
            }
            Posted::Parts(parts) => {
                let mut sent = 0;
                for (part, fate) in parts.iter().zip(fates) {
                    let key = self.keys.entry((part.to, part.what)).or_default();
                    key.open = key.open.saturating_sub(1);
                    match fate {
                        Fate::Sent => (sent, key.arrived) = (sent + 1, key.arrived + 1),
                        Fate::Unsure => key.unsure.push(*part),
                        Fate::Failed(failure) => return Err(failure.clone()),
                    }
                }
                let mut acts = if sent > 0 { vec![Act::Settled(sent)] } else { Vec::new() };
                acts.extend(self.ask());
                Ok(acts)
            }
        }
    }

    /// Asks of each kind that has unsure parts and nothing else under way.
    fn ask(&mut self) -> Vec<Act> {
        let mut acts = Vec::new();
        for ((to, what), key) in &mut self.keys {
            if key.open == 0 && !key.unsure.is_empty() && key.asked.is_none() {
                self.questions += 1;
                self.asked += key.unsure.len() as u64;
                key.asked = Some(self.questions);
                acts.push(Act::Ask(*to, *what, self.questions));
            }
        }
        acts
    }

    /// A rank has answered a question: so many immediates of the kind have arrived there.
    ///
    /// # Errors
    /// It cannot be so many.
    pub fn answered(&mut self, question: u64, counted: u64) -> Result<Vec<Act>, Failure> {
        let found = self.keys.iter_mut().find(|(_, key)| key.asked == Some(question));
        // An answer that is out of date: another question was asked.
        let Some(((to, what), key)) = found else { return Ok(Vec::new()) };
        let most = key.arrived + key.unsure.len() as u64;
        if !(key.arrived..=most).contains(&counted) {
            let want = format!("{} to {most} immediates", key.arrived);
            return Err(Failure::broken(format!("{what:?} at rank {to}: expected {want}, got {counted}")));
        }
        let (parts, settled) = (std::mem::take(&mut key.unsure), counted - key.arrived);
        (key.arrived, key.asked) = (counted, None);
        let missing = parts.len() as u64 - settled;
        let mut acts = if settled > 0 { vec![Act::Settled(settled as usize)] } else { Vec::new() };
        let with_bytes: Vec<Part> = parts.into_iter().filter(|part| part.len > 0).collect();
        if missing > 0 && with_bytes.is_empty() {
            acts.push(Act::Write(bare(*to, *what, missing)));
        } else if missing > 0 {
            self.repeats.insert((*to, *what), missing);
            acts.push(Act::Repeat(with_bytes));
        }
        Ok(acts)
    }
}

fn bare(to: u32, what: What, count: u64) -> Vec<Part> {
    (0..count).map(|_| Part { to, what, from: 0, at: 0, len: 0 }).collect()
}
