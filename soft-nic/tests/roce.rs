//! Two fabrics joined by RoCE v2 over the loopback interface: everything a queue pair does, losses, strangers.
//!
//! The kernel carries the packets, so these run by the clock.

use crate::rig::loopback::{Shared, addresses, frames, options, rig, try_rig};
use crate::rig::two::{complete, config, exchange, join, ready, run, run_by_the_clock};
use crate::rig::{End, Options, Rig};
use shunt_layout::mlx5::cqe::opcode::{RESP_SEND, RESP_SEND_IMM, RESP_WRITE_IMM};
use shunt_layout::mlx5::wqe::{AddressVector, Opcode, inline8};
use shunt_soft_nic::uplink::path_mtu;
use shunt_soft_nic::wire::{Addresses, Outer, ROCE_PORT, decode, encode};
use shunt_soft_nic::{NicConfig, RoceOptions, RoceUplink, UplinkError};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::Duration;

/// Long enough that only what was lost is sent again, however busy the machine is: 268 ms.
fn patient() -> Options {
    Options { psn: [0xff_fff0, 5], ack_timeout: 16, ..Options::default() }
}

fn two() -> (Rig, Rig) {
    run_by_the_clock();
    let [a, b] = addresses();
    (rig(0, options(a)), rig(1, options(b)))
}

#[test]
fn writes_reads_and_atomics_both_ways() {
    let (mut a, mut b) = two();
    let (mut left, mut right) = join(&mut a, &mut b, patient());
    exchange(&mut a, &mut b, &mut left);
    exchange(&mut b, &mut a, &mut right);
    for rig in [&a, &b] {
        let counters = rig.fabric.uplink_counters();
        assert!(counters.frames_tx > 300 && counters.frames_rx > 300, "{counters:?}");
        let bad = [counters.vanished, counters.overflowed, counters.malformed, counters.lost];
        assert_eq!((bad, counters.undecodable, counters.misaddressed), ([0; 4], 0, 0));
    }
}

#[test]
fn sends_and_immediate_data() {
    let (mut a, mut b) = two();
    let options = Options { log_rq: Some(4), min_rnr: 1, ..patient() };
    let (mut from, mut to) = join(&mut a, &mut b, options);
    a.hosts[0].heap.fill(0, 70_000, 3);
    from.post_imm(Opcode::SendImm, 0xabcd, &[a.local(0, 0, 70_000)]);
    from.post_imm(Opcode::RdmaWriteImm, 0x1234, &[b.remote(0, 0x8_0000), a.local(0, 0, 5_000)]);
    from.post(Opcode::Send, &[inline8(99)]);
    for offset in [0x10_0000, 0x14_0000, 0x18_0000] {
        to.post_receive(&[b.local(0, offset, 0x4_0000)]);
    }
    assert!(complete(&mut [&mut a, &mut b], &mut from, 3).iter().all(|done| done.syndrome == 0));
    let got: Vec<_> = to.poll_receives().iter().map(|got| (got.opcode, got.bytes, got.imm)).collect();
    assert_eq!(got, [(RESP_SEND_IMM, 70_000, 0xabcd), (RESP_WRITE_IMM, 5_000, 0x1234), (RESP_SEND, 8, 0)]);
    let heap = &b.hosts[0].heap;
    assert!(heap.holds(0x10_0000, 70_000, 3) && heap.holds(0x8_0000, 5_000, 3));
    assert_eq!(heap.get64(0x18_0000), 99);
}

