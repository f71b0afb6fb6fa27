//! `shunt-devx-check`: Shunt's own host side through libibverbs and libmlx5, on the devices this process sees.
//!
//! Opens devices with DEVX, has each prove its fence, then runs two PEs of this process on them: every path of every
//! channel carries data, is fenced and counted. Meant to be run under `shunt soft-rdma run --nics 4 --`; runs on
//! hardware as well, where the first devices are cabled to each other.

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use shunt_device::platform::host::World;
use shunt_host::clock::RealClock;
use shunt_host::config::EnvConfig;
use shunt_host::connect::{Bootstrap, InMemory, OobNet};
use shunt_host::devx::ibverbs::{self, IbverbsDevx, Opening};
use shunt_host::devx::{Devx, Neighbour};
use shunt_host::error::DevxError;
use shunt_host::gpu::{GpuMemory, HeapMemory};
use shunt_host::nic::queue::Request;
use shunt_host::pe::{Pe, PeConfig};
use shunt_host::rail::{Rail, RailOptions};
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::qp::State;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for anything but a command that is meant to fail.
const PATIENT_NS: u64 = 30_000_000_000;
const HEAP_BYTES: u64 = 40_000;
/// Chunks are small, so that several keys are used.
const LOG2_CHUNK: u32 = 14;

/// Runs Shunt's host side through libibverbs and libmlx5.
///
/// Exit status: 0 all holds, 1 something is wrong or there is no device, 2 bad usage.
#[derive(Parser)]
#[command(name = "shunt-devx-check", version, max_term_width = 80)]
struct Arguments {
    /// Devices; half of them for each of two PEs. All if none is named.
    devices: Vec<String>,
    /// The first device is dead to commands: only see that this ends every wait.
    #[arg(long)]
    dead: bool,
    /// The first device loses its link for a while: only see that its events tell so.
    #[arg(long)]
    flap: bool,
}

