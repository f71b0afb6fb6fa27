//! Two fabrics joined by Unix sockets: everything a queue pair does, peers that go and come, strangers, pauses.
//!
//! Time is virtual: a datagram is there as soon as it was sent, so both fabrics are stepped in turn and no test waits.

use crate::rig;
use crate::rig::two::{STEP_NS, complete, config, exchange, join, ready, run};
use crate::rig::{Options, Rig};
use shunt_layout::mlx5::cqe::opcode::{RESP_SEND, RESP_SEND_IMM, RESP_WRITE_IMM};
use shunt_layout::mlx5::prm::qp::{ADS_OFFSET, QPC_OFFSET, ads};
use shunt_layout::mlx5::wqe::{AddressVector, Opcode, inline8};
use shunt_soft_nic::uplink::remove_unused_in;
use shunt_soft_nic::{LinkLayer, NicConfig, UnixUplink, UplinkError};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// A runtime directory of one test.
struct Runtime(PathBuf);

impl Runtime {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("shunt-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self, gids: &[[u8; 16]]) -> Result<UnixUplink, UplinkError> {
        // Without a lifetime: however busy the machine is, nothing is lost.
        Ok(UnixUplink::open_in(&self.0, "test", gids)?.with_lifetime(Duration::MAX))
    }

    fn socket(&self, gid: [u8; 16]) -> PathBuf {
        self.0.join(format!("fabric-test/{:032x}.sock", u128::from_be_bytes(gid)))
    }

    /// A PE's NICs in a fabric of their own, joined to the others of this directory.
    fn rig(&self, pe: u32, adjust: impl Fn(&mut NicConfig)) -> Rig {
        let mut rig = Rig::alone(pe, 2, adjust);
        rig.fabric.attach(Box::new(self.open(&[]).unwrap())).unwrap();
        rig
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn writes_reads_and_atomics_both_ways() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
    let (mut left, mut right) = join(&mut a, &mut b, Options { psn: [0xff_fff0, 5], ..Options::default() });
    exchange(&mut a, &mut b, &mut left);
    exchange(&mut b, &mut a, &mut right);
    for rig in [&a, &b] {
        let counters = rig.fabric.uplink_counters();
        assert!(counters.frames_tx > 300 && counters.frames_rx > 300, "{counters:?}");
        assert!(counters.datagrams_tx < counters.frames_tx, "frames share datagrams: {counters:?}");
        let bad = [counters.vanished, counters.overflowed, counters.malformed];
        assert_eq!((bad, counters.undecodable, counters.misaddressed), ([0; 3], 0, 0));
    }
}

#[test]
fn sends_and_immediate_data_both_ways() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
    let options = Options { log_rq: Some(4), min_rnr: 1, ..Options::default() };
    let (mut left, mut right) = join(&mut a, &mut b, options);
    for turn in 0..2u8 {
        let (here, there, from, to) = match turn {
            0 => (&mut a, &mut b, &mut left, &mut right),
            _ => (&mut b, &mut a, &mut right, &mut left),
        };
        here.hosts[0].heap.fill(0, 70_000, turn);
        from.post_imm(Opcode::SendImm, 0xabcd, &[here.local(0, 0, 70_000)]);
        from.post_imm(Opcode::RdmaWriteImm, 0x1234, &[there.remote(0, 0x8_0000), here.local(0, 0, 5_000)]);
        from.post(Opcode::Send, &[inline8(99)]);
        here.ring(from);
        // Nobody receives yet: the responder says so and is asked again.
        let mut steps = 0;
        run(&mut [&mut *here, &mut *there], "time", || {
            steps += 1;
            steps > 20
        });
        assert_eq!((from.poll(), to.poll_receive()), (None, None));
        for offset in [0x10_0000, 0x14_0000, 0x18_0000] {
            to.post_receive(&[there.local(0, offset, 0x4_0000)]);
        }
        assert!(complete(&mut [&mut *here, &mut *there], from, 3).iter().all(|done| done.syndrome == 0));
        let got: Vec<_> = to.poll_receives().iter().map(|got| (got.opcode, got.bytes, got.imm)).collect();
        assert_eq!(
            got,
            [(RESP_SEND_IMM, 70_000, 0xabcd), (RESP_WRITE_IMM, 5_000, 0x1234), (RESP_SEND, 8, 0)]
        );
        let heap = &there.hosts[0].heap;
        assert!(heap.holds(0x10_0000, 70_000, turn) && heap.holds(0x8_0000, 5_000, turn));
        assert_eq!(heap.get64(0x18_0000), 99);
    }
}

