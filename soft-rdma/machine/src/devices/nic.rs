//! One NIC as the parts that play its kernel see it.

use super::events::{Bell, EventSink, Sinks, SubscriptionId};
use crate::kind::Kind;
use crate::log::Level;
use crate::port::{PortView, port_rate};
use crate::sysfs;
use rustix::io::Errno;
use shunt_layout::mlx5::prm::cmd::{self, Opcode};
use shunt_soft_nic::soft_srd::device::Device;
use shunt_soft_nic::{Clock, CommandId, NicId, SharedFabric, SoftNic, trace};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the kernel waits for a command.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a NIC answers nothing until the kernel's driver puts the device into its error state: its health poll
/// misses three beats, two seconds apart.
const HEALTH: Duration = Duration::from_secs(6);
/// How often a wait for a command looks whether the device is in that state.
const LOOK: Duration = Duration::from_millis(200);
/// What a caller waits by itself: a thread that wakes another takes as long, and its time varies.
const MOMENT_NS: u64 = 10_000;

/// What the driver answers by itself for a device in its error state (`mlx5_internal_err_ret_value` of the kernel): all
/// that only takes away is done, and nothing else is. A queue pair that it says is in ERR may not be.
fn aborted(input: &[u8], output: &mut [u8]) -> Result<(), Errno> {
    const DONE: &[Opcode] = &[
        Opcode::DestroyMkey,
        Opcode::DestroyCq,
        Opcode::DestroyQp,
        Opcode::Qp2Err,
        Opcode::Qp2Rst,
        Opcode::DestroyDct,
        Opcode::DestroyRmp,
        Opcode::DeallocPd,
    ];
    let opcode = Opcode::from_raw(cmd::input::OPCODE.get(input) as u16);
    output.fill(0);
    if opcode.is_some_and(|opcode| DONE.contains(&opcode)) { Ok(()) } else { Err(Errno::IO) }
}

/// One entry of a GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index.
    pub index: u32,
    /// The GID.
    pub gid: [u8; 16],
    /// What it is good for.
    pub kind: GidKind,
    /// Number of the network interface it was made from.
    pub interface: u32,
}

/// What a GID is good for; the numbers are those of the verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand = 0,
    /// Ethernet frames.
    RoceV1 = 1,
    /// UDP.
    RoceV2 = 2,
}

/// A network interface: its name and number.
pub(crate) type Interface = (String, u32);

/// One soft NIC with its engine behind it.
pub struct Nic {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) kind: Kind,
    pub(super) interface: Interface,
    pub(super) id: NicId,
    pub(super) fabric: SharedFabric,
    pub(super) clock: Clock,
    pub(super) bell: Arc<Bell>,
    pub(super) sinks: Sinks,
    pub(super) timeout: Duration,
    /// A command that was given up. Until it is answered nobody waits for another one.
    pub(super) unanswered: Mutex<Option<CommandId>>,
    /// Since when it is known to answer nothing.
    pub(super) gone_since: Mutex<Option<Instant>>,
    /// The process whose NIC it is: a child has only a picture of it.
    pub(super) process: u32,
}

impl Nic {
    /// `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whose device it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// N of uverbsN.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Has the firmware execute a mailbox, and waits for its end as long as the kernel does. The firmware's status is
    /// in the output. Once a command was waited for in vain, or the NIC answered nothing for a while, the device is in
    /// its error state until it answers: see `aborted`. A program with many objects would not end otherwise.
    pub fn command(&self, input: &[u8], output: &mut [u8]) -> Result<(), Errno> {
        if self.process != std::process::id() {
            return Err(Errno::IO);
        }
        let deadline = Instant::now() + self.timeout;
        let now = self.clock.now_ns();
        if !self.take_late_answer(now) {
            return aborted(input, output);
        }
        let (id, done_at) =
            self.with_unseen(|nic| (nic.command_submit(now, input, output.len()), nic.commands_done_at()));
        self.wait_for_a_moment(now, done_at);
        loop {
            let since = self.bell.count();
            let now = self.clock.now_ns();
            if let Some(answer) = self.with(|nic| nic.command_poll(now, id)) {
                let bytes = answer.len().min(output.len());
                output[..bytes].copy_from_slice(&answer[..bytes]);
                let name = &self.name;
                crate::log!(Level::Trace, "{name}: {}: {}", trace::command(input), trace::answer(&answer));
                return Ok(());
            }
            let look = Instant::now() + LOOK;
            let over = !self.bell.wait(since, look.min(deadline)) && deadline <= look;
            let unhealthy = self.is_unhealthy(Instant::now());
            if over || unhealthy {
                crate::log!(Level::Error, "{}: a command was not answered", self.name);
                *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
                return if unhealthy { aborted(input, output) } else { Err(Errno::TIMEDOUT) };
            }
        }
    }

