//! Meetings of a team: each member tells all others how often it has come, and waits until they have come as often.
//!
//! The words are monotone signals, one writer each, on the channel that also carries the writer's data: a PE that
//! sees the word sees what that PE had sent before. All to all, because a word that came by way of a third PE would say
//! nothing of data that took another NIC.

use super::locks::lock;
use super::map::HeapMap;
use super::memory;
use super::peers::Peers;
use crate::failure::{Failure, InitError};
use crate::teams::{Team, Teams};
use shunt_device::{HeapOffset, Signal, Solo};
use shunt_host::connect::bootstrap::Bootstrap;
use shunt_host::connect::tcp::TcpBootstrap;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

/// The teams of this PE, and how they meet.
pub struct Meetings {
    peers: Arc<Peers>,
    map: HeapMap,
    /// The heap's first address.
    base: u64,
    books: Mutex<Teams>,
    exchange: TcpBootstrap,
}

impl Meetings {
    /// Meetings in the words that a map names in a heap; beside the data path by `exchange`.
    pub(super) fn new(
        peers: Arc<Peers>,
        map: HeapMap,
        base: u64,
        teams: Teams,
        exchange: TcpBootstrap,
    ) -> Self {
        Self { peers, map, base, books: Mutex::new(teams), exchange }
    }

    /// Which teams there are.
    pub(super) fn books(&self) -> MutexGuard<'_, Teams> {
        lock(&self.books)
    }

    /// A team of this PE.
    ///
    /// # Errors
    /// There is none of that id.
    pub fn team(&self, id: i32) -> Result<Team, Failure> {
        Ok(self.books().get(id)?.clone())
    }

    /// Meets: returns when all members have come.
    ///
    /// # Errors
    /// No such team, a member is lost, or the call's time is over.
    pub fn meet(&self, id: i32) -> Result<(), Failure> {
        let (team, number) = {
            let mut teams = self.books();
            (teams.get(id)?.clone(), teams.next_meeting(id))
        };
        let others = || team.members.iter().copied().filter(|pe| *pe != self.peers.me());
        let word = HeapOffset(self.map.meeting(id, self.peers.me()));
        for pe in others() {
            let channel = self.peers.channel(pe);
            let post = |_| channel.signal_nbi(Solo, word, Signal::Monotone(number));
            self.peers.patiently(|| format!("room for a signal to PE {pe}"), post)?;
        }
        others().try_for_each(|pe| self.wait_for_member(id, pe, number))?;
        self.peers.settle_writes();
        Ok(())
    }

    /// Waits for the word of a member: by looks of its own, because those of device code go over all channels.
    fn wait_for_member(&self, id: i32, pe: u32, number: u64) -> Result<(), Failure> {
        let (word, since) = (self.base + self.map.meeting(id, pe), self.peers.now_ns());
        let mut looks = 0u32;
        // SAFETY: a word of the heap's control area, which lives as long as the session.
        while unsafe { memory::load(word, 8) } < number {
            looks = looks.wrapping_add(1);
            self.peers.look();
            if looks.is_multiple_of(64) {
                // Such a wait has no ticket: whether the peer can still come is the channel's to say.
                self.peers.alive(pe)?;
            }
            let waited = self.peers.now_ns() - since;
            if waited > self.peers.deadline_ns() {
                return Err(self
                    .peers
                    .overdue(format!("PE {pe} to come to meeting {number} of team {id}"), waited));
            }
            self.peers.world().relax();
        }
        fence(Ordering::SeqCst);
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
                mine: self.peers.me(),
                ours: arguments.to_owned(),
            }),
        }
    }

    /// All PEs can post to each other's heaps up to an offset, which is the same at all of them.
    ///
    /// # Errors
    /// A NIC does not take the memory, or somebody did not come.
    pub fn reach(&self, end: u64) -> Result<(), Failure> {
        let reached = self.peers.pe().reach(end, &self.exchange);
        reached.map_err(|error| Failure::Registration(error.to_string()))
    }

    /// Returns when all PEs have come this far.
    pub(super) fn all_are_here(&self) -> Result<(), InitError> {
        self.exchange.all_gather(&[])?;
        Ok(())
    }
}
