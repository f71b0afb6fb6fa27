//! One NIC, opened and used: capabilities, the start-up proof with its reason, the times of its commands.

use super::{CommandTimes, Outcome, Row, TimedDevx};
use shunt_device::platform::host::World;
use shunt_layout::mlx5::prm::caps::OUT_BYTES;
use shunt_mlx5::clock::RealClock;
use shunt_mlx5::devx::Devx;
use shunt_mlx5::error::NicError;
use shunt_mlx5::ibverbs::{IbverbsDevx, Opening};
use shunt_mlx5::memory::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt_mlx5::nic::caps::{Caps, query_caps_in};
use shunt_mlx5::nic::execute;
use shunt_mlx5::nic::mkey::{Access, Mkey};
use shunt_mlx5::nic::umem::Umem;
use shunt_mlx5::rail::{Rail, RailOptions};
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
/// What a NIC's rows are of.
const CAPABILITIES: &str = "capabilities";
const PROOF: &str = "truth proof";
const TIMES: &str = "command times";
/// Bytes behind each key that is timed.
const KEY_BYTES: u64 = 1 << 20;

/// What a NIC says it can do.
pub struct Capabilities {
    /// The row. Where it is no pass, the NIC's other rows say that they were not run.
    pub row: Row,
    /// The answer to QUERY_HCA_CAP (general, current), as bytes of the output mailbox; empty if there was none.
    pub bytes: Vec<u8>,
}

/// What a NIC showed when it was used.
pub struct NicReport {
    /// The start-up proof.
    pub proof: Row,
    /// Whether its commands could be timed.
    pub timed: Row,
    /// Times of commands.
    pub times: CommandTimes,
}

fn open_device(name: &str, command: Duration) -> Result<Arc<dyn Devx>, Row> {
    match IbverbsDevx::open_with(name, Opening { command, ..Opening::default() }) {
        Ok(devx) => Ok(devx),
        Err(error) => Err(Row::new("", Outcome::Fail, error.to_string()).todo(MEND)),
    }
}

fn named(nic: &str, what: &str, row: Row) -> Row {
    Row { name: format!("{nic}: {what}"), ..row }
}

/// Capabilities of a device by its name, opened through libibverbs. `command`: longest wait for a firmware command.
pub fn ask_device(name: &str, command: Duration) -> Capabilities {
    match open_device(name, command) {
        Ok(devx) => ask(&*devx),
        Err(row) => Capabilities { row: named(name, CAPABILITIES, row), bytes: Vec::new() },
    }
}

/// Capabilities of a NIC that is open.
pub fn ask(devx: &dyn Devx) -> Capabilities {
    let bytes =
        execute::<OUT_BYTES>(devx, &query_caps_in()).map(|answer| answer.to_vec()).unwrap_or_default();
    Capabilities { row: capability_row(&devx.name(), devx), bytes }
}

/// Uses a device by its name, opened through libibverbs. `command`: longest wait for a firmware command.
pub fn use_device(name: &str, command: Duration, rounds: Rounds) -> NicReport {
    match open_device(name, command) {
        Ok(devx) => {
            let world: Arc<dyn World> = Arc::new(RealClock::new());
            use_nic(devx, &world, rounds)
        }
        Err(row) => NicReport {
            proof: named(name, PROOF, row.clone()),
            timed: named(name, TIMES, row),
            times: CommandTimes::new(),
        },
    }
}

/// What stands for the use of a NIC whose capabilities could not be had.
pub fn not_used(nic: &str) -> NicReport {
    let row = Row::new("", Outcome::NotRun, "its capabilities could not be read")
        .todo("mend the row of its capabilities first");
    NicReport {
        proof: named(nic, PROOF, row.clone()),
        timed: named(nic, TIMES, row),
        times: CommandTimes::new(),
    }
}

/// Uses a NIC that is open.
pub fn use_nic(devx: Arc<dyn Devx>, world: &Arc<dyn World>, rounds: Rounds) -> NicReport {
    let nic = devx.name();
    let timed = TimedDevx::new(devx);
    let devx: Arc<dyn Devx> = timed.clone();
    let proof = truth_row(&nic, &devx, world, rounds);
    let row = times_row(&nic, &devx, world, rounds, &timed);
    NicReport { proof, timed: row, times: timed.times() }
}

fn capability_row(nic: &str, devx: &dyn Devx) -> Row {
    let name = format!("{nic}: {CAPABILITIES}");
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
    let name = format!("{nic}: {PROOF}");
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
    let name = format!("{nic}: {TIMES}");
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
    let pd = shunt_mlx5::nic::pd::Pd::alloc(devx)?;
    for _ in 0..rounds.keys {
        let umem = Umem::for_keys(devx, &memory)?;
        drop(Mkey::create(devx, pd.id(), &umem, 0..KEY_BYTES, Access::Remote)?);
    }
    Ok(())
}
