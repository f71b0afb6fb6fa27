//! How a rail is opened.

use crate::error::NicError;
use crate::nic::caps::Link;
use shunt_layout::state::OrderPolicy;

/// How a rail is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailOptions {
    /// Entry of the GID table; the one chosen for the NIC if absent, else the first RoCE v2 one.
    pub gid_index: Option<u32>,
    /// Traffic class of all connections.
    pub traffic_class: u8,
    /// Service level or Ethernet priority of all connections.
    pub service_level: u8,
    /// Longest wait for one placement flush.
    pub flush_ns: u64,
    /// Longest wait for a request of the start-up proofs. Nothing is in a hurry then, and a NIC that was disbelieved
    /// because its host was busy stays so: longer than a flush.
    pub startup_ns: u64,
    /// In which order writes may land, if that was asked for; else what the NIC says decides.
    pub ordering: Option<OrderPolicy>,
    /// Rounds of the search for a NIC that places out of order and does not say so.
    pub order_rounds: u32,
    /// Atomics of the start-up proof that are under way when their responder is moved to ERR, as long as the NIC lets
    /// them; 0: the proof is of writes and READs alone.
    pub proof_atomics: u32,
    /// Ends of a path agree on options of enhanced connection establishment, where both NICs have it.
    pub ece: bool,
}

impl Default for RailOptions {
    fn default() -> Self {
        Self {
            gid_index: None,
            traffic_class: 0,
            service_level: 0,
            flush_ns: 50_000_000,
            startup_ns: 2_000_000_000,
            ordering: None,
            order_rounds: 16,
            proof_atomics: 360,
            ece: true,
        }
    }
}

impl RailOptions {
    /// The service level must fit the link's field: three bits of an Ethernet tag, four of an InfiniBand header.
    pub(super) fn check_level(&self, link: Link, nic: &str) -> Result<(), NicError> {
        let (most, want) = match link {
            Link::Ethernet => (7, "0 to 7, the priorities of Ethernet"),
            Link::InfiniBand => (15, "0 to 15"),
        };
        if self.service_level <= most {
            return Ok(());
        }
        let met = self.service_level.to_string();
        Err(NicError::Unfit { nic: nic.into(), what: "service level", met, want, cure: "set NVSHMEM_IB_SL" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The field has three bits on Ethernet: a larger level would have ended the process.
    #[test]
    fn a_level_that_the_link_has_no_room_for_is_refused() {
        let with = |service_level| RailOptions { service_level, ..RailOptions::default() };
        assert_eq!(with(7).check_level(Link::Ethernet, "mlx5_0"), Ok(()));
        assert_eq!(with(15).check_level(Link::InfiniBand, "mlx5_0"), Ok(()));
        let error = with(8).check_level(Link::Ethernet, "mlx5_0").unwrap_err().to_string();
        assert!(
            error.contains("service level: expected 0 to 7") && error.contains("NVSHMEM_IB_SL"),
            "{error}"
        );
    }
}
