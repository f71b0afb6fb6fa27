//! Captures: the golden one byte for byte, and what tshark, Scapy and a checksum made bit by bit say of ours.

use crate::rig;
use crate::rig::loopback::{Shared, addresses, frames, options, rig};
use crate::rig::oracle::{PYTHON, icrc, scapy, tshark, wanted};
use crate::rig::two::{complete, join, run, run_by_the_clock};
use crate::rig::{Options, Rig};
use shunt_layout::mlx5::prm::cmd::output;
use shunt_layout::mlx5::prm::mkey;
use shunt_layout::mlx5::wqe::{self, AddressVector, CqeWhen, Opcode, Segment, inline8};
use shunt_soft_nic::packet::{AtomicOp, Body, Packet, Part};
use shunt_soft_nic::wire::{Frame, decode, encode};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, process, thread};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/roce.pcap");
/// Where the golden run's target lies, whatever the heap's address is.
const TARGET: u64 = 0x7000_0000_0000;
/// Time of day at which it begins.
const EPOCH_NS: u64 = 1_800_000_000_000_000_000;

fn words(words: [u32; 4]) -> Segment {
    words.map(u32::to_be)
}

/// A rig of two NICs, and the key of a region of the second that begins at [`TARGET`].
fn golden_rig(file: &Shared) -> (Rig, u32) {
    let mut rig = Rig::new(1);
    rig.fabric.capture(Box::new(file.clone()), EPOCH_NS).unwrap();
    let mut make = rig::heap_key(&rig.hosts[1]);
    mkey::mkc::START_ADDR.within(mkey::MKC_OFFSET).set(&mut make, TARGET);
    let nic = rig.hosts[1].nic;
    let key = mkey::key(output::OBJECT.get(&rig.command(nic, &make, 16)), 0x5a);
    rig.hosts[0].heap.fill(0, 4096, 7);
    rig.hosts[1].heap.fill(0, 4096, 9);
    (rig, key)
}

/// One of everything that the transport knows, in packets of 256 bytes.
fn golden_run() -> Vec<u8> {
    let file = Shared::default();
    let (mut rig, key) = golden_rig(&file);
    let remote = |offset: u64| wqe::remote(TARGET + offset, key.to_be());
    let options =
        Options { mtu: 1, log_rq: Some(4), psn: [0xff_fffc, 0x10], min_rnr: 1, ..Options::default() };
    let (mut a, mut b) = rig.pair(0, 1, options);
    for bytes in [5, 256, 600] {
        a.post(Opcode::RdmaWrite, &[remote(0x100), rig.local(0, 0, bytes)]);
        a.post(Opcode::RdmaRead, &[remote(0x300), rig.local(0, 0x1000, bytes)]);
    }
    a.post(Opcode::AtomicCs, &[remote(0x40), words([1, 2, 3, 4]), rig.local(0, 0x2000, 8)]);
    a.post(Opcode::AtomicFa, &[remote(0x48), words([0, 9, 0, 0]), rig.local(0, 0x2008, 8)]);
    let signalled = CqeWhen::Always as u8;
    let swap = [remote(0x44), words([7, 8, !0, 0xffff_ff00]), rig.local(0, 0x2010, 4)];
    a.post_with(Opcode::AtomicMaskedCs as u8, 8, signalled, &swap);
    let add = [remote(0x40), words([0, 0xff, !0, !0]), rig.local(0, 0x2018, 8)];
    a.post_with(Opcode::AtomicMaskedFa as u8, 9, signalled, &add);
    assert!(rig.complete(&mut a, 10).iter().all(|done| done.syndrome == 0));
    // Nobody receives at first.
    a.post(Opcode::Send, &[inline8(0x0102_0304_0506_0708)]);
    rig.ring(&a);
    rig.run_for(15_000);
    for n in 0..8 {
        b.post_receive(&[rig.local(1, 0x4000 + n * 0x1000, 0x1000)]);
    }
    a.post(Opcode::Send, &[rig.local(0, 0, 600)]);
    for bytes in [3, 600] {
        a.post_imm(Opcode::SendImm, 0xabcd, &[rig.local(0, 0, bytes)]);
        a.post_imm(Opcode::RdmaWriteImm, 0x1234, &[remote(0x800), rig.local(0, 0, bytes)]);
    }
    assert!(rig.complete(&mut a, 6).iter().all(|done| done.syndrome == 0));
    datagrams(&mut rig);
    // Losses: sequence errors, and packets again. Then a key that is none.
    rig.inject(0, "drop=0.2/1ms");
    for _ in 0..4 {
        a.post(Opcode::RdmaWrite, &[remote(0x900), rig.local(0, 0, 700)]);
    }
    assert!(rig.complete(&mut a, 4).iter().all(|done| done.syndrome == 0));
    rig.run_for(2_000_000);
    a.post(Opcode::RdmaWrite, &[wqe::remote(TARGET, (key ^ 0x100).to_be()), inline8(1)]);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x13);
    assert_eq!(rig.fabric.captured().expect("a capture").error, None);
    file.bytes()
}

