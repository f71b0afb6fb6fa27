//! A NIC: what it owns, and how it is driven.
//!
//! Nothing here reads a clock or starts a thread. A [`Fabric`](crate::Fabric) calls the steps in order:
//! doorbells, commands, arrivals, timers, placement, transmission.

use crate::command::{CommandId, Firmware};
use crate::complete::LateCqes;
use crate::config::NicConfig;
use crate::counters::Counters;
use crate::cx::Cx;
use crate::event::{self, Events};
use crate::fault::{FaultKind, Faults};
use crate::memory::{Memory, UmemFault};
use crate::object::{Cq, Uar, UarSlot};
use crate::packet::Packet;
use crate::placement::Placement;
use crate::port::Port;
use crate::qp::Qp;
use crate::shared_receive::SharedReceive;
use crate::timer::Timers;
use crate::window::Charge;
use shunt_layout::mlx5::doorbell::{BLUEFLAME_OFFSET, CQ_ARM_OFFSET, Doorbell, SEND_COUNTER_OFFSET};
use shunt_layout::mlx5::prm::qp::State;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// First QPN handed out; each creation takes the next, none is used twice (unless a quirk wants it).
pub(crate) const FIRST_QPN: u32 = 0x40;
/// First CQN handed out.
pub(crate) const FIRST_CQN: u32 = 0x400;
/// First number of a receive memory pool handed out.
pub(crate) const FIRST_RMPN: u32 = 0x800;
/// The event queue every NIC has.
const EQN: u32 = 1;
/// Doorbell registers of a page that are polled: the two ordinary ones, which libmlx5 gives to different queue
/// pairs, with both halves of each, which it takes in turn.
const REGISTERS: [usize; 4] =
    [BLUEFLAME_OFFSET, BLUEFLAME_OFFSET + 0x100, BLUEFLAME_OFFSET + 0x200, BLUEFLAME_OFFSET + 0x300];

/// Doorbell records read in one look at a page that many queue pairs share.
const RECORDS: usize = 64;

