//! A host of its own for the NIC's tests: mailboxes, rings and doorbells written by hand, virtual time.

pub mod loopback;
pub mod oracle;
pub mod stranger;
pub mod two;

use shunt_layout::bits::Field;
use shunt_layout::mlx5::cqe::{
    CQE_BYTES, FRESH_BYTE, SYNDROME_OFFSET, TAIL_OFFSET, Tail, VENDOR_SYNDROME_OFFSET, opcode::RESP_ERR,
};
use shunt_layout::mlx5::doorbell::{self, BLUEFLAME_OFFSET};
use shunt_layout::mlx5::prm::cmd::{Opcode as Cmd, input, output};
use shunt_layout::mlx5::prm::qp::{QPC_OFFSET, QUERY_OUT_BYTES, State, ads, qpc};
use shunt_layout::mlx5::prm::{cq, mkey, qp};
use shunt_layout::mlx5::wqe::{self, CqeWhen, Opcode, Segment};
use shunt_soft_nic::{Fabric, FabricConfig, FaultKind, NicConfig, NicId, RailAt, SoftNic, Uar, trace};
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C, align(128))]
struct Line([AtomicU64; 16]);

/// Memory shared with a NIC.
pub struct Memory(Vec<Line>);

impl Memory {
    pub fn new(bytes: usize) -> Self {
        Self((0..bytes.div_ceil(128)).map(|_| Line([const { AtomicU64::new(0) }; 16])).collect())
    }

    pub fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    pub fn bytes(&self) -> u64 {
        self.0.len() as u64 * 128
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.0[offset / 128].0[offset % 128 / 8]
    }

    pub fn get64(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8));
        self.word(offset).load(Ordering::Acquire)
    }

    pub fn set64(&self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8));
        self.word(offset).store(value, Ordering::Release);
    }

    pub fn get8(&self, offset: usize) -> u8 {
        (self.word(offset & !7).load(Ordering::Acquire) >> (offset % 8 * 8)) as u8
    }

    pub fn set8(&self, offset: usize, value: u8) {
        let (shift, word) = (offset % 8 * 8, self.word(offset & !7));
        word.store(
            word.load(Ordering::Relaxed) & !(0xff << shift) | (value as u64) << shift,
            Ordering::Release,
        );
    }

    pub fn get32(&self, offset: usize) -> u32 {
        (self.get64(offset & !7) >> (offset % 8 * 8)) as u32
    }

    pub fn set32(&self, offset: usize, value: u32) {
        (0..4).for_each(|n| self.set8(offset + n, value.to_le_bytes()[n]));
    }

    pub fn fill(&self, offset: usize, bytes: usize, seed: u8) {
        (0..bytes).for_each(|n| self.set8(offset + n, pattern(seed, n)));
    }

    pub fn holds(&self, offset: usize, bytes: usize, seed: u8) -> bool {
        (0..bytes).all(|n| self.get8(offset + n) == pattern(seed, n))
    }
}

pub fn pattern(seed: u8, n: usize) -> u8 {
    (n as u8).wrapping_mul(31).wrapping_add((n >> 8) as u8).wrapping_add(seed)
}

/// How a pair is made.
#[derive(Clone, Copy)]
pub struct Options {
    pub log_depth: u32,
    pub log_cq: u32,
    pub collapsed: bool,
    pub overrun_ignore: bool,
    pub psn: [u32; 2],
    /// 8 is 1.05 ms.
    pub ack_timeout: u32,
    pub retry: u32,
    /// 5 is 4096 bytes.
    pub mtu: u32,
    pub log_reads: u32,
    /// rre, rwe, rae
    pub allow: [u32; 3],
    /// Depth of its receive queue, log2; it completes in a CQ of its own, as deep as the other.
    pub log_rq: Option<u32>,
    /// Bytes of a receive WQE: 16 << this.
    pub log_stride: u32,
    pub rnr_retry: u32,
    /// 1 is 10 us, 12 is 640 us.
    pub min_rnr: u32,
    /// Key of an unreliable datagram queue pair.
    pub datagram: Option<u32>,
    /// Pool it receives from instead of a queue of its own.
    pub pool: Option<u32>,
    /// An initiator of dynamically connected transport.
    pub initiator: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            log_depth: 6,
            log_cq: 6,
            collapsed: false,
            overrun_ignore: true,
            psn: [0, 0],
            ack_timeout: 8,
            retry: 7,
            mtu: 5,
            log_reads: 2,
            allow: [1, 1, 1],
            log_rq: None,
            log_stride: 2,
            rnr_retry: 7,
            min_rnr: 12,
            datagram: None,
            pool: None,
            initiator: false,
        }
    }
}