fn main() -> ExitCode {
    if let Some(status) = shunt_pages::answered::<Arguments>(std::env::args_os()) {
        return ExitCode::from(status);
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            shunt_host::complain!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let devices = devices(arguments)?;
    if arguments.dead {
        return dead(&devices[0]);
    }
    if arguments.flap {
        return flap(&devices[0]);
    }
    for device in &devices {
        alone(device).with_context(|| format!("{device} alone"))?;
    }
    refusals(&devices[0])?;
    if devices.len() < 2 {
        bail!("two PEs need two devices, there is {}", devices.len());
    }
    pair(&devices)?;
    println!("{} devices: all good", devices.len());
    Ok(())
}

fn devices(arguments: &Arguments) -> Result<Vec<String>> {
    let entries = ibverbs::list()?;
    let listed = entries.len();
    println!("libibverbs lists {listed}");
    for entry in &entries {
        println!("  {} guid {:016x} {}", entry.name, entry.guid, if entry.mlx5 { "mlx5" } else { "other" });
    }
    let names: Vec<String> = match &arguments.devices[..] {
        [] => entries.into_iter().filter(|entry| entry.mlx5).map(|entry| entry.name).collect(),
        named => named.to_vec(),
    };
    ensure!(!names.is_empty(), "devices: expected one that libmlx5 drives, got none among {listed}");
    Ok(names)
}

fn world() -> Arc<dyn World> {
    Arc::new(RealClock::new())
}

fn rail_options() -> RailOptions {
    RailOptions { flush_ns: PATIENT_NS, startup_ns: PATIENT_NS, ..RailOptions::default() }
}

/// One device: capabilities, address, the fence proof, flushes.
fn alone(device: &str) -> Result<()> {
    let devx = IbverbsDevx::open(device)?;
    let rail = Rail::open(devx.clone(), 0, rail_options(), world())?;
    let address = rail.address();
    println!("  {device}: {:?}, {address:?}", rail.caps.link);
    ensure!(rail.port_up()?, "the port is down");
    let proof = rail.prove_truth()?;
    println!("  {device}: fence: {}", proof.detail);
    ensure!(proof.holds, "the fence does not hold: {}", proof.detail);
    // More than one round of the ring, so that both passes of the owner bit are seen.
    for _ in 0..40 {
        rail.flush()?;
    }
    let neighbour = Neighbour { gid: address.gid, gid_index: address.gid_index, traffic_class: 0 };
    let pd = devx.alloc_pd()?;
    let mac = devx.resolve_mac(pd, &neighbour)?;
    devx.dealloc_pd(pd)?;
    ensure!(mac == Some(address.mac), "{mac:x?} is not our own MAC, {:x?}", address.mac);
    only_the_proofs_event(&*devx)
}

/// The proof keeps the answers of atomics from a queue pair until it gives up, of which the NIC may tell. Nothing else
/// has happened.
fn only_the_proofs_event(devx: &dyn Devx) -> Result<()> {
    let events: Vec<_> = std::iter::from_fn(|| devx.next_event().transpose()).collect::<Result<_, _>>()?;
    let gave_up = |entry: &[u8; 64]| eqe::EVENT_TYPE.get(entry) as u8 == eqe::event::WQ_CATASTROPHIC;
    ensure!(events.len() <= 1 && events.iter().all(gave_up), "events without a cause: {events:x?}");
    Ok(())
}

/// What is wrong is refused with the firmware's words, and the device goes on.
fn refusals(device: &str) -> Result<()> {
    ensure!(IbverbsDevx::open("mlx5_none").is_err(), "a device that is not there opened");
    let devx = IbverbsDevx::open(device)?;
    // ALLOC_UAR and a number that is no command: the kernel keeps both from the firmware.
    for opcode in [0x0802u16, 0xeeee] {
        let mut input = [0; 16];
        input[..2].copy_from_slice(&opcode.to_be_bytes());
        ensure!(devx.command(&input, &mut [0; 16]).is_err(), "command {opcode:#x} went through");
    }
    // CREATE_CQ on a umem that is not there.
    let mut input = [0; 272];
    input[0] = 0x04;
    match devx.command(&input, &mut [0; 16]) {
        Err(DevxError::Refused { status, syndrome, .. }) => {
            println!("  {device}: CREATE_CQ without memory: status {status:#x}, syndrome {syndrome:#x}");
        }
        other => bail!("CREATE_CQ without memory gave {other:?}"),
    }
    ensure!(devx.responsive(), "a refusal is an answer");
    ensure!(devx.gid(99)?.is_none(), "a GID behind the end of the table");
    Ok(())
}

/// Two PEs, each with half of the devices.
fn pair(devices: &[String]) -> Result<()> {
    let world = world();
    let oob = OobNet::new(2, 30_000, world.clone());
    let group = InMemory::group(2, &world).into_iter().map(|member| member.with_patience(PATIENT_NS));
    let group: Vec<InMemory> = group.collect();
    let (halves, rails) = (devices.chunks(devices.len() / 2), devices.len() / 2);
    std::thread::scope(|scope| {
        let threads: Vec<_> = group
            .iter()
            .zip(halves)
            .map(|(member, devices)| {
                let (oob, world) = (&oob, world.clone());
                scope.spawn(move || {
                    let rank = member.rank();
                    let opened: Result<Vec<Arc<dyn Devx>>, _> =
                        devices.iter().map(|device| IbverbsDevx::open(device)).collect();
                    let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
                    let end = Box::new(oob.end(rank));
                    let pe = Pe::start(config(), opened?, memory, member, end, world)?;
                    use_every_path(&pe, member, rails)?;
                    // Nobody takes its memory away while others may still write to it.
                    member.all_gather(&[])?;
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a PE panicked"),
        })
    })
}

fn config() -> PeConfig {
    let env = EnvConfig { backups: 3, log_depth: 5, fault_tolerance: true, ..EnvConfig::default() };
    let config = PeConfig::new(&env, HEAP_BYTES);
    PeConfig { log2_chunk: LOG2_CHUNK, rail: rail_options(), backups_later: false, ..config }
}

/// Where a path's word lands at the peer: round the border of the first two chunks.
fn place(from: u32, channel: u32, slot: u64) -> u64 {
    (1 << LOG2_CHUNK) - 128 + u64::from(from * 16 + channel * 4) * 8 + slot * 8
}

fn word(from: u32, channel: u32, slot: u64) -> u64 {
    0xfeed_0000 + u64::from(from * 100 + channel * 10) + slot
}

/// Every path carries a message without data and a word into the peer's heap, is moved to ERR, and says how many it
/// has executed.
fn use_every_path(pe: &Pe, group: &InMemory, rails: usize) -> Result<()> {
    let (world, me) = (&**pe.world(), group.rank());
    let resources = pe.take_agent_resources().context("paths of a PE that is up")?;
    let mut paths = 0;
    for channel in resources.channels.iter().filter(|channel| channel.peer != me) {
        for (path, slot) in channel.slots.iter().zip(0..) {
            let offset = place(me, channel.index, slot);
            let rkey = pe.keys().rkey(channel.peer, path.remote_rail, offset).context("a key")?;
            let half = path.half.as_ref().context("a half made at start")?;
            // SAFETY: no device code runs here, and the half outlives the producer.
            let mut producer = unsafe { half.producer() };
            producer.post(world, Request::WriteNothing);
            let remote = pe.peers()[channel.peer as usize].heap_base + offset;
            let value = word(me, channel.index, slot);
            producer.post(world, Request::WriteInline { value, remote, rkey_be: rkey.to_be() });
            producer.wait_all(world, PATIENT_NS)?;
            paths += 1;
        }
    }
    ensure!(paths >= rails * rails.min(4), "{paths} paths on {rails} rails");
    group.all_gather(&[])?;
    for rail in pe.rails() {
        rail.flush()?;
        ensure!(rail.truth_holds, "{}: {}", rail.name, rail.truth_detail);
    }
    for channel in resources.channels.iter().filter(|channel| channel.peer != me) {
        for (path, slot) in channel.slots.iter().zip(0..) {
            let mut met = [0; 8];
            let address = pe.heap().address + place(channel.peer, channel.index, slot);
            pe.memory().read(address, &mut met)?;
            let (met, want) = (u64::from_le_bytes(met), word(channel.peer, channel.index, slot));
            ensure!(met == want, "slot {slot}: expected {want:#x}, got {met:#x}");
            let half = path.half.as_ref().context("a half made at start")?;
            let psn = path.remote.context("its other end")?.psn.wrapping_add(2) & 0xff_ffff;
            for state in [State::Rts, State::Err] {
                if state == State::Err {
                    half.to_error()?;
                }
                let truth = half.query()?;
                let seen = (truth.state, truth.rmsn, truth.next_rcv_psn);
                ensure!(seen == (Some(state), 2, psn), "slot {slot}: {truth:?}, {psn:#x} is the PSN due");
            }
        }
    }
    println!("  PE {me}: {paths} paths, data, counts and fences as they should be");
    Ok(())
}

/// A device that opens, and then answers nothing any more.
fn dead(device: &str) -> Result<()> {
    let opening = Opening { command: Duration::from_millis(200), ..Opening::default() };
    let devx = IbverbsDevx::open_with(device, opening)?;
    let mut rail = None;
    // It dies some time after it was opened.
    let until = Instant::now() + Duration::from_secs(20);
    let error = loop {
        let step = match &rail {
            None => Rail::open(devx.clone(), 0, rail_options(), world()).map(|made| rail = Some(made)),
            Some(rail) => rail.port_up().map(drop).and_then(|()| rail.refresh_address().map(drop)),
        };
        match step {
            Ok(()) => ensure!(Instant::now() < until, "{device} still answers"),
            Err(error) => break error,
        }
    };
    println!("  {error}");
    ensure!(!devx.responsive(), "it counts as responsive");
    let since = Instant::now();
    drop(rail);
    drop(devx);
    println!("  dropped within {:?}", since.elapsed());
    Ok(())
}

/// A device whose link is lost and comes back: the DEVX channel tells both, and the port's state follows.
fn flap(device: &str) -> Result<()> {
    let devx = IbverbsDevx::open(device)?;
    let until = Instant::now() + Duration::from_secs(20);
    for (what, sub_type, active) in [("down", eqe::port::DOWN, false), ("up", eqe::port::ACTIVE, true)] {
        let event = loop {
            if let Some(event) = devx.next_event()? {
                break event;
            }
            ensure!(Instant::now() < until, "no event of a link that is {what}");
            std::thread::sleep(Duration::from_millis(1));
        };
        let met = (eqe::EVENT_TYPE.get(&event) as u8, eqe::SUB_TYPE.get(&event) as u8);
        ensure!(met == (eqe::event::PORT_CHANGE, sub_type), "event {met:?} of a link that is {what}");
        let port = devx.port()?.context("the driver's word of the port")?;
        ensure!(port.active == active, "{port:?} of a link that is {what}");
        println!("  {device}: link {what}");
    }
    ensure!(devx.next_event()?.is_none(), "an event told twice");
    Ok(())
}
