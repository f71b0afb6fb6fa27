//! NICs, opened for lanes; memory, registered on each.

use shunt_bootstrap::bootstrap::DRAW_BYTES;
use shunt_device::platform::host::World;
use shunt_mlx5::devx::Devx;
use shunt_mlx5::error::NicError;
use shunt_mlx5::memory::OwnedSpan;
use shunt_mlx5::nic::mkey::{Access, Mkey};
use shunt_mlx5::nic::umem::Umem;
use shunt_mlx5::rail::{Rail, RailOptions};
use shunt_recovery::links::envelope::qkey;
use shunt_recovery::nanos::Nanos;
use shunt_recovery::path::Timing;
use std::sync::Arc;

/// Random bytes that all ends of a job share: what their agents send over the rails is sealed with them.
pub type Draw = [u8; DRAW_BYTES];

/// How patient a domain is.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// A lane with pieces under way and no completion for so long is suspected: what they take at the slowest besides.
    pub suspect: Nanos,
    /// The slowest that a lane carries, bytes a second: long pieces are no silence.
    pub slowest: u64,
    /// How long a NIC may owe the answer to a command.
    pub nic: Nanos,
    /// What the recovery engine waits for.
    pub timing: Timing,
}

impl Patience {
    /// On hardware: a port that priority flow control pauses is silent for up to 30 ms, and has not failed.
    pub const HARDWARE: Self = Self {
        suspect: Nanos::millis(50),
        slowest: 250_000_000,
        nic: Nanos::millis(200),
        timing: Timing {
            lifetime: Nanos::millis(50),
            peer: Nanos::millis(500),
            doubt: Nanos::millis(2),
            resend: Nanos::millis(10),
            probes: 3,
            probe: Nanos::millis(1),
            revive: Nanos::secs(2),
            backoff: Nanos::millis(20),
            owner: Nanos::secs(3),
            give_up: Nanos::secs(2),
        },
    };

    /// On soft NICs, whose threads share few cores with everything else.
    pub const SOFT: Self = Self {
        suspect: Nanos::millis(100),
        slowest: 50_000_000,
        nic: Nanos::millis(300),
        timing: Timing {
            lifetime: Nanos::millis(50),
            peer: Nanos::secs(1),
            doubt: Nanos::millis(5),
            resend: Nanos::millis(20),
            probes: 3,
            probe: Nanos::micros(200),
            revive: Nanos::secs(5),
            backoff: Nanos::millis(10),
            owner: Nanos::secs(3),
            give_up: Nanos::secs(2),
        },
    };
}

/// Opens NICs as rails, by rank, and proves which of them count what they execute.
///
/// # Errors
/// The first that cannot be opened.
pub fn open_rails(
    nics: Vec<Arc<dyn Devx>>,
    world: &Arc<dyn World>,
    draw: &Draw,
) -> Result<Vec<Arc<Rail>>, NicError> {
    let open = |(index, devx)| {
        let options = RailOptions { proof_atomics: 0, order_rounds: 0, ..RailOptions::default() };
        let mut rail = Rail::open(devx, index, options, world.clone())?;
        rail.settle_truth();
        rail.settle_datagrams(qkey(draw));
        Ok(Arc::new(rail))
    };
    (0..).zip(nics).map(open).collect()
}

/// A region's key on one rail. Dropped before the rail is.
pub(super) struct RailKey {
    key: Mkey,
    _umem: Umem,
}

impl RailKey {
    /// Registers memory on a rail.
    pub fn register(rail: &Rail, memory: &Arc<OwnedSpan>, access: Access) -> Result<Self, NicError> {
        let umem = Umem::for_keys(&rail.devx, memory)?;
        let key = Mkey::create(&rail.devx, rail.pd(), &umem, 0..memory.span().bytes, access)?;
        Ok(Self { key, _umem: umem })
    }

    /// As NICs read it.
    pub fn key_be(&self) -> u32 {
        self.key.key_be()
    }

    /// Has the NIC take it back. It may be asked again.
    ///
    /// # Errors
    /// As the NIC answers.
    pub fn take_back(&mut self) -> Result<(), NicError> {
        self.key.take_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cause: an end on soft NICs took its own NIC for slow for 2 s, and its peer gave the end up after 1 s. What was
    /// under way on a NIC that is gone waited until a command of libibverbs failed.
    #[test]
    fn an_end_finds_its_nic_silent_before_its_peer_gives_the_end_up() {
        for Patience { nic, suspect, timing, .. } in [Patience::HARDWARE, Patience::SOFT] {
            assert!(suspect + nic < timing.peer, "{suspect:?} and {nic:?} of {:?}", timing.peer);
        }
    }
}
