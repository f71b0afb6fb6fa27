//! Rank 0's part: it lets ranks in, and passes on what they give to all, or to one.

use super::connection::{End, Role};
use super::{Driver, Part};
use crate::tcp::error::Refusal;
use crate::tcp::frame::{Frame, JobNumber};
use crate::tcp::state::{Phase, after};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

const OUT_OF_STEP: Refusal = Refusal::Broken("its all-gathers are out of step");

/// A rank that joined.
struct Joined {
    token: usize,
    mesh: SocketAddr,
    /// Number of its next all-gather or exchange.
    round: u64,
    /// Rows of it that it has given so far.
    rows: u32,
}

/// The ranks that joined.
pub struct Root {
    world: u32,
    started: bool,
    joined: BTreeMap<u32, Joined>,
}

impl Root {
    /// Nobody is here yet.
    pub fn new(world: u32) -> Self {
        Self { world, started: false, joined: BTreeMap::new() }
    }

    /// Whether a rank may join.
    fn verdict(&self, rank: u32, world: u32) -> Result<(), Refusal> {
        if world != self.world {
            Err(Refusal::World { theirs: world, ours: self.world })
        } else if rank == 0 || rank >= world {
            Err(Refusal::Rank { rank, world })
        } else if self.started {
            Err(Refusal::Started { rank })
        } else if self.joined.contains_key(&rank) {
            Err(Refusal::Duplicate { rank })
        } else {
            Ok(())
        }
    }

    fn missing(&self) -> Vec<u32> {
        (1..self.world).filter(|rank| !self.joined.contains_key(rank)).collect()
    }

    fn tokens(&self) -> Vec<(u32, usize)> {
        self.joined.iter().map(|(rank, one)| (*rank, one.token)).collect()
    }
}

impl Driver {
    fn root(&mut self) -> Option<&mut Root> {
        match &mut self.part {
            Part::Root(root) => Some(root),
            Part::Member(_) => None,
        }
    }

    fn job(&self) -> JobNumber {
        self.local.job.unwrap_or_default()
    }

