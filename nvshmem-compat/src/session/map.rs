//! Where everything lies in a PE's registered memory: what the program gets, and behind it what calls need. Pure.
//!
//! What kernels and NICs alone touch lies with what the program gets, and may be a device's memory. Behind it begins
//! the control area, which the host touches: where the heap is split it is memory of the host, of its own.

use super::kernel_map::KernelMap;
use shunt_host::gpu::Split;

/// Blocks of the staging buffer.
pub const STAGE_BLOCKS: u64 = 8;
/// Bytes of a block.
pub const STAGE_BYTES: u64 = 256 << 10;
/// Fewest bytes of the buffer that collective calls work in.
const WORK_BYTES: u64 = 1 << 20;
/// Fewest bytes of a PE's part of it.
const WORK_PART: u64 = 4096;

/// Offsets in the symmetric heap; the same on every PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapMap {
    /// Bytes of the program's own.
    pub user: u64,
    /// Where memory changes from a device's to the host's, if it does.
    pub split: Option<Split>,
    /// PEs.
    pes: u64,
    /// A word for each team and PE: how often that PE has come to a meeting of that team.
    meetings: u64,
    /// A part for each PE to write into.
    work: u64,
    /// Bytes of a part.
    pub work_part: u64,
    /// Staging blocks.
    stage: u64,
    /// A word for answers.
    pub answer: u64,
    /// What device functions need, where the program has them.
    pub kernels: Option<KernelMap>,
    /// Bytes of all.
    pub bytes: u64,
}

impl HeapMap {
    /// For so many bytes of the program's own, PEs, and team ids; with what device functions need, or without. `split`:
    /// log2 of what a key covers, where all in front of the control area is a device's memory.
    pub fn new(user: u64, pes: u32, teams: u32, kernels: bool, split: Option<u32>) -> Self {
        let (ids, pes) = (teams, u64::from(pes));
        let up = |at: u64| at.next_multiple_of(4096);
        let work_part = (WORK_BYTES / pes / WORK_PART * WORK_PART).max(WORK_PART);
        let kernels = kernels.then(|| KernelMap::new(up(user), pes as u32, ids));
        let device = kernels.map_or(up(user), |map| map.device_end);
        let split = split.map(|log2_chunk| Split::new(device, log2_chunk));
        let meetings = split.map_or(device, |split| split.host);
        let work = up(meetings + u64::from(teams) * pes * 8);
        let stage = up(work + pes * work_part);
        let answer = stage + STAGE_BLOCKS * STAGE_BYTES;
        let kernels = kernels.map(|map| map.with_tables(answer + 4096));
        let bytes = kernels.map_or(answer + 4096, |map| map.end);
        Self { user, split, pes, meetings, work, work_part, stage, answer, kernels, bytes }
    }

    /// The word of a PE for a team.
    pub fn meeting(&self, team: i32, pe: u32) -> u64 {
        self.meetings + (team as u64 * self.pes + u64::from(pe)) * 8
    }

    /// The part that a PE writes into, here or elsewhere.
    pub fn part(&self, writer: u32) -> u64 {
        self.work + u64::from(writer) * self.work_part
    }

    /// A staging block.
    pub fn block(&self, number: u64) -> u64 {
        self.stage + number % STAGE_BLOCKS * STAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_overlaps(
            user in 1u64..1 << 32,
            pes in 1u32..600,
            teams in 8u32..4200,
            kernels: bool,
            split: Option<bool>,
        ) {
            let map = HeapMap::new(user, pes, teams, kernels, split.map(|large| if large { 29 } else { 21 }));
            if let Some(kernels) = map.kernels {
                prop_assert!(kernels.row(0) >= map.answer + 8 && map.bytes == kernels.end);
                prop_assert!(map.meeting(0, 0) >= kernels.device_end);
            }
            if let Some(split) = map.split {
                let device = map.kernels.map_or(user, |map| map.device_end);
                prop_assert!(split.device >= device && split.host >= split.device);
                prop_assert!(split.host.is_multiple_of(1 << 21) && map.meeting(0, 0) == split.host);
            }
            let last_word = map.meeting(teams as i32 - 1, pes - 1) + 8;
            prop_assert!(map.meeting(0, 0) >= user && map.part(0) >= last_word);
            prop_assert!(map.block(0) >= map.part(pes - 1) + map.work_part);
            prop_assert!(map.answer >= map.block(STAGE_BLOCKS - 1) + STAGE_BYTES && map.answer + 8 <= map.bytes);
            prop_assert_eq!(map.block(STAGE_BLOCKS), map.block(0));
            prop_assert!(map.work_part >= 4096 && map.meeting(1, 0).is_multiple_of(8));
        }
    }
}
