//! What is sent again of a lane whose receiver only counts immediates. Pure.
//!
//! Such a receiver cannot tell which of several writes with the same immediate arrived, only how many did not. Where
//! all or none of them arrived that is enough. Otherwise no expectation that covers them was reached, because the
//! missing ones are not counted yet: their memory is still the transfer's. All of them are written again without the
//! immediate, and after that the missing number of immediates is sent without bytes.

use crate::domain::Counted;
use crate::ids::TransferId;
use crate::piece::{Held, Op, Piece, Tag};
use shunt_layout::mutant::Mutant;
use std::collections::{BTreeMap, VecDeque};

/// The immediate that a piece carries, of its transfer or of a replay.
const fn imm(held: &Held) -> Option<u32> {
    match held.piece.op {
        Op::Write(imm) => imm,
        Op::Read | Op::Flush | Op::Send => None,
    }
}

/// What becomes of the pieces that were under way on a lane.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub executed: Vec<Held>,
    /// In the order in which they were posted.
    pub again: VecDeque<Held>,
    /// Pieces of one immediate, of which so many did not arrive.
    pub replays: Vec<(Vec<Held>, u64)>,
    /// They may have been executed, and their receiver may use their memory.
    pub in_doubt: VecDeque<Held>,
}

impl Plan {
    /// Without those of which this is not true. None of a replay is.
    pub fn only(mut self, is: impl Fn(&Held) -> bool) -> Self {
        self.executed.retain(&is);
        self.again.retain(&is);
        self.in_doubt.retain(&is);
        self
    }
}

/// What becomes of them, given how many of each immediate did not arrive. An immediate that the receiver says nothing
/// of arrived: it was asked for all of them.
pub(crate) fn plan(under_way: VecDeque<Held>, counts: &BTreeMap<u32, Counted>) -> Plan {
    let mut plan = Plan::default();
    let mut of_imm: BTreeMap<u32, Vec<Held>> = BTreeMap::new();
    for held in under_way {
        match imm(&held) {
            None => plan.again.push_back(held),
            Some(imm) => of_imm.entry(imm).or_default().push(held),
        }
    }
    for (imm, mut pieces) in of_imm {
        let Counted { missing, reached } = counts.get(&imm).copied().unwrap_or_default();
        match missing {
            _ if Mutant::SomeIsAll.on() && missing < pieces.len() as u64 => plan.executed.extend(pieces),
            0 => plan.executed.extend(pieces),
            missing if missing >= pieces.len() as u64 => plan.again.extend(pieces),
            // One immediate without bytes is like another.
            missing if pieces.iter().all(|held| held.piece.len == 0) => {
                let arrived = pieces.split_off(missing as usize);
                plan.again.extend(pieces);
                plan.executed.extend(arrived);
            }
            _ if reached => plan.in_doubt.extend(pieces),
            missing => plan.replays.push((pieces, missing)),
        }
    }
    plan
}

/// A member of a replay.
#[derive(Debug)]
struct Member {
    held: Held,
    /// Its bytes are to be written again, or are under way.
    is_out: bool,
}

#[derive(Debug)]
struct Replay {
    /// `None`: its end was told.
    members: Vec<Option<Member>>,
    /// Immediates that are sent once all bytes are there, and that are not executed yet.
    missing: u64,
    /// Immediates that are to be posted, or are under way.
    out: u64,
    /// One of its transfers was stopped, or a piece of it is in doubt: no more immediates are sent.
    broken: bool,
}

/// What follows from a change of a replay.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Follows {
    /// To be posted.
    pub post: Vec<Held>,
    /// Members that are executed.
    pub executed: Vec<Held>,
    /// Members of which that is not known.
    pub in_doubt: Vec<Held>,
}

/// All replays of an engine.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    all: BTreeMap<u64, Replay>,
    next: u64,
}

impl Replays {
    /// None yet.
    pub const fn new() -> Self {
        Self { all: BTreeMap::new(), next: 0 }
    }

    /// Pieces of one immediate are written again, of which `missing` did not arrive: what is posted now.
    pub fn begin(&mut self, pieces: Vec<Held>, missing: u64) -> Vec<Held> {
        let id = self.next;
        self.next += 1;
        let has_bytes = |held: &Held| held.piece.len > 0;
        let again = |(at, held): (usize, &Held)| Held {
            piece: Piece { op: Op::Write(again_with(held)), ..held.piece },
            tag: Some(Tag { replay: id, member: Some(at) }),
            ..Held::of_transfer(held.piece)
        };
        let mut post: Vec<_> =
            pieces.iter().enumerate().filter(|(_, held)| has_bytes(held)).map(again).collect();
        let member = |held: Held| Some(Member { is_out: has_bytes(&held), held });
        let members = pieces.into_iter().map(member).collect();
        let mut replay = Replay { members, missing, out: 0, broken: false };
        if Mutant::MissingBeforeBytes.on() {
            post.splice(0..0, replay.immediates(id));
        }
        self.all.insert(id, replay);
        post
    }