#[test]
fn datagrams_find_their_way_by_the_address_in_each() {
    const KEY: u32 = 0x1122_3344;
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
    let options = Options { log_rq: Some(4), datagram: Some(KEY), ..Options::default() };
    let (mut from, mut near, mut far) = (a.end(0, options), a.end(1, options), b.end(0, options));
    ready(&mut a, &from);
    ready(&mut a, &near);
    ready(&mut b, &far);
    near.post_receive(&[a.local(1, 0, 256)]);
    far.post_receive(&[b.local(0, 0, 256)]);
    for (end, config) in [(&near, config(&mut a, 1)), (&far, config(&mut b, 0))] {
        let vector = AddressVector {
            qkey: KEY,
            qpn: end.qpn,
            full: true,
            rlid: 0,
            service_level: 0,
            rmac: config.mac,
            tclass: 0,
            hop_limit: 64,
            grh: false,
            source_gid_index: 0,
            flow_label: 0,
            rgid: config.gid,
        };
        let [key, path, gid] = vector.segments();
        from.post(Opcode::Send, &[key, path, gid, inline8(end.qpn as u64 + 7)]);
    }
    assert!(complete(&mut [&mut a, &mut b], &mut from, 2).iter().all(|done| done.syndrome == 0));
    let mut got = Vec::new();
    run(&mut [&mut a, &mut b], "datagrams", || {
        got.extend(near.poll_receive().into_iter().chain(far.poll_receive()));
        got.len() == 2
    });
    // The data lies behind room for a GRH.
    assert_eq!(a.hosts[1].heap.get64(40), near.qpn as u64 + 7);
    assert_eq!(b.hosts[0].heap.get64(40), far.qpn as u64 + 7);
    assert!(got.iter().all(|got| got.bytes == 48), "{got:?}");
    assert_eq!(a.fabric.uplink_counters().frames_tx, 1, "only one of them left the process");
}

#[test]
fn on_infiniband_a_lid_is_enough() {
    let runtime = Runtime::new();
    let infiniband = |config: &mut NicConfig| config.link_layer = LinkLayer::InfiniBand;
    let (mut a, mut b) = (runtime.rig(0, infiniband), runtime.rig(1, infiniband));
    let (mut left, mut right) = (a.end(0, Options::default()), b.end(0, Options::default()));
    let (here, there) = (config(&mut a, 0), config(&mut b, 0));
    let [far, near] = [right.qpn, left.qpn];
    for (rig, end, remote, qpn) in [(&mut a, &mut left, there.lid, far), (&mut b, &mut right, here.lid, near)]
    {
        let nic = rig.hosts[0].nic;
        rig.command(nic, &rig::rst2init(end), 16);
        let mut rtr = rig::init2rtr(end, qpn);
        ads::RLID.set(&mut rtr[QPC_OFFSET + ADS_OFFSET..], remote as u32);
        rig.command(nic, &rtr, 16);
        rig.command(nic, &rig::rtr2rts(end), 16);
    }
    exchange(&mut a, &mut b, &mut left);
    exchange(&mut b, &mut a, &mut right);
}

#[test]
fn what_is_local_stays_local() {
    let runtime = Runtime::new();
    let mut a = runtime.rig(0, |_| {});
    let (mut left, _right) = a.pair(0, 1, Options::default());
    left.post(Opcode::RdmaWrite, &[a.remote(1, 0), inline8(5)]);
    assert_eq!(a.complete(&mut left, 1)[0].syndrome, 0);
    assert_eq!(a.hosts[1].heap.get64(0), 5);
    assert_eq!(a.fabric.uplink_counters(), Default::default());
}