    /// Waits for a command that takes no longer than a wake-up by the engine would.
    fn wait_for_a_moment(&self, now: u64, done_at: u64) {
        while done_at.saturating_sub(now) <= MOMENT_NS && self.clock.now_ns() < done_at {
            std::hint::spin_loop();
        }
    }

    /// True once the NIC has answered nothing for so long that its driver has noticed.
    fn is_unhealthy(&self, now: Instant) -> bool {
        let gone = self.with(|nic| nic.is_gone());
        let mut since = self.gone_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = gone.then(|| since.unwrap_or(now));
        since.is_some_and(|since| now >= since + HEALTH.min(self.timeout))
    }

    /// False while a command that was given up is not answered.
    fn take_late_answer(&self, now: u64) -> bool {
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = *unanswered
            && self.with(|nic| nic.command_poll(now, id)).is_some()
        {
            *unanswered = None;
        }
        unanswered.is_none()
    }

    /// Runs `f` on the NIC itself.
    pub fn with<R>(&self, f: impl FnOnce(&mut SoftNic) -> R) -> R {
        self.fabric.with(|fabric| f(fabric.nic(self.id)))
    }

    /// Runs `f`, which gives the engine nothing to do.
    fn with_unseen<R>(&self, f: impl FnOnce(&mut SoftNic) -> R) -> R {
        self.fabric.with_unseen(|fabric| f(fabric.nic(self.id)))
    }

    /// Runs `f` on the soft EFA behind its port. EIO where there is none, or it is another process's.
    pub fn with_srd<R>(&self, f: impl FnOnce(&mut Device) -> R) -> Result<R, Errno> {
        if self.process != std::process::id() {
            return Err(Errno::IO);
        }
        self.fabric.with(|fabric| fabric.srd(self.id).map(f)).ok_or(Errno::IO)
    }

    /// Every event of the NIC goes to `sink` from now on.
    pub fn subscribe(&self, sink: Box<dyn EventSink>) -> SubscriptionId {
        self.sinks.add(sink)
    }

    /// Not any more. Once this returned the sink is called no more.
    pub fn unsubscribe(&self, id: SubscriptionId) {
        self.sinks.remove(id);
    }

    /// Hands an event to those who subscribed.
    pub(super) fn deliver(&self, eqe: &[u8; 64]) {
        self.sinks.deliver(eqe);
    }

    pub(super) fn next_event(&self) -> Option<[u8; 64]> {
        let now = self.clock.now_ns();
        self.with(|nic| nic.next_event(now))
    }

    /// An entry of the GID table; it has one.
    pub fn gid(&self, index: u32) -> Option<GidEntry> {
        let gid = (index == 0).then(|| self.with(|nic| nic.config().gid))?;
        Some(match self.kind {
            Kind::Mlx5 => GidEntry { index, gid, kind: GidKind::RoceV2, interface: self.interface.1 },
            // No network interface stands behind it.
            Kind::Efa => GidEntry { index, gid, kind: GidKind::InfiniBand, interface: 0 },
        })
    }

    /// The network interface that GIDs are made from, by name.
    pub fn interface(&self) -> &str {
        &self.interface.0
    }

    /// The port.
    pub fn port(&self) -> PortView {
        let (up, mtu, gbps) = self.with(|nic| (nic.has_link(), nic.config().mtu, nic.config().rail_gbps));
        let (width, speed, rate) = port_rate(gbps);
        PortView { up, mtu, width, speed, rate, lid: 0 }
    }

    /// What its files say now.
    pub fn describe(&self) -> sysfs::Device {
        let entry = self.gid(0);
        sysfs::Device {
            kind: self.kind,
            name: self.name().into(),
            index: self.index(),
            guid: self.guid(),
            gid: entry.map_or([0; 16], |entry| entry.gid),
            interface: self.interface().into(),
            interface_index: entry.map_or(0, |entry| entry.interface),
            port: self.port(),
            counters: self.with(|nic| nic.counters()),
        }
    }

    /// The GUID of the device, made from its MAC as Ethernet cards do.
    pub fn guid(&self) -> u64 {
        let [a, b, c, d, e, f] = self.mac();
        u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }

    /// The MAC of the port.
    pub fn mac(&self) -> [u8; 6] {
        self.with(|nic| nic.config().mac)
    }
}
