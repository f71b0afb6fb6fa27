//! One NIC, opened and used: capabilities, the start-up proof with its reason, the times of its commands.

use super::{CommandTimes, Outcome, Row, TimedDevx};
use crate::devx::Devx;
use crate::devx::ibverbs::{IbverbsDevx, Opening};
use crate::error::NicError;
use crate::gpu::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use crate::nic::caps::{Caps, query_caps_in};
use crate::nic::execute;
use crate::nic::mkey::{Access, Mkey};
use crate::nic::umem::Umem;
use crate::rail::{Rail, RailOptions};
use crate::world::RealWorld;
use shunt_device::platform::host::World;
use shunt_layout::mlx5::prm::caps::OUT_BYTES;
use shunt_soft_nic::Clock;
use std::sync::Arc;
use std::time::Duration;

/// How much is done for the times of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Loopback pairs that are made, used, moved to ERR and dropped: two samples of each transition a round.
    pub pairs: u32,
    /// Keys that are made and taken back.
    pub keys: u32,
    /// Longest wait for the requests of one proof, in nanoseconds.
    pub patience_ns: u64,
}

/// What to do about a NIC that does not open or answer.
const MEND: &str = "look at `shunt doctor` and at the kernel's log; send this report";
/// Bytes behind each key that is timed.
const KEY_BYTES: u64 = 1 << 20;

/// What a NIC showed.
pub struct NicReport {
    /// Capabilities, the proof, the times: in this order. The rows after one that failed say why they were not run.
    pub rows: Vec<Row>,
    /// Times of commands.
    pub times: CommandTimes,
    /// The answer to QUERY_HCA_CAP (general, current), as bytes of the output mailbox; empty if there was none.
    pub capabilities: Vec<u8>,
}

/// The same of a device by its name, opened through libibverbs. `command`: longest wait for a firmware command.
pub fn look_at_device(name: &str, command: Duration, rounds: Rounds) -> NicReport {
    match IbverbsDevx::open_with(name, Opening { command, ..Opening::default() }) {
        Ok(devx) => {
            let world: Arc<dyn World> = Arc::new(RealWorld::without_engine(Clock::new()));
            look_at(devx, &world, rounds)
        }
        Err(error) => {
            let failed =
                Row::new(format!("{name}: capabilities"), Outcome::Fail, error.to_string()).todo(MEND);
            NicReport { rows: with_rest(name, failed), times: CommandTimes::new(), capabilities: Vec::new() }
        }
    }
}

/// The row of a NIC that cannot be used, and those that are not run for it.
fn with_rest(nic: &str, failed: Row) -> Vec<Row> {
    let rest = ["truth proof", "command times"].map(|what| {
        let why = "its capabilities could not be had";
        Row::new(format!("{nic}: {what}"), Outcome::NotRun, why).todo("mend the row above first")
    });
    [failed].into_iter().chain(rest).collect()
}

/// Uses one NIC. Each row's name starts with the NIC's.
pub fn look_at(devx: Arc<dyn Devx>, world: &Arc<dyn World>, rounds: Rounds) -> NicReport {
    let nic = devx.name();
    let timed = TimedDevx::new(devx);
    let devx: Arc<dyn Devx> = timed.clone();
    let capabilities =
        execute::<OUT_BYTES>(&*devx, &query_caps_in()).map(|answer| answer.to_vec()).unwrap_or_default();
    let first = capability_row(&nic, &*devx);
    let rows = if first.outcome == Outcome::Fail {
        with_rest(&nic, first)
    } else {
        let truth = truth_row(&nic, &devx, world, rounds);
        vec![first, truth, times_row(&nic, &devx, world, rounds, &timed)]
    };
    NicReport { rows, times: timed.times(), capabilities }
}

