//! The device: its objects by number, what it counts and tells.

use crate::format::{Completion, Side, Status, UNKNOWN_AH};
use crate::memory::{Region, Regions};
use crate::path::{Outgoing, Paths};
use crate::qp::{Change, Parts, Qp, State};
use crate::queues::{CompletionQueue, Notice};
use crate::segment::{HEADER_BYTES, Header, Kind};
use crate::sender::Ended;
use std::collections::BTreeMap;

/// Longest message in bytes, as EFA's ports have it.
pub const MESSAGE_MAX: u32 = 8928;
/// Longest read in bytes.
pub const READ_MAX: u32 = 1 << 30;
/// Queue pairs at most; the numbers go so far.
pub const QPS: u16 = 1024;
/// Completion queues at most.
pub const CQS: u16 = 1024;
/// Protection domains at most.
pub const PDS: u16 = 1024;
/// Address handles at most.
pub const HANDLES: u16 = 4096;

/// What a device is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Its MAC.
    pub mac: u64,
    /// Largest payload of a packet in bytes.
    pub packet_bytes: u32,
    /// Draws the paths.
    pub seed: u64,
    /// By how many nanoseconds paths differ.
    pub spread_ns: u64,
    /// Rate of the port in Gb/s; unlimited if absent.
    pub rate_gbps: Option<f64>,
    /// Larger than that of any earlier device of this address.
    pub epoch: u64,
}

/// Something to tell the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Completion queue.
    pub cq: u16,
    /// What happened to it.
    pub notice: Notice,
}

/// What a device counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// WQEs taken.
    pub wqes: u64,
    /// Completions written.
    pub cqes: u64,
    /// Messages received, and reads answered.
    pub messages: u64,
    /// Messages that came behind a newer one of their sender.
    pub reordered: u64,
    /// Messages and pieces of reads sent again.
    pub retransmits: u64,
    /// Messages received again.
    pub duplicates: u64,
    /// Messages refused for want of a receive.
    pub not_ready: u64,
    /// Segments that nobody wanted.
    pub dropped: u64,
}

/// Why an object is not destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// There is none.
    Unknown,
    /// Others use it.
    Busy,
}

/// Where an address handle leads.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    users: u32,
    pub(crate) pd: u16,
    pub(crate) gid: u128,
    pub(crate) mac: u64,
}

/// A soft EFA.
pub struct Device {
    pub(crate) config: Config,
    pub(crate) pds: BTreeMap<u16, ()>,
    pub(crate) regions: Regions,
    pub(crate) handles: BTreeMap<u16, Handle>,
    pub(crate) cqs: BTreeMap<u16, CompletionQueue>,
    pub(crate) qps: BTreeMap<u16, Qp>,
    pub(crate) last_qpn: u16,
    pub(crate) lives: u64,
    pub(crate) paths: Paths,
    pub(crate) events: Vec<Event>,
    pub(crate) counters: Counters,
}

/// The lowest number below `most` that nobody has.
fn free<T>(taken: &BTreeMap<u16, T>, most: u16) -> Option<u16> {
    (0..most).find(|number| !taken.contains_key(number))
}

impl Device {
    /// A device with nothing in it.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            pds: BTreeMap::new(),
            regions: Regions::default(),
            handles: BTreeMap::new(),
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            last_qpn: 0,
            lives: config.epoch,
            paths: Paths::new(config.seed, config.spread_ns, config.rate_gbps),
            events: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Data bytes of a segment.
    pub(crate) fn data_bytes(&self) -> u32 {
        self.config.packet_bytes - HEADER_BYTES as u32
    }

    /// What it counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Makes a protection domain. `None` if there are too many.
    pub fn add_pd(&mut self) -> Option<u16> {
        let number = free(&self.pds, PDS)?;
        self.pds.insert(number, ());
        Some(number)
    }

    /// Lets go of a protection domain. Not possible while something is in it.
    pub fn remove_pd(&mut self, number: u16) -> Result<(), Kept> {
        let handle = self.handles.values().any(|handle| handle.pd == number);
        if handle || self.qps.values().any(|qp| qp.parts.pd == number) || self.regions.has(number) {
            return Err(Kept::Busy);
        }
        self.pds.remove(&number).ok_or(Kept::Unknown)
    }

    /// Registers memory: its key. `None` if there are too many regions.
    ///
    /// # Safety
    /// The memory stays mapped until [`Self::remove_region`]. What else touches it meanwhile races with a device.
    pub unsafe fn add_region(&mut self, region: Region) -> Option<u32> {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { self.regions.add(region) }
    }

    /// Lets go of memory.
    pub fn remove_region(&mut self, key: u32) -> Result<(), Kept> {
        if self.regions.remove(key) { Ok(()) } else { Err(Kept::Unknown) }
    }

    /// Makes an address handle. One domain has one for each address: who asks again gets the same.
    pub fn add_handle(&mut self, pd: u16, gid: u128, mac: u64) -> Option<u16> {
        if let Some(known) = self.handle_of(pd, gid) {
            self.handles.get_mut(&known)?.users += 1;
            return Some(known);
        }
        let number = free(&self.handles, HANDLES)?;
        self.handles.insert(number, Handle { users: 1, pd, gid, mac });
        Some(number)
    }

