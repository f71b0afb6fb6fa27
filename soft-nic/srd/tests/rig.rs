//! Two devices, their programs' memory, and a link between them that loses, doubles and delays.

use shunt_soft_srd::answering::Incoming;
use shunt_soft_srd::device::{Config, Counters, Device};
use shunt_soft_srd::format::{CQE_WITH_SOURCE_BYTES, RECEIVE_BYTES, Status, WQE_BYTES};
use shunt_soft_srd::memory::{Region, Shared, access};
use shunt_soft_srd::path::Outgoing;
use shunt_soft_srd::qp::{Change, Parts, Service, State};
use shunt_soft_srd::queues::{CompletionQueue, ReceiveQueue, Ring, SendQueue};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of each ring.
pub const DEPTH: u32 = 64;
/// Bytes of each program's memory.
pub const MEMORY: usize = 1 << 20;
/// The key of every queue pair.
pub const QKEY: u32 = 0x1111_1111;
/// A step of the clock.
const STEP_NS: u64 = 1_000;

/// What becomes of what crosses the link, of a thousand.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
}

/// Words that a program and its device share.
pub struct Words(Vec<AtomicU64>);

impl Words {
    pub fn new(bytes: usize) -> Self {
        Self((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    fn shared(&self) -> Shared {
        // SAFETY: a program keeps its words as long as its device; both touch them by whole words.
        unsafe { Shared::new(self.address(), self.0.len() * 8) }
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        for (n, byte) in bytes.iter().enumerate() {
            let (word, shift) = ((at + n) / 8, (at + n) % 8 * 8);
            let cell = &self.0[word];
            let old = cell.load(Ordering::Relaxed) & !(0xff << shift);
            cell.store(old | u64::from(*byte) << shift, Ordering::Release);
        }
    }

    pub fn get(&self, at: usize, bytes: usize) -> Vec<u8> {
        let byte = |n: usize| (self.0[n / 8].load(Ordering::Acquire) >> (n % 8 * 8)) as u8;
        (at..at + bytes).map(byte).collect()
    }
}

/// A completion as the library reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub request: u16,
    pub status: u8,
    pub receive: bool,
    pub bytes: u16,
    pub imm: Option<u32>,
    pub source: Vec<u8>,
}

/// A program with one queue pair.
pub struct Program {
    pub device: Device,
    pub qpn: u16,
    pub key: u32,
    pub memory: Words,
    pub handle: u16,
    rings: [Words; 3],
    pages: [Words; 3],
    posted: u16,
    received: u16,
    taken: u64,
}

impl Program {
    fn new(number: u64, service: Service) -> Self {
        let config = Config {
            mac: number,
            packet_bytes: 4096,
            seed: number,
            spread_ns: 20_000,
            rate_gbps: None,
            epoch: 100,
        };
        let mut device = Device::new(config);
        let rings = [WQE_BYTES, RECEIVE_BYTES, CQE_WITH_SOURCE_BYTES].map(|e| Words::new(e * DEPTH as usize));
        let pages = [64; 3].map(Words::new);
        let ring = |n: usize| Ring {
            entries: rings[n].shared(),
            page: pages[n].shared(),
            register: 0,
            depth: DEPTH,
        };
        let pd = device.add_pd().unwrap();
        let cq = device.add_cq(CompletionQueue::new(ring(2), CQE_WITH_SOURCE_BYTES, false)).unwrap();
        let (send, receive) = (Some(SendQueue::new(ring(0))), Some(ReceiveQueue::new(ring(1))));
        let parts = Parts { service, pd, send_cq: cq, receive_cq: cq, send, receive };
        let qpn = device.add_qp(parts).unwrap();
        for state in [State::Init, State::Receives, State::Sends] {
            device.change_qp(qpn, Change { state: Some(state), qkey: Some(QKEY), retries: None }).unwrap();
        }
        let memory = Words::new(MEMORY);
        let rights = access::LOCAL_WRITE | access::REMOTE_READ;
        let start = memory.address();
        let region = Region { pd, start, iova: start, bytes: MEMORY as u64, access: rights };
        // SAFETY: the program keeps its memory as long as its device.
        let key = unsafe { device.add_region(region) }.unwrap();
        let handle = device.add_handle(pd, u128::from(3 - number), 3 - number).unwrap();
        Self { device, qpn, key, memory, handle, rings, pages, posted: 0, received: 0, taken: 0 }
    }

    /// A buffer descriptor of this program's memory.
    fn piece(&self, at: usize, bytes: u32) -> [u8; 16] {
        let address = self.memory.address() + at as u64;
        let mut piece = [0; 16];
        piece[..4].copy_from_slice(&bytes.to_le_bytes());
        piece[4..8].copy_from_slice(&self.key.to_le_bytes());
        piece[8..].copy_from_slice(&address.to_le_bytes());
        piece
    }

    /// Posts a WQE: its first bytes, and what follows the metadata.
    pub fn post(&mut self, request: u16, control: u8, length: u16, imm: u32, to: u16, data: &[u8]) {
        let phase = (self.posted as u32 / DEPTH % 2) as u8;
        let mut wqe = [0; WQE_BYTES];
        wqe[..2].copy_from_slice(&request.to_le_bytes());
        (wqe[2], wqe[3]) = (0x80 | control, 0x1c | phase);
        wqe[4..6].copy_from_slice(&to.to_le_bytes());
        wqe[6..8].copy_from_slice(&length.to_le_bytes());
        wqe[8..12].copy_from_slice(&imm.to_le_bytes());
        wqe[12..14].copy_from_slice(&self.handle.to_le_bytes());
        wqe[16..20].copy_from_slice(&QKEY.to_le_bytes());
        wqe[32..32 + data.len()].copy_from_slice(data);
        self.rings[0].put(self.posted as usize % DEPTH as usize * WQE_BYTES, &wqe);
        self.posted = self.posted.wrapping_add(1);
        self.pages[0].put(0, &u32::from(self.posted).to_le_bytes());
    }

    /// Sends memory, with its request's number as immediate data.
    pub fn send(&mut self, request: u16, at: usize, bytes: u32, to: u16) {
        let piece = self.piece(at, bytes);
        self.post(request, 0x10, 1, request.into(), to, &piece);
    }

    /// Reads remote memory.
    pub fn read(&mut self, request: u16, (remote, key): (u64, u32), at: usize, bytes: u32, to: u16) {
        let mut data = [0; 32];
        data[..4].copy_from_slice(&bytes.to_le_bytes());
        data[4..8].copy_from_slice(&key.to_le_bytes());
        data[8..16].copy_from_slice(&remote.to_le_bytes());
        data[16..].copy_from_slice(&self.piece(at, bytes));
        self.post(request, 1, 1, 0, to, &data);
    }

    /// Posts a receive.
    pub fn receive(&mut self, request: u16, at: usize, bytes: u16) {
        let mut descriptor = [0; RECEIVE_BYTES];
        let address = self.memory.address() + at as u64;
        descriptor[..8].copy_from_slice(&address.to_le_bytes());
        descriptor[8..10].copy_from_slice(&request.to_le_bytes());
        descriptor[10..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..].copy_from_slice(&(self.key | 0xc000_0000).to_le_bytes());
        self.rings[1].put(self.received as usize % DEPTH as usize * RECEIVE_BYTES, &descriptor);
        self.received = self.received.wrapping_add(1);
        self.pages[1].put(0, &u32::from(self.received).to_le_bytes());
    }

    /// Takes the newest receive back, which the device has not looked at.
    pub fn unreceive(&mut self) {
        self.received = self.received.wrapping_sub(1);
        self.pages[1].put(0, &u32::from(self.received).to_le_bytes());
    }

    /// Takes the next completion.
    pub fn poll(&mut self) -> Option<Seen> {
        let depth = u64::from(DEPTH);
        let at = (self.taken % depth) as usize * CQE_WITH_SOURCE_BYTES;
        let entry = self.rings[2].get(at, CQE_WITH_SOURCE_BYTES);
        let phase = u8::from((self.taken / depth).is_multiple_of(2));
        if entry[3] & 1 != phase {
            return None;
        }
        self.taken += 1;
        self.pages[2].put(0, &(self.taken as u32 & 0xffff).to_le_bytes());
        let u16_at = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let imm = u32::from_le_bytes(entry[12..16].try_into().unwrap());
        Some(Seen {
            request: u16_at(0),
            status: entry[2],
            receive: entry[3] >> 1 & 3 == 2,
            bytes: u16_at(6),
            imm: (entry[3] & 8 != 0).then_some(imm),
            source: entry[16..].to_vec(),
        })
    }
}

/// Both programs and the link.
pub struct Rig {
    pub programs: [Program; 2],
    pub now: u64,
    weather: Weather,
    random: u64,
    link: BTreeMap<(u64, u64), (usize, Outgoing)>,
    order: u64,
    pub lost: u64,
    pub doubled: u64,
}

impl Rig {
    pub fn new(seed: u64, service: Service, weather: Weather) -> Self {
        let programs = [1, 2].map(|number| Program::new(number, service));
        let (link, order) = (BTreeMap::new(), 0);
        Self { programs, now: 0, weather, random: seed | 1, link, order, lost: 0, doubled: 0 }
    }

    /// A number below a thousand, the next of the seed's.
    pub fn dice(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1000
    }

    /// Lets both devices work, and what is due cross the link.
    pub fn step(&mut self) {
        self.now += STEP_NS;
        while let Some(first) = self.link.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            let (to, outgoing) = first.remove();
            let Outgoing { qpn, qkey, source_qpn, segment, .. } = &outgoing;
            let source = 2 - to as u128;
            let incoming = Incoming { source, source_qpn: *source_qpn, qpn: *qpn, qkey: *qkey, segment };
            self.programs[to].device.receive(incoming, self.now);
        }
        for from in 0..2 {
            self.programs[from].device.run(self.now);
            while let Some(outgoing) = self.programs[from].device.take_outgoing(self.now) {
                self.carry(from, outgoing);
            }
        }
    }

    fn carry(&mut self, from: usize, outgoing: Outgoing) {
        assert_eq!(outgoing.destination, 2 - from as u128);
        if self.dice() < self.weather.lost {
            self.lost += 1;
            return;
        }
        let twice = self.dice() < self.weather.doubled;
        self.doubled += u64::from(twice);
        for n in 0..=u64::from(twice) {
            self.order += 1;
            let arrives = self.now + STEP_NS + n * 50_000_000;
            self.link.insert((arrives, self.order), (1 - from, outgoing.clone()));
        }
    }

    /// Steps until it is done. So much virtual time is enough for anything.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + 20_000_000_000;
        while !done(self) {
            assert!(self.now < end, "{what} did not happen");
            // The clock jumps to what is due next.
            let due = self.programs.iter().filter_map(|program| program.device.next_due());
            let next = due.chain(self.link.keys().map(|(at, _)| *at)).min().unwrap_or(self.now + 1_000_000);
            self.now = self.now.max(next.saturating_sub(STEP_NS));
            self.step();
        }
    }

    /// The next completion of one program.
    pub fn completion(&mut self, of: usize) -> Seen {
        let mut seen = None;
        self.until("a completion", |rig| {
            seen = rig.programs[of].poll();
            seen.is_some()
        });
        seen.unwrap()
    }

    pub fn counters(&self, of: usize) -> Counters {
        self.programs[of].device.counters()
    }
}

/// A completion without data.
pub fn ended(request: u16, status: Status) -> (u16, u8) {
    (request, status as u8)
}
