//! The heaps of PEs that share a node, mapped into each other: what `nvshmem_ptr` answers, and `NVSHMEM_TEAM_SHARED`.
//! A node is shared if each of its PEs has mapped all the others.

use shunt::{HeapCard, Mapping};
use shunt_host::connect::bootstrap::Bootstrap;
use shunt_host::error::BootstrapError;

/// The heaps of this PE's node, as this process maps them.
#[derive(Default)]
pub struct NodeHeaps {
    /// By PE.
    heaps: Vec<Option<Mapping>>,
}

impl NodeHeaps {
    /// Maps the heaps of PE `me`'s node, where PE i lives on node `nodes[i]`. Every PE calls it, with the card of its
    /// own heap. None: somebody of the node cannot map somebody.
    ///
    /// # Errors
    /// The exchange failed.
    pub fn share(
        me: u32,
        nodes: &[u32],
        card: HeapCard,
        exchange: &dyn Bootstrap,
    ) -> Result<Option<Self>, BootstrapError> {
        let cards = exchange.all_gather(&card.to_bytes())?;
        let cards: Vec<_> = cards.iter().map(|bytes| HeapCard::of_bytes(bytes)).collect();
        let heaps = Self::open(me, nodes, &cards);
        let mapped = exchange.all_gather(&[heaps.is_some().into()])?;
        let mates = nodes.iter().zip(&mapped).filter(|(node, _)| **node == nodes[me as usize]);
        let all = mates.into_iter().all(|(_, mapped)| mapped[..] == [1]);
        Ok(heaps.filter(|_| all))
    }

    /// Maps the heaps of all others of a node. None: one of them cannot be mapped.
    fn open(me: u32, nodes: &[u32], cards: &[HeapCard]) -> Option<Self> {
        let node = nodes[me as usize];
        let mut heaps = Vec::new();
        for (pe, card) in (0..).zip(cards) {
            let mate = pe != me && nodes[pe as usize] == node;
            heaps.push(if mate { Some(Mapping::open(*card).ok()?) } else { None });
        }
        Some(Self { heaps })
    }

    /// The address at which a PE's heap begins here.
    pub fn base(&self, pe: u32) -> Option<u64> {
        Some(self.heaps.get(pe as usize)?.as_ref()?.span().address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_of_a_node_are_mapped_all_or_none() {
        let made = Mapping::create(4096).unwrap();
        let (card, none) = (made.card().unwrap(), HeapCard::default());
        let heaps = NodeHeaps::open(1, &[0, 0, 2], &[card, none, none]).unwrap();
        assert!(heaps.base(0).is_some_and(|base| base != made.span().address));
        assert_eq!((heaps.base(1), heaps.base(2), heaps.base(3)), (None, None, None));
        assert!(NodeHeaps::open(1, &[0, 0, 0], &[card, none, none]).is_none());
    }
}