fn datagrams(rig: &mut Rig) {
    const KEY: u32 = 0x1122_3344;
    let options = Options { mtu: 1, log_rq: Some(4), datagram: Some(KEY), ..Options::default() };
    let (mut from, mut to) = (rig.end(0, options), rig.end(1, options));
    for end in [&from, &to] {
        let nic = rig.hosts[end.host].nic;
        for mailbox in [rig::rst2init(end), rig::init2rtr(end, 0), rig::rtr2rts(end)] {
            rig.command(nic, &mailbox, 16);
        }
    }
    let config = rig.fabric.nic(rig.hosts[1].nic).config().clone();
    let (rmac, rgid) = (config.mac, config.gid);
    let vector = AddressVector {
        qkey: KEY,
        qpn: to.qpn,
        full: true,
        rlid: 0,
        service_level: 0,
        rmac,
        tclass: 0,
        hop_limit: 64,
        grh: false,
        source_gid_index: 0,
        flow_label: 0,
        rgid,
    };
    let [key, path, gid] = vector.segments();
    for _ in 0..2 {
        to.post_receive(&[rig.local(1, 0x10000, 0x100)]);
    }
    from.post(Opcode::Send, &[key, path, gid, inline8(7)]);
    from.post_imm(Opcode::SendImm, 0x5555, &[key, path, gid, inline8(!8)]);
    assert!(rig.complete(&mut from, 2).iter().all(|done| done.syndrome == 0));
    rig.run_for(10_000);
    assert_eq!(to.poll_receives().len(), 2);
}

/// The encoder: the same run gives the same bytes.
#[test]
fn a_run_makes_the_golden_capture() {
    let made = golden_run();
    let kept = fs::read(GOLDEN).unwrap_or_default();
    if made != kept {
        let place = std::env::temp_dir().join(format!("roce-{}.pcap", process::id()));
        fs::write(&place, &made).unwrap();
        let differs = frames(&made).iter().zip(&frames(&kept)).position(|(made, kept)| made != kept);
        panic!("the capture differs from {GOLDEN}, first in frame {differs:?}; this run's is {place:?}");
    }
}

/// The decoder: every frame means something, and says it again in the same bytes.
#[test]
fn the_golden_capture_decodes_to_what_encodes_to_it() {
    let kept = frames(&fs::read(GOLDEN).unwrap());
    let mut opcodes = std::collections::BTreeSet::new();
    for (n, frame) in kept.iter().enumerate() {
        let Frame { addresses, outer, packet } = decode(frame).unwrap_or_else(|error| panic!("{n}: {error}"));
        let mut again = Vec::new();
        encode(&packet, &addresses, outer, &mut again);
        assert_eq!(&again, frame, "frame {n}");
        assert_eq!(icrc(frame), frame[frame.len() - 4..], "frame {n}");
        opcodes.insert(frame[42]);
    }
    let all = (0..=0x14).chain([0x64, 0x65, 0xc0, 0xc1]);
    assert!(all.eq(opcodes.iter().copied()), "{opcodes:x?}");
    let syndromes = kept.iter().filter(|frame| frame[42] == 0x11).map(|frame| frame[54]);
    let syndromes: std::collections::BTreeSet<u8> = syndromes.collect();
    assert!([0x1f, 0x21, 0x60, 0x62].iter().all(|one| syndromes.contains(one)), "{syndromes:x?}");
}

