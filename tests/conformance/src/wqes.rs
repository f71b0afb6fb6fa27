//! `shunt-verbs-check wqes`: send queues as libmlx5 writes them, against our encoders and decoders.
//!
//! libmlx5 is asked for a request, the old way or the new one; the same request is written with our layout; the
//! bytes that the NIC fetches are compared, and read back with what the soft NIC reads them with. Raw WQEs go the
//! other way: ours, through libmlx5, into the queue.

use crate::checks::{Row, takes_receive};
use crate::draw::Draw;
use crate::verbs::{Api, Device, Op, Queue, Region, Remote, Request, Setup, Sge, Shape, Side};
use anyhow::{Result, bail};
use shunt_layout::mlx5::doorbell::{self, Doorbell};
use shunt_layout::mlx5::wqe::{
    self, CqeWhen, Ctrl, DataSegment, FENCE_BEFORE, INLINE_FLAG, Opcode, SEGMENT_BYTES, SOLICITED_EVENT,
    Segment, WQEBB_BYTES,
};
use std::rc::Rc;

const MEMORY: usize = 1 << 20;
/// Requests of each way: more than the ring holds, so that WQEs wrap at every segment.
const ROUNDS: u32 = 1500;

/// A queue pair connected with another one of the same device.
struct Bench {
    queue: Queue,
    far: Queue,
    region: Region,
    draw: Draw,
    ring: Ring,
    /// Index of the next block, not cut to 16 bits.
    next: u64,
}

/// The send queue, where libmlx5 has it.
struct Ring {
    start: *const u8,
    blocks: u64,
    /// The counter of the doorbell record.
    counter: *const u32,
}

impl Ring {
    fn of(queue: &Queue) -> Result<Self> {
        let layout = queue.layout()?;
        if layout.sq.stride as usize != WQEBB_BYTES {
            bail!("a send queue with a stride of {} bytes, not 64", layout.sq.stride);
        }
        let counter = layout.dbrec.wrapping_byte_add(doorbell::SEND_COUNTER_OFFSET);
        Ok(Self { start: layout.sq.buf.cast_const().cast(), blocks: layout.sq.wqe_cnt.into(), counter })
    }

    /// Segments from a block on, over the end of the ring.
    fn segments(&self, block: u64, count: usize) -> Vec<Segment> {
        let bytes = self.blocks as usize * WQEBB_BYTES;
        let at = |n: usize| ((block % self.blocks) as usize * WQEBB_BYTES + n * SEGMENT_BYTES) % bytes;
        // SAFETY: inside the ring, which lives as long as its queue pair; nobody writes to it now.
        (0..count).map(|n| unsafe { self.start.add(at(n)).cast::<Segment>().read_volatile() }).collect()
    }

    fn announced(&self) -> u32 {
        // SAFETY: the record lives as long as its queue pair.
        unsafe { self.counter.read_volatile() }
    }
}

/// What our layout makes of a request.
fn encode(request: &Request, index: u64, qpn: u32) -> Vec<Segment> {
    let mut body = Vec::new();
    let Remote { address, rkey } = request.remote;
    if !matches!(request.op, Op::Send | Op::SendImm(_)) {
        body.push(wqe::remote(address, rkey.to_be()));
    }
    let halves = |value: u64| [((value >> 32) as u32).to_be(), (value as u32).to_be()];
    match request.op {
        Op::FetchAdd(add) => body.push([halves(add)[0], halves(add)[1], 0, 0]),
        Op::CompareSwap { compare, swap } => {
            body.push([halves(swap)[0], halves(swap)[1], halves(compare)[0], halves(compare)[1]]);
        }
        _ => {}
    }
    if request.inline {
        body.extend(inline(&request.local));
    } else {
        let filled = request.local.iter().filter(|sge| sge.bytes > 0);
        body.extend(filled.map(|sge| wqe::data(sge.address, sge.lkey.to_be(), sge.bytes)));
    }
    let opcode = match request.op {
        Op::Write => Opcode::RdmaWrite,
        Op::WriteImm(_) => Opcode::RdmaWriteImm,
        Op::Send => Opcode::Send,
        Op::SendImm(_) => Opcode::SendImm,
        Op::Read => Opcode::RdmaRead,
        Op::FetchAdd(_) => Opcode::AtomicFa,
        Op::CompareSwap { .. } => Opcode::AtomicCs,
    };
    let when = if request.signaled { CqeWhen::Always } else { CqeWhen::OnError };
    let solicited = if request.solicited { SOLICITED_EVENT } else { 0 };
    let fence = if request.fence { FENCE_BEFORE } else { 0 };
    let ds = 1 + body.len() as u8;
    let ctrl = wqe::ctrl(opcode, index as u16, qpn << 8, ds, when as u8 | solicited | fence);
    body.insert(0, request.op.immediate().map_or(ctrl, |imm| wqe::with_immediate(ctrl, imm)));
    body
}

