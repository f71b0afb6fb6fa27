//! Teams: which PEs, in which order, and which ids are taken. Pure.

use std::collections::BTreeMap;
use thiserror::Error;

/// No team.
pub const INVALID: i32 = -1;
/// All PEs.
pub const WORLD: i32 = 0;
/// PEs that reach each other's memory by load and store: each alone.
pub const SHARED: i32 = 1;
/// PEs of this machine.
pub const NODE: i32 = 2;
/// The PEs of all machines that have this one's number on theirs.
pub const SAME_MYPE_NODE: i32 = 3;
/// PEs of this GPU: each alone.
pub const SAME_GPU: i32 = 4;
/// The first PE of each GPU: all of them.
pub const GPU_LEADERS: i32 = 5;
/// First id of a program's own teams; the one below it is for multicast, which is not there.
pub const FIRST_OWN: i32 = 7;
/// Built-in teams, as `NVSHMEM_MAX_TEAMS` counts them.
const BUILT_IN: u32 = 6;

/// Why a team cannot be had.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TeamError {
    /// No such team here.
    #[error("team: expected one of this PE's, got {met}")]
    Unknown {
        /// Id.
        met: i32,
    },
    /// A PE that the parent has not.
    #[error("team: expected PEs 0 to {} of the parent, got {size} from {start} on in steps of {stride}", *parent - 1)]
    Bounds {
        /// First, by its number in the parent.
        start: i32,
        /// Step.
        stride: i32,
        /// PEs.
        size: i32,
        /// PEs of the parent.
        parent: u32,
    },
    /// A plane without width.
    #[error("PEs of a row: expected at least 1, got {met}")]
    Row {
        /// Width.
        met: i32,
    },
    /// Ids are used up.
    #[error("all {max} teams are in use; destroy one, or raise NVSHMEM_MAX_TEAMS")]
    Full {
        /// How many there may be.
        max: u32,
    },
    /// It is not the program's own.
    #[error("team: expected a team of the program's own, got {met}, which is built in")]
    BuiltIn {
        /// Id.
        met: i32,
    },
}

/// A team that this PE belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// Its PEs, by their numbers in the world, in its order.
    pub members: Vec<u32>,
    /// This PE's number in it.
    pub me: u32,
    /// Contexts that were asked for.
    pub contexts: i32,
}

impl Team {
    /// A team of these PEs; `None` if `me` is not among them.
    pub fn new(members: Vec<u32>, me: u32, contexts: i32) -> Option<Self> {
        let at = members.iter().position(|member| *member == me)?;
        Some(Self { members, me: at as u32, contexts })
    }

    /// How many PEs.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// World numbers of its members from `start` in steps of `stride`.
    ///
    /// # Errors
    /// It has fewer.
    pub fn strided(&self, start: i32, stride: i32, size: i32) -> Result<Vec<u32>, TeamError> {
        let bounds = TeamError::Bounds { start, stride, size, parent: self.size() };
        if size < 1 || (size > 1 && stride == 0) {
            return Err(bounds);
        }
        let at = |step: i32| i64::from(start) + i64::from(step) * i64::from(stride);
        let member = |step| usize::try_from(at(step)).ok().and_then(|at| self.members.get(at)).copied();
        (0..size).map(|step| member(step).ok_or(bounds)).collect()
    }

    /// The row and the column of this PE where members fill rows of `width`: world numbers.
    ///
    /// # Errors
    /// Rows have no width.
    pub fn plane(&self, width: i32) -> Result<(Vec<u32>, Vec<u32>), TeamError> {
        let width =
            u32::try_from(width).ok().filter(|width| *width > 0).ok_or(TeamError::Row { met: width })?;
        let (row, column) = (self.me / width, self.me % width);
        let pick = |keep: &dyn Fn(u32) -> bool| {
            (0..self.size()).filter(|at| keep(*at)).map(|at| self.members[at as usize]).collect()
        };
        Ok((pick(&|at| at / width == row), pick(&|at| at % width == column)))
    }

    /// The number that a member has in another team; -1: none.
    pub fn translate(&self, pe: i32, other: &Self) -> i32 {
        let member = usize::try_from(pe).ok().and_then(|pe| self.members.get(pe));
        let place = member.and_then(|world| other.members.iter().position(|theirs| theirs == world));
        place.map_or(-1, |place| place as i32)
    }
}

