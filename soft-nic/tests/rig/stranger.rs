//! Somebody on the network who sends what he likes, and a NIC that he sends it to.
//!
//! The NIC has one queue pair, connected to an address where nobody is but the stranger. Of its memory two parts are
//! registered: one that others may write to, read, and count in, and one that only its own work lands in. All around
//! them is memory that no packet may change.

use super::{End, Host, Memory, Options, Rig, header, heap_key};
use shunt_layout::mlx5::prm::cmd::Opcode as Cmd;
use shunt_layout::mlx5::prm::mkey;
use shunt_layout::mlx5::wqe::{self, Opcode};
use shunt_soft_nic::packet::{Body, ELSEWHERE, Packet};
use shunt_soft_nic::uplink::AddressId;
use shunt_soft_nic::wire::{Addresses, Frame, Outer, decode, encode};
use shunt_soft_nic::{Counters, NicConfig, Uplink, UplinkCounters, UplinkError};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

/// Bytes of the memory around a victim.
pub const AROUND: usize = 1 << 16;
/// What others may write to, read, and count in.
pub const EXPOSED: Range<usize> = 0x4000..0x6000;
/// Where answers and what is sent to receive buffers may land.
pub const LANDING: Range<usize> = 0x8000..0x9000;

/// What is on its way to the NIC, and what the NIC sent.
#[derive(Default)]
struct Wire {
    coming: VecDeque<Vec<u8>>,
    counters: UplinkCounters,
    answers: Vec<Vec<u8>>,
}

/// The network as a fabric sees it.
struct Network {
    wire: Arc<Mutex<Wire>>,
    file: File,
}

impl Uplink for Network {
    fn own(&mut self, _: u128, _: u64) -> Result<(), UplinkError> {
        Ok(())
    }

    fn address(&mut self, _: u128) -> AddressId {
        AddressId(0)
    }

    fn send(&mut self, _: AddressId, write: &mut dyn FnMut(&mut Vec<u8>)) {
        let mut frame = Vec::new();
        write(&mut frame);
        self.wire.lock().unwrap().answers.push(frame);
    }

    fn flush(&mut self) {}

    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> bool {
        let frames = std::mem::take(&mut self.wire.lock().unwrap().coming);
        frames.iter().for_each(|frame| take(frame));
        !frames.is_empty()
    }

    fn is_full(&self, _: AddressId) -> bool {
        false
    }

    fn turns(&self) -> u64 {
        0
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn counters(&self) -> UplinkCounters {
        self.wire.lock().unwrap().counters
    }
}

/// A NIC that a stranger sends to.
pub struct Victim {
    pub rig: Rig,
    pub end: End,
    /// Key of [`EXPOSED`], for everybody; `Host::key` is the same.
    pub key: u32,
    /// Key of [`LANDING`], for the NIC's own work alone.
    pub own_key: u32,
    /// The address that the queue pair is connected to.
    pub peer: NicConfig,
    wire: Arc<Mutex<Wire>>,
    /// What the memory held at last, word by word.
    known: Vec<u64>,
    work: Vec<u64>,
    sent: u64,
}

/// Words of memory.
fn words(memory: &Memory, range: Range<usize>) -> Vec<u64> {
    range.step_by(8).map(|at| memory.get64(at)).collect()
}

impl Victim {
    pub fn new(options: Options) -> Self {
        let mut rig = Rig::alone_with(1, 1, AROUND, |_| {});
        let (nic, at) = (rig.hosts[0].nic, rig.hosts[0].at);
        // All that was made over the whole memory goes; what stays are the two parts.
        rig.command(nic, &header(Cmd::DestroyMkey, rig.hosts[0].key >> 8), 16);
        let whole = rig.hosts[0].umem;
        rig.fabric.nic(nic).deregister_umem(whole).unwrap();
        let mut key_of = |part: Range<usize>, remote: u32| {
            let Host { pd, uar, .. } = rig.hosts[0];
            let address = rig.hosts[0].heap.address() + part.start as u64;
            // SAFETY: hosts live as long as the fabric, in the rig, and the memory is atomics only.
            let umem = unsafe { rig.fabric.nic(nic).register_umem(address, part.len() as u64) }.unwrap();
            let host = Host { nic, at, pd, uar, heap: Memory::new(128), umem, key: 0 };
            let mut mailbox = heap_key(&host);
            let set64 = |field: shunt_layout::bits::Field64, value, mailbox: &mut [u8]| {
                field.within(mkey::MKC_OFFSET).set(mailbox, value);
            };
            set64(mkey::mkc::START_ADDR, address, &mut mailbox);
            set64(mkey::mkc::LEN, part.len() as u64, &mut mailbox);
            for right in [mkey::mkc::A, mkey::mkc::RW, mkey::mkc::RR] {
                right.within(mkey::MKC_OFFSET).set(&mut mailbox, remote);
            }
            super::translations(&mut mailbox);
            rig.mkey(&host, mailbox)
        };
        let (key, own_key) = (key_of(EXPOSED, 1), key_of(LANDING, 0));
        rig.hosts[0].key = key;
        rig.hosts[0].heap.fill(0, AROUND, 0x31);
        let wire = Arc::new(Mutex::new(Wire::default()));
        let file = File::open("/dev/null").unwrap();
        rig.fabric.attach(Box::new(Network { wire: wire.clone(), file })).unwrap();
        let peer = NicConfig::new("mlx5_0", 0, 0);
        let mut end = rig.end(0, options);
        rig.command(nic, &super::rst2init(&end), 16);
        rig.connect_to(&mut end, &peer, 0x77);
        let mut victim = Self { rig, end, key, own_key, peer, wire, known: vec![], work: vec![], sent: 0 };
        victim.remember();
        victim
    }

