//! Since when peers owe answers: patience is with a peer, not with each of its paths.

use crate::nanos::Nanos;

/// What is known of the silence of peers.
pub struct PeerSilence {
    /// By peer: since when it owes an answer, as the engine was awake; none once it said anything.
    owes: Vec<Option<Nanos>>,
    /// By peer: when it last said anything, likewise.
    heard: Vec<Nanos>,
}

impl PeerSilence {
    /// Of so many peers, who owe nothing.
    pub fn new(peers: usize) -> Self {
        Self { owes: vec![None; peers], heard: vec![Nanos::ZERO; peers] }
    }

    /// One more.
    pub fn join(&mut self) {
        self.owes.push(None);
        self.heard.push(Nanos::ZERO);
    }

    /// A peer said something.
    pub fn heard(&mut self, awake: Nanos, peer: u32) {
        if let (Some(owes), Some(heard)) =
            (self.owes.get_mut(peer as usize), self.heard.get_mut(peer as usize))
        {
            (*owes, *heard) = (None, awake);
        }
    }

    /// Since when a peer owes an answer about a half that was fenced then, unless it has owed one for longer.
    pub fn owes_since(&mut self, peer: u32, fenced: Nanos) -> Nanos {
        let heard = self.heard.get(peer as usize).copied().unwrap_or_default();
        let Some(owes) = self.owes.get_mut(peer as usize) else { return fenced };
        *owes.get_or_insert(fenced.max(heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_path_awaits_in_vain_the_next_need_not() {
        let ns = Nanos::new;
        let mut peers = PeerSilence::new(2);
        peers.heard(ns(10), 1);
        assert_eq!(peers.owes_since(1, ns(5)), ns(10), "it said something after that");
        assert_eq!(peers.owes_since(1, ns(90)), ns(10), "it has not answered since then");
        peers.heard(ns(95), 1);
        assert_eq!(peers.owes_since(1, ns(99)), ns(99));
        assert_eq!(peers.owes_since(7, ns(3)), ns(3), "an unknown peer");
    }
}