/// One NIC and what its host set up.
pub struct Host {
    pub nic: NicId,
    pub at: RailAt,
    pub pd: u32,
    pub uar: Uar,
    pub heap: Memory,
    pub umem: u32,
    pub key: u32,
}

/// One half of a connected pair.
pub struct End {
    pub host: usize,
    pub qpn: u32,
    pub cqn: u32,
    pub control: Memory,
    pub options: Options,
    posted: u64,
    polled: u64,
    /// CQ of its receive queue, or 0.
    pub receive_cqn: u32,
    receives_posted: u64,
    received: u64,
    /// The CREATE_QP that made it.
    pub created: Vec<u8>,
}

/// A polled completion of a receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// Opcode of the CQE.
    pub opcode: u8,
    pub counter: u16,
    pub bytes: u32,
    pub imm: u32,
    /// Flags and source QPN.
    pub origin: u32,
    pub solicited: bool,
    pub syndrome: u8,
    pub vendor: u8,
}

/// What two processes tell each other before they connect: one line of text.
#[derive(Clone, Copy)]
pub struct Card {
    pub qpn: u32,
    pub heap: u64,
    pub key: u32,
}

impl Card {
    pub fn of(rig: &Rig, end: &End) -> Self {
        let host = &rig.hosts[end.host];
        Self { qpn: end.qpn, heap: host.heap.address(), key: host.key }
    }

    pub fn write(&self, mut to: impl Write) {
        // A line of its own: test harnesses write to the same stream.
        writeln!(to, "\ncard {} {} {}", self.qpn, self.heap, self.key).unwrap();
        to.flush().unwrap();
    }

    pub fn read(from: impl BufRead) -> Self {
        let line = from.lines().map(Result::unwrap).find(|line| line.starts_with("card ")).expect("a card");
        let numbers: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
        Self { qpn: numbers[0] as u32, heap: numbers[1], key: numbers[2] as u32 }
    }

    pub fn remote(&self, offset: usize) -> Segment {
        wqe::remote(self.heap + offset as u64, self.key.to_be())
    }
}

/// A polled completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub counter: u16,
    /// 0 for success.
    pub syndrome: u8,
    pub vendor: u8,
    pub opcode: u8,
}

pub struct Rig {
    pub fabric: Fabric,
    pub now: u64,
    pub hosts: Vec<Host>,
}

pub const HEAP: usize = 1 << 21;

impl Rig {
    /// `rails` NICs on each of two PEs: host index is `pe * rails + rail`.
    pub fn new(rails: u32) -> Self {
        Self::with(rails, |_| {})
    }

    pub fn with(rails: u32, adjust: impl Fn(&mut NicConfig)) -> Self {
        let mut rig =
            Self { fabric: Fabric::new(FabricConfig { link_ns: 2_000, seed: 7 }), now: 0, hosts: vec![] };
        for pe in 0..2 {
            for rail in 0..rails {
                let mut config = NicConfig::new(format!("mlx5_{rail}"), pe, rail);
                adjust(&mut config);
                let at = RailAt { pe, rail };
                let nic = rig.fabric.add(SoftNic::new(config), at);
                rig.host(nic, at, HEAP);
            }
        }
        rig
    }

    /// The NICs of one PE in a fabric of its own: host index is the rail.
    pub fn alone(pe: u32, rails: u32, adjust: impl Fn(&mut NicConfig)) -> Self {
        Self::alone_with(pe, rails, HEAP, adjust)
    }