#[test]
fn datagrams() {
    const KEY: u32 = 0x1122_3344;
    let (mut a, mut b) = two();
    let options = Options { log_rq: Some(4), datagram: Some(KEY), ..patient() };
    let (mut from, mut to) = (a.end(0, options), b.end(0, options));
    ready(&mut a, &from);
    ready(&mut b, &to);
    to.post_receive(&[b.local(0, 0, 256)]);
    let NicConfig { mac, gid, .. } = config(&mut b, 0);
    let vector = AddressVector {
        qkey: KEY,
        qpn: to.qpn,
        full: true,
        rlid: 0,
        service_level: 0,
        rmac: mac,
        tclass: 0,
        hop_limit: 64,
        grh: false,
        source_gid_index: 0,
        flow_label: 0,
        rgid: gid,
    };
    let [key, path, gid] = vector.segments();
    from.post(Opcode::Send, &[key, path, gid, inline8(7)]);
    assert_eq!(complete(&mut [&mut a, &mut b], &mut from, 1)[0].syndrome, 0);
    let mut got = None;
    run(&mut [&mut a, &mut b], "a datagram", || {
        got = to.poll_receive();
        got.is_some()
    });
    assert_eq!((got.map(|got| got.bytes), b.hosts[0].heap.get64(40)), (Some(48), 7));
}

/// Eight queue pairs, each with some large messages under way at once.
fn crowd(a: &mut Rig, b: &mut Rig, options: Options, messages: usize, read: bool) {
    const BYTES: u32 = 1 << 20;
    let mut ends: Vec<(End, End)> = (0..8).map(|_| join(a, b, options)).collect();
    let from = if read { &b.hosts[0].heap } else { &a.hosts[0].heap };
    from.fill(0, BYTES as usize, 5);
    for (end, _) in &mut ends {
        for _ in 0..messages {
            let op = if read { Opcode::RdmaRead } else { Opcode::RdmaWrite };
            end.post(op, &[b.remote(0, 0), a.local(0, 0, BYTES)]);
        }
        a.ring(end);
    }
    let mut done = 0;
    run(&mut [&mut *a, &mut *b], "all messages", || {
        for (end, _) in &mut ends {
            while let Some(one) = end.poll() {
                assert_eq!(one.syndrome, 0);
                done += 1;
            }
        }
        done == 8 * messages
    });
    let (near, far) = (&a.hosts[0].heap, &b.hosts[0].heap);
    assert!((if read { near } else { far }).holds(0, BYTES as usize, 5));
}

#[test]
fn large_messages_of_many_queue_pairs_lose_nothing() {
    for read in [false, true] {
        run_by_the_clock();
        let [here, there] = addresses();
        let granted =
            RoceUplink::open(options(here)).unwrap().granted().map(|(_, bytes)| bytes).sum::<usize>();
        // A READ of 256 packets is answered at once, whatever the window.
        if read && granted < 4 << 20 {
            eprintln!("SKIPPED: sockets hold {granted} bytes here, 4 MiB are needed: READs were not tried");
            continue;
        }
        let [mut a, mut b] = [here, there].map(|address| rig(0, options(address)));
        crowd(&mut a, &mut b, patient(), 16, read);
        let lost = [&a, &b].map(|rig| rig.fabric.uplink_counters().lost);
        let nic = a.hosts[0].nic;
        assert_eq!((lost, a.fabric.nic(nic).counters().retransmits), ([0, 0], 0), "read: {read}");
    }
}

#[test]
fn a_window_smaller_than_a_round_of_turns_does_not_shut_for_want_of_acknowledgements() {
    run_by_the_clock();
    let narrow = |address| RoceOptions { window: Some(16), ..options(address) };
    let [mut a, mut b] = addresses().map(|address| rig(0, narrow(address)));
    crowd(&mut a, &mut b, patient(), 4, false);
    let nic = a.hosts[0].nic;
    let counters = a.fabric.nic(nic).counters();
    assert_eq!((counters.timeouts, counters.retransmits), (0, 0), "{counters:?}");
}

#[test]
fn what_a_socket_does_not_hold_is_counted_and_sent_again() {
    for read in [false, true] {
        run_by_the_clock();
        // A window that has nothing to do with the buffers: the first flight is four times what they hold.
        let small =
            |address| RoceOptions { receive_buffer: 128 << 10, window: Some(128), ..options(address) };
        let [mut a, mut b] = addresses().map(|address| rig(0, small(address)));
        // When the end of a READ is lost, only the clock tells: 4 ms.
        crowd(&mut a, &mut b, Options { ack_timeout: 10, ..patient() }, 2, read);
        let [near, far] = [&a, &b].map(|rig| rig.fabric.uplink_counters().lost);
        assert!((if read { near } else { far }) > 0);
        let nic = a.hosts[0].nic;
        let sent = a.fabric.nic(nic).counters();
        assert!(sent.retransmits > 0, "{sent:?}");
    }
}