#[test]
fn a_peer_that_goes_is_retries_exceeded_and_one_that_comes_is_reached() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
    let options = Options { ack_timeout: 5, retry: 2, ..Options::default() };
    let (mut left, right) = join(&mut a, &mut b, options);
    exchange(&mut a, &mut b, &mut left);
    let target = b.remote(0, 0);
    drop((right, b));
    left.post(Opcode::RdmaWrite, &[target, inline8(1)]);
    assert_eq!(complete(&mut [&mut a], &mut left, 1)[0].syndrome, 0x15);
    assert_eq!(a.fabric.uplink_counters().vanished, 3, "the packet and two retries");
    let mut b = runtime.rig(1, |_| {});
    let (mut left, mut right) = join(&mut a, &mut b, options);
    exchange(&mut a, &mut b, &mut left);
    exchange(&mut b, &mut a, &mut right);
}

#[test]
fn an_address_where_nobody_ever_was() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), Rig::alone(1, 2, |_| {}));
    let (mut left, _right) = join(&mut a, &mut b, Options { ack_timeout: 1, retry: 1, ..Options::default() });
    left.post(Opcode::RdmaWrite, &[b.remote(0, 0), inline8(1)]);
    assert_eq!(complete(&mut [&mut a], &mut left, 1)[0].syndrome, 0x15);
    let nic = a.hosts[0].nic;
    assert_eq!(a.fabric.nic(nic).counters().unroutable, 0, "who is outside is not known");
}

#[test]
fn a_full_receiver_pauses_its_senders_and_nobody_else() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
    let mut c = runtime.rig(2, |_| {});
    let patient = Options { ack_timeout: 0, ..Options::default() };
    let (mut left, _right) = join(&mut a, &mut b, patient);
    let (mut other, _third) = join(&mut a, &mut c, patient);
    a.hosts[0].heap.fill(0, 1 << 20, 3);
    let rounds = 32;
    for n in 0..rounds {
        left.post(Opcode::RdmaWrite, &[b.remote(0, (n & 1) << 20), a.local(0, 0, 1 << 20)]);
    }
    a.ring(&left);
    // `b` does nothing. What waits for it is bounded, and what goes elsewhere goes on.
    let mut steps = 0;
    run(&mut [&mut a], "time", || {
        steps += 1;
        steps > 2_000
    });
    let nic = a.hosts[0].nic;
    let stuck = a.fabric.nic(nic).counters();
    assert!((100..700).contains(&stuck.packets_tx), "less than the window of 1024: {stuck:?}");
    exchange(&mut a, &mut c, &mut other);
    a.hosts[0].heap.fill(0, 1 << 20, 3);
    let done = complete(&mut [&mut a, &mut b], &mut left, rounds);
    assert!(done.iter().all(|done| done.syndrome == 0));
    assert!(b.hosts[0].heap.holds(0, 1 << 20, 3) && b.hosts[0].heap.holds(1 << 20, 1 << 20, 3));
    let (counters, uplink) = (a.fabric.nic(nic).counters(), a.fabric.uplink_counters());
    assert_eq!((counters.retransmits, uplink.vanished, uplink.overflowed), (0, 0, 0));
}

#[test]
fn a_receiver_that_stays_full_is_retries_exceeded() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
    let options = Options { ack_timeout: 5, retry: 3, ..Options::default() };
    let (mut left, _right) = join(&mut a, &mut b, options);
    let (mut late, _third) = join(&mut a, &mut b, options);
    for _ in 0..16 {
        left.post(Opcode::RdmaWrite, &[b.remote(0, 0), a.local(0, 0, 1 << 20)]);
    }
    a.post_and_ring(&mut left, Opcode::RdmaWrite, &[b.remote(0, 0), inline8(1)]);
    a.run_for(STEP_NS);
    // This one comes when all is full: nothing it posts gets as far as the socket, and its clock runs all the same.
    late.post(Opcode::RdmaWrite, &[b.remote(0, 0), inline8(1)]);
    assert_eq!(complete(&mut [&mut a], &mut late, 1)[0].syndrome, 0x15);
    assert_eq!(complete(&mut [&mut a], &mut left, 1)[0].syndrome, 0x15);
}