#[test]
fn the_checksum_made_bit_by_bit_is_that_of_hardware() {
    // Captured on a ConnectX-4 Lx; in front of it, where Ethernet was, anything.
    let text = "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000011800000000\
                0000000000000000000000000000000082fd002a";
    let mut frame = vec![0; 14];
    frame.extend((0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()));
    assert_eq!(icrc(&frame), [0x82, 0xfd, 0x00, 0x2a]);
}

/// A file that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = std::env::temp_dir().join(format!("shunt-{name}-{}-{number}.pcap", process::id()));
        fs::write(&place, bytes).unwrap();
        Self(place)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What is asked of tshark, and what must be its answer: a number, or nothing.
fn expected(bytes: &[u8]) -> Vec<(&'static str, Option<u64>)> {
    let Frame { packet, .. } = decode(bytes).unwrap();
    let (reth, aeth, swap_or_add) = asked(&packet.body);
    let atomic_ack = match packet.body {
        Body::AtomicAck { original, .. } => Some(original),
        _ => None,
    };
    let imm = match &packet.body {
        Body::WriteImm { imm, .. } => Some(*imm),
        Body::Send { imm, .. } => *imm,
        Body::Datagram(datagram) => datagram.imm,
        _ => None,
    };
    let datagram = match &packet.body {
        Body::Datagram(datagram) => Some(datagram),
        _ => None,
    };
    let (payload, wide) =
        (packet.body.payload().map_or(0, |data| data.bytes().len()), |word: u32| word as u64);
    vec![
        ("udp.dstport", Some(4791)),
        ("udp.length", Some(bytes.len() as u64 - 34)),
        ("infiniband.bth.opcode", Some(bytes[42] as u64)),
        ("infiniband.bth.se", Some(packet.solicited as u64)),
        ("infiniband.bth.padcnt", Some(payload.wrapping_neg() as u64 & 3)),
        ("infiniband.bth.p_key", Some(0xffff)),
        ("infiniband.bth.destqp", Some(packet.qpn as u64)),
        ("infiniband.bth.a", Some(packet.ack_request as u64)),
        ("infiniband.bth.psn", Some(packet.psn as u64)),
        ("infiniband.reth.va", reth.map(|(address, ..)| address)),
        ("infiniband.reth.r_key", reth.map(|(_, key, _)| wide(key))),
        ("infiniband.reth.dmalen", reth.and_then(|(.., bytes)| bytes).map(wide)),
        ("infiniband.aeth.syndrome", aeth.map(|(syndrome, _)| syndrome as u64)),
        ("infiniband.aeth.msn", aeth.map(|(_, msn)| wide(msn))),
        ("infiniband.atomiceth.swapdt", swap_or_add.map(|[swap, _]| swap)),
        ("infiniband.atomiceth.cmpdt", swap_or_add.map(|[_, compare]| compare)),
        ("infiniband.atomicacketh.origremdt", atomic_ack),
        ("infiniband.immdt", imm.map(wide)),
        ("infiniband.deth.q_key", datagram.map(|datagram| wide(datagram.qkey))),
        ("infiniband.deth.srcqp", datagram.map(|datagram| wide(datagram.source_qpn))),
        ("infiniband.invariant.crc", bytes.last_chunk().map(|crc| wide(u32::from_be_bytes(*crc)))),
    ]
}

/// Address, key and length of a RETH or an atomic; syndrome and message number; swap or add, and compare.
type Asked = (Option<(u64, u32, Option<u32>)>, Option<(u8, u32)>, Option<[u64; 2]>);

fn asked(body: &Body) -> Asked {
    match body {
        Body::Write { part, reth, .. } | Body::WriteImm { part, reth, .. } if part.starts() => {
            (Some((reth.address, reth.rkey, Some(reth.bytes))), None, None)
        }
        Body::ReadRequest(reth) => (Some((reth.address, reth.rkey, Some(reth.bytes))), None, None),
        Body::ReadResponse { part, msn, .. } if *part != Part::Middle => (None, Some((0x1f, *msn)), None),
        Body::Ack { syndrome, msn } => (None, Some((*syndrome, *msn)), None),
        Body::AtomicAck { msn, .. } => (None, Some((0x1f, *msn)), None),
        Body::Atomic(request) => {
            let operands = match request.op {
                AtomicOp::CompareSwap { swap, compare, .. } => [swap, compare],
                AtomicOp::FetchAdd { add, .. } => [add, 0],
            };
            (Some((request.address, request.rkey, None)), None, Some(operands))
        }
        _ => (None, None, None),
    }
}

