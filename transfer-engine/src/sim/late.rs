//! Writes that a receiver's NIC has executed and that are not in memory yet. They land in order.

use std::collections::VecDeque;

/// Those of one direction: number, place, bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Accepted(VecDeque<(u64, u64, Vec<u8>)>);

impl Accepted {
    /// One more is executed.
    pub fn put(&mut self, number: u64, at: u64, bytes: Vec<u8>) {
        self.0.push_back((number, at, bytes));
    }

    /// What comes to memory, with this one and all before it: places and bytes.
    pub fn up_to(&mut self, number: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
        let count = self.0.iter().take_while(|(known, ..)| *known <= number).count();
        self.0.drain(..count).map(|(_, at, bytes)| (at, bytes))
    }
}