#[test]
fn what_is_older_than_a_packet_lives_is_forgotten() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), Rig::alone(1, 1, |_| {}));
    let brief = Duration::from_millis(20);
    b.fabric.attach(Box::new(runtime.open(&[]).unwrap().with_lifetime(brief))).unwrap();
    let (mut left, _right) = join(&mut a, &mut b, Options { ack_timeout: 5, retry: 1, ..Options::default() });
    left.post(Opcode::RdmaWrite, &[b.remote(0, 0), inline8(77)]);
    // The peer was stopped, so to say, until the sender had given up and more than a lifetime had passed.
    assert_eq!(complete(&mut [&mut a], &mut left, 1)[0].syndrome, 0x15);
    thread::sleep(2 * brief);
    b.run_for(STEP_NS);
    assert_eq!(b.hosts[0].heap.get64(0), 0, "no ghost");
    assert_eq!(b.fabric.uplink_counters().expired, 2, "the packet and its retry");
}

#[test]
fn a_stranger_at_the_socket_is_counted_and_nothing_else() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
    let (mut left, _right) = join(&mut a, &mut b, Options::default());
    let stranger = UnixDatagram::unbound().unwrap();
    let socket = runtime.socket(config(&mut b, 0).gid);
    let mut seed = 1u64;
    let mut sent = 0;
    for n in 0..300usize {
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .take(n * 7 % 2_000)
        .collect();
        if n % 3 == 0 && bytes.len() > 10 {
            // A well-formed row of one frame, which is garbage, from the future.
            let length = (bytes.len() - 10) as u16;
            bytes[..8].fill(0xff);
            bytes[8..10].copy_from_slice(&length.to_be_bytes());
        }
        stranger.send_to(&bytes, &socket).unwrap();
        sent += 1;
        if n % 8 == 7 {
            left.post(Opcode::RdmaWrite, &[b.remote(0, 0), inline8(n as u64)]);
            assert_eq!(complete(&mut [&mut a, &mut b], &mut left, 1)[0].syndrome, 0);
            assert_eq!(b.hosts[0].heap.get64(0), n as u64);
        }
    }
    run(&mut [&mut a, &mut b], "the rest", || true);
    let counters = b.fabric.uplink_counters();
    assert!(counters.datagrams_rx >= sent && counters.malformed > 150, "{counters:?}");
    assert!(counters.undecodable >= 95, "{counters:?}");
}

#[test]
fn frames_for_somebody_else_are_counted() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
    let options = Options { ack_timeout: 1, retry: 1, ..Options::default() };
    let (mut left, right) = (a.end(0, options), b.end(0, options));
    let mut wrong = config(&mut b, 0);
    wrong.mac[5] ^= 1;
    let nic = a.hosts[0].nic;
    a.command(nic, &rig::rst2init(&left), 16);
    a.connect_to(&mut left, &wrong, right.qpn);
    left.post(Opcode::RdmaWrite, &[b.remote(0, 0), inline8(1)]);
    assert_eq!(complete(&mut [&mut a, &mut b], &mut left, 1)[0].syndrome, 0x15);
    assert_eq!(b.fabric.uplink_counters().misaddressed, 2);
}

#[test]
fn each_end_of_a_link_acts_out_its_own_faults() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
    let (mut left, _right) = join(&mut a, &mut b, Options::default());
    a.inject(0, "drop=0.2");
    a.inject(0, "reorder=7");
    b.inject(0, "dup=0.3");
    b.inject(0, "delay=3us");
    for seed in 0..20u8 {
        a.hosts[0].heap.fill(0, 100_000, seed);
        left.post(Opcode::RdmaWrite, &[b.remote(0, 0), a.local(0, 0, 100_000)]);
        left.post(Opcode::RdmaRead, &[b.remote(0, 0), a.local(0, 200_000, 50_000)]);
        let done = complete(&mut [&mut a, &mut b], &mut left, 2);
        assert!(done.iter().all(|done| done.syndrome == 0), "{done:?}");
        assert!(b.hosts[0].heap.holds(0, 100_000, seed) && a.hosts[0].heap.holds(200_000, 50_000, seed));
    }
    assert!(a.hits().iter().chain(&b.hits()).all(|hits| *hits > 10), "{:?} {:?}", a.hits(), b.hits());
    let nic = a.hosts[0].nic;
    assert!(a.fabric.nic(nic).counters().retransmits > 0);
}