#[test]
fn a_rate_is_kept_by_both_kinds_of_traffic() {
    run_by_the_clock();
    let slow = |address| RoceOptions { pace_gbps: Some(2.0), ..options(address) };
    let [mut a, mut b] = addresses().map(|address| rig(0, slow(address)));
    let (mut left, _right) = join(&mut a, &mut b, patient());
    let start = std::time::Instant::now();
    for _ in 0..8 {
        left.post(Opcode::RdmaWrite, &[b.remote(0, 0), a.local(0, 0, 1 << 20)]);
        left.post(Opcode::RdmaRead, &[b.remote(0, 0), a.local(0, 0, 1 << 20)]);
    }
    assert!(complete(&mut [&mut a, &mut b], &mut left, 16).iter().all(|done| done.syndrome == 0));
    // 8 MiB each way at 0.25 bytes a nanosecond: a lower bound, so no machine is too slow for it.
    assert!(start.elapsed() > Duration::from_millis(32), "{:?}", start.elapsed());
}

#[test]
fn a_forced_loss_is_recovered() {
    let (mut a, mut b) = two();
    let options = Options { ack_timeout: 10, ..patient() };
    let (mut left, _right) = join(&mut a, &mut b, options);
    a.inject(0, "drop=0.05");
    b.inject(0, "dup=0.2");
    for seed in 0..10u8 {
        a.hosts[0].heap.fill(0, 100_000, seed);
        left.post(Opcode::RdmaWrite, &[b.remote(0, 0), a.local(0, 0, 100_000)]);
        left.post(Opcode::RdmaRead, &[b.remote(0, 0), a.local(0, 200_000, 50_000)]);
        let done = complete(&mut [&mut a, &mut b], &mut left, 2);
        assert!(done.iter().all(|done| done.syndrome == 0), "{done:?}");
        assert!(b.hosts[0].heap.holds(0, 100_000, seed) && a.hosts[0].heap.holds(200_000, 50_000, seed));
    }
    assert!(a.hits().iter().chain(&b.hits()).all(|hits| *hits > 3), "{:?} {:?}", a.hits(), b.hits());
}

#[test]
fn a_peer_that_is_not_there_is_retries_exceeded_and_others_go_on() {
    run_by_the_clock();
    let [here, there] = addresses();
    let (mut a, mut b) = (rig(0, options(here)), Rig::alone(1, 1, |_| {}));
    let mut c = rig(0, options(there));
    let (mut good, _third) = join(&mut a, &mut c, patient());
    let (mut left, _right) = join(&mut a, &mut b, Options { ack_timeout: 8, retry: 1, ..patient() });
    // From the loopback interface there is no way to the address of `b`.
    for _ in 0..4 {
        left.post(Opcode::RdmaWrite, &[b.remote(0, 0), a.local(0, 0, 1 << 20)]);
    }
    assert_eq!(complete(&mut [&mut a], &mut left, 1)[0].syndrome, 0x15);
    assert!(a.fabric.uplink_counters().vanished > 8, "{:?}", a.fabric.uplink_counters());
    exchange(&mut a, &mut c, &mut good);
}

