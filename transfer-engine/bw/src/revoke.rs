//! `--mode revoke`: a sender that hangs is cut off, and nothing of it lands when it goes on.
//!
//! The receiver starts the sender as a process of its own, stops it (SIGSTOP) in the middle of its transfers, revokes
//! it, uses the memory again and marks it, and lets it go on (SIGCONT). The sender sees that it was cut off, connects
//! again as another peer, and that is the proof that it went on. Until then, and a while longer, no byte may change.

use crate::end::SLOTS;
use crate::options::{CancelHow, Options};
use crate::pattern::{self, READ};
use crate::verdict::Part;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use shunt::host::gpu::OwnedSpan;
use shunt::soft_nic::uplink::remove_unused_fabric;
use shunt_transfer::{CallError, Change, FABRIC, Node, Place, Region, Source};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::region::{MrDesc, Rights};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_program::place::heap;
use std::collections::VecDeque;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nothing that a process waits for takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// What was under way when the sender was stopped lands within this time of its going on, if it lands.
const REST: Duration = Duration::from_millis(200);
/// The sender stands still for so long.
const STILL: Duration = Duration::from_millis(20);
/// Pause between two looks.
const LOOK: Duration = Duration::from_micros(200);
/// Transfers that the sender has under way.
const UNDER_WAY: usize = 4;
/// The receiver's last message.
const END: &[u8] = b"end";

/// Memory of this process, registered.
struct Own {
    memory: Arc<OwnedSpan>,
    region: Region,
}

impl Own {
    fn new(node: &Node, options: &Options, rights: Rights) -> Result<Self> {
        let memory = heap(bytes(options))?;
        Ok(Self { region: node.register(memory.clone(), rights)?, memory })
    }

    fn mark(&self) -> Result<()> {
        Ok(self.memory.memory().fill(self.memory.span(), READ)?)
    }

    /// Slots that are not as they were marked.
    fn changed(&self, options: &Options) -> Result<u64> {
        let mut content = vec![0; bytes(options) as usize];
        self.memory.memory().read(self.memory.span().address, &mut content)?;
        let slots = content.chunks_exact(options.transfer_bytes() as usize);
        Ok(slots.filter(|slot| slot.iter().any(|byte| *byte != READ)).count() as u64)
    }
}

fn bytes(options: &Options) -> u64 {
    options.transfer_bytes() * SLOTS as u64
}

/// The receiver: what both saw.
pub fn receive(options: &Options, source: &Source) -> Result<(Part, &'static str)> {
    let fabric = format!("revoke-{}", std::process::id());
    let place = Arc::new(Place::beside(source, 1, &fabric)?);
    place.lines.iter().for_each(|line| shunt::host::complain!("transfer_bw: {line}"));
    let node = Node::open(&place, 1, options.nics.rails(), "127.0.0.1:0")?;
    let at = node.listens_at()?.to_string();
    // Soft NICs behind libibverbs stay where this process's are.
    let mut sender = Sender::start(&at, source.are_soft_nics().then_some(&fabric))?;
    let part = rounds(options, &node, &mut sender);
    drop(node);
    let label = place.nics.time_label();
    drop((sender, place));
    let _ = remove_unused_fabric(&fabric);
    Ok((part?, label))
}

fn rounds(options: &Options, node: &Node, sender: &mut Sender) -> Result<Part> {
    let own = Own::new(node, options, Rights::Write)?;
    own.mark()?;
    let (mut part, mut took) = (Part::default(), Vec::new());
    let (began, mut peer) = (Instant::now(), joined(node)?);
    let is_revoked = options.cancel != CancelHow::Never;
    let mut draw = 0u64;
    loop {
        node.send(peer, &own.region.describe().to_bytes())?;
        until("bytes of the sender", || Ok(own.changed(options)? > 0))?;
        draw = draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        std::thread::sleep(Duration::from_micros(draw >> 51));
        sender.stop()?;
        std::thread::sleep(STILL);
        if is_revoked {
            let asked = Instant::now();
            ensure!(
                node.revoke(peer, PATIENCE)?,
                "peer {peer}: expected to be cut off within {PATIENCE:?}, it is not"
            );
            took.push(asked.elapsed().as_nanos() as u64);
        }
        own.mark()?;
        sender.signal(Signal::SIGCONT)?;
        if is_revoked {
            peer = joined(node)?;
        }
        std::thread::sleep(REST);
        part.late_writes += own.changed(options)?;
        own.mark()?;
        if !is_revoked {
            part.cancelled += 1;
            return Ok(part);
        }
        if began.elapsed() >= Duration::from_nanos(options.duration()) {
            break;
        }
    }
    node.send(peer, END)?;
    let seen: Part = sender.ended()?;
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    part.cancel_ns = [50, 99, 100].map(at);
    (part.transfers, part.transfers_failed, part.failure) =
        (seen.transfers, seen.transfers_failed, seen.failure);
    part.cancelled = seen.cancelled;
    part.took_ns = began.elapsed().as_nanos() as u64;
    Ok(part)
}