fn capability_row(nic: &str, devx: &dyn Devx) -> Row {
    let name = format!("{nic}: capabilities");
    let asked = Caps::query(devx).and_then(|caps| Ok((caps, caps.address(devx, devx.gid_index())?)));
    match asked {
        Ok((caps, address)) => Row::new(
            name,
            Outcome::Ok,
            format!("{caps:?}; GID entry {}, path MTU {}", address.gid_index, 128u32 << address.mtu),
        ),
        Err(error) => Row::new(name, Outcome::Fail, error.to_string()).todo(MEND),
    }
}

fn open(devx: &Arc<dyn Devx>, world: &Arc<dyn World>, options: RailOptions) -> Result<Rail, NicError> {
    Rail::open(devx.clone(), 0, options, world.clone())
}

fn options(rounds: Rounds) -> RailOptions {
    RailOptions { flush_ns: rounds.patience_ns, startup_ns: rounds.patience_ns, ..RailOptions::default() }
}

fn truth_row(nic: &str, devx: &Arc<dyn Devx>, world: &Arc<dyn World>, rounds: Rounds) -> Row {
    let name = format!("{nic}: truth proof");
    let todo =
        "channels on this NIC use their ledger, not its count; send this report with the firmware's version";
    match open(devx, world, options(rounds)).and_then(|rail| rail.prove_truth()) {
        Ok(proof) if proof.holds => Row::new(name, Outcome::Ok, proof.detail),
        Ok(proof) => Row::new(name, Outcome::Fail, format!("not believed: {}", proof.detail)).todo(todo),
        Err(error) => {
            Row::new(name, Outcome::Fail, format!("could not be brought to its end: {error}")).todo(todo)
        }
    }
}

/// Pairs and keys, again and again. What was measured before (at the proof) counts as well.
fn times_row(
    nic: &str,
    devx: &Arc<dyn Devx>,
    world: &Arc<dyn World>,
    rounds: Rounds,
    timed: &TimedDevx,
) -> Row {
    let name = format!("{nic}: command times");
    match repeat(devx, world, rounds) {
        Ok(()) => {
            let samples: usize = timed.times().values().map(Vec::len).sum();
            Row::new(name, Outcome::Ok, format!("{samples} commands timed; the histograms stand below"))
        }
        Err(error) => Row::new(name, Outcome::Fail, format!("a command failed: {error}"))
            .todo("look at the kernel's log (mlx5_core); send this report"),
    }
}

fn repeat(devx: &Arc<dyn Devx>, world: &Arc<dyn World>, rounds: Rounds) -> Result<(), NicError> {
    let rail = open(devx, world, RailOptions { proof_atomics: 0, ..options(rounds) })?;
    for _ in 0..rounds.pairs {
        // Its verdict is the truth row's; here it is a pair's life.
        rail.prove_truth()?;
    }
    let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
    let memory = OwnedSpan::alloc(&memory, KEY_BYTES, Placement::Control)?;
    let pd = crate::nic::pd::Pd::alloc(devx)?;
    for _ in 0..rounds.keys {
        let umem = Umem::for_keys(devx, &memory)?;
        drop(Mkey::create(devx, pd.id(), &umem, 0..KEY_BYTES, Access::Remote)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devx::SoftDevx;
    use shunt_soft_nic::{Engine, Fabric, FabricConfig, NicConfig, Quirks, RailAt, SoftNic};

    const ROUNDS: Rounds = Rounds { pairs: 3, keys: 2, patience_ns: 30_000_000_000 };

    fn report(quirks: Quirks) -> NicReport {
        let mut fabric = Fabric::new(FabricConfig::default());
        let config = NicConfig { quirks, ..NicConfig::new("soft_0", 0, 0) };
        let nic = fabric.add(SoftNic::new(config), RailAt { pe: 0, rail: 0 });
        let clock = Clock::new();
        let engine = Arc::new(Engine::spawn(fabric, clock));
        let fabric = engine.fabric();
        let world: Arc<dyn World> = Arc::new(RealWorld::new(clock, engine));
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
}
