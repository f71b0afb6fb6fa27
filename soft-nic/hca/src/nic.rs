//! A NIC: how it is driven.
//!
//! Nothing here reads a clock or starts a thread. A fabric calls the steps in order:
//! doorbells, commands, arrivals, timers, placement, transmission.

use crate::command::{self, CommandId, Firmware};
use crate::config::NicConfig;
use crate::counters::Counters;
use crate::doorbell_page::{DoorbellLook, Uar};
use crate::event::{self, EQE_BYTES};
use crate::hca::Hca;
use crate::memory::UmemFault;
use crate::step_context::StepContext;
use crate::trace;
use shunt_soft_fault::{FaultKind, Faults};
use shunt_soft_wire::congestion::Charge;
use shunt_soft_wire::packet::Packet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The event queue every NIC has.
const EQN: u32 = 1;

/// Why the NIC's driver-side calls (not its mailboxes) fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicError {
    /// A umem must have an address, and end inside the address space.
    #[error("umem: expected memory of this process, got {bytes} bytes at {address:#x}")]
    BadUmem {
        /// First address.
        address: u64,
        /// Length.
        bytes: u64,
    },
    /// No such umem.
    #[error("umem {0} is not registered")]
    UnknownUmem(u32),
    /// Objects still use it.
    #[error("umem {id} is in use by {users} objects; destroy them first")]
    UmemBusy {
        /// The umem.
        id: u32,
        /// Keys and queues in it.
        users: u32,
    },
}

/// A ConnectX in software.
pub struct SoftNic {
    hca: Hca,
    firmware: Firmware,
    /// Its process is gone.
    killed: bool,
    waker: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl SoftNic {
    /// A NIC with its port up and nothing in it.
    pub fn new(config: NicConfig) -> Self {
        // Two NICs draw different times, and each the same in each run.
        let firmware = Firmware::new(config.mac_number());
        Self { hca: Hca::new(config), firmware, killed: false, waker: None }
    }

    /// What it was made from; `gid` follows a `gid-change`.
    pub fn config(&self) -> &NicConfig {
        &self.hca.units.config
    }

    /// Has commands take another time from now on.
    pub fn set_firmware_ns(&mut self, firmware_ns: u64) {
        self.hca.units.config.firmware_ns = firmware_ns;
    }

    /// Registers memory that keys and queues may lie in, and returns the umem's number.
    ///
    /// # Safety
    /// The memory stays valid until [`Self::deregister_umem`] returned success or the NIC is dropped; all
    /// other access to it while shared is atomic or volatile.
    pub unsafe fn register_umem(&mut self, address: u64, bytes: u64) -> Result<u32, NicError> {
        if address == 0 || bytes == 0 || address.checked_add(bytes).is_none() {
            return Err(NicError::BadUmem { address, bytes });
        }
        // SAFETY: the caller's promise is the one asked for.
        Ok(unsafe { self.hca.units.memory.register(address, bytes) })
    }

    /// Lets go of memory. Writes into it that are posted but not placed are dropped.
    pub fn deregister_umem(&mut self, id: u32) -> Result<(), NicError> {
        match self.hca.units.memory.deregister(id) {
            Ok(span) => {
                self.hca.units.placement.forget(span);
                Ok(())
            }
            Err(UmemFault::Unknown) => Err(NicError::UnknownUmem(id)),
            Err(UmemFault::Busy(users)) => Err(NicError::UmemBusy { id, users }),
        }
    }

    /// Maps a doorbell page.
    pub fn alloc_uar(&mut self) -> Uar {
        self.hca.pages.open_own()
    }

    /// Takes a page of the caller's memory as a doorbell page, and empties it.
    ///
    /// # Safety
    /// A page of [`UAR_PAGE_BYTES`] at `address`, aligned to as much, stays valid until [`Self::free_uar`] or the NIC
    /// is dropped, and is touched only as a device's registers are: whole words, never through a reference.
    ///
    /// [`UAR_PAGE_BYTES`]: shunt_layout::mlx5::doorbell::UAR_PAGE_BYTES
    pub unsafe fn alloc_uar_at(&mut self, address: u64) -> Uar {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.hca.pages.open_lent(address) }
    }

    /// Unmaps a doorbell page. Memory of the NIC's own stays, so that a late doorbell harms nobody; a lent page is
    /// the caller's again.
    pub fn free_uar(&mut self, id: u32) {
        self.hca.pages.free(id);
    }

