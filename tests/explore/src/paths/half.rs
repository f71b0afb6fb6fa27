//! A queue pair as its machine knows it.

use shunt_mlx5::descriptor::{HalfCard, RailCard};
use shunt_mlx5::nic::caps::Link;
use shunt_recovery::path::Handle;

/// A queue pair that is one end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Half {
    /// The incarnation it was made for.
    pub incarnation: u32,
    /// First PSN that it sends.
    pub psn: u32,
}

/// The one rail of either end.
const RAIL: RailCard =
    RailCard { index: 0, link: Link::Ethernet, mtu: 0, lid: 0, mac: [0; 6], gid: [0; 16], name: [0; 16] };

impl Handle for Half {
    fn rail(&self) -> u32 {
        0
    }

    fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// One NIC an end: nothing is made while it has an old half, so the other variant is never needed.
    fn variant(&self) -> u32 {
        self.incarnation & 1
    }

    fn psn(&self) -> u32 {
        self.psn
    }

    fn card(&self) -> HalfCard {
        let Self { incarnation, psn } = *self;
        HalfCard { qpn: incarnation, psn, incarnation, ece: 0, rail: RAIL }
    }
}