    /// The same with heaps of so many bytes.
    pub fn alone_with(pe: u32, rails: u32, heap: usize, adjust: impl Fn(&mut NicConfig)) -> Self {
        let mut rig =
            Self { fabric: Fabric::new(FabricConfig { link_ns: 2_000, seed: 7 }), now: 0, hosts: vec![] };
        for rail in 0..rails {
            let mut config = NicConfig::new(format!("mlx5_{rail}"), pe, rail);
            adjust(&mut config);
            let at = RailAt { pe, rail };
            let nic = rig.fabric.add(SoftNic::new(config), at);
            rig.host(nic, at, heap);
        }
        rig
    }

    fn host(&mut self, nic: NicId, at: RailAt, bytes: usize) {
        let heap = Memory::new(bytes);
        // SAFETY: hosts live as long as the fabric, in this struct, and the memory is atomics only.
        let umem = unsafe { self.fabric.nic(nic).register_umem(heap.address(), heap.bytes()) }.unwrap();
        let uar = self.fabric.nic(nic).alloc_uar();
        let pd = output::OBJECT.get(&self.command(nic, &header(Cmd::AllocPd, 0), 16));
        let mut host = Host { nic, at, pd, uar, heap, umem, key: 0 };
        host.key = self.mkey(&host, heap_key(&host));
        self.hosts.push(host);
    }

    /// Gives a host's NIC a larger heap besides, as a host of its own: its index.
    #[allow(dead_code)] // for an example
    pub fn larger_heap(&mut self, host: usize, bytes: usize) -> usize {
        let &Host { nic, at, pd, uar, .. } = &self.hosts[host];
        let heap = Memory::new(bytes);
        // SAFETY: hosts live as long as the fabric, in this struct, and the memory is atomics only.
        let umem = unsafe { self.fabric.nic(nic).register_umem(heap.address(), heap.bytes()) }.unwrap();
        let mut host = Host { nic, at, pd, uar, heap, umem, key: 0 };
        host.key = self.mkey(&host, heap_key(&host));
        self.hosts.push(host);
        self.hosts.len() - 1
    }

    /// Gives a host's NIC a key to another host's heap as well: the NICs of one PE reach the same memory.
    pub fn shared_key(&mut self, host: usize, of: usize) -> u32 {
        let (address, bytes) = (self.hosts[of].heap.address(), self.hosts[of].heap.bytes());
        let (nic, pd) = (self.hosts[host].nic, self.hosts[host].pd);
        // SAFETY: hosts live as long as the fabric, in this struct, and the memory is atomics only.
        let umem = unsafe { self.fabric.nic(nic).register_umem(address, bytes) }.unwrap();
        let mut mailbox = heap_key(&self.hosts[of]);
        mkey::create::MKEY_UMEM_ID.set(&mut mailbox, umem);
        mkey::mkc::PD.within(mkey::MKC_OFFSET).set(&mut mailbox, pd);
        mkey::key(output::OBJECT.get(&self.command(nic, &mailbox, 16)), 0x5a)
    }

    pub fn mkey(&mut self, host: &Host, mailbox: Vec<u8>) -> u32 {
        mkey::key(output::OBJECT.get(&self.command(host.nic, &mailbox, 16)), 0x5a)
    }

    /// Runs a mailbox and gives back the answer, whatever its status.
    pub fn try_command(&mut self, nic: NicId, mailbox: &[u8], out_len: usize) -> Vec<u8> {
        let id = self.fabric.nic(nic).command_submit(self.now, mailbox, out_len);
        loop {
            if let Some(out) = self.fabric.nic(nic).command_poll(self.now, id) {
                return out;
            }
            let due = self.fabric.next_due().expect("a command is due");
            self.step_to(due);
        }
    }

    pub fn command(&mut self, nic: NicId, mailbox: &[u8], out_len: usize) -> Vec<u8> {
        let out = self.try_command(nic, mailbox, out_len);
        assert_eq!(out[0], 0, "{}: {}", trace::command(mailbox), trace::answer(&out));
        out
    }

    pub fn step_to(&mut self, due: u64) {
        self.now = self.now.max(due);
        while self.fabric.step(self.now) {}
    }