/// Shows a capture to tshark, and compares all it says of every frame.
fn shown_to_tshark(capture: &[u8]) {
    let file = Scratch::new("tshark", capture);
    let frames = frames(capture);
    let mut fields = vec!["_ws.expert.message", "frame.protocols"];
    fields.extend(expected(&frames[0]).iter().map(|(field, _)| *field));
    let said = tshark(&file.0, &fields);
    assert_eq!(said.len(), frames.len());
    for (n, (said, frame)) in said.iter().zip(&frames).enumerate() {
        assert_eq!(said[0], "", "expert information on frame {}", n + 1);
        assert!(said[1].starts_with("eth:ethertype:ip:udp:infiniband"), "frame {}: {}", n + 1, said[1]);
        // Of opcodes that are the manufacturer's it knows the base header only.
        let known = if frame[42] >= 0xc0 { 9 } else { usize::MAX };
        for ((field, right), said) in expected(frame).iter().zip(&said[2..]).take(known) {
            let number = match (said.strip_prefix("0x"), *field) {
                (Some(hex), _) => u64::from_str_radix(hex, 16).ok(),
                (None, "infiniband.immdt") => u64::from_str_radix(said, 16).ok(),
                (None, _) => said.parse().ok(),
            };
            assert_eq!(number, *right, "{field} of frame {}: {said:?}", n + 1);
        }
    }
}

/// Shows a capture to Scapy, which makes the checksum of every frame itself.
fn shown_to_scapy(capture: &[u8]) {
    let file = Scratch::new("scapy", capture);
    let frames = frames(capture);
    let right = frames.iter().map(|frame| {
        let Packet { psn, qpn, ack_request, .. } = decode(frame).unwrap().packet;
        format!("{} {psn} {qpn} {} {} right", frame[42], frame[43] >> 4 & 3, ack_request as u8)
    });
    assert_eq!(scapy(&file.0), right.collect::<Vec<_>>());
}

#[test]
fn tshark_reads_the_golden_capture_as_we_do() {
    if wanted("tshark", &["--version"]) {
        shown_to_tshark(&fs::read(GOLDEN).unwrap());
    }
}

#[test]
fn scapy_makes_the_checksums_of_the_golden_capture() {
    if wanted(PYTHON, &["-c", "import scapy.contrib.roce"]) {
        shown_to_scapy(&fs::read(GOLDEN).unwrap());
    }
}