/// Header, data, zeros to the end of the segment; nothing at all for no data.
fn inline(local: &[Sge]) -> Vec<Segment> {
    let mut data = Vec::new();
    for sge in local {
        let pointer = std::ptr::with_exposed_provenance::<u8>(sge.address as usize);
        // SAFETY: a part of our own region, that no request writes to.
        data.extend_from_slice(unsafe { std::slice::from_raw_parts(pointer, sge.bytes as usize) });
    }
    if data.is_empty() {
        return Vec::new();
    }
    let mut bytes = (data.len() as u32 | INLINE_FLAG).to_be_bytes().to_vec();
    bytes.append(&mut data);
    bytes.resize(bytes.len().next_multiple_of(SEGMENT_BYTES), 0);
    let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.chunks_exact(16).map(|segment| std::array::from_fn(|n| word(&segment[n * 4..]))).collect()
}

/// Bytes of a WQE that mean something. libmlx5 leaves what lay there before behind inline data, in the compare field of
/// a fetch and add, and, with the new calls, in the immediate field of requests that have none.
fn meaning(request: &Request, segments: &[Segment]) -> Vec<u8> {
    let mut segments = segments.to_vec();
    if request.op.immediate().is_none() {
        segments[0][3] = 0;
    }
    if let (Op::FetchAdd(_), Some(atomic)) = (request.op, segments.get_mut(2)) {
        (atomic[2], atomic[3]) = (0, 0);
    }
    let mut bytes: Vec<u8> = segments.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
    if request.inline && request.bytes() > 0 {
        let padding = (SEGMENT_BYTES - (4 + request.bytes()) % SEGMENT_BYTES) % SEGMENT_BYTES;
        bytes.truncate(bytes.len() - padding);
    }
    bytes
}

/// Reads libmlx5's segments as the soft NIC does.
fn decode(row: &mut Row, request: &Request, index: u64, qpn: u32, segments: &[Segment]) {
    let ctrl = Ctrl::read(segments[0]);
    let met = (ctrl.index, ctrl.qpn, ctrl.ds as usize, ctrl.signalled(), ctrl.opmod);
    let want = (index as u16, qpn, segments.len(), request.signaled, 0);
    row.must(met == want, || format!("control segment reads as {met:x?}, not {want:x?}"));
    let has_remote = !matches!(request.op, Op::Send | Op::SendImm(_));
    if has_remote {
        let met = (wqe::remote_address(segments[1]), wqe::remote_key(segments[1]));
        let want = (request.remote.address, request.remote.rkey);
        row.must(met == want, || format!("remote segment reads as {met:x?}, not {want:x?}"));
    }
    let atomic = matches!(request.op, Op::FetchAdd(_) | Op::CompareSwap { .. });
    let data = &segments[1 + has_remote as usize + atomic as usize..];
    if request.inline {
        let met = data.first().map(|segment| DataSegment::read(*segment));
        let want = (request.bytes() > 0).then_some(DataSegment::Inline { bytes: request.bytes() as u32 });
        row.must(met == want, || format!("inline header reads as {met:x?}, not {want:x?}"));
    } else {
        let met: Vec<DataSegment> = data.iter().map(|segment| DataSegment::read(*segment)).collect();
        let filled = request.local.iter().filter(|sge| sge.bytes > 0);
        let want: Vec<DataSegment> = filled
            .map(|sge| DataSegment::Pointer { bytes: sge.bytes, lkey: sge.lkey, address: sge.address })
            .collect();
        row.must(met == want, || format!("data segments read as {met:x?}, not {want:x?}"));
    }
}

impl Bench {
    fn new(setup: &Setup, seed: u64) -> Result<Self> {
        let device = Rc::new(Device::open(setup)?);
        let mut draw = Draw::new(seed);
        let region = Region::new(&device, MEMORY, &mut draw)?;
        let shape = Shape { depth: 64, ..Shape::default() };
        let (queue, far) = (Queue::new(&device, shape)?, Queue::new(&device, shape)?);
        queue.connect(far.ends())?;
        far.connect(queue.ends())?;
        let ring = Ring::of(&queue)?;
        Ok(Self { queue, far, region, draw, ring, next: 0 })
    }