    /// Lets time pass.
    pub fn run_for(&mut self, nanoseconds: u64) {
        let end = self.now + nanoseconds;
        self.step_to(self.now);
        while let Some(due) = self.fabric.next_due().filter(|due| *due <= end) {
            self.step_to(due);
        }
        self.now = end;
    }

    /// Lets time pass until nothing is left to happen, at most a minute.
    pub fn settle(&mut self) {
        let end = self.now + 60_000_000_000;
        self.step_to(self.now);
        while let Some(due) = self.fabric.next_due().filter(|due| *due <= end) {
            self.step_to(due);
        }
    }

    pub fn inject(&mut self, host: usize, fault: &str) {
        let kind: FaultKind = fault.parse().unwrap_or_else(|error| panic!("{error}"));
        self.fabric.plan(0, self.hosts[host].at, kind);
        self.step_to(self.now);
    }

    /// Hits of each planned fault, in order.
    pub fn hits(&self) -> Vec<u64> {
        self.fabric.faults().iter().map(|report| report.hits).collect()
    }

    pub fn remote(&self, host: usize, offset: usize) -> Segment {
        wqe::remote(self.hosts[host].heap.address() + offset as u64, self.hosts[host].key.to_be())
    }

    pub fn local(&self, host: usize, offset: usize, bytes: u32) -> Segment {
        wqe::data(self.hosts[host].heap.address() + offset as u64, self.hosts[host].key.to_be(), bytes)
    }

    /// A connected pair between two hosts (or one host and itself).
    pub fn pair(&mut self, a: usize, b: usize, options: Options) -> (End, End) {
        let mut left = self.end(a, options);
        let mut right = self.end(b, Options { psn: [options.psn[1], options.psn[0]], ..options });
        self.connect(&mut left, b, right.qpn);
        self.connect(&mut right, a, left.qpn);
        (left, right)
    }

    pub fn end(&mut self, host: usize, options: Options) -> End {
        let (work, ring) = (options.work_bytes(), CQE_BYTES << options.log_cq);
        let control = Memory::new(work + 2 * ring + 128);
        (work..work + 2 * ring).for_each(|at| control.set8(at, FRESH_BYTE));
        let (nic, uar, pd) = (self.hosts[host].nic, self.hosts[host].uar.id, self.hosts[host].pd);
        // SAFETY: tests keep their ends as long as they step; see `host`.
        let umem = unsafe { self.fabric.nic(nic).register_umem(control.address(), control.bytes()) }.unwrap();
        let records = work + 2 * ring;
        let make = cq_mailbox(umem, uar, options, work, records + 8);
        let cqn = output::OBJECT.get(&self.command(nic, &make, 16));
        let receive_cqn = if options.log_rq.is_some() || options.pool.is_some() {
            let make = cq_mailbox(umem, uar, options, work + ring, records + 16);
            output::OBJECT.get(&self.command(nic, &make, 16))
        } else {
            0
        };
        let mut make = header(Cmd::CreateQp, 0);
        make.resize(qp::CONTEXT_COMMAND_BYTES, 0);
        qp::create::WQ_UMEM_ID.set(&mut make, umem);
        let mut set = |field: Field, value| field.within(QPC_OFFSET).set(&mut make, value);
        set(qpc::PM_STATE, qp::PM_STATE_MIGRATED);
        let service = match (options.datagram, options.initiator) {
            (Some(_), _) => qp::SERVICE_UD,
            (None, true) => qp::SERVICE_DC_INITIATOR,
            (None, false) => qp::SERVICE_RC,
        };
        set(qpc::ST, service);
        match options.log_rq {
            None if options.pool.is_some() => {
                set(qpc::RQ_TYPE, qp::RQ_TYPE_SHARED);
                set(qpc::SRQN_RMPN_XRQN, options.pool.unwrap_or(0));
            }
            None => set(qpc::RQ_TYPE, qp::RQ_TYPE_ZERO_SIZE),
            Some(log_rq) => {
                set(qpc::RQ_TYPE, qp::RQ_TYPE_REGULAR);
                set(qpc::LOG_RQ_SIZE, log_rq);
                set(qpc::LOG_RQ_STRIDE, options.log_stride);
            }
        }
        set(qpc::PD, pd);
        set(qpc::UAR_PAGE, uar);
        set(qpc::CQN_SND, cqn);
        set(qpc::CQN_RCV, if receive_cqn != 0 { receive_cqn } else { cqn });
        set(qpc::LOG_SQ_SIZE, options.log_depth);
        set(qpc::USER_INDEX, 0x77);
        set(qpc::TS_FORMAT, qp::Timestamp::Default as u32);
        set(qpc::DBR_UMEM_VALID, 1);
        set(qpc::DBR_UMEM_ID, umem);
        qpc::DBR_ADDR.within(QPC_OFFSET).set(&mut make, records as u64);
        let qpn = output::OBJECT.get(&self.command(nic, &make, 16));
        let (posted, polled, receives_posted, received) = (0, 0, 0, 0);
        let created = make;
        End {
            host,
            qpn,
            cqn,
            control,
            options,
            posted,
            polled,
            receive_cqn,
            receives_posted,
            received,
            created,
        }
    }

