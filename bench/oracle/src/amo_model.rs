//! What `--mode amo` does to its words and what they hold then: atomics that follow from the seed and their number, and
//! a model of the words they go to. Pure; both ends compute the same.

use crate::pattern::{Salt, word};
use shunt_device::Amo;

/// Kinds of atomics.
const KINDS: u64 = 14;
/// One in so many fetches.
const FETCHES: u64 = 4;

/// One atomic of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scripted {
    /// What is posted.
    pub amo: Amo,
    /// Bytes into the slot: four-byte ones go to either half of it.
    pub offset: u64,
    /// Whether its answer is wanted.
    pub fetch: bool,
    /// The answer: what the word held before.
    pub old: u64,
    /// What the slot holds afterwards.
    pub after: u64,
}

/// The slots of a stream as its atomics leave them, in their order.
#[derive(Clone, Debug)]
pub struct Model {
    salt: Salt,
    slots: Vec<u64>,
}

impl Model {
    /// Slots that hold nothing yet.
    pub fn new(salt: Salt, slots: u64) -> Self {
        Self { salt, slots: vec![0; slots as usize] }
    }

    /// What the slot of atomic `number` holds now.
    pub fn holds(&self, number: u64) -> u64 {
        self.slots[self.slot(number)]
    }

    /// Carries out atomic `number`: the one after the last.
    pub fn next(&mut self, number: u64) -> Scripted {
        let slot = self.slot(number);
        let scripted = script(self.salt, number, self.slots[slot]);
        self.slots[slot] = scripted.after;
        scripted
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }
}

/// Atomic `number` on a slot that holds `before`.
fn script(salt: Salt, number: u64, before: u64) -> Scripted {
    let (dice, value) = (word(salt, number, 0), word(salt, number, 1));
    let small = value as u32;
    // Which half of the slot a word of four bytes is.
    let high = dice >> 32 & 1;
    let part = (before >> (32 * high)) as u32;
    // A comparison holds every other time.
    let meets = dice >> 33 & 1 == 1;
    let expect = |held: u64| if meets { held } else { !held };
    let amo = match dice % KINDS {
        0 => Amo::Add32(small),
        1 => Amo::Add64(value),
        2 => Amo::Set32(small),
        3 => Amo::Set64(value),
        4 => Amo::And32(small),
        5 => Amo::And64(value),
        6 => Amo::Or32(small),
        7 => Amo::Or64(value),
        8 => Amo::Xor32(small),
        9 => Amo::Xor64(value),
        10 => Amo::Swap32(small),
        11 => Amo::Swap64(value),
        12 => Amo::CompareSwap32 { expect: expect(part.into()) as u32, new: small },
        _ => Amo::CompareSwap64 { expect: expect(before), new: value },
    };
    let fetch = (dice >> 34).is_multiple_of(FETCHES);
    if amo.bytes() == 8 {
        return Scripted { amo, offset: 0, fetch, old: before, after: apply(amo, before) };
    }
    let new = apply(amo, part.into()) & u64::from(u32::MAX);
    let after = before & !(u64::from(u32::MAX) << (32 * high)) | new << (32 * high);
    Scripted { amo, offset: 4 * high, fetch, old: part.into(), after }
}

/// What a word becomes.
fn apply(amo: Amo, held: u64) -> u64 {
    let swap = |expect: u64, new: u64| if held == expect { new } else { held };
    match amo {
        Amo::Add32(value) => u64::from((held as u32).wrapping_add(value)),
        Amo::Add64(value) => held.wrapping_add(value),
        Amo::Set32(value) | Amo::Swap32(value) => value.into(),
        Amo::Set64(value) | Amo::Swap64(value) => value,
        Amo::And32(value) => held & u64::from(value),
        Amo::And64(value) => held & value,
        Amo::Or32(value) => held | u64::from(value),
        Amo::Or64(value) => held | value,
        Amo::Xor32(value) => held ^ u64::from(value),
        Amo::Xor64(value) => held ^ value,
        Amo::CompareSwap32 { expect, new } => swap(expect.into(), new.into()),
        Amo::CompareSwap64 { expect, new } => swap(expect, new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_kind_comes_fetching_and_not_and_both_ends_agree() {
        let salt = Salt::new(3, 0, 0);
        let (mut here, mut there) = (Model::new(salt, 4), Model::new(salt, 4));
        let mut kinds = HashSet::new();
        for number in 0..2000 {
            let before = here.holds(number);
            let scripted = here.next(number);
            assert_eq!(scripted, there.next(number));
            assert_eq!(here.holds(number), scripted.after);
            kinds.insert((std::mem::discriminant(&scripted.amo), scripted.fetch));
            if scripted.amo.bytes() == 4 {
                let other = 32 * (1 - scripted.offset / 4);
                assert_eq!(
                    before >> other as u32 as u64 & 0xffff_ffff,
                    scripted.after >> other & 0xffff_ffff
                );
                assert_eq!(scripted.old, before >> (8 * scripted.offset) & 0xffff_ffff);
            } else {
                assert_eq!((scripted.offset, scripted.old), (0, before));
            }
        }
        assert_eq!(kinds.len() as u64, 2 * KINDS);
    }

    #[test]
    fn words_are_what_the_kinds_say() {
        let cases = [
            (Amo::Add32(2), 0xffff_ffff, 1),
            (Amo::Add64(2), u64::MAX, 1),
            (Amo::Set64(7), 9, 7),
            (Amo::And32(0b110), 0b011, 0b010),
            (Amo::Or64(0b110), 0b011, 0b111),
            (Amo::Xor32(0b110), 0b011, 0b101),
            (Amo::CompareSwap64 { expect: 5, new: 6 }, 5, 6),
            (Amo::CompareSwap32 { expect: 5, new: 6 }, 4, 4),
        ];
        for (amo, held, becomes) in cases {
            assert_eq!(apply(amo, held), becomes, "{amo:?}");
        }
    }
}
