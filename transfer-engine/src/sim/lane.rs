//! A connection of two nodes over one rail.

use crate::domain::Fence;

/// One way of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Direction {
    pub posted: u64,
    pub acked: u64,
    pub executed: u64,
    /// When the last piece arrives, its completion shows, its answer comes: all three keep their order, and no two fall
    /// together.
    pub arrives: u64,
    pub completes: u64,
    pub answers: u64,
    /// A piece was lost: none behind it is executed.
    pub broken: bool,
    pub acks_lost: bool,
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
    pub const fn new(ends: [u32; 2], rail: u32) -> Self {
        let fresh = Direction {
            posted: 0,
            acked: 0,
            executed: 0,
            arrives: 0,
            completes: 0,
            answers: 0,
            broken: false,
            acks_lost: false,
        };
        Self {
            ends,
            rail,
            directions: [fresh; 2],
            stopped: [false; 2],
            closing: false,
            left: [false; 2],
            silent: false,
            fence: Fence::Executed(0),
        }
    }
}
