//! The responder-truth proof, on a soft NIC of this process: what every rail does at start.

use crate::{SoftClock, SoftDevx};
use shunt_device::platform::host::World;
use shunt_mlx5::error::NicError;
use shunt_mlx5::rail::{Rail, RailOptions};
use shunt_soft_nic::{Clock, Engine, Fabric, FabricConfig, NicConfig, Quirks, RailAt, SoftNic};
use std::sync::Arc;
use std::time::Instant;

/// What the proof came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceProof {
    /// The NIC's count may be used as responder truth.
    pub holds: bool,
    /// What was seen.
    pub detail: String,
    /// The same on a NIC that is made to forget its count at 2ERR: the proof must not hold there.
    pub liar_detail: String,
    /// Whether that NIC was seen through.
    pub liar_caught: bool,
    /// Wall time of both, in microseconds.
    pub took_us: u64,
}

/// Longest wait for a command or for the proof's requests: also on a machine with much else to do.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Runs the proof on two soft NICs: one as it should be, one whose firmware loses the count.
pub fn prove_on_soft_nic() -> Result<FenceProof, NicError> {
    let since = Instant::now();
    let mut fabric = Fabric::new(FabricConfig::default());
    let honest = NicConfig::new("soft_0", 0, 0);
    let quirks = Quirks { rmsn_cleared_by_2err: true, ..Quirks::default() };
    let liar = NicConfig { quirks, ..NicConfig::new("soft_1", 0, 1) };
    let nics = [honest, liar].into_iter().enumerate();
    let nics: Vec<_> = nics
        .map(|(rail, config)| fabric.add(SoftNic::new(config), RailAt { pe: 0, rail: rail as u32 }))
        .collect();
    let clock = Clock::new();
    let engine = Arc::new(Engine::spawn(fabric, clock));
    let fabric = engine.fabric();
    let world: Arc<dyn World> = Arc::new(SoftClock::new(clock, engine));
    let options = RailOptions { flush_ns: PATIENCE_NS, startup_ns: PATIENCE_NS, ..RailOptions::default() };
    let prove = |rail: usize| {
        let devx = Arc::new(SoftDevx::new(fabric.clone(), nics[rail], world.clone(), PATIENCE_NS));
        Rail::open(devx, rail as u32, options, world.clone())?.prove_truth()
    };
    let (honest, liar) = (prove(0)?, prove(1)?);
    Ok(FenceProof {
        holds: honest.holds,
        detail: honest.detail,
        liar_caught: !liar.holds,
        liar_detail: liar.detail,
        took_us: since.elapsed().as_micros() as u64,
    })
}