    pub fn connect(&mut self, end: &mut End, remote: usize, remote_qpn: u32) {
        let nic = self.hosts[end.host].nic;
        self.command(nic, &rst2init(end), 16);
        self.connect_from_init(end, remote, remote_qpn);
    }

    pub fn connect_from_init(&mut self, end: &mut End, remote: usize, remote_qpn: u32) {
        let remote = self.fabric.nic(self.hosts[remote].nic).config().clone();
        self.connect_to(end, &remote, remote_qpn);
    }

    /// INIT to RTS towards a NIC that may be anywhere.
    pub fn connect_to(&mut self, end: &mut End, remote: &NicConfig, remote_qpn: u32) {
        let nic = self.hosts[end.host].nic;
        let mut rtr = init2rtr(end, remote_qpn);
        let path = &mut rtr[QPC_OFFSET + qp::ADS_OFFSET..];
        ads::set_rgid(path, remote.gid);
        ads::RMAC_47_32.set(path, u16::from_be_bytes([remote.mac[0], remote.mac[1]]) as u32);
        ads::RMAC_31_0
            .set(path, u32::from_be_bytes([remote.mac[2], remote.mac[3], remote.mac[4], remote.mac[5]]));
        self.command(nic, &rtr, 16);
        self.command(nic, &rtr2rts(end), 16);
    }

    pub fn fence(&mut self, end: &End) {
        self.command(self.hosts[end.host].nic, &header(Cmd::Qp2Err, end.qpn), 16);
    }

    pub fn query(&mut self, end: &End, field: Field) -> u32 {
        let nic = self.hosts[end.host].nic;
        let out = self.command(nic, &header(Cmd::QueryQp, end.qpn), QUERY_OUT_BYTES);
        field.within(QPC_OFFSET).get(&out)
    }

    pub fn state(&mut self, end: &End) -> State {
        State::from_raw(self.query(end, qpc::STATE)).unwrap()
    }

    /// Rings the doorbell: record, then register.
    pub fn ring(&self, end: &End) {
        end.control.set32(end.record() + 4, doorbell::send_counter(end.posted));
        self.ring_register(end, end.posted);
    }

    pub fn ring_register(&self, end: &End, next: u64) {
        let address = self.hosts[end.host].uar.address + BLUEFLAME_OFFSET as u64;
        // SAFETY: the page lives as long as the NIC, and doorbells are atomic stores.
        let register = unsafe { AtomicU64::from_ptr(address as *mut u64) };
        register.store(doorbell::register(next, end.qpn << 8), Ordering::Release);
    }

    pub fn post_and_ring(&self, end: &mut End, op: Opcode, body: &[Segment]) {
        end.post(op, body);
        self.ring(end);
    }

    /// Rings, runs until `count` completions came, and gives them back.
    pub fn complete(&mut self, end: &mut End, count: usize) -> Vec<Done> {
        self.ring(end);
        let mut done = Vec::new();
        let end_ns = self.now + 60_000_000_000;
        self.step_to(self.now);
        loop {
            while let Some(one) = end.poll() {
                done.push(one);
            }
            if done.len() >= count {
                return done;
            }
            match self.fabric.next_due() {
                Some(due) if due <= end_ns => self.step_to(due),
                _ => panic!("{} of {count} completions: {done:?}", done.len()),
            }
        }
    }
}

