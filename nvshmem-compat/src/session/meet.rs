//! Meetings of a team: each member tells all others how often it has come, and waits until they have come as often.
//!
//! The words are monotone signals, one writer each, on the channel that also carries the writer's data: whoever sees
//! the word sees what that PE had sent before. All to all, because a word that came by way of a third PE would say
//! nothing of data that took another NIC.

use super::{Session, memory};
use crate::failure::Failure;
use crate::teams::{Team, TeamError, WORLD};
use shunt_device::{HeapOffset, Signal, Solo};
use shunt_host::connect::bootstrap::Bootstrap;
use std::sync::atomic::{Ordering, fence};

impl Session {
    /// A team of this PE.
    ///
    /// # Errors
    /// There is none of that id.
    pub fn team(&self, id: i32) -> Result<Team, Failure> {
        Ok(self.teams().get(id)?.clone())
    }

    /// Meets: returns when all members have come.
    ///
    /// # Errors
    /// No such team, a member is lost, or the call's time is over.
    pub fn meet(&self, id: i32) -> Result<(), Failure> {
        let (team, number) = {
            let mut teams = self.teams();
            (teams.get(id)?.clone(), teams.next_meeting(id))
        };
        let others = || team.members.iter().copied().filter(|pe| *pe != self.me());
        let word = HeapOffset(self.map.meeting(id, self.me()));
        for pe in others() {
            let channel = self.channel(pe);
            let post = |_| channel.signal_nbi(Solo, word, Signal::Monotone(number));
            self.patiently(|| format!("room for a signal to PE {pe}"), post)?;
        }
        others().try_for_each(|pe| self.wait_for_member(id, pe, number))
    }

    /// Waits for the word of a member: by looks of its own, because those of device code go over all channels.
    fn wait_for_member(&self, id: i32, pe: u32, number: u64) -> Result<(), Failure> {
        let (word, since) = (self.base + self.map.meeting(id, pe), self.now_ns());
        let mut looks = 0u32;
        // SAFETY: a word of the heap's own part, which lives as long as the session.
        while unsafe { memory::load(word, 8) } < number {
            looks = looks.wrapping_add(1);
            self.look();
            if looks.is_multiple_of(64) {
                // Such a wait has no ticket: whether the peer can still come is the channel's to say.
                self.channel(pe).alive().map_err(|fault| self.channel_failure(&fault))?;
            }
            let waited = self.now_ns() - since;
            if waited > self.settings.call_deadline_ns {
                return Err(self.overdue(format!("PE {pe} to come to meeting {number} of team {id}"), waited));
            }
            self.world().relax();
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// A barrier: what members sent before is delivered, and all have come.
    ///
    /// # Errors
    /// As [`Session::meet`].
    pub fn barrier(&self, id: i32) -> Result<(), Failure> {
        self.team(id)?;
        self.quiet()?;
        self.meet(id)
    }

    /// Gives bytes to all members of a team, and returns theirs, by their numbers in it. At most a part of the work
    /// buffer.
    pub(super) fn tell(&self, id: i32, mine: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let team = self.team(id)?;
        let (bytes, part) = (mine.len() as u64, self.map.part(self.me()));
        for pe in &team.members {
            self.put_internal(part, mine, *pe)?;
        }
        self.meet(id)?;
        let read = |pe: &u32| {
            let mut theirs = vec![0; mine.len()];
            let (to, from) = (theirs.as_mut_ptr().expose_provenance() as u64, self.base + self.map.part(*pe));
            // SAFETY: a part of the work buffer, and a vector of as many bytes.
            unsafe { memory::copy(to, from, bytes) };
            theirs
        };
        let all = team.members.iter().map(read).collect();
        // Nobody writes again before all have read.
        self.meet(id)?;
        Ok(all)
    }

    /// Writes bytes of this process's to a place in every PE's internal memory.
    fn put_internal(&self, at: u64, bytes: &[u8], pe: u32) -> Result<(), Failure> {
        let (source, length) = (bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64);
        if pe == self.me() {
            // SAFETY: internal memory of the heap, and a slice of as many bytes.
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
            let teams = self.teams();
            let mut bytes = teams.highest().max(self.met_in_kernels()).to_le_bytes().to_vec();
            bytes.extend(teams.free_ids());
            bytes
        };
        mine.truncate(self.map.work_part as usize);
        let all = self.tell(parent, &mine)?;
        let highest = all.iter().map(|theirs| theirs.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)));
        let base = highest.max().unwrap_or(0);
        let free: Vec<&[u8]> = all.iter().map(|theirs| &theirs[8..]).collect();
        let mut teams = self.teams();
        let id = teams.common_id(&free)?;
        match Team::new(members, self.me(), contexts) {
            Some(team) => {
                self.write_team(id, Some(&team), base);
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
        self.teams().remove(id)?;
        self.write_team(id, None, 0);
        Ok(())
    }

    /// All PEs meet beside the data path, and say with which arguments.
    ///
    /// # Errors
    /// They differ, or somebody did not come.
    pub fn agree(&self, arguments: &str) -> Result<(), Failure> {
        let all = self.exchange.all_gather(arguments.as_bytes())?;
        let differs = (0..).zip(all).find(|(_, theirs)| theirs != arguments.as_bytes());
        match differs {
            None => Ok(()),
            Some((pe, theirs)) => Err(Failure::Differs {
                pe,
                theirs: String::from_utf8_lossy(&theirs).into_owned(),
                mine: self.me(),
                ours: arguments.to_owned(),
            }),
        }
    }

    /// A barrier of all PEs.
    ///
    /// # Errors
    /// As [`Session::meet`].
    pub fn barrier_all(&self) -> Result<(), Failure> {
        self.barrier(WORLD)
    }
}
