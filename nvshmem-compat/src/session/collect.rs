//! Collective calls: each member writes its part where it belongs at every other, then all meet. What a member reads
//! after the meeting was covered by the words it waited for.

use super::Session;
use crate::failure::Failure;
use crate::reduce::{Number, Op, reduce};
use crate::session::transfer::Until;
use crate::teams::Team;

/// A reduction: of which elements, how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// What is done.
    pub op: Op,
    /// To what.
    pub number: Number,
    /// Elements of the result.
    pub count: u64,
}

/// What is reduced, and where to: addresses.
#[derive(Clone, Copy)]
struct Ends {
    target: u64,
    source: u64,
}

impl Session {
    /// `bytes` of the root's source come to everybody's target.
    ///
    /// # Errors
    /// No such team or root, addresses that are not symmetric, or a member is lost.
    pub fn broadcast(
        &self,
        team: i32,
        target: u64,
        source: u64,
        bytes: u64,
        root: i32,
    ) -> Result<(), Failure> {
        let members = self.teams.team(team)?;
        let from = usize::try_from(root).ok().and_then(|root| members.members.get(root));
        let root = *from.ok_or(Failure::NoPe { met: root, pes: members.size() })?;
        self.heap.offset(target, bytes)?;
        if root == self.me() {
            for pe in &members.members {
                self.put(target, source, bytes, *pe as i32, Until::Posted)?;
            }
        }
        self.settle(team)
    }

    /// `bytes` of each member's source come to its place in everybody's target.
    ///
    /// # Errors
    /// As [`Session::broadcast`].
    pub fn collect(&self, team: i32, target: u64, source: u64, bytes: u64) -> Result<(), Failure> {
        let members = self.teams.team(team)?;
        self.heap.offset(target, self.many(bytes, &members)?)?;
        let place = target + bytes * u64::from(members.me);
        for pe in &members.members {
            self.put(place, source, bytes, *pe as i32, Until::Posted)?;
        }
        self.settle(team)
    }

    /// Part i of each member's source comes to its place in the target of member i.
    ///
    /// # Errors
    /// As [`Session::broadcast`].
    pub fn all_to_all(&self, team: i32, target: u64, source: u64, bytes: u64) -> Result<(), Failure> {
        let members = self.teams.team(team)?;
        self.heap.offset(target, self.many(bytes, &members)?)?;
        let place = target + bytes * u64::from(members.me);
        for (number, pe) in (0..).zip(&members.members) {
            self.put(place, source + bytes * number, bytes, *pe as i32, Until::Posted)?;
        }
        self.settle(team)
    }

    /// All members' elements, one by one; the same result everywhere. Target and source may be the same.
    ///
    /// # Errors
    /// As [`Session::broadcast`].
    pub fn reduce(&self, team: i32, target: u64, source: u64, what: Reduction) -> Result<(), Failure> {
        let members = self.teams.team(team)?;
        let bytes = what.count.saturating_mul(what.number.bytes() as u64);
        self.heap.offset(target, bytes)?;
        self.pieces(bytes, |at, part| {
            for pe in &members.members {
                self.put_part(source + at, part, *pe)?;
            }
            self.reduce_parts(team, &members, target + at, part, what)
        })
    }

    /// All members' elements, one by one; member i gets the i-th `count` of them.
    ///
    /// # Errors
    /// As [`Session::broadcast`].
    pub fn reduce_scatter(
        &self,
        team: i32,
        target: u64,
        source: u64,
        what: Reduction,
    ) -> Result<(), Failure> {
        let members = self.teams.team(team)?;
        let bytes = what.count.saturating_mul(what.number.bytes() as u64);
        self.heap.offset(target, bytes)?;
        let all = self.many(bytes, &members)?;
        // Others' parts of the source are still wanted when the first of the result is there.
        let ends = Ends { target, source };
        let apart = ends.target + bytes <= ends.source || ends.source + all <= ends.target;
        let kept: Vec<u8>;
        let source = if apart {
            ends.source
        } else {
            kept = self.bytes_at(ends.source, all)?;
            kept.as_ptr().expose_provenance() as u64
        };
        self.pieces(bytes, |at, part| {
            for (number, pe) in (0..).zip(&members.members) {
                self.put_part(source + bytes * number + at, part, *pe)?;
            }
            self.reduce_parts(team, &members, target + at, part, what)
        })
    }

    /// So many times as many.
    fn many(&self, bytes: u64, team: &Team) -> Result<u64, Failure> {
        let all = bytes.checked_mul(team.size().into());
        all.ok_or(Failure::Argument {
            what: "number of elements",
            met: bytes as i64,
            want: "a number that fits the heap",
        })
    }

    /// What a member sent may be changed, and what it was sent is there.
    fn settle(&self, team: i32) -> Result<(), Failure> {
        self.quiet()?;
        self.teams.meet(team)
    }

    /// Calls `each` for pieces that fit a part of the work buffer; once where there is nothing, so that all meet.
    fn pieces(
        &self,
        bytes: u64,
        mut each: impl FnMut(u64, u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut at = 0;
        loop {
            let part = (bytes - at).min(self.map.work_part);
            each(at, part)?;
            at += part;
            if at == bytes {
                return Ok(());
            }
        }
    }

    fn bytes_at(&self, at: u64, bytes: u64) -> Result<Vec<u8>, Failure> {
        let mut copy = vec![0; bytes as usize];
        // SAFETY: the program vouches for its addresses; the vector has as many bytes.
        unsafe { self.copy(copy.as_mut_ptr().expose_provenance() as u64, at, bytes) }?;
        Ok(copy)
    }

    /// Writes a piece of this member's to its part of the work buffer at a PE.
    fn put_part(&self, source: u64, bytes: u64, pe: u32) -> Result<(), Failure> {
        let part = self.map.part(self.me());
        if bytes == 0 {
            return Ok(());
        }
        if let Some(to) = self.mapped(pe, part) {
            // SAFETY: a part of the work buffer; the program vouches for its source.
            return unsafe { self.copy(to, source, bytes) };
        }
        self.put_staged(part, source, bytes, pe)
    }

    /// Reduces all members' pieces, in the order of the team, and keeps anyone from writing before all have read.
    fn reduce_parts(
        &self,
        id: i32,
        team: &Team,
        target: u64,
        bytes: u64,
        what: Reduction,
    ) -> Result<(), Failure> {
        self.teams.meet(id)?;
        let mut parts = team.members.iter().map(|pe| self.bytes_at(self.base + self.map.part(*pe), bytes));
        let mut result = parts.next().transpose()?.unwrap_or_default();
        for part in parts {
            reduce(what.number, what.op, &mut result, &part?);
        }
        let from = result.as_ptr().expose_provenance() as u64;
        // SAFETY: the target lies in the heap (checked by the callers), the vector has as many bytes.
        unsafe { self.copy(target, from, result.len() as u64) }?;
        self.teams.meet(id)
    }
}