    /// A process that has the secret wants to join.
    pub(super) fn admit(&mut self, token: usize, rank: u32, world: u32, mesh: SocketAddr) -> Result<(), End> {
        let job = self.job();
        let Some(root) = self.root() else {
            return Err(Refusal::Broken("it wants to join, and this is not the root").into());
        };
        if let Err(reason) = root.verdict(rank, world) {
            return Err(self.turn_away(token, reason));
        }
        root.joined.insert(rank, Joined { token, mesh, round: 0, rows: 0 });
        self.shared.update(|state| state.given.insert(rank, 0));
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.role = Role::Member(rank);
            connection.proven = true;
            connection.link.send(&Frame::Welcome { job });
        }
        self.announce();
        Ok(())
    }

    /// Tells everybody who is missing, or that all are there.
    pub(super) fn announce(&mut self) {
        let Some(root) = self.root() else { return };
        let missing = root.missing();
        let members = root.tokens();
        if missing.is_empty() {
            root.started = true;
            // The ranks know better how rank 0 is reached: they have reached it.
            let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
            let mesh: Vec<SocketAddr> =
                std::iter::once(nobody).chain(root.joined.values().map(|one| one.mesh)).collect();
            for (_, token) in members {
                self.send(token, &Frame::Start { mesh: mesh.clone() });
            }
            self.start(mesh);
        } else {
            for (_, token) in members {
                self.send(token, &Frame::Waiting { missing: missing.clone() });
            }
            self.shared.update(|state| state.phase = Phase::Waiting(missing));
        }
    }

    /// A rank's connection is over.
    pub(super) fn member_gone(&mut self, rank: u32, token: usize, end: &End) {
        let leaving = self.linger.is_some();
        let Some(root) = self.root() else { return };
        if root.joined.get(&rank).is_none_or(|one| one.token != token) || leaving {
            return;
        }
        root.joined.remove(&rank);
        let started = root.started;
        self.shared.update(|state| state.given.remove(&rank));
        if !started {
            return self.announce();
        }
        let why = end.text();
        let others = self.root().map(|root| root.tokens()).unwrap_or_default();
        for (_, token) in others {
            self.send(token, &Frame::Gone { rank, why: why.clone() });
        }
        self.shared.update(|state| state.lose(rank, why));
    }

    /// A rank gives something of this round.
    fn giver(&mut self, rank: u32, round: u64) -> Result<&mut Joined, Refusal> {
        let joined = self.root().and_then(|root| root.started.then(|| root.joined.get_mut(&rank)).flatten());
        let joined = joined.ok_or(Refusal::Broken("an all-gather before all had joined"))?;
        if joined.round == round { Ok(joined) } else { Err(OUT_OF_STEP) }
    }

    /// A rank gave its part of an all-gather.
    pub(super) fn given(&mut self, rank: u32, round: u64, bytes: Arc<Vec<u8>>) -> Result<(), End> {
        let joined = self.giver(rank, round)?;
        if joined.rows > 0 {
            return Err(OUT_OF_STEP.into());
        }
        joined.round += 1;
        self.pass_on(rank, round, &bytes);
        self.deliver(rank, round, bytes);
        self.shared.update(|state| state.given.insert(rank, round + 1));
        Ok(())
    }

    /// A rank gave its row of an exchange for one other. The first is for the rank behind it, and so on round.
    pub(super) fn row(&mut self, rank: u32, round: u64, to: u32, bytes: Arc<Vec<u8>>) -> Result<(), End> {
        let world = self.local.world;
        let joined = self.giver(rank, round)?;
        joined.rows += 1;
        if to != after(rank, joined.rows, world) {
            return Err(OUT_OF_STEP.into());
        }
        let last = joined.rows == world - 1;
        if last {
            (joined.round, joined.rows) = (round + 1, 0);
        }
        self.hand_on(rank, round, to, bytes);
        if last {
            self.shared.update(|state| state.given.insert(rank, round + 1));
        }
        Ok(())
    }

    /// Gives a rank's row to the one it is for. Who is gone needs none.
    pub(super) fn hand_on(&mut self, rank: u32, round: u64, to: u32, bytes: Arc<Vec<u8>>) {
        if to == 0 {
            return self.deliver(rank, round, bytes);
        }
        let token = self.root().and_then(|root| root.joined.get(&to)).map(|one| one.token);
        if let Some(token) = token {
            self.send(token, &Frame::Piece { round, rank, bytes });
        }
    }

    /// Gives a rank's part to all others. Its bytes are kept once.
    pub(super) fn pass_on(&mut self, rank: u32, round: u64, bytes: &Arc<Vec<u8>>) {
        let Some(root) = self.root() else { return };
        let others: Vec<usize> =
            root.tokens().into_iter().filter(|(to, _)| *to != rank).map(|(_, token)| token).collect();
        let piece = Frame::Piece { round, rank, bytes: bytes.clone() }.encode();
        for token in others {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.link.send_encoded(piece.clone());
            }
        }
    }

    /// A part of an all-gather is here, or a row of an exchange.
    pub(super) fn deliver(&self, rank: u32, round: u64, bytes: Arc<Vec<u8>>) {
        self.shared.count_gathered(bytes.len());
        self.shared.update(|state| {
            if round >= state.oldest_round {
                state.rounds.entry(round).or_default().insert(rank, bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_join() {
        let mut root = Root::new(3);
        assert_eq!((root.verdict(1, 3), root.missing()), (Ok(()), vec![1, 2]));
        root.joined.insert(1, Joined { token: 5, mesh: "127.0.0.1:1".parse().unwrap(), round: 0, rows: 0 });
        assert_eq!(root.missing(), [2]);
        assert_eq!(root.verdict(1, 3), Err(Refusal::Duplicate { rank: 1 }));
        assert_eq!(root.verdict(2, 4), Err(Refusal::World { theirs: 4, ours: 3 }));
        assert_eq!(root.verdict(0, 3), Err(Refusal::Rank { rank: 0, world: 3 }));
        assert_eq!(root.verdict(3, 3), Err(Refusal::Rank { rank: 3, world: 3 }));
        root.started = true;
        assert_eq!(root.verdict(2, 3), Err(Refusal::Started { rank: 2 }));
    }
}