impl Options {
    fn rq_bytes(&self) -> usize {
        self.log_rq.map_or(0, |log_rq| 16 << self.log_stride << log_rq)
    }

    /// Bytes of the receive queue and the send queue behind it.
    fn work_bytes(&self) -> usize {
        self.rq_bytes() + (64 << self.log_depth)
    }
}

impl End {
    fn sq_bytes(&self) -> usize {
        64 << self.options.log_depth
    }

    pub fn cq_offset(&self) -> usize {
        self.options.work_bytes()
    }

    /// Offset of the QP's doorbell record; the CQ's is eight bytes on, the receive CQ's sixteen.
    pub fn record(&self) -> usize {
        self.options.work_bytes() + 2 * (CQE_BYTES << self.options.log_cq)
    }

    /// Posts a receive WQE: the list, ended if there is room for more.
    pub fn post_receive(&mut self, list: &[Segment]) {
        let slots = 1 << self.options.log_stride;
        let depth = 1u64 << self.options.log_rq.expect("a receive queue");
        let at = (self.receives_posted % depth) as usize * slots * 16;
        let end = [wqe::scatter_end()];
        for (n, segment) in list.iter().chain(&end).take(slots).enumerate() {
            self.control.set64(at + n * 16, segment[0] as u64 | (segment[1] as u64) << 32);
            self.control.set64(at + n * 16 + 8, segment[2] as u64 | (segment[3] as u64) << 32);
        }
        self.receives_posted += 1;
        self.control.set32(self.record(), (self.receives_posted as u16 as u32).to_be());
    }

    /// The next completion of its receive queue.
    pub fn poll_receive(&mut self) -> Option<Got> {
        let slot = self.received & ((1 << self.options.log_cq) - 1);
        let at = self.cq_offset() + (CQE_BYTES << self.options.log_cq) + slot as usize * CQE_BYTES;
        let read = || -> [u8; CQE_BYTES] { std::array::from_fn(|n| self.control.get8(at + n)) };
        let tail = Tail::from_memory(u32::from_ne_bytes(read()[TAIL_OFFSET..].try_into().unwrap()));
        if !tail.belongs_to(self.received, self.options.log_cq) {
            return None;
        }
        // Its last word says that the rest is there: what was read before that may be older.
        let entry = read();
        let word = |at: usize| u32::from_be_bytes(entry[at..at + 4].try_into().unwrap());
        self.received += 1;
        self.control.set32(self.record() + 16, (self.received as u32 & 0xff_ffff).to_be());
        assert_eq!(word(0x38), self.qpn, "no opcode of a send queue");
        let got = Got { opcode: tail.opcode, counter: tail.wqe_counter, ..Got::default() };
        Some(if tail.opcode == RESP_ERR {
            Got { syndrome: entry[SYNDROME_OFFSET], vendor: entry[VENDOR_SYNDROME_OFFSET], ..got }
        } else {
            let (bytes, imm, origin) = (word(0x2c), word(0x24), word(0x18));
            Got { bytes, imm, origin, solicited: entry[0x3f] & 2 != 0, ..got }
        })
    }

    /// All completions of its receive queue that are there.
    pub fn poll_receives(&mut self) -> Vec<Got> {
        std::iter::from_fn(|| self.poll_receive()).collect()
    }

    /// Goes on at index 0, as after 2RST.
    pub fn restart_sends(&mut self) {
        self.posted = 0;
        self.control.set32(self.record() + 4, 0);
    }

    /// The same for the receive queue.
    pub fn restart_receives(&mut self) {
        self.receives_posted = 0;
        self.control.set32(self.record(), 0);
    }

    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Writes a signalled WQE.
    pub fn post(&mut self, op: Opcode, body: &[Segment]) {
        self.post_with(op as u8, 0, CqeWhen::Always as u8, body);
    }

    pub fn post_with(&mut self, op: u8, opmod: u8, flags: u8, body: &[Segment]) {
        self.post_all(op, opmod, flags, 0, body);
    }