#[test]
fn a_stranger_at_the_port_is_counted_and_nothing_else() {
    let (mut a, mut b) = two();
    let file = Shared::default();
    b.fabric.capture(Box::new(file.clone()), 0).unwrap();
    let (mut left, _right) = join(&mut a, &mut b, Options { psn: [100, 5], ..patient() });
    left.post(Opcode::RdmaWrite, &[b.remote(0, 0), inline8(5)]);
    assert_eq!(complete(&mut [&mut a, &mut b], &mut left, 1)[0].syndrome, 0);
    let sample = decode(&frames(&file.bytes())[0]).unwrap();
    let gid = config(&mut b, 0).gid;
    let port = (Ipv4Addr::new(gid[12], gid[13], gid[14], gid[15]), ROCE_PORT);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let outer =
        Outer::Udp { source_port: stranger.local_addr().unwrap().port(), destination_port: ROCE_PORT };
    let own = Addresses { source: 0xffff_7f00_0001, ..sample.addresses };
    let heap: Vec<u64> = (0..1024).map(|n| b.hosts[0].heap.get64(n * 8)).collect();
    let (before, nic) = (b.fabric.uplink_counters(), b.hosts[0].nic);
    let (sent, mut seed) = (300usize, 1u64);
    for n in 0..sent {
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize
        };
        let mut packet = sample.packet.clone();
        packet.psn = left.options.psn[0] + 1;
        packet.qpn = if n % 8 == 0 { 1 } else { packet.qpn };
        let mut frame = Vec::new();
        encode(&packet, &own, outer, &mut frame);
        let mut bytes = frame.split_off(42);
        let whole = bytes.len();
        // A whole frame, of a stranger or to nobody; garbage; a frame with a wrong bit; one cut short.
        match n % 4 {
            0 => {}
            1 => bytes = std::iter::repeat_with(|| random() as u8).take(n * 31 % 6_000).collect(),
            2 => bytes[5 + random() % (whole - 5)] ^= 1 << (random() & 7),
            _ => bytes.truncate(random() % whole),
        }
        stranger.send_to(&bytes, port).unwrap();
    }
    let start = std::time::Instant::now();
    while b.fabric.uplink_counters().datagrams_rx < before.datagrams_rx + sent as u64 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", b.fabric.uplink_counters());
        let mut once = false;
        run(&mut [&mut a, &mut b], "a step", || std::mem::replace(&mut once, true));
    }
    let counters = b.fabric.uplink_counters();
    assert!(counters.malformed > 0 && counters.undecodable > 100, "{counters:?}");
    let dropped = b.fabric.nic(nic).counters().dropped;
    assert_eq!((counters.undecodable + counters.malformed, dropped), (225, 75), "{counters:?}");
    assert!((0..1024).all(|n| b.hosts[0].heap.get64(n * 8) == heap[n]), "nothing was written");
    exchange(&mut a, &mut b, &mut left);
}

#[test]
fn what_lay_in_the_socket_for_too_long_is_forgotten() {
    run_by_the_clock();
    let [here, there] = addresses();
    let brief = Duration::from_millis(20);
    let mut a = rig(0, options(here));
    let mut b = rig(0, RoceOptions { lifetime: brief, ..options(there) });
    let (mut left, _right) = join(&mut a, &mut b, Options { ack_timeout: 5, retry: 1, ..patient() });
    left.post(Opcode::RdmaWrite, &[b.remote(0, 0), inline8(77)]);
    // The peer was stopped, so to say, until the sender had given up and more than a lifetime had passed.
    assert_eq!(complete(&mut [&mut a], &mut left, 1)[0].syndrome, 0x15);
    thread::sleep(2 * brief);
    b.run_for(1_000);
    assert_eq!(b.hosts[0].heap.get64(0), 0, "no ghost");
    assert_eq!(b.fabric.uplink_counters().expired, 2, "the packet and its retry");
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    assert_eq!(
        [65_536, 1500, 1400, 4160, 4159, 320].map(path_mtu),
        [4096, 1024, 1024, 4096, 2048, 256].map(Some)
    );
    assert_eq!(path_mtu(319), None);
    let [address, other] = addresses();
    let open = |options| RoceUplink::open(options).map(drop).unwrap_err();
    let first = RoceUplink::open(options(address)).unwrap();
    let nic = NicConfig::behind(&first, "mlx5_0", address);
    assert_eq!((nic.mtu, &nic.gid[10..12], nic.mac[0]), (4096, &[0xff, 0xff][..], 2));
    assert!(first.granted().all(|(at, bytes)| at == address && bytes > 0));
    let error = open(options(address));
    assert!(matches!(error, UplinkError::PortTaken(_)), "{error}");
    let error = open(options(Ipv4Addr::new(192, 0, 2, 77)));
    assert!(matches!(error, UplinkError::NotLocal(_)), "{error}");
    let error = open(RoceOptions { pace_gbps: Some(0.0), ..options(other) });
    assert!(matches!(error, UplinkError::Rate(_)), "{error}");
    // Another port is another network.
    drop(RoceUplink::open(RoceOptions { port: 24_791, ..options(address) }).unwrap());
    let error = try_rig(0, options(other), |config| config.gid[0] = 0xfe).err().expect("no IPv4");
    assert!(matches!(error, UplinkError::NotIpv4(_)), "{error}");
    let error = try_rig(0, options(other), |config| config.mtu = 8192).err().expect("too large");
    assert!(error.to_string().contains("path MTU 8192; its interface carries 4096"), "{error}");
}