    pub(crate) fn handle_of(&self, pd: u16, gid: u128) -> Option<u16> {
        let is = |handle: &Handle| (handle.pd, handle.gid) == (pd, gid);
        self.handles.iter().find(|(_, handle)| is(handle)).map(|(number, _)| *number)
    }

    /// Destroys an address handle, once for each time that it was made.
    pub fn remove_handle(&mut self, number: u16) -> Result<(), Kept> {
        let handle = self.handles.get_mut(&number).ok_or(Kept::Unknown)?;
        handle.users -= 1;
        if handle.users == 0 {
            self.handles.remove(&number);
        }
        Ok(())
    }

    /// Takes a completion queue in. `None` if there are too many.
    pub fn add_cq(&mut self, queue: CompletionQueue) -> Option<u16> {
        let number = free(&self.cqs, CQS)?;
        self.cqs.insert(number, queue);
        Some(number)
    }

    /// Lets go of a completion queue. Not possible while a queue pair has it.
    pub fn remove_cq(&mut self, number: u16) -> Result<(), Kept> {
        if self.qps.values().any(|qp| qp.parts.send_cq == number || qp.parts.receive_cq == number) {
            return Err(Kept::Busy);
        }
        self.cqs.remove(&number).map(|_| ()).ok_or(Kept::Unknown)
    }

    /// Takes a queue pair in: its number. `None` if there are too many, or a completion queue is not there.
    pub fn add_qp(&mut self, parts: Parts) -> Option<u16> {
        if !self.cqs.contains_key(&parts.send_cq) || !self.cqs.contains_key(&parts.receive_cq) {
            return None;
        }
        // Not one that was destroyed a moment ago. The library's table has a place for each.
        let next = (1..=QPS).map(|n| (self.last_qpn + n) % QPS);
        let number = next.into_iter().find(|number| !self.qps.contains_key(number))?;
        self.last_qpn = number;
        self.lives += 1;
        self.qps.insert(number, Qp::new(parts, self.lives, self.data_bytes()));
        Some(number)
    }

    /// Lets go of a queue pair.
    pub fn remove_qp(&mut self, number: u16) -> Result<(), Kept> {
        self.qps.remove(&number).map(|_| ()).ok_or(Kept::Unknown)
    }

    /// The state of a queue pair, and its key.
    pub fn qp(&self, number: u16) -> Option<(State, u32)> {
        self.qps.get(&number).map(|qp| (qp.state, qp.qkey))
    }

    /// Changes a queue pair. Whether the change is one that verbs know is for the caller.
    pub fn change_qp(&mut self, number: u16, change: Change) -> Result<(), Kept> {
        let qp = self.qps.get_mut(&number).ok_or(Kept::Unknown)?;
        qp.qkey = change.qkey.unwrap_or(qp.qkey);
        qp.retries = change.retries.unwrap_or(qp.retries);
        let Some(state) = change.state else { return Ok(()) };
        qp.state = state;
        match state {
            State::Reset => {
                self.lives += 1;
                qp.reset(self.lives);
            }
            State::Error => self.flush(number),
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self, number: u16) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let (sends, receives) = qp.flush();
        for request in sends {
            self.sent(number, Ended { request, status: Status::Flushed });
        }
        for request in receives {
            self.complete(Completion::of(number, request, Status::Flushed, Side::Receive));
        }
    }

    /// Writes a completion.
    pub(crate) fn complete(&mut self, completion: Completion) {
        let Some(qp) = self.qps.get(&completion.qpn) else { return };
        let cq = match completion.side {
            Side::Send => qp.parts.send_cq,
            Side::Receive => qp.parts.receive_cq,
        };
        let Some(queue) = self.cqs.get_mut(&cq) else { return };
        self.counters.cqes += 1;
        let notice = queue.write(&completion);
        self.events.extend(notice.map(|notice| Event { cq, notice }));
    }

    pub(crate) fn sent(&mut self, qpn: u16, ended: Ended) {
        self.complete(Completion::of(qpn, ended.request, ended.status, Side::Send));
    }

    /// A header of this device, with nothing else to say.
    pub(crate) fn header(&self, kind: Kind, epoch: u64, number: u64) -> Header {
        Header {
            kind,
            status: Status::Ok,
            mac: self.config.mac,
            epoch,
            number,
            floor: 0,
            offset: 0,
            bytes: 0,
            address: 0,
            key: 0,
            imm: None,
        }
    }

    /// The next segment that leaves by `now`.
    pub fn take_outgoing(&mut self, now: u64) -> Option<Outgoing> {
        self.paths.pop(now)
    }

    /// What the host is to be told.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// When there is something to do, doorbells aside.
    pub fn next_due(&self) -> Option<u64> {
        let flights = self.qps.values().filter_map(|qp| qp.sender.next_due());
        flights.chain(self.paths.next_due()).min()
    }
}

impl Completion {
    /// Of a request of this queue pair, with nothing else to say.
    pub(crate) fn of(qpn: u16, request: u16, status: Status, side: Side) -> Self {
        let (handle, source_qpn, source) = (UNKNOWN_AH, 0, 0);
        Self { request, status, side, qpn, bytes: 0, imm: None, handle, source_qpn, source }
    }
}