/// Everything that a reliable connection does, between two fabrics over UDP, with losses. What the first one wrote
/// down, and what the second.
fn run_over_udp(between: [std::net::Ipv4Addr; 2]) -> [Vec<u8>; 2] {
    run_by_the_clock();
    let [mut a, mut b] = between.map(|address| rig(0, options(address)));
    let files = [Shared::default(), Shared::default()];
    for (rig, file) in [&mut a, &mut b].into_iter().zip(&files) {
        rig.fabric.capture(Box::new(file.clone()), EPOCH_NS).unwrap();
    }
    let options =
        Options { mtu: 3, log_rq: Some(4), psn: [0xff_fff0, 5], ack_timeout: 13, ..Options::default() };
    let (mut left, mut right) = join(&mut a, &mut b, options);
    for bytes in [1, 1024, 30_001] {
        left.post(Opcode::RdmaWrite, &[b.remote(0, 3), a.local(0, 0, bytes)]);
        left.post(Opcode::RdmaRead, &[b.remote(0, 5), a.local(0, 7, bytes)]);
    }
    left.post(Opcode::AtomicCs, &[b.remote(0, 0x40), words([1, 2, 3, 4]), a.local(0, 0, 8)]);
    left.post(Opcode::AtomicFa, &[b.remote(0, 0x48), words([0, 9, 0, 0]), a.local(0, 8, 8)]);
    assert!(complete(&mut [&mut a, &mut b], &mut left, 8).iter().all(|done| done.syndrome == 0));
    for n in 0..3 {
        right.post_receive(&[b.local(0, 0x10_0000 + n * 0x1_0000, 0x1_0000)]);
    }
    left.post_imm(Opcode::SendImm, 0xabcd, &[a.local(0, 0, 5_000)]);
    left.post_imm(Opcode::RdmaWriteImm, 0x1234, &[b.remote(0, 0x8_0000), a.local(0, 0, 5_000)]);
    left.post(Opcode::Send, &[inline8(99)]);
    assert!(complete(&mut [&mut a, &mut b], &mut left, 3).iter().all(|done| done.syndrome == 0));
    a.inject(0, "drop=0.2");
    for _ in 0..4 {
        left.post(Opcode::RdmaWrite, &[b.remote(0, 0), a.local(0, 0, 20_000)]);
    }
    assert!(complete(&mut [&mut a, &mut b], &mut left, 4).iter().all(|done| done.syndrome == 0));
    let nic = a.hosts[0].nic;
    assert!(a.hits()[0] > 0 && a.fabric.nic(nic).counters().retransmits > 0, "no loss, no proof");
    run(&mut [&mut a, &mut b], "the last frames", || {
        let [near, far] = files.each_ref().map(|file| frames(&file.bytes()).len());
        near == far
    });
    files.map(|file| file.bytes())
}

#[test]
fn tshark_and_scapy_read_a_run_over_udp() {
    let [near, far] = run_over_udp(addresses());
    assert!(frames(&far).iter().all(|frame| icrc(frame) == frame[frame.len() - 4..]));
    if wanted("tshark", &["--version"]) {
        shown_to_tshark(&near);
        shown_to_tshark(&far);
    }
    if wanted(PYTHON, &["-c", "import scapy.contrib.roce"]) {
        shown_to_scapy(&far);
    }
}

/// A capture of the loopback interface, where that is allowed.
struct Dumpcap {
    child: process::Child,
    file: Scratch,
}

impl Dumpcap {
    fn start(filter: &str) -> Option<Self> {
        let file = Scratch::new("loopback", &[]);
        let mut command = process::Command::new("dumpcap");
        command.args(["-q", "-P", "-B", "32", "-s", "8192", "-i", "lo", "-f", filter, "-w"]).arg(&file.0);
        let mut child = command.stderr(process::Stdio::piped()).spawn().ok()?;
        // It names its file once it captures, and ends if it may not.
        let said = BufReader::new(child.stderr.take()?).lines().map_while(Result::ok);
        for line in said {
            if line.starts_with("File: ") {
                return Some(Self { child, file });
            }
        }
        let _ = child.wait();
        None
    }

    /// Ends it, and gives back what it has.
    fn end(mut self) -> Vec<Vec<u8>> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        assert!(self.child.wait().unwrap().success());
        frames(&fs::read(&self.file.0).unwrap())
    }
}

/// What the kernel sends is what we say it does: the headers that it makes and our checksum covers, above all.
#[test]
fn the_kernel_sends_what_we_write_down() {
    let between = addresses();
    let filter = format!("udp port 4791 and (host {} or host {})", between[0], between[1]);
    let Some(dumpcap) = Dumpcap::start(&filter) else {
        eprintln!(
            "SKIPPED: no dumpcap that may capture the loopback interface: the kernel's headers were not seen"
        );
        return;
    };
    let ours = run_over_udp(between);
    // All have passed the interface when a run is complete; dumpcap asks for them every quarter of a second.
    thread::sleep(Duration::from_secs(1));
    let mut seen = dumpcap.end();
    let mut ours = frames(&ours[0]);
    for frame in seen.iter_mut().chain(&mut ours) {
        frame[..12].fill(0); // The loopback interface has no MACs.
    }
    // A busy machine may not show dumpcap everything, but what it shows is ours to the last bit.
    let known: std::collections::HashSet<Vec<u8>> = ours.into_iter().collect();
    assert!(!seen.is_empty());
    for frame in &seen {
        assert!(known.contains(frame), "not written down: {:?} {frame:x?}", decode(frame));
    }
}