#[test]
fn both_ends_write_down_the_same_frames() {
    let (mut a, mut b) = two();
    let files = [Shared::default(), Shared::default()];
    for (rig, file) in [&mut a, &mut b].into_iter().zip(&files) {
        rig.fabric.capture(Box::new(file.clone()), 0).unwrap();
    }
    let (mut left, _right) = join(&mut a, &mut b, patient());
    exchange(&mut a, &mut b, &mut left);
    let reports = [&a, &b].map(|rig| rig.fabric.captured().expect("a capture"));
    let [sent, came] = files.map(|file| frames(&file.bytes()));
    assert_eq!(reports.map(|report| report.frames), [sent.len() as u64, came.len() as u64]);
    // Not in one order, since each writes what it sends when it sends it.
    let (mut sent, mut came) = (sent, came);
    sent.sort();
    came.sort();
    assert!(sent.len() > 300 && sent == came, "{} and {} frames", sent.len(), came.len());
}

/// A disk that is full after some bytes.
struct Full(usize);

impl io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_capture_that_fails_is_told_and_harms_nobody() {
    let (mut a, mut b) = two();
    assert!(a.fabric.capture(Box::new(Full(10)), 0).is_err());
    assert_eq!(a.fabric.captured(), None);
    a.fabric.capture(Box::new(Full(100_000)), 0).unwrap();
    let (mut left, _right) = join(&mut a, &mut b, patient());
    exchange(&mut a, &mut b, &mut left);
    let report = a.fabric.captured().expect("a capture");
    assert!(report.frames > 0 && report.lost > 100 && report.error.is_some(), "{report:?}");
}

#[test]
fn packets_inside_a_fabric_are_written_down_once_and_those_to_oneself_never() {
    let file = Shared::default();
    let mut rig = Rig::new(1);
    rig.fabric.capture(Box::new(file.clone()), 1_700_000_000_123_456_789).unwrap();
    let (mut left, _right) = rig.pair(0, 1, Options::default());
    let (mut own, _own) = rig.pair(0, 0, Options::default());
    left.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(5)]);
    own.post(Opcode::RdmaWrite, &[rig.remote(0, 0), inline8(5)]);
    rig.complete(&mut left, 1);
    rig.complete(&mut own, 1);
    let frames = frames(&file.bytes());
    assert_eq!(frames.len(), 2, "a WRITE and its ACK");
    let back = decode(&frames[0]).unwrap();
    assert_eq!(back.outer, Outer::Udp { source_port: ROCE_PORT, destination_port: ROCE_PORT });
    let [near, far] = [0, 1].map(|pe| NicConfig::new("", pe, 0));
    assert_eq!(back.addresses.destination, u128::from_be_bytes(far.gid));
    assert_eq!(back.addresses.source_mac.to_be_bytes()[2..], near.mac);
    let seconds = u32::from_le_bytes(file.bytes()[24..28].try_into().unwrap());
    assert_eq!(seconds, 1_700_000_000);
}
