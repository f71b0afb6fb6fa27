//! Where in a PE's registered memory lies what device functions need, and the words by which they find it
//! (`shunt_nvshmem_device` in `include/shunt/device_state.h`). Pure.

/// `SHUNT_NVSHMEM_DEVICE_VERSION`.
pub const VERSION: u64 = 7;
/// Words for answers: so many threads of a PE wait for one at a time, others for a word.
const ANSWERS: u64 = 4096;
/// Fewest bytes that a team's reductions work in.
const WORK_BYTES: u64 = 32 << 10;
/// Bytes of a member's part of that at least: one element of the longest type.
const WORK_PART: u64 = 16;
/// Bytes of a row of the table of teams.
const ROW_BYTES: u64 = 32;

fn up(at: u64) -> u64 {
    at.next_multiple_of(4096)
}

/// Offsets in the symmetric heap; the same on every PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelMap {
    teams: u64,
    pes: u64,
    rows: u64,
    members: u64,
    meetings: u64,
    work: u64,
    work_bytes: u64,
    answers: u64,
    claims: u64,
    never: u64,
    mapped: u64,
    /// Behind what kernels and NICs alone touch.
    pub device_end: u64,
    /// The first fault of device functions, and how many.
    pub faults: u64,
    /// Behind all of it.
    pub end: u64,
}

impl KernelMap {
    /// What kernels and NICs alone touch, from an offset on, for so many PEs and ids of teams. What the host touches as
    /// well is found by [`with_tables`](Self::with_tables).
    pub fn new(start: u64, pes: u32, teams: u32) -> Self {
        let (pes, teams) = (u64::from(pes), u64::from(teams));
        let work_bytes = WORK_BYTES.max(up(pes * WORK_PART));
        let meetings = up(start);
        let work = up(meetings + teams * pes * 8);
        let answers = work + teams * work_bytes;
        let claims = answers + ANSWERS * 8;
        let never = claims + ANSWERS * 8;
        let device_end = up(never + 256);
        let map = Self {
            teams,
            pes,
            meetings,
            work,
            work_bytes,
            answers,
            claims,
            never,
            device_end,
            rows: 0,
            members: 0,
            mapped: 0,
            faults: 0,
            end: 0,
        };
        map.with_tables(device_end)
    }

    /// The same, with the tables that the host writes and reads from another offset on.
    pub fn with_tables(self, start: u64) -> Self {
        let rows = up(start);
        let members = up(rows + self.teams * ROW_BYTES);
        // A line of its own: kernels write it, and poll what stands before it.
        let faults = up(members + self.teams * self.pes * 4);
        let mapped = faults + 256;
        Self { rows, members, faults, mapped, end: up(mapped + self.pes * 8), ..self }
    }

    /// The row of a team: members, this PE's number among them, meetings.
    pub fn row(&self, team: i32) -> u64 {
        self.rows + team as u64 * ROW_BYTES
    }

    /// The word of a team's row that counts its meetings on devices.
    pub fn meeting(&self, team: i32) -> u64 {
        self.row(team) + 16
    }

    /// Where a team's members begin, 32 bits each.
    pub fn members(&self, team: i32) -> u64 {
        self.members + team as u64 * self.pes * 4
    }

    /// Where the address of a PE's heap stands, 0 where it is not mapped.
    pub fn mapped(&self, pe: u32) -> u64 {
        self.mapped + u64::from(pe) * 8
    }

    /// PEs of the job.
    pub fn pes(&self) -> u32 {
        self.pes as u32
    }

    /// Ids of teams.
    pub fn team_ids(&self) -> u64 {
        self.teams
    }

    /// What device code is told, for PE `me` with its heap at `base`; its atomics are the NIC's.
    pub fn words(&self, me: u32, base: u64, user: u64, channels: u32, deadline_ns: u64) -> DeviceWords {
        DeviceWords {
            version: VERSION,
            me: me.into(),
            pes: self.pes,
            base,
            user,
            channels: channels.into(),
            deadline_ns,
            team_ids: self.teams,
            teams: self.rows,
            members: self.members,
            meetings: self.meetings,
            work: self.work,
            work_bytes: self.work_bytes,
            answers: self.answers,
            claims: self.claims,
            answer_count: ANSWERS,
            never: self.never,
            faults: self.faults,
            mapped: self.mapped,
            exact: 0,
        }
    }
}

/// `shunt_nvshmem_device`: what each word is stands there.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DeviceWords {
    pub version: u64,
    pub me: u64,
    pub pes: u64,
    pub base: u64,
    pub user: u64,
    pub channels: u64,
    pub deadline_ns: u64,
    pub team_ids: u64,
    pub teams: u64,
    pub members: u64,
    pub meetings: u64,
    pub work: u64,
    pub work_bytes: u64,
    pub answers: u64,
    pub claims: u64,
    pub answer_count: u64,
    pub never: u64,
    pub faults: u64,
    pub mapped: u64,
    pub exact: u64,
}

const _: () = assert!(size_of::<DeviceWords>() == 20 * 8);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_overlaps(
            start in 0u64..1 << 40,
            apart in 0u64..1 << 30,
            pes in 1u32..4097,
            teams in 8u32..4200,
        ) {
            let map = KernelMap::new(start, pes, teams);
            let map = map.with_tables(map.device_end + apart);
            let last = teams as i32 - 1;
            prop_assert!(map.meetings >= start && map.device_end >= map.never + 8);
            prop_assert!(map.row(0) >= map.device_end + apart && map.members(0) >= map.row(last) + ROW_BYTES);
            prop_assert!(map.faults >= map.members(last) + u64::from(pes) * 4);
            prop_assert!(map.work >= map.meetings + u64::from(teams) * u64::from(pes) * 8);
            prop_assert!(map.answers >= map.work + u64::from(teams) * map.work_bytes);
            prop_assert!(map.work_bytes / u64::from(pes) >= WORK_PART, "a reduction gets on by one element at least");
            prop_assert!(map.claims >= map.answers + 8 * ANSWERS && map.never >= map.claims + 8 * ANSWERS);
            prop_assert!(map.mapped(0) >= map.faults + 16 && map.end >= map.mapped(pes));
            for at in [map.meeting(3), map.members(5), map.meetings, map.work, map.answers, map.never, map.faults] {
                prop_assert!(at.is_multiple_of(4));
            }
            prop_assert!(map.meeting(1).is_multiple_of(8) && map.work.is_multiple_of(16));
        }
    }
}