/// Ids of this PE's teams, and how far the words of each id have counted. A word never goes back: a caller that has the
/// id next goes on from there.
#[derive(Clone, Debug)]
pub struct Teams {
    max: u32,
    live: BTreeMap<i32, Team>,
    counted: Vec<u64>,
}

impl Teams {
    /// The built-in teams of PE `me`, where PE i lives on machine `nodes[i]`.
    pub fn new(me: u32, nodes: &[u32], max: u32) -> Self {
        let node = nodes[me as usize];
        let here = |pe: u32| (0..pe).filter(|other| nodes[*other as usize] == nodes[pe as usize]).count();
        let pes = || 0..nodes.len() as u32;
        let built_in = [
            (WORLD, pes().collect()),
            (SHARED, vec![me]),
            (NODE, pes().filter(|pe| nodes[*pe as usize] == node).collect()),
            (SAME_MYPE_NODE, pes().filter(|pe| here(*pe) == here(me)).collect()),
            (SAME_GPU, vec![me]),
            (GPU_LEADERS, pes().collect()),
        ];
        let live =
            built_in.into_iter().filter_map(|(id, members)| Some((id, Team::new(members, me, 0)?))).collect();
        let ids = FIRST_OWN as usize + max.saturating_sub(BUILT_IN) as usize;
        Self { max, live, counted: vec![0; ids] }
    }

    /// All of this PE's node reach each other's heaps.
    pub fn share_node(&mut self) {
        if let Some(node) = self.live.get(&NODE).cloned() {
            self.live.insert(SHARED, node);
        }
    }

    /// How many ids there are.
    pub fn ids(&self) -> u32 {
        self.counted.len() as u32
    }

    /// A team.
    ///
    /// # Errors
    /// This PE has none of that id.
    pub fn get(&self, id: i32) -> Result<&Team, TeamError> {
        self.live.get(&id).ok_or(TeamError::Unknown { met: id })
    }

    /// Which ids this PE has free, a bit each.
    pub fn free_ids(&self) -> Vec<u8> {
        let mut bits = vec![0; self.counted.len().div_ceil(8)];
        for id in FIRST_OWN..self.counted.len() as i32 {
            if !self.live.contains_key(&id) {
                bits[id as usize / 8] |= 1 << (id % 8);
            }
        }
        bits
    }

    /// The first id that all have free.
    ///
    /// # Errors
    /// There is none.
    pub fn common_id(&self, free: &[&[u8]]) -> Result<i32, TeamError> {
        let bit =
            |bits: &[u8], id: i32| bits.get(id as usize / 8).is_some_and(|byte| byte & 1 << (id % 8) != 0);
        let all = |id: &i32| free.iter().all(|bits| bit(bits, *id));
        (FIRST_OWN..self.counted.len() as i32).find(all).ok_or(TeamError::Full { max: self.max })
    }

    /// A new team; its words go on from `base`.
    pub fn insert(&mut self, id: i32, team: Team, base: u64) {
        self.counted[id as usize] = self.counted[id as usize].max(base);
        self.live.insert(id, team);
    }

    /// How far the words of all ids have counted here.
    pub fn highest(&self) -> u64 {
        self.counted.iter().copied().max().unwrap_or(0)
    }

    /// The number of the next meeting of a team.
    pub fn next_meeting(&mut self, id: i32) -> u64 {
        self.counted[id as usize] += 1;
        self.counted[id as usize]
    }