    /// A piece of a replay is executed.
    pub fn executed(&mut self, tag: Tag) -> Follows {
        let mut follows = Follows::default();
        let Some(replay) = self.all.get_mut(&tag.replay) else { return follows };
        match tag.member {
            Some(at) if replay.broken => follows.in_doubt.extend(replay.take(at)),
            Some(at) => {
                replay.members[at].iter_mut().for_each(|member| member.is_out = false);
                if !replay.is_out() && !Mutant::MissingBeforeBytes.on() {
                    follows.post = replay.immediates(tag.replay);
                }
            }
            None if replay.broken => {
                replay.out -= 1;
                follows.in_doubt = replay.give_up();
            }
            None => {
                replay.out -= 1;
                replay.missing = replay.missing.saturating_sub(1);
                if replay.missing == 0 {
                    follows.executed = replay.members.iter_mut().filter_map(Option::take).map(of).collect();
                }
            }
        }
        self.tidy(tag.replay);
        follows
    }

    /// A piece of a replay is not sent any more, or it is not known whether it was executed.
    pub fn lost(&mut self, tag: Tag) -> Follows {
        let mut in_doubt = Vec::new();
        if let Some(replay) = self.all.get_mut(&tag.replay) {
            match tag.member {
                Some(at) => in_doubt.extend(replay.take(at)),
                None => replay.out -= 1,
            }
        }
        in_doubt.extend(self.break_off(tag.replay));
        self.tidy(tag.replay);
        Follows { in_doubt, ..Follows::default() }
    }

    /// A transfer was stopped: replays with a piece of it send nothing more.
    pub fn stop(&mut self, transfer: TransferId) -> Follows {
        let is_theirs = |member: &Member| member.held.piece.transfer == transfer;
        let has_one = |replay: &Replay| replay.members.iter().flatten().any(is_theirs);
        let ids: Vec<_> = self.all.iter().filter(|(_, replay)| has_one(replay)).map(|(id, _)| *id).collect();
        let in_doubt = ids.into_iter().flat_map(|id| self.break_off(id)).collect();
        Follows { in_doubt, ..Follows::default() }
    }

    /// True if this piece is of a replay that sends nothing more.
    pub fn is_over(&self, tag: Tag) -> bool {
        self.all.get(&tag.replay).is_none_or(|replay| replay.broken)
    }

    fn break_off(&mut self, id: u64) -> Vec<Held> {
        let Some(replay) = self.all.get_mut(&id) else { return Vec::new() };
        replay.broken = true;
        let in_doubt = replay.give_up();
        self.tidy(id);
        in_doubt
    }

    /// Drops a replay of which every end was told.
    fn tidy(&mut self, id: u64) {
        if self.all.get(&id).is_some_and(|replay| replay.members.iter().all(Option::is_none)) {
            self.all.remove(&id);
        }
    }
}

/// The immediate that bytes carry when they are written again.
fn again_with(held: &Held) -> Option<u32> {
    imm(held).filter(|_| Mutant::ReplayedWithImmediate.on())
}

fn of(member: Member) -> Held {
    member.held
}

impl Replay {
    fn is_out(&self) -> bool {
        self.members.iter().flatten().any(|member| member.is_out)
    }

    /// Members of one that is broken, of which nothing is under way, once no immediate is: one that came later would be
    /// counted for another transfer.
    fn give_up(&mut self) -> Vec<Held> {
        if self.out > 0 {
            return Vec::new();
        }
        let still = self.members.iter_mut().filter(|member| !member.as_ref().is_some_and(|one| one.is_out));
        still.filter_map(Option::take).map(of).collect()
    }

    fn take(&mut self, at: usize) -> Option<Held> {
        self.members.get_mut(at)?.take().map(of)
    }

    /// The immediates that are missing, without bytes: they are out.
    fn immediates(&mut self, id: u64) -> Vec<Held> {
        self.out = self.missing;
        let Some(first) = self.members.iter().flatten().next() else { return Vec::new() };
        let piece = Piece { len: 0, ..first.held.piece };
        let tag = Some(Tag { replay: id, member: None });
        vec![Held { tag, ..Held::of_transfer(piece) }; self.missing as usize]
    }
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
