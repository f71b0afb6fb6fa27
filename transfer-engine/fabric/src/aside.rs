//! Endpoints that did not close in time: what they may still place, and until when. One that its provider lets go of
//! after all places nothing any more: that it is closed is the same proof, later.

use crate::closing::Closing;
use shunt_transfer_engine::ids::PeerId;
use std::collections::BTreeSet;

/// All of them.
#[derive(Default)]
pub(crate) struct Asides {
    /// Those whose close goes on, by rail and peer.
    open: Vec<(u32, PeerId, Closing)>,
    /// Of those that cannot be closed.
    stuck: BTreeSet<(u32, PeerId)>,
}

impl Asides {
    /// One whose close goes on.
    pub fn put(&mut self, rail: u32, peer: PeerId, closing: Closing) {
        self.open.push((rail, peer, closing));
    }

    /// One that its provider does not close.
    pub fn fail(&mut self, rail: u32, peer: PeerId) {
        self.stuck.insert((rail, peer));
    }

    /// Looks which of them are closed by now.
    pub fn look(&mut self) {
        let Self { open, stuck } = self;
        open.retain_mut(|(rail, peer, closing)| match closing.take(&mut Vec::new()) {
            None => true,
            Some(Ok(())) => false,
            Some(Err(_)) => {
                stuck.insert((*rail, *peer));
                false
            }
        });
    }

    fn all(&self) -> impl Iterator<Item = (u32, PeerId)> {
        self.open.iter().map(|(rail, peer, _)| (*rail, *peer)).chain(self.stuck.iter().copied())
    }

    /// True while one of this rail may place bytes.
    pub fn is_rail(&self, rail: u32) -> bool {
        self.all().any(|(of, _)| of == rail)
    }

    /// True while one of this peer may place bytes.
    pub fn is_peer(&self, peer: PeerId) -> bool {
        self.all().any(|(_, of)| of == peer)
    }

    /// What is left: closes that go on, and rails where one is stuck.
    pub fn end(self) -> (Vec<(u32, Closing)>, BTreeSet<u32>) {
        let open = self.open.into_iter().map(|(rail, _, closing)| (rail, closing)).collect();
        (open, self.stuck.into_iter().map(|(rail, _)| rail).collect())
    }
}