    /// Number of the event queue.
    pub fn query_eqn(&self) -> u32 {
        EQN
    }

    /// Objects that were made on this NIC and not destroyed: domains, queues, pairs, doorbell pages, spans, keys.
    pub fn live_objects(&self) -> usize {
        self.hca.live_objects()
    }

    /// Gives a command to the firmware. It runs after those before it and takes
    /// [`firmware_ns`](NicConfig::firmware_ns), or what its profile draws; its effects happen when it completes.
    pub fn command_submit(&mut self, now: u64, input: &[u8], out_len: usize) -> CommandId {
        let config = &self.hca.units.config;
        self.firmware.submit(now, config.profile.command_time, config.firmware_ns, input, out_len)
    }

    /// The output mailbox of a command, once; `None` while it is not complete. The status is inside.
    pub fn command_poll(&mut self, now: u64, id: CommandId) -> Option<Vec<u8>> {
        if let Some(answer) = self.firmware.take(id) {
            return Some(answer);
        }
        let ran = self.run_due_commands(now);
        let answer = self.firmware.take(id);
        // The caller needs no waking for its own.
        if ran > usize::from(answer.is_some()) {
            self.wake();
        }
        answer
    }

    /// When the command that was submitted last completes, unless a fault holds it.
    pub fn commands_done_at(&self) -> u64 {
        self.firmware.done_at()
    }

    /// How many commands of each opcode were executed, refused ones among them.
    pub fn commands_by_opcode(&self) -> &BTreeMap<u16, u64> {
        self.firmware.executed()
    }

    /// The last commands that were not taken yet, as text, for a failing test.
    pub fn trace_commands(&self) -> Vec<String> {
        self.firmware.waiting().map(trace::command).collect()
    }

    /// The next event queue entry that is visible at `now`.
    pub fn next_event(&mut self, now: u64) -> Option<[u8; EQE_BYTES]> {
        if self.is_gone() {
            return None;
        }
        self.hca.units.events.pop(now)
    }

    /// Has `waker` called whenever an event became visible or a command was answered, so that a thread may sleep until
    /// then. It is called while the fabric is locked: it only wakes somebody.
    pub fn set_waker(&mut self, waker: Arc<dyn Fn() + Send + Sync>) {
        self.waker = Some(waker);
    }