/// Why the NIC's driver-side calls (not its mailboxes) fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicError {
    /// A umem must have an address, and end inside the address space.
    #[error("a umem of {bytes} bytes at {address:#x} is no memory")]
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
    pub(crate) config: NicConfig,
    /// Its number in the fabric.
    pub(crate) number: u32,
    pub(crate) memory: Memory,
    pub(crate) pds: Vec<bool>,
    pub(crate) cqs: Vec<Option<Cq>>,
    /// CQs that overran: while there are none, nobody looks.
    pub(crate) failed_cqs: u32,
    /// Numbers to hand out again, and the ticket each goes on from (only with the quirk).
    pub(crate) free_qpns: Vec<(u32, u64)>,
    /// Failed queue pairs that have a receive queue.
    pub(crate) failed_receivers: Vec<u32>,
    /// By QPN. A pair is taken out while it is worked on, so that the rest of the NIC can be borrowed.
    pub(crate) qps: Vec<Option<Box<Qp>>>,
    pub(crate) uars: Vec<UarSlot>,
    /// Some page has doorbell records that are still to be read.
    pub(crate) unread: bool,
    /// A doorbell may have been written, where steps are sparse.
    pub(crate) may_be_rung: bool,
    /// Shared receive queues.
    pub(crate) pools: Vec<Option<SharedReceive>>,
    pub(crate) firmware: Firmware,
    pub(crate) events: Events,
    pub(crate) port: Port,
    pub(crate) placement: Placement,
    pub(crate) late_cqes: LateCqes,
    pub(crate) timers: Timers,
    pub(crate) faults: Faults,
    pub(crate) counters: Counters,
    /// Queue pairs that reached RTS since the last step: they may hold doorbells.
    pub(crate) recheck: Vec<u32>,
    /// Packets that left a queue pair in this step, for the fabric to carry.
    pub(crate) outbox: Vec<Packet>,
    /// What queue pairs had under way that are no more, for the windows to forget.
    pub(crate) released: Vec<Charge>,
    /// Its process is gone.
    pub(crate) killed: bool,
    pub(crate) waker: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl SoftNic {
    /// A NIC with its port up and nothing in it.
    pub fn new(config: NicConfig) -> Self {
        let memory = Memory::new(config.quirks.keys_skipped);
        // Two NICs draw different times, and each the same in each run.
        let seed = config.mac.iter().fold(0, |seed: u64, byte| seed << 8 | *byte as u64);
        Self {
            config,
            number: 0,
            memory,
            pds: Vec::new(),
            cqs: Vec::new(),
            failed_cqs: 0,
            free_qpns: Vec::new(),
            failed_receivers: Vec::new(),
            qps: Vec::new(),
            uars: Vec::new(),
            unread: false,
            may_be_rung: false,
            pools: Vec::new(),
            firmware: Firmware::new(seed),
            events: Events::default(),
            port: Port::default(),
            placement: Placement::default(),
            late_cqes: LateCqes::default(),
            timers: Timers::default(),
            faults: Faults::default(),
            counters: Counters::default(),
            recheck: Vec::new(),
            outbox: Vec::new(),
            released: Vec::new(),
            killed: false,
            waker: None,
        }
    }

    /// What it was made from; `gid` follows a `gid-change`.
    pub fn config(&self) -> &NicConfig {
        &self.config
    }

    /// Has commands take another time from now on.
    pub fn set_firmware_ns(&mut self, firmware_ns: u64) {
        self.config.firmware_ns = firmware_ns;
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
        Ok(unsafe { self.memory.register(address, bytes) })
    }

    /// Lets go of memory. Writes into it that are posted but not placed are dropped.
    pub fn deregister_umem(&mut self, id: u32) -> Result<(), NicError> {
        match self.memory.deregister(id) {
            Ok(span) => {
                self.placement.forget(span);
                Ok(())
            }
            Err(UmemFault::Unknown) => Err(NicError::UnknownUmem(id)),
            Err(UmemFault::Busy(users)) => Err(NicError::UmemBusy { id, users }),
        }
    }

    /// Maps a doorbell page.
    pub fn alloc_uar(&mut self) -> Uar {
        let free = self.uars.iter().position(|slot| !slot.used && !slot.is_lent());
        let at = free.unwrap_or_else(|| {
            self.uars.push(UarSlot::own());
            self.uars.len() - 1
        });
        Uar { id: at as u32 + 1, address: self.uars[at].open() }
    }

    /// Takes a page of the caller's memory as a doorbell page, and empties it.
    ///
    /// # Safety
    /// A page of [`UAR_PAGE_BYTES`] at `address`, aligned to as much, stays valid until [`Self::free_uar`] or the NIC
    /// is dropped, and is touched only as a device's registers are: whole words, never through a reference.
    ///
    /// [`UAR_PAGE_BYTES`]: shunt_layout::mlx5::doorbell::UAR_PAGE_BYTES
    pub unsafe fn alloc_uar_at(&mut self, address: u64) -> Uar {
        let free = self.uars.iter().position(|slot| !slot.used && slot.is_lent());
        let at = free.unwrap_or_else(|| {
            self.uars.push(UarSlot::lent());
            self.uars.len() - 1
        });
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.uars[at].lend(address) };
        Uar { id: at as u32 + 1, address: self.uars[at].open() }
    }

    /// Unmaps a doorbell page. Memory of the NIC's own stays, so that a late doorbell harms nobody; a lent page is
    /// the caller's again.
    pub fn free_uar(&mut self, id: u32) {
        if let Some(slot) = self.uars.get_mut((id as usize).wrapping_sub(1)) {
            slot.free();
        }
    }

    /// Number of the event queue.
    pub fn query_eqn(&self) -> u32 {
        EQN
    }

    /// Gives a command to the firmware. It runs after those before it and takes
    /// [`firmware_ns`](NicConfig::firmware_ns), or what its profile draws; its effects happen when it completes.
    pub fn command_submit(&mut self, now: u64, input: &[u8], out_len: usize) -> CommandId {
        let constant = self.config.firmware_ns;
        let latency = self.config.profile.command_time.map_or(constant, |time| self.firmware.draw(time));
        self.firmware.submit(now, latency, input, out_len)
    }

    /// The output mailbox of a command, once; `None` while it is not complete. The status is inside.
    pub fn command_poll(&mut self, now: u64, id: CommandId) -> Option<Vec<u8>> {
        self.run_commands(now);
        self.firmware.take(id)
    }

    /// The next event queue entry that is visible at `now`.
    pub fn next_event(&mut self, now: u64) -> Option<[u8; event::EQE_BYTES]> {
        if self.is_gone() {
            return None;
        }
        self.events.pop(now)
    }

    /// Has `waker` called whenever an event became visible or a command was answered, so that a thread may sleep until
    /// then. It is called while the fabric is locked: it only wakes somebody.
    pub fn set_waker(&mut self, waker: Arc<dyn Fn() + Send + Sync>) {
        self.waker = Some(waker);
    }

    /// Tells whoever sleeps on this NIC.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker();
        }
    }

    /// What it counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// True while the NIC answers nothing at all.
    pub(crate) fn is_gone(&self) -> bool {
        self.killed || self.faults.any() && self.faults.has(|kind| matches!(kind, FaultKind::NicGone { .. }))
    }

    /// Nothing of it sends, lands or answers any more.
    pub(crate) fn kill(&mut self) {
        self.killed = true;
        self.placement = Placement::default();
        self.late_cqes = LateCqes::default();
        self.timers = Timers::default();
        self.events = Events::default();
        let qps = std::mem::take(&mut self.qps);
        qps.into_iter().flatten().for_each(|mut qp| self.let_go(&mut qp));
        self.outbox.clear();
    }

    /// True if a fault may do something to packets on its port.
    #[inline]
    pub(crate) fn is_faulty(&self) -> bool {
        self.faults.any() || !self.has_link()
    }

    /// The port's MAC as a number.
    pub(crate) fn mac(&self) -> u64 {
        self.config.mac.iter().fold(0, |mac, byte| mac << 8 | *byte as u64)
    }

    /// Takes a queue pair out for work; `None` if there is none of that number.
    #[inline]
    pub(crate) fn take_qp(&mut self, qpn: u32) -> Option<Box<Qp>> {
        self.qps.get_mut(qpn.wrapping_sub(FIRST_QPN) as usize)?.take()
    }

    /// Puts a queue pair back.
    #[inline]
    pub(crate) fn put_qp(&mut self, qp: Box<Qp>) {
        let at = (qp.qpn - FIRST_QPN) as usize;
        self.qps[at] = Some(qp);
    }

    /// A queue pair, to look at.
    pub(crate) fn qp(&self, qpn: u32) -> Option<&Qp> {
        self.qps.get(qpn.wrapping_sub(FIRST_QPN) as usize)?.as_deref()
    }

    /// A completion queue.
    #[inline]
    pub(crate) fn cq_mut(&mut self, cqn: u32) -> Option<&mut Cq> {
        self.cqs.get_mut(cqn.wrapping_sub(FIRST_CQN) as usize)?.as_mut()
    }

    /// Raises an event.
    pub(crate) fn raise(&mut self, now: u64, entry: [u8; event::EQE_BYTES]) {
        let mut due = now + self.config.event_ns;
        if self.faults.any() {
            if self.faults.strikes(|kind| matches!(kind, FaultKind::EventLost { .. })) {
                return;
            }
            let late = |kind: &FaultKind| match kind {
                FaultKind::EventLate { by_ns, .. } => Some(*by_ns),
                _ => None,
            };
            due += self.faults.strike(late).unwrap_or(0);
        }
        self.counters.events += 1;
        self.events.push(due, entry);
    }

    /// Looks at all doorbell registers. A register is emptied as it is read, so that a doorbell written twice
    /// with one value is two doorbells.
    pub(crate) fn poll_doorbells(&mut self, cx: &mut Cx) -> bool {
        let mut any = false;
        self.unread = false;
        for at in 0..self.uars.len() {
            if !self.uars[at].used {
                continue;
            }
            for offset in REGISTERS {
                let register = self.uars[at].register(offset);
                if register.load(Ordering::Relaxed) != 0 {
                    let value = register.swap(0, Ordering::AcqRel);
                    any = true;
                    self.doorbell(at, value, cx);
                }
            }
            let register = self.uars[at].register(CQ_ARM_OFFSET);
            if register.load(Ordering::Relaxed) != 0 {
                let value = register.swap(0, Ordering::AcqRel);
                any = true;
                self.arm_rung(at, value, cx.now);
            }
            if self.uars[at].unread > 0 {
                any = true;
                self.read_records(at, cx);
                self.unread |= self.uars[at].unread > 0;
            }
        }
        any | self.look_for_late_receives(cx.now)
    }

    fn doorbell(&mut self, uar: usize, value: u64, cx: &mut Cx) {
        self.counters.doorbells += 1;
        if self.faults.any() && self.faults.strikes(|kind| matches!(kind, FaultKind::LostDoorbell { .. })) {
            return;
        }
        let rung = Doorbell::from_register(value);
        if let Some(mut qp) = self.take_qp(rung.qpn) {
            // A doorbell through another page than the queue pair's own is ignored, as hardware does.
            if qp.uar == uar as u32 + 1 {
                self.rung(&mut qp, Some(rung.next_index), cx);
            }
            self.put_qp(qp);
        }
        // The register holds only the last doorbell of all queue pairs of the page: a value overwritten
        // before it was seen lives on in its doorbell record.
        let slot = &mut self.uars[uar];
        slot.unread = if slot.qpns.len() > 1 { slot.qpns.len() } else { 0 };
    }

    /// Looks at some of a page's doorbell records.
    fn read_records(&mut self, uar: usize, cx: &mut Cx) {
        for _ in 0..RECORDS {
            let slot = &mut self.uars[uar];
            if slot.unread == 0 || slot.qpns.is_empty() {
                slot.unread = 0;
                return;
            }
            slot.unread -= 1;
            slot.next = (slot.next + 1) % slot.qpns.len();
            let qpn = slot.qpns[slot.next];
            if let Some(mut qp) = self.take_qp(qpn) {
                self.rung(&mut qp, None, cx);
                self.put_qp(qp);
            }
        }
    }

    /// A doorbell of a queue pair rang, or may have.
    fn rung(&mut self, qp: &mut Qp, index: Option<u16>, cx: &mut Cx) {
        if qp.state == State::Rst {
            return;
        }
        let before = qp.requester.announced;
        if let Some(index) = index
            && !qp.announce(index)
        {
            self.counters.bad_doorbells += 1;
        }
        qp.announce(u32::from_be(qp.record.load32(SEND_COUNTER_OFFSET as u64)) as u16);
        if qp.requester.announced != before {
            self.work_announced(qp, cx);
        }
    }

    fn work_announced(&mut self, qp: &mut Qp, cx: &mut Cx) {
        match qp.state {
            State::Rts => self.want_turn(qp, cx),
            State::Err => self.flush_later(qp, cx.now),
            _ => {} // Held until RTS.
        }
    }

    /// Lets queue pairs that reached RTS send what was announced before.
    pub(crate) fn run_recheck(&mut self, cx: &mut Cx) -> bool {
        let any = !self.recheck.is_empty();
        while let Some(qpn) = self.recheck.pop() {
            if let Some(mut qp) = self.take_qp(qpn) {
                if qp.state == State::Rts && qp.requester.announced > qp.requester.fetched {
                    self.want_turn(&mut qp, cx);
                }
                self.put_qp(qp);
            }
        }
        any
    }

    /// Retry and flush timers that are due. True if any expired.
    pub(crate) fn run_timers(&mut self, cx: &mut Cx) -> bool {
        let mut any = false;
        while let Some((filed_at, qpn)) = self.timers.pop(cx.now) {
            let Some(mut qp) = self.take_qp(qpn) else { continue };
            if self.timers.expired(&mut qp.requester.timer, qpn, filed_at, cx.now) {
                self.timer_expired(&mut qp, cx);
                self.settle(&mut qp, cx);
                any = true;
            }
            self.put_qp(qp);
        }
        any
    }

    /// The earliest future instant at which a step would do something; `now` if there is work left at once.
    pub(crate) fn next_due(&self, now: u64) -> Option<u64> {
        let placement = self.placement.next_due();
        if self.is_gone() {
            return placement;
        }
        let firmware = match self.commands_stuck() {
            true => None,
            false => self.firmware.next_due(),
        };
        let due = [
            placement,
            firmware,
            self.late_cqes.next_due(),
            self.timers.next_due(),
            self.events.next_due(),
            self.port.next_due(now),
            (!self.recheck.is_empty() || self.unread).then_some(now),
        ];
        due.into_iter().flatten().min()
    }
}
