//! The first day's report of a NIC, on soft NICs.

use shunt_device::platform::host::World;
use shunt_doctor::first_day::{NicReport, Outcome, Rounds, look_at};
use shunt_layout::mlx5::prm::caps::OUT_BYTES;
use shunt_soft_devx::{SoftClock, SoftDevx};
use shunt_soft_nic::{Clock, Engine, Fabric, FabricConfig, NicConfig, Quirks, RailAt, SoftNic};
use std::sync::Arc;

const ROUNDS: Rounds = Rounds { pairs: 3, keys: 2, patience_ns: 30_000_000_000 };

fn report(quirks: Quirks) -> NicReport {
    let mut fabric = Fabric::new(FabricConfig::default());
    let config = NicConfig { quirks, ..NicConfig::new("soft_0", 0, 0) };
    let nic = fabric.add(SoftNic::new(config), RailAt { pe: 0, rail: 0 });
    let clock = Clock::new();
    let engine = Arc::new(Engine::spawn(fabric, clock));
    let fabric = engine.fabric();
    let world: Arc<dyn World> = Arc::new(SoftClock::new(clock, engine));
    look_at(Arc::new(SoftDevx::new(fabric, nic, world.clone(), ROUNDS.patience_ns)), &world, ROUNDS)
}

#[test]
fn an_honest_nic_passes_and_every_command_is_timed() {
    let report = report(Quirks::default());
    let outcomes: Vec<Outcome> = report.rows.iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes, [Outcome::Ok; 3], "{:?}", report.rows);
    for (command, least) in [
        ("QueryQp", 12),
        ("Qp2Err", 6),
        ("CreateQp", 6),
        ("Rst2InitQp", 6),
        ("Init2RtrQp", 6),
        ("Rtr2RtsQp", 6),
        ("key registration", 2),
    ] {
        let met = report.times.get(command).map_or(0, Vec::len);
        assert!(met >= least, "{command}: {met} samples in {:?}", report.times.keys());
    }
    assert_eq!(report.capabilities.len(), OUT_BYTES);
}

#[test]
fn a_nic_that_forgets_its_count_fails_with_the_reason() {
    let report = report(Quirks { rmsn_cleared_by_2err: true, ..Quirks::default() });
    let truth = &report.rows[1];
    assert_eq!(truth.outcome, Outcome::Fail);
    assert!(truth.met.contains("rmsn does not survive 2ERR") && !truth.todo.is_empty(), "{truth:?}");
}