    /// Wakes the thread that sleeps on this NIC.
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker();
        }
    }

    /// What it counted.
    pub fn counters(&self) -> Counters {
        self.hca.units.counters
    }

    /// The same, for what counts on its behalf.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.hca.units.counters
    }

    /// Raises an event of an object, for what stands beside it behind its port.
    pub fn raise(&mut self, now: u64, kind: u8, object: u32) {
        self.hca.units.raise(now, event::object(kind, object));
    }

    /// Whether the port has a link.
    pub fn has_link(&self) -> bool {
        self.hca.port.has_link()
    }

    /// It has a place in a fabric.
    pub fn set_number(&mut self, number: u32) {
        self.hca.units.number = number;
    }

    /// Its place in its fabric.
    pub fn number(&self) -> u32 {
        self.hca.units.number
    }

    /// Doorbell pages that a look goes through.
    pub fn pages(&self) -> usize {
        self.hca.pages.made()
    }

    /// The faults at work on it.
    pub fn faults(&self) -> &Faults {
        &self.hca.units.faults
    }

    /// The faults at work on it, to strike.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.hca.units.faults
    }

    /// True while the NIC answers nothing at all.
    pub fn is_gone(&self) -> bool {
        let faults = self.faults();
        self.killed || faults.any() && faults.has(|kind| matches!(kind, FaultKind::NicGone { .. }))
    }

    /// True if its process is gone.
    pub fn is_killed(&self) -> bool {
        self.killed
    }

    /// Nothing of it sends, lands or answers any more.
    pub fn kill(&mut self) {
        self.killed = true;
        self.hca.stop();
    }

    /// True if a fault may do something to packets on its port.
    #[inline]
    pub fn is_faulty(&self) -> bool {
        self.faults().any() || !self.has_link()
    }

    /// The fault that has the link.
    pub fn down_by(&self) -> Option<usize> {
        self.hca.port.down_by()
    }

    /// Takes the link away. True if no other fault had it.
    pub fn link_down(&mut self, now: u64, fault: usize) -> bool {
        if self.down_by().is_some() {
            return false;
        }
        self.hca.change_link(now, |port| port.set_fault(Some(fault)));
        true
    }

    /// Gives back the link that a fault took. True if one had.
    pub fn link_up(&mut self, now: u64) -> bool {
        let was = self.down_by();
        self.hca.change_link(now, |port| port.set_fault(None));
        was.is_some()
    }

    /// The interface that it sends through lost its link, or has it again.
    pub fn set_carrier(&mut self, now: u64, there: bool) {
        self.hca.change_link(now, |port| port.set_carrier(there));
    }

    /// Its address changes: the last byte but one of an IPv4-mapped GID, as if the port moved to another subnet.
    pub fn change_gid(&mut self) {
        self.hca.units.config.gid[14] ^= 0x80;
    }

    /// A packet reached the NIC.
    #[inline]
    pub fn receive(&mut self, packet: Packet, cx: &mut StepContext) {
        self.hca.receive(packet, cx);
    }

    /// A packet of it goes nowhere.
    pub fn drop_packet(&mut self, packet: Packet, cx: &mut StepContext) {
        self.hca.units.drop_packet(packet, cx);
    }

    /// The same, for nobody has its address.
    pub fn drop_unroutable(&mut self, packet: Packet, cx: &mut StepContext) {
        self.hca.units.counters.unroutable += 1;
        self.drop_packet(packet, cx);
    }

    /// The packets that it sent, to be carried; give the list back with [`Self::put_outbox`].
    pub fn take_outbox(&mut self) -> Vec<Packet> {
        std::mem::take(&mut self.hca.units.outbox)
    }

    /// The list again, empty.
    pub fn put_outbox(&mut self, outbox: Vec<Packet>) {
        self.hca.units.outbox = outbox;
    }

    /// What queue pairs had under way that are no more.
    pub fn take_released(&mut self) -> Vec<Charge> {
        std::mem::take(&mut self.hca.units.released)
    }

    /// A destination is no longer full: all that paused try again.
    pub fn resume(&mut self) {
        self.hca.units.transmit.resume();
    }

    /// A window opened: all that were refused try again.
    pub fn let_in(&mut self, cx: &mut StepContext) {
        self.hca.let_in(cx);
    }

    /// Executes the commands that complete by `now`. How many there were.
    fn run_due_commands(&mut self, now: u64) -> usize {
        let mut ran = 0;
        while self.firmware.is_due(now) {
            if self.commands_stuck() {
                self.firmware.count_stuck(&mut self.hca.units.faults);
                break;
            }
            self.firmware.run_one(|due, mailbox, room| command::execute(&mut self.hca, due, mailbox, room));
            self.hca.units.counters.commands += 1;
            ran += 1;
        }
        ran
    }

    /// True while firmware does not finish commands.
    fn commands_stuck(&self) -> bool {
        let stuck =
            |kind: &FaultKind| matches!(kind, FaultKind::FwTimeout { .. } | FaultKind::NicGone { .. });
        self.killed || self.faults().any() && self.faults().has(stuck)
    }

    /// Lets what is due become visible. True if anything did.
    pub fn run_placement(&mut self, cx: &mut StepContext) -> bool {
        self.hca.run_placement(cx)
    }

    /// What comes before arrivals: commands, events, doorbells as far as this is a `look` for them. True if there was
    /// anything.
    pub fn run_host_side(&mut self, look: DoorbellLook, cx: &mut StepContext) -> bool {
        let mut any = self.run_due_commands(cx.now) > 0;
        any |= self.hca.units.events.announce(cx.now);
        if any {
            self.wake();
        }
        if look != DoorbellLook::Nowhere || self.hca.pages.has_unread() {
            any |= self.hca.poll_doorbells(look, cx);
        }
        any | self.hca.run_recheck(cx)
    }

    /// What comes after arrivals: timers, late completions, transmission. True if there was anything.
    pub fn run_wire_side(&mut self, cx: &mut StepContext) -> bool {
        let mut any = self.hca.run_timers(cx);
        any |= self.hca.run_late_cqes(cx.now);
        any | self.hca.transmit(cx)
    }

    /// The earliest future instant at which a step would do something; `now` if there is work left at once.
    pub fn next_due(&self, now: u64) -> Option<u64> {
        if self.is_gone() {
            return self.hca.units.placement.next_due();
        }
        let firmware = if self.commands_stuck() { None } else { self.firmware.next_due() };
        firmware.into_iter().chain(self.hca.next_due(now)).min()
    }
}