#[test]
fn a_port_that_is_down_at_either_end_breaks_the_path() {
    let faults = [
        (0, "down"),
        (1, "down"),
        (0, "blackhole-tx"),
        (1, "blackhole-rx"),
        (0, "drop=1"),
        (1, "drop=1"),
        (1, "nic-gone"),
    ];
    for (host, fault) in faults {
        let runtime = Runtime::new();
        let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
        let options = Options { ack_timeout: 1, retry: 1, ..Options::default() };
        let (mut left, _right) = join(&mut a, &mut b, options);
        exchange(&mut a, &mut b, &mut left);
        [&mut a, &mut b][host].inject(0, fault);
        left.post(Opcode::RdmaWrite, &[b.remote(0, 0), inline8(77)]);
        assert_eq!(complete(&mut [&mut a, &mut b], &mut left, 1)[0].syndrome, 0x15, "{fault} at {host}");
        assert_ne!(b.hosts[0].heap.get64(0), 77);
        assert!([&a, &b][host].hits()[0] > 0, "{fault} at {host}");
    }
}

#[test]
fn a_changed_address_is_reached_by_its_new_name_only() {
    let runtime = Runtime::new();
    let (mut a, mut b) = (runtime.rig(0, |_| {}), runtime.rig(1, |_| {}));
    let options = Options { ack_timeout: 1, retry: 1, ..Options::default() };
    let (mut left, _right) = join(&mut a, &mut b, options);
    exchange(&mut a, &mut b, &mut left);
    b.inject(0, "gid-change");
    left.post(Opcode::RdmaWrite, &[b.remote(0, 0), inline8(77)]);
    assert_eq!(complete(&mut [&mut a, &mut b], &mut left, 1)[0].syndrome, 0x15);
    assert_eq!((b.hits()[0], b.fabric.uplink_counters().misaddressed), (3, 2), "the change and two packets");
    let (mut left, mut right) = join(&mut a, &mut b, options);
    exchange(&mut a, &mut b, &mut left);
    exchange(&mut b, &mut a, &mut right);
}

#[test]
fn a_live_socket_is_refused_and_a_stale_one_taken_over() {
    let runtime = Runtime::new();
    let gid = NicConfig::new("mlx5_0", 3, 1).gid;
    let live = runtime.open(&[gid]).unwrap();
    let error = runtime.open(&[gid]).err().expect("a second owner");
    assert!(matches!(error, UplinkError::Taken { .. }));
    let text = error.to_string();
    assert!(text.contains("::ffff:10.1.0.4") && text.contains("\"test\""), "{text}");
    drop(live);
    assert!(!runtime.socket(gid).exists(), "the socket goes with its owner");
    // What a killed process leaves: the file of a socket that nobody has open.
    drop(UnixDatagram::bind(runtime.socket(gid)).unwrap());
    assert!(runtime.socket(gid).exists());
    let again = runtime.open(&[gid]).unwrap();
    assert!(matches!(runtime.open(&[gid]), Err(UplinkError::Taken { .. })));
    // A file that somebody else made meanwhile is not removed.
    fs::remove_file(runtime.socket(gid)).unwrap();
    let _other = UnixDatagram::bind(runtime.socket(gid)).unwrap();
    drop(again);
    assert!(runtime.socket(gid).exists());
}

#[test]
fn a_newcomer_removes_the_sockets_of_all_who_are_gone() {
    let runtime = Runtime::new();
    let gid = |pe| NicConfig::new("mlx5_0", pe, 0).gid;
    let live = runtime.open(&[gid(0)]).unwrap();
    drop(UnixDatagram::bind(runtime.socket(gid(5))).unwrap());
    drop(UnixDatagram::bind(runtime.socket(gid(6))).unwrap());
    let strange = runtime.0.join("fabric-test/notes.sock");
    fs::write(&strange, "not a socket's name").unwrap();
    let _own = runtime.open(&[gid(1)]).unwrap();
    let there = [0, 1, 5, 6].map(|pe| runtime.socket(gid(pe)).exists());
    assert_eq!(there, [true, true, false, false]);
    assert!(strange.exists());
    drop(live);
}

