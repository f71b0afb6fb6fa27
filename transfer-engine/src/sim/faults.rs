//! What goes wrong in a simulated network.

use super::rng::Rng;

/// What a fault does to pieces and answers on its rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They are lost.
    Down,
    /// Pieces arrive, and their acknowledgements are lost.
    LoseAcks,
    /// Pieces are held back for milliseconds, and come then.
    Hold,
    /// One piece in three is lost, and of another one in three the acknowledgement.
    Lossy,
    /// One piece in three is lost, and its sender is never told.
    Silent,
    /// What keeps the rail down ends. It takes no time.
    Up,
}

/// A fault at a rail of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it begins, nanoseconds.
    pub from: u64,
    /// How long it lasts, nanoseconds.
    pub lasts: u64,
    /// Where.
    pub node: u32,
    /// On which rail.
    pub rail: u32,
    /// What it does.
    pub kind: Kind,
}

impl Fault {
    /// One that begins within `span` nanoseconds.
    pub fn random(rng: &mut Rng, nodes: u32, rails: u32, span: u64) -> Self {
        let kinds = [Kind::Down, Kind::Down, Kind::LoseAcks, Kind::Hold, Kind::Lossy, Kind::Lossy];
        Self {
            from: rng.below(span),
            lasts: rng.between(10_000, 6_000_000),
            node: rng.below(nodes.into()) as u32,
            rail: rng.below(rails.into()) as u32,
            kind: kinds[rng.below(6) as usize],
        }
    }
}