    /// Writes a signalled WQE with immediate data.
    pub fn post_imm(&mut self, op: Opcode, imm: u32, body: &[Segment]) {
        self.post_all(op as u8, 0, CqeWhen::Always as u8, imm, body);
    }

    pub fn post_all(&mut self, op: u8, opmod: u8, flags: u8, imm: u32, body: &[Segment]) {
        let ds = 1 + body.len();
        let mut first = wqe::ctrl(Opcode::Nop, self.posted as u16, self.qpn << 8, ds as u8, flags);
        first[0] |= ((opmod as u32) << 24 | op as u32).to_be();
        first[3] = imm.to_be();
        let segments: Vec<Segment> = std::iter::once(first).chain(body.iter().copied()).collect();
        self.write_segments(&segments);
        self.posted += (ds as u64).div_ceil(4);
    }

    pub fn write_segments(&self, segments: &[Segment]) {
        for (n, segment) in segments.iter().enumerate() {
            let at = self.options.rq_bytes() + ((self.posted as usize) * 64 + n * 16) % self.sq_bytes();
            self.control.set64(at, segment[0] as u64 | (segment[1] as u64) << 32);
            self.control.set64(at + 8, segment[2] as u64 | (segment[3] as u64) << 32);
        }
    }

    pub fn skip_posted(&mut self, blocks: u64) {
        self.posted += blocks;
    }

    pub fn entry(&self, index: u64) -> [u8; CQE_BYTES] {
        let slot = if self.options.collapsed { 0 } else { index & ((1 << self.options.log_cq) - 1) };
        let at = self.cq_offset() + slot as usize * CQE_BYTES;
        let mut entry = [0; CQE_BYTES];
        for (n, word) in entry.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.control.get64(at + 8 * n).to_le_bytes());
        }
        entry
    }

    /// The next completion of a ring CQ.
    pub fn poll(&mut self) -> Option<Done> {
        let entry = self.entry(self.polled);
        let tail = Tail::from_memory(u32::from_ne_bytes(entry[TAIL_OFFSET..].try_into().unwrap()));
        if !tail.belongs_to(self.polled, self.options.log_cq) {
            return None;
        }
        // Its last word says that the rest is there: what was read before that may be older.
        let entry = self.entry(self.polled);
        self.polled += 1;
        self.control.set32(self.record() + 8, (self.polled as u32 & 0xff_ffff).to_be());
        let failed = tail.opcode != 0;
        Some(Done {
            counter: tail.wqe_counter,
            syndrome: if failed { entry[SYNDROME_OFFSET] } else { 0 },
            vendor: if failed { entry[VENDOR_SYNDROME_OFFSET] } else { 0 },
            opcode: entry[0x38],
        })
    }
}

pub fn header(op: Cmd, object: u32) -> Vec<u8> {
    let mut mailbox = vec![0; 16];
    input::OPCODE.set(&mut mailbox, op as u32);
    input::OBJECT.set(&mut mailbox, object);
    mailbox
}

pub fn cq_mailbox(umem: u32, uar: u32, options: Options, entries: usize, record: usize) -> Vec<u8> {
    let mut make = header(Cmd::CreateCq, 0);
    make.resize(cq::CREATE_IN_BYTES, 0);
    cq::create::CQ_UMEM_ID.set(&mut make, umem);
    cq::create::CQ_UMEM_OFFSET.set(&mut make, entries as u64);
    let mut set = |field: Field, value| field.within(cq::CQC_OFFSET).set(&mut make, value);
    set(cq::cqc::DBR_UMEM_VALID, 1);
    set(cq::cqc::DBR_UMEM_ID, umem);
    set(cq::cqc::CC, options.collapsed as u32);
    set(cq::cqc::OI, options.overrun_ignore as u32);
    set(cq::cqc::LOG_CQ_SIZE, options.log_cq);
    set(cq::cqc::UAR_PAGE, uar);
    cq::cqc::DBR_ADDR.within(cq::CQC_OFFSET).set(&mut make, record as u64);
    make
}

pub fn context(op: Cmd, object: u32) -> Vec<u8> {
    let mut mailbox = header(op, object);
    mailbox.resize(qp::CONTEXT_COMMAND_BYTES, 0);
    mailbox
}