    /// A request at random. Sources lie in the first half of the memory, what is written to in the second.
    fn request(&mut self) -> Request {
        let half = MEMORY / 2;
        let draw = &mut self.draw;
        let op = match draw.below(7) {
            0 => Op::Write,
            1 => Op::WriteImm(draw.word(32)),
            2 => Op::Send,
            3 => Op::SendImm(draw.word(32)),
            4 => Op::Read,
            5 => Op::FetchAdd(draw.bits(64)),
            _ => Op::CompareSwap { compare: draw.bits(64), swap: draw.bits(64) },
        };
        let atomic = matches!(op, Op::FetchAdd(_) | Op::CompareSwap { .. });
        let reads = atomic || op == Op::Read;
        let inline = !reads && draw.coin();
        let count = if atomic { 1 } else { 1 + draw.below(self.queue.sges_max().into()) };
        let room = if inline { self.queue.inline_max() as u64 / count } else { 3000 };
        let mut local = Vec::new();
        for _ in 0..count {
            let bytes = if atomic { 8 } else { draw.below(room + 1) as usize };
            let at = draw.below((half - bytes) as u64) as usize + if reads { half } else { 0 };
            local.push(self.region.sge(at..at + bytes));
        }
        let at = draw.below(half as u64 - 24_000) as usize & !7;
        let address = self.region.address() + (at + if reads { 0 } else { half }) as u64;
        let send = matches!(op, Op::Send | Op::SendImm(_));
        let rkey = self.region.key().remote();
        let remote = if send { Remote::default() } else { Remote { address, rkey } };
        let (signaled, solicited, fence) = (draw.coin(), draw.coin(), draw.coin());
        Request { inline, signaled, solicited, fence, ..Request::new(op, local, remote) }
    }

    /// Posts a request, and a signaled one behind it that tells when both are done.
    fn compare(&mut self, row: &mut Row, request: &Request, api: Api) -> Result<()> {
        let what = format!("{request:x?}");
        if takes_receive(request.op) {
            let all = MEMORY / 2..MEMORY / 2 + 24_000;
            self.far.receive(0, &[self.region.sge(all)])?;
        }
        let qpn = self.queue.ends().qpn;
        let ours = encode(request, self.next, qpn);
        self.queue.post(std::slice::from_ref(request), api)?;
        let theirs = self.ring.segments(self.next, ours.len());
        let (want, met) = (meaning(request, &ours), meaning(request, &theirs));
        row.must(want == met, || format!("{what}:\n      ours   {want:02x?}\n      theirs {met:02x?}"));
        if want == met {
            decode(row, request, self.next, qpn, &theirs);
        }
        self.rings(row, ours.len(), &theirs[0]);
        self.settle(row, request, &what)?;
        row.count(request.bytes());
        Ok(())
    }

    /// The doorbell: its record, and the register's value, which is the head of the WQE.
    fn rings(&mut self, row: &mut Row, ds: usize, ctrl: &Segment) {
        self.next += ds.div_ceil(4) as u64;
        let (met, want) = (self.ring.announced(), doorbell::send_counter(self.next));
        row.must(met == want, || format!("doorbell record {met:08x}, not {want:08x}"));
        let register = Doorbell::from_register(ctrl[0] as u64 | (ctrl[1] as u64) << 32);
        let want = Doorbell { next_index: self.next as u16, qpn: self.queue.ends().qpn };
        row.must(register == want, || format!("doorbell register reads as {register:?}, not {want:?}"));
    }

    fn settle(&mut self, row: &mut Row, request: &Request, what: &str) -> Result<()> {
        if !request.signaled {
            let flush = Request::new(Op::Write, Vec::new(), Remote::default());
            self.queue.post(&[flush], Api::Old)?;
            self.next += 1;
        }
        let done = self.queue.wait(Side::Send)?;
        if done.status != 0 {
            bail!("{what}: status {} vendor's code {:#x}", done.status, done.vendor);
        }
        if takes_receive(request.op) {
            let got = self.far.wait(Side::Receive)?;
            let (met, want) = ((got.status, got.imm), (0, request.op.immediate()));
            row.must(met == want, || format!("{what}: received {met:x?}, not {want:x?}"));
        }
        Ok(())
    }

