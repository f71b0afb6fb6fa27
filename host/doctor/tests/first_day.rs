//! The first day's report of a NIC, on soft NICs.

use shunt_device::platform::host::World;
use shunt_doctor::first_day::{Capabilities, NicReport, Outcome, Rounds, ask, ask_device, not_used, use_nic};
use shunt_layout::mlx5::prm::caps::OUT_BYTES;
use shunt_soft_devx::{SoftClock, SoftDevx};
use shunt_soft_nic::{Clock, Engine, Fabric, FabricConfig, NicConfig, Quirks, RailAt, SoftNic};
use std::sync::Arc;
use std::time::Duration;

const ROUNDS: Rounds = Rounds { pairs: 3, keys: 2, patience_ns: 30_000_000_000 };

fn report(quirks: Quirks) -> (Capabilities, NicReport) {
    let mut fabric = Fabric::new(FabricConfig::default());
    let config = NicConfig { quirks, ..NicConfig::new("soft_0", 0, 0) };
    let nic = fabric.add(SoftNic::new(config), RailAt { pe: 0, rail: 0 });
    let clock = Clock::new();
    let engine = Arc::new(Engine::spawn(fabric, clock));
    let fabric = engine.fabric();
    let world: Arc<dyn World> = Arc::new(SoftClock::new(clock, engine));
    let devx = Arc::new(SoftDevx::new(fabric, nic, world.clone(), ROUNDS.patience_ns));
    (ask(&*devx), use_nic(devx, &world, ROUNDS))
}

#[test]
fn an_honest_nic_passes_and_every_command_is_timed() {
    let (capabilities, report) = report(Quirks::default());
    let rows = [&capabilities.row, &report.proof, &report.timed];
    assert!(rows.iter().all(|row| row.outcome == Outcome::Ok), "{rows:?}");
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
    assert_eq!(capabilities.bytes.len(), OUT_BYTES);
}

#[test]
fn a_nic_that_forgets_its_count_fails_with_the_reason() {
    let (_, report) = report(Quirks { rmsn_cleared_by_2err: true, ..Quirks::default() });
    let proof = &report.proof;
    assert_eq!(proof.outcome, Outcome::Fail);
    assert!(proof.met.contains("rmsn does not survive 2ERR") && !proof.todo.is_empty(), "{proof:?}");
}

#[test]
fn a_nic_that_does_not_open_fails_or_is_not_run_in_every_row() {
    let capabilities = ask_device("no_such_nic", Duration::from_secs(1));
    assert_eq!(capabilities.row.outcome, Outcome::Fail, "{:?}", capabilities.row);
    assert!(capabilities.bytes.is_empty() && !capabilities.row.todo.is_empty());
    let rest = not_used("no_such_nic");
    assert!([&rest.proof, &rest.timed].iter().all(|row| row.outcome == Outcome::NotRun));
}