pub fn rst2init(end: &End) -> Vec<u8> {
    let mut init = context(Cmd::Rst2InitQp, end.qpn);
    let mut set = |field: Field, value| field.within(QPC_OFFSET).set(&mut init, value);
    set(qpc::PM_STATE, qp::PM_STATE_MIGRATED);
    set(qpc::RRE, end.options.allow[0]);
    set(qpc::RWE, end.options.allow[1]);
    set(qpc::RAE, end.options.allow[2]);
    set(qpc::ATOMIC_MODE, qp::ATOMIC_MODE_UP_TO_8);
    set(qpc::Q_KEY, end.options.datagram.unwrap_or(0));
    init
}

/// Without a path: GID and MAC, or LID, are the caller's.
pub fn init2rtr(end: &End, remote_qpn: u32) -> Vec<u8> {
    let mut rtr = context(Cmd::Init2RtrQp, end.qpn);
    let mut set = |field: Field, value| field.within(QPC_OFFSET).set(&mut rtr, value);
    set(qpc::MTU, end.options.mtu);
    set(qpc::LOG_MSG_MAX, 30);
    set(qpc::REMOTE_QPN, remote_qpn);
    set(qpc::NEXT_RCV_PSN, end.options.psn[1]);
    set(qpc::LOG_RRA_MAX, end.options.log_reads);
    set(qpc::MIN_RNR_NAK, end.options.min_rnr);
    rtr
}

pub fn rtr2rts(end: &End) -> Vec<u8> {
    let mut rts = context(Cmd::Rtr2RtsQp, end.qpn);
    let mut set = |field: Field, value| field.within(QPC_OFFSET).set(&mut rts, value);
    set(qpc::RETRY_COUNT, end.options.retry);
    set(qpc::RNR_RETRY, end.options.rnr_retry);
    set(qpc::NEXT_SEND_PSN, end.options.psn[0]);
    set(qpc::LOG_SRA_MAX, end.options.log_reads);
    set(ads::ACK_TIMEOUT.within(qp::ADS_OFFSET), end.options.ack_timeout);
    rts
}

/// A mailbox that makes a key over a host's heap, everything allowed.
pub fn heap_key(host: &Host) -> Vec<u8> {
    let mut make = header(Cmd::CreateMkey, 0);
    make.resize(mkey::CREATE_IN_BYTES, 0);
    mkey::create::MKEY_UMEM_VALID.set(&mut make, 1);
    mkey::create::MKEY_UMEM_ID.set(&mut make, host.umem);
    let mut set = |field: Field, value| field.within(mkey::MKC_OFFSET).set(&mut make, value);
    use mkey::mkc;
    for right in [mkc::A, mkc::RW, mkc::RR, mkc::LW, mkc::LR] {
        set(right, 1);
    }
    set(mkc::ACCESS_MODE_1_0, mkey::ACCESS_MODE_MTT);
    set(mkc::QPN, 0xff_ffff);
    set(mkc::MKEY_7_0, 0x5a);
    set(mkc::PD, host.pd);
    mkc::START_ADDR.within(mkey::MKC_OFFSET).set(&mut make, host.heap.address());
    mkc::LEN.within(mkey::MKC_OFFSET).set(&mut make, host.heap.bytes());
    translations(&mut make);
    make
}

/// Sets the sizes of a key's translations from its region, for pages of 4 KiB.
pub fn translations(make: &mut [u8]) {
    use mkey::mkc;
    let at = |field: Field| field.within(mkey::MKC_OFFSET);
    let region = [mkc::START_ADDR, mkc::LEN].map(|field| field.within(mkey::MKC_OFFSET).get(make));
    let octwords = mkey::translation_octwords(region[0], region[1], 12);
    at(mkc::LOG_PAGE_SIZE).set(make, 12);
    at(mkc::TRANSLATIONS_OCTWORD_SIZE).set(make, octwords);
    mkey::create::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(make, octwords);
}

/// A completion without error.
pub fn good(counter: u16, opcode: Opcode) -> Done {
    Done { counter, syndrome: 0, vendor: 0, opcode: opcode as u8 }
}