    /// Masked atomics, which libmlx5 has no calls for: our segments, through it, executed.
    fn raw(&mut self, row: &mut Row) -> Result<()> {
        let (add, boundary) = (self.draw.bits(64), self.draw.bits(64));
        let target = (MEMORY / 2 + self.draw.below(1000) as usize * 8).next_multiple_of(8);
        let result = self.region.sge(0..8);
        let old = self.draw.any();
        self.region.write(target, &old.to_le_bytes());
        let qpn = self.queue.ends().qpn;
        let mut ctrl =
            wqe::ctrl(Opcode::AtomicMaskedFa, self.next as u16, qpn << 8, 4, CqeWhen::Always as u8);
        ctrl[0] |= 0x0900_0000u32.to_be();
        let halves = |value: u64| [((value >> 32) as u32).to_be(), (value as u32).to_be()];
        let segments = [
            ctrl,
            wqe::remote(self.region.address() + target as u64, self.region.key().remote().to_be()),
            [halves(add)[0], halves(add)[1], halves(boundary)[0], halves(boundary)[1]],
            wqe::data(result.address, result.lkey.to_be(), 8),
        ];
        self.queue.post_raw(&segments, 9)?;
        let theirs = self.ring.segments(self.next, 4);
        row.must(theirs == segments, || {
            format!("raw WQE:\n      ours {segments:x?}\n      in the queue {theirs:x?}")
        });
        self.next += 1;
        let done = self.queue.wait(Side::Send)?;
        row.must(done.status == 0, || format!("masked atomic: status {}", done.status));
        self.region.expect(0, &old.to_le_bytes());
        self.region.expect(target, &add_in_fields(old, add, boundary).to_le_bytes());
        let checked = self.region.check();
        row.must(checked.is_ok(), || format!("{add:#x} in fields {boundary:#x}: {}", checked.unwrap_err()));
        row.count(8);
        Ok(())
    }
}

/// Addition whose carries end at every set bit of `boundary`.
fn add_in_fields(a: u64, b: u64, boundary: u64) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..64 {
        let total = (a >> bit & 1) + (b >> bit & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if boundary >> bit & 1 == 1 { 0 } else { total >> 1 };
    }
    sum
}

/// Runs all comparisons on one device. Each row is told as it comes.
pub fn run(setup: &Setup, seed: u64, tell: &mut dyn FnMut(Row)) -> Result<()> {
    for api in Api::ALL {
        let mut row = Row::new(format!("send queue entries of libmlx5, {api:?}").to_lowercase());
        let mut bench = Bench::new(setup, seed ^ api as u64)?;
        for _ in 0..ROUNDS {
            let request = bench.request();
            bench.compare(&mut row, &request, api)?;
        }
        tell(row);
    }
    let mut row = Row::new("masked atomics as raw WQEs");
    let mut bench = Bench::new(setup, seed)?;
    for _ in 0..200 {
        bench.raw(&mut row)?;
    }
    tell(row);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, local: Vec<Sge>) -> Request {
        Request::new(op, local, Remote { address: 0x1000, rkey: 0x1234 })
    }

    #[test]
    fn a_write_of_four_bytes() {
        let local = vec![Sge { address: 0x2000, bytes: 4, lkey: 0x5678 }];
        let segments = encode(&request(Op::Write, local.clone()), 0x102, 0xabc);
        let words: Vec<String> =
            segments.iter().flatten().map(|word| format!("{:08x}", u32::from_be(*word))).collect();
        let want = "00010208 000abc03 00000008 00000000 00000000 00001000 00001234 00000000 00000004 00005678 \
                    00000000 00002000";
        assert_eq!(words.join(" "), want);
        let mut row = Row::new("");
        decode(&mut row, &request(Op::Write, local), 0x102, 0xabc, &segments);
        assert_eq!(row.wrong, [""; 0]);
    }

    #[test]
    fn a_wrong_segment_is_noticed() {
        let local = vec![Sge { address: 0x2000, bytes: 4, lkey: 0x5678 }];
        let write = request(Op::Write, local);
        for (segment, word) in [(0, 0), (0, 1), (1, 1), (1, 2), (2, 0), (2, 1), (2, 3)] {
            let mut segments = encode(&write, 0x102, 0xabc);
            segments[segment][word] ^= 0x0100_0000;
            let mut row = Row::new("");
            decode(&mut row, &write, 0x102, 0xabc, &segments);
            // The opcode is not part of what is decoded here; the bytes are compared before.
            let seen = !row.wrong.is_empty()
                || meaning(&write, &segments) != meaning(&write, &encode(&write, 0x102, 0xabc));
            assert!(seen, "segment {segment} word {word}");
        }
    }

    #[test]
    fn carries_end_at_boundaries() {
        assert_eq!(add_in_fields(0xff, 1, 0), 0x100);
        assert_eq!(add_in_fields(0xff, 1, 1 << 7), 0);
        assert_eq!(add_in_fields(0b1100, 0b1010, u64::MAX), 0b0110);
    }
}