#[test]
fn a_fabric_goes_when_nobody_has_anything_in_it() {
    let runtime = Runtime::new();
    let directory = runtime.0.join("fabric-test");
    let live = runtime.open(&[[7; 16]]).unwrap();
    let remove = || remove_unused_in(&runtime.0, "test").unwrap();
    assert!(!remove() && runtime.socket([7; 16]).exists(), "a socket answers");
    drop(live);
    fs::create_dir(directory.join("sysfs-1")).unwrap();
    let tree = fs::File::open(directory.join("sysfs-1")).unwrap();
    tree.lock_shared().unwrap();
    assert!(!remove() && directory.join("sysfs-1").exists(), "a directory is held");
    drop(tree);
    drop(UnixDatagram::bind(runtime.socket([8; 16])).unwrap());
    drop(UnixListener::bind(directory.join("control-1.sock")).unwrap());
    assert!(remove() && !directory.exists());
    assert!(remove(), "there is none");
}

#[test]
fn a_place_that_others_get_into_is_refused() {
    let runtime = Runtime::new();
    let open = |name: &str| UnixUplink::open_in(&runtime.0, name, &[[7; 16]]).map(drop);
    open("test").unwrap();
    let mode = |path: &PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&runtime.0, 0o750);
    let error = open("test").unwrap_err();
    assert!(matches!(error, UplinkError::Permissions { mode: 0o750, .. }), "{error}");
    mode(&runtime.0, 0o700);
    mode(&runtime.0.join("fabric-test"), 0o701);
    assert!(matches!(open("test"), Err(UplinkError::Permissions { mode: 0o701, .. })));
    mode(&runtime.0.join("fabric-test"), 0o700);
    // Only a privileged user can give a directory away, to find it refused.
    if chown(runtime.0.join("fabric-test"), Some(54_321), None).is_ok() {
        let error = open("test").unwrap_err().to_string();
        assert!(error.contains("belongs to user 54321, not to user 0"), "{error}");
    }
    symlink("/tmp", runtime.0.join("fabric-link")).unwrap();
    assert!(matches!(open("link"), Err(UplinkError::NotADirectory(_))));
    fs::write(runtime.0.join("fabric-file"), "").unwrap();
    assert!(matches!(open("file"), Err(UplinkError::NotADirectory(_))));
    for name in ["", "a/b", "..\0", "ä", &"x".repeat(33)] {
        assert!(matches!(open(name), Err(UplinkError::Name(_))), "{name:?}");
    }
    let deep = runtime.0.join("d".repeat(80));
    let error = UnixUplink::open_in(&deep, "test", &[[7; 16]]).err().expect("too long a path");
    assert!(matches!(error, UplinkError::PathTooLong(_)), "{error}");
}

#[test]
fn every_nic_has_addresses_of_its_own() {
    let (mut gids, mut macs) = (std::collections::HashSet::new(), std::collections::HashSet::new());
    for pe in 0..4096 {
        for rail in 0..64 {
            let config = NicConfig::new("", pe, rail);
            assert!(gids.insert(config.gid) && macs.insert(config.mac), "{pe}.{rail}");
            // What a `gid-change` makes of it is nobody else's either.
            let mut moved = config.gid;
            moved[14] ^= 0x80;
            assert!(gids.insert(moved), "{pe}.{rail}");
        }
    }
    // LIDs are 16 bits: 3071 PEs of 16 rails have unicast ones of their own.
    let mut lids = std::collections::HashSet::new();
    for (pe, rail) in (0..3071).flat_map(|pe| (0..16).map(move |rail| (pe, rail))) {
        let lid = NicConfig::new("", pe, rail).lid;
        assert!((1..0xc000).contains(&lid) && lids.insert(lid), "{pe}.{rail}");
    }
}