    /// A segment of [`LANDING`] for work of its own.
    pub fn landing(&self, offset: usize, bytes: u32) -> wqe::Segment {
        let at = self.rig.hosts[0].heap.address() + (LANDING.start + offset) as u64;
        wqe::data(at, self.own_key.to_be(), bytes)
    }

    /// Posts a READ and an atomic, which nobody but the stranger answers.
    pub fn ask(&mut self) {
        let remote = wqe::remote(0x10_0000, 0x1234u32.to_be());
        let (read, word) = (self.landing(0, 3000), self.landing(3072, 8));
        self.end.post(Opcode::RdmaRead, &[remote, read]);
        self.end.post(Opcode::AtomicFa, &[remote, [0; 4], word]);
        self.remember();
        self.rig.ring(&self.end);
        self.rig.run_for(5_000);
    }

    /// Takes what the memory holds now for what it must hold.
    pub fn remember(&mut self) {
        self.known = words(&self.rig.hosts[0].heap, 0..AROUND);
        self.work = words(&self.end.control, 0..self.end.cq_offset());
    }

    /// The address of an offset into [`EXPOSED`], which may lie outside of it.
    pub fn exposed(&self, offset: i64) -> u64 {
        self.rig.hosts[0].heap.address().wrapping_add((EXPOSED.start as i64 + offset) as u64)
    }

    /// From the peer's address to the NIC's.
    pub fn addresses(&self) -> Addresses {
        let own = NicConfig::new("mlx5_0", 1, 0);
        let mac = |mac: [u8; 6]| mac.iter().fold(0, |mac, byte| mac << 8 | u64::from(*byte));
        Addresses {
            source: u128::from_be_bytes(self.peer.gid),
            destination: u128::from_be_bytes(own.gid),
            source_mac: mac(self.peer.mac),
            destination_mac: mac(own.mac),
        }
    }

    /// A frame of the peer that asks for an acknowledgement.
    pub fn frame(&self, psn: u32, body: Body) -> Vec<u8> {
        self.frame_from(self.addresses(), psn, body)
    }

    /// The same from another address.
    pub fn frame_from(&self, addresses: Addresses, psn: u32, body: Body) -> Vec<u8> {
        let (source, qpn) = (addresses.source, self.end.qpn);
        let packet = Packet {
            from: ELSEWHERE,
            to: ELSEWHERE,
            source,
            qpn,
            psn,
            ack_request: true,
            solicited: false,
            body,
        };
        let mut frame = Vec::new();
        encode(&packet, &addresses, Outer::Grh, &mut frame);
        frame
    }

    /// Sends a frame; it is there at the next step.
    pub fn send(&mut self, frame: Vec<u8>) {
        self.sent += 1;
        let mut wire = self.wire.lock().unwrap();
        wire.counters.frames_rx += 1;
        wire.coming.push_back(frame);
    }

    /// What the NIC sent since the last call.
    pub fn answers(&mut self) -> Vec<Frame> {
        let answers = std::mem::take(&mut self.wire.lock().unwrap().answers);
        answers.iter().map(|frame| decode(frame).expect("a NIC sends what can be read")).collect()
    }

    pub fn counters(&mut self) -> Counters {
        let nic = self.rig.hosts[0].nic;
        self.rig.fabric.nic(nic).counters()
    }

    /// Panics if a byte outside of the two registered parts changed, one of the work that is posted, or if a frame is
    /// not accounted for: as what does not decode, as what is for somebody else, or as a packet of the NIC.
    pub fn judge(&mut self) {
        self.judge_memory();
        let work = words(&self.end.control, 0..self.end.cq_offset());
        assert!(work == self.work, "the work that is posted was written to");
        let (uplink, nic) = (self.rig.fabric.uplink_counters(), self.counters());
        let seen = uplink.undecodable + uplink.misaddressed + nic.packets_rx;
        assert_eq!(seen, self.sent, "each frame is counted once: {uplink:?} {nic:?}");
    }

    /// Panics if a byte outside of the two registered parts changed.
    pub fn judge_memory(&self) {
        let heap = &self.rig.hosts[0].heap;
        for (n, known) in self.known.iter().enumerate() {
            let at = n * 8;
            let open = EXPOSED.contains(&at) || LANDING.contains(&at);
            assert!(open || heap.get64(at) == *known, "byte {at:#x} of {AROUND:#x} was written to");
        }
    }

    /// True if [`EXPOSED`] is as it was remembered.
    pub fn is_untouched(&self) -> bool {
        let heap = &self.rig.hosts[0].heap;
        let same = |part: Range<usize>| part.step_by(8).all(|at| heap.get64(at) == self.known[at / 8]);
        same(EXPOSED) && same(LANDING)
    }
}
