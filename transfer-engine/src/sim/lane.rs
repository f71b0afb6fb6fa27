//! A connection of two nodes over one rail.

use super::late::Accepted;
use crate::domain::{Counted, Fence, Op};
use std::collections::BTreeMap;

/// A piece whose answer has not come.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    imm: Option<u32>,
    executed: bool,
}

/// What a receiver knows of an immediate.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    /// How many it was told of.
    told: u64,
    /// How many of them when the last expectation was reached.
    reached: u64,
}

/// One way of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Direction {
    pub posted: u64,
    pub acked: u64,
    pub executed: u64,
    /// The youngest piece that was executed.
    pub youngest: u64,
    unanswered: BTreeMap<u64, Unanswered>,
    /// How many were posted, by immediate.
    by_imm: BTreeMap<u32, u64>,
    /// By immediate, what its receiver knows.
    received: BTreeMap<u32, Received>,
    /// When the last piece arrives, its completion shows, its answer comes: all three keep their order, and no two fall
    /// together.
    pub arrives: u64,
    pub completes: u64,
    pub answers: u64,
    /// A piece was lost: none behind it is executed.
    pub broken: bool,
    pub acks_lost: bool,
    pub accepted: Accepted,
    denied: bool,
}

/// Both ways.
#[derive(Debug)]
pub(super) struct Pair {
    pub ends: [u32; 2],
    pub rail: u32,
    /// By the side that sends.
    pub directions: [Direction; 2],
    /// By side: its half is in ERR.
    pub stopped: [bool; 2],
    pub closing: bool,
    /// By side: its end has cut the other one off.
    pub left: [bool; 2],
    /// Its end was told.
    pub silent: bool,
    pub fence: Fence,
}

impl Pair {
    pub fn new(ends: [u32; 2], rail: u32) -> Self {
        Self {
            ends,
            rail,
            directions: Default::default(),
            stopped: [false; 2],
            closing: false,
            left: [false; 2],
            silent: false,
            fence: Fence::Executed(0),
        }
    }
}

impl Direction {
    /// One more piece is posted: its number.
    pub fn post(&mut self, op: Op) -> u64 {
        let imm = if let Op::Write(imm) = op { imm } else { None };
        let number = self.posted;
        self.posted += 1;
        self.unanswered.insert(number, Unanswered { imm, executed: false });
        imm.into_iter().for_each(|imm| *self.by_imm.entry(imm).or_default() += 1);
        number
    }

    /// A piece is executed. True if a younger one was executed before.
    pub fn execute(&mut self, number: u64) -> bool {
        self.executed += 1;
        self.unanswered.get_mut(&number).into_iter().for_each(|piece| piece.executed = true);
        let is_late = number < self.youngest;
        self.youngest = self.youngest.max(number);
        is_late
    }

    /// The answer to a piece has come.
    pub fn answer(&mut self, number: u64) {
        self.acked += 1;
        self.unanswered.remove(&number);
    }

    /// A piece was refused. True if it is the first: the others are what a fence tells of.
    pub fn deny(&mut self, number: u64) -> bool {
        let is_first = !std::mem::replace(&mut self.denied, true);
        if is_first {
            self.unanswered.remove(&number);
        }
        is_first
    }

    /// Its receiver is told of an immediate.
    pub fn tell(&mut self, imm: u32) {
        self.received.entry(imm).or_default().told += 1;
    }

    /// An expectation of an immediate was reached.
    pub fn reached(&mut self, imm: u32) {
        self.received.get_mut(&imm).into_iter().for_each(|known| known.reached = known.told);
    }

    /// What its receiver's counts say of the pieces without an answer.
    ///
    /// An expectation that was reached by no more than were posted before them is about those.
    pub fn counted(&self) -> BTreeMap<u32, Counted> {
        let mut open: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for piece in self.unanswered.values() {
            let Some(imm) = piece.imm else { continue };
            let (all, missing) = open.entry(imm).or_default();
            (*all, *missing) = (*all + 1, *missing + u64::from(!piece.executed));
        }
        let counted = |(imm, (all, missing)): (u32, (u64, u64))| {
            let before = self.by_imm[&imm] - all;
            let reached = self.received.get(&imm).is_some_and(|known| known.reached > before);
            (imm, Counted { missing, reached })
        };
        open.into_iter().map(counted).collect()
    }
}