/// The next peer that joins.
fn joined(node: &Node) -> Result<u32> {
    let until = Instant::now() + PATIENCE;
    loop {
        match node.next_change(until.saturating_duration_since(Instant::now()))? {
            Some(Change::Joined(peer)) => return Ok(peer),
            Some(Change::Left(_)) => {}
            None => bail!("the sender: expected to connect within {PATIENCE:?}, it did not"),
        }
    }
}

fn until(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < until, "{what}: expected within {PATIENCE:?}, none came");
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The sender's process.
struct Sender(Option<Child>);

impl Sender {
    /// The same program with the same options, and where to connect to.
    fn start(at: &str, fabric: Option<&String>) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("this program's path")?);
        command.args(std::env::args_os().skip(1)).args(["--sender", at]);
        command.envs(fabric.map(|fabric| ("SHUNT_FABRIC", fabric)));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Self(Some(command.spawn().context("the sender")?)))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.0.as_ref().context("the sender has ended")?;
        Ok(kill(Pid::from_raw(child.id() as i32), signal)?)
    }

    /// Returns once it stands still.
    fn stop(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let child = self.0.as_ref().context("the sender has ended")?;
        let (pid, until) = (Pid::from_raw(child.id() as i32), Instant::now() + PATIENCE);
        loop {
            match waitpid(pid, Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG))? {
                WaitStatus::Stopped(..) => return Ok(()),
                WaitStatus::StillAlive if Instant::now() < until => std::thread::sleep(LOOK),
                other => {
                    // It was taken leave of, or never stops.
                    self.0 = None;
                    bail!("the sender: expected to stop within {PATIENCE:?}, got {other:?}");
                }
            }
        }
    }

    /// Waits for its end: what it saw.
    fn ended(&mut self) -> Result<Part> {
        let mut child = self.0.take().context("the sender has ended")?;
        let until = Instant::now() + PATIENCE;
        while child.try_wait()?.is_none() {
            if Instant::now() >= until {
                let _ = child.kill();
                bail!("the sender: expected its end within {PATIENCE:?}, it goes on");
            }
            std::thread::sleep(LOOK);
        }
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "the sender: expected a good end, got {}", output.status);
        serde_json::from_slice(&output.stdout).context("what the sender saw")
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // Also one that is stopped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The sender: writes until it is cut off, and connects again. What it saw.
pub fn send(options: &Options, source: &Source, to: &str) -> Result<Part> {
    let fabric = std::env::var("SHUNT_FABRIC").unwrap_or_else(|_| FABRIC.to_owned());
    let place = Arc::new(Place::beside(source, 0, &fabric)?);
    let node = Node::open(&place, 0, options.nics.rails(), "127.0.0.1:0")?;
    let own = Own::new(&node, options, Rights::Local)?;
    let (size, span, mut part) = (options.size, own.memory.span(), Part::default());
    for slot in 0..SLOTS {
        for page in 0..options.pages() {
            let at = slot as u64 * options.transfer_bytes() + page * size;
            own.memory.memory().write(span.address + at, &pattern::bytes(slot, 0, page, size))?;
        }
    }
    loop {
        let peer = node.connect(to, PATIENCE)?;
        let message = loop {
            match node.receive(PATIENCE)? {
                Some((from, message)) if from == peer => break message,
                Some(_) => {}
                None => bail!("the receiver: expected a message within {PATIENCE:?}, got none"),
            }
        };
        if message == END {
            return Ok(part);
        }
        write(options, (&node, peer), &own, &MrDesc::from_bytes(&message)?, &mut part)?;
    }
}

/// Writes until one transfer ends otherwise than well, and waits for the others.
fn write(
    options: &Options,
    (node, peer): (&Node, u32),
    own: &Own,
    target: &MrDesc,
    part: &mut Part,
) -> Result<()> {
    let (mut under_way, mut slot, mut is_cut) = (VecDeque::new(), 0, false);
    loop {
        while !is_cut && under_way.len() < UNDER_WAY {
            let offset = slot * options.transfer_bytes();
            let pages =
                || Pages { indices: (0..options.pages() as u32).collect(), stride: options.size, offset };
            slot = (slot + 1) % SLOTS as u64;
            match node.write_pages(peer, options.size, None, (&own.region, pages()), (target, pages())) {
                Ok(transfer) => under_way.push_back(transfer),
                // It was cut off before this one began.
                Err(CallError::Transfer(TransferError::Refused { .. })) => is_cut = true,
                Err(error) => return Err(error.into()),
            }
        }
        let Some(oldest) = under_way.pop_front() else { return Ok(()) };
        let end = oldest.wait(PATIENCE)?.context("a transfer: expected its end in time, it goes on")?;
        match end.result {
            Ok(()) => part.transfers += 1,
            Err(TransferError::PeerLeft { .. } | TransferError::PeerLost { .. }) => {
                part.cancelled += 1;
                is_cut = true;
            }
            Err(error) => {
                part.transfers_failed += 1;
                part.failure = error.to_string();
                is_cut = true;
            }
        }
    }
}