    /// Gives a team up.
    ///
    /// # Errors
    /// There is none, or it is built in.
    pub fn remove(&mut self, id: i32) -> Result<(), TeamError> {
        self.get(id)?;
        if id < FIRST_OWN {
            return Err(TeamError::BuiltIn { met: id });
        }
        self.live.remove(&id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn world(pes: u32, me: u32) -> Team {
        Team::new((0..pes).collect(), me, 0).unwrap()
    }

    #[test]
    fn built_in_teams() {
        let teams = Teams::new(3, &[0, 1, 0, 1, 0], 7);
        let members = |id| teams.get(id).unwrap().members.clone();
        assert_eq!(
            (members(WORLD), members(SHARED), members(NODE)),
            (vec![0, 1, 2, 3, 4], vec![3], vec![1, 3])
        );
        assert_eq!((members(SAME_MYPE_NODE), members(SAME_GPU)), (vec![2, 3], vec![3]));
        assert_eq!((members(GPU_LEADERS).len(), teams.get(NODE).unwrap().me), (5, 1));
        let mut shared = teams.clone();
        shared.share_node();
        assert_eq!(shared.get(SHARED).unwrap().members, [1, 3]);
        assert_eq!(teams.get(6), Err(TeamError::Unknown { met: 6 }));
        assert_eq!(teams.get(INVALID), Err(TeamError::Unknown { met: -1 }));
    }

    #[test]
    fn strided_teams_and_planes() {
        let parent = world(6, 4);
        assert_eq!(parent.strided(0, 2, 3), Ok(vec![0, 2, 4]));
        assert_eq!(parent.strided(5, -2, 3), Ok(vec![5, 3, 1]));
        assert_eq!(parent.strided(2, 0, 1), Ok(vec![2]));
        for (start, stride, size) in
            [(0, 2, 4), (-1, 1, 2), (0, 0, 2), (0, 1, 0), (1, -1, 3), (0, i32::MAX, 3)]
        {
            assert!(parent.strided(start, stride, size).is_err(), "{start} {stride} {size}");
        }
        assert_eq!(parent.plane(4), Ok((vec![4, 5], vec![0, 4])));
        assert_eq!(parent.plane(0), Err(TeamError::Row { met: 0 }));
    }

    #[test]
    fn numbers_are_translated() {
        let (parent, odd) = (world(6, 3), Team::new(vec![1, 3, 5], 3, 0).unwrap());
        assert_eq!((odd.me, odd.translate(2, &parent), parent.translate(5, &odd)), (1, 5, 2));
        assert_eq!(
            (parent.translate(2, &odd), odd.translate(3, &parent), odd.translate(-1, &parent)),
            (-1, -1, -1)
        );
        assert_eq!(Team::new(vec![1, 3], 2, 0), None);
    }

    #[test]
    fn ids_are_used_again_and_words_go_on() {
        let mut teams = Teams::new(0, &[0, 0], 8);
        let take = |teams: &Teams| teams.common_id(&[&teams.free_ids()]);
        assert_eq!(take(&teams), Ok(7));
        teams.insert(7, world(2, 0), 0);
        assert_eq!((teams.next_meeting(7), teams.next_meeting(7), take(&teams)), (1, 2, Ok(8)));
        teams.insert(8, world(2, 0), 5);
        assert_eq!((take(&teams), teams.next_meeting(8)), (Err(TeamError::Full { max: 8 }), 6));
        assert_eq!((teams.remove(7), teams.remove(7)), (Ok(()), Err(TeamError::Unknown { met: 7 })));
        assert_eq!(teams.remove(WORLD), Err(TeamError::BuiltIn { met: 0 }));
        teams.insert(7, world(2, 0), 1);
        assert_eq!((teams.next_meeting(7), teams.highest()), (3, 6));
        assert_eq!(teams.common_id(&[&teams.free_ids(), &[]]), Err(TeamError::Full { max: 8 }));
    }

    proptest! {
        #[test]
        fn every_pe_is_in_one_row_and_one_column(pes in 1u32..40, width in 1i32..45) {
            let mut rows = 0;
            for me in 0..pes {
                let (row, column) = world(pes, me).plane(width).unwrap();
                prop_assert!(row.contains(&me) && column.contains(&me));
                prop_assert_eq!(row.iter().filter(|pe| column.contains(pe)).count(), 1);
                rows += usize::from(row[0] == me);
            }
            prop_assert_eq!(rows as u32, pes.div_ceil(width as u32));
        }

        #[test]
        fn there_and_back_is_nothing(pes in 1u32..20, start in 0i32..20, stride in -3i32..4, size in 1i32..8) {
            let parent = world(pes, 0);
            if let Ok(members) = parent.strided(start, stride, size) {
                let team = Team::new(members.clone(), members[0], 0).unwrap();
                for at in 0..size {
                    prop_assert_eq!(parent.translate(team.translate(at, &parent), &team), at);
                }
            }
        }
    }
}
