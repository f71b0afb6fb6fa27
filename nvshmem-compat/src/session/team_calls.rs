//! Calls of a team: barrier, exchange of bytes, split and its end.

use super::{Session, memory};
use crate::failure::Failure;
use crate::teams::{Team, TeamError, WORLD};

impl Session {
    /// A barrier: what members sent before is delivered, and all have come.
    ///
    /// # Errors
    /// As [`Meetings::meet`](super::Meetings::meet).
    pub fn barrier(&self, id: i32) -> Result<(), Failure> {
        self.teams.team(id)?;
        self.quiet()?;
        self.teams.meet(id)
    }

    /// Gives bytes to all members of a team, and returns theirs, by their numbers in it. At most a part of the work
    /// buffer.
    pub(super) fn tell(&self, id: i32, mine: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let team = self.teams.team(id)?;
        let (bytes, part) = (mine.len() as u64, self.map.part(self.me()));
        for pe in &team.members {
            self.put_internal(part, mine, *pe)?;
        }
        self.teams.meet(id)?;
        let read = |pe: &u32| {
            let mut theirs = vec![0; mine.len()];
            let (to, from) = (theirs.as_mut_ptr().expose_provenance() as u64, self.base + self.map.part(*pe));
            // SAFETY: a part of the work buffer in the control area, and a vector of as many bytes.
            unsafe { memory::copy(to, from, bytes) };
            theirs
        };
        let all = team.members.iter().map(read).collect();
        // Nobody writes again before all have read.
        self.teams.meet(id)?;
        Ok(all)
    }

    /// Writes bytes of this process's to a place in every PE's internal memory.
    fn put_internal(&self, at: u64, bytes: &[u8], pe: u32) -> Result<(), Failure> {
        let (source, length) = (bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64);
        if pe == self.me() {
            // SAFETY: the heap's control area, and a slice of as many bytes.
            unsafe { memory::copy(self.base + at, source, length) };
            return Ok(());
        }
        self.put_staged(at, source, length, pe)
    }

    /// A new team of these members of a parent, all of whose members call this at the same time. Answers with its id;
    /// -1 where this PE is not in it.
    ///
    /// # Errors
    /// Ids are used up, or a member is lost.
    pub fn split(&self, parent: i32, members: Vec<u32>, contexts: i32) -> Result<i32, Failure> {
        let mut mine = {
            let teams = self.teams.books();
            let mut bytes = teams.highest().max(self.kernels.meetings()).to_le_bytes().to_vec();
            bytes.extend(teams.free_ids());
            bytes
        };
        mine.truncate(self.map.work_part as usize);
        let all = self.tell(parent, &mine)?;
        let highest = all.iter().map(|theirs| theirs.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)));
        let base = highest.max().unwrap_or(0);
        let free: Vec<&[u8]> = all.iter().map(|theirs| &theirs[8..]).collect();
        let mut teams = self.teams.books();
        let id = teams.common_id(&free)?;
        match Team::new(members, self.me(), contexts) {
            Some(team) => {
                self.kernels.write_team(id, Some(&team), base);
                teams.insert(id, team, base);
                Ok(id)
            }
            None => Ok(crate::teams::INVALID),
        }
    }

    /// Gives a team up: its members have delivered all that they sent.
    ///
    /// # Errors
    /// It is none of the program's own.
    pub fn destroy_team(&self, id: i32) -> Result<(), Failure> {
        if id < crate::teams::FIRST_OWN {
            return Err(TeamError::BuiltIn { met: id }.into());
        }
        self.barrier(id)?;
        self.teams.books().remove(id)?;
        self.kernels.write_team(id, None, 0);
        Ok(())
    }

    /// A barrier of all PEs.
    ///
    /// # Errors
    /// As [`Meetings::meet`](super::Meetings::meet).
    pub fn barrier_all(&self) -> Result<(), Failure> {
        self.barrier(WORLD)
    }
}
