//! Kinds of devices: each refuses, reports and does otherwise what its profile says. The control of every test is a
//! profile that does not.

use crate::rig::{End, Options, Rig, header, init2rtr, rst2init};
use shunt_layout::bits::Field;
use shunt_layout::mlx5::prm::caps::{self, CAPABILITY_OFFSET, TimestampCap};
use shunt_layout::mlx5::prm::cmd::{Opcode as Cmd, Status, input};
use shunt_layout::mlx5::prm::port::{
    ALL_ENTRIES, HCA_VPORT_GID_OUT_BYTES, HCA_VPORT_PKEY_OUT_BYTES, HCA_VPORT_TABLE_OFFSET,
    hca_vport_gid_out, hca_vport_table_in,
};
use shunt_layout::mlx5::prm::qp::{self, ADS_OFFSET, QPC_OFFSET, ads, qpc};
use shunt_layout::mlx5::wqe::{self, Opcode, Segment};
use shunt_soft_nic::command::syndrome_meaning;
use shunt_soft_nic::profile::{PROFILES, Profile};

fn rig(profile: &str) -> Rig {
    with(profile.parse().unwrap())
}

fn with(profile: Profile) -> Rig {
    // The rig's own queues lie close together.
    as_it_is(Profile { umem_align: 1, ..profile })
}

fn as_it_is(profile: Profile) -> Rig {
    Rig::with(1, |config| *config = config.clone().with_profile(profile))
}

/// A capability of the first NIC.
fn capability(rig: &mut Rig, group: u32, field: Field) -> u32 {
    let mut query = header(Cmd::QueryHcaCap, 0);
    input::OP_MOD.set(&mut query, caps::op_mod_current(group));
    let out = rig.command(rig.hosts[0].nic, &query, caps::OUT_BYTES);
    field.within(CAPABILITY_OFFSET).get(&out)
}

/// How the profiles answer, those but the ones named the same: (0 or what they say).
fn only(answer: impl Fn(Profile) -> u32, want: u32, names: &[&str]) {
    for profile in PROFILES {
        let met = answer(*profile) == want;
        assert_eq!(met, names.contains(&profile.name), "{}", profile.name);
    }
}

/// INIT2RTR with one more field, of a fresh end in INIT: status, and what the syndrome means.
fn try_rtr(profile: Profile, field: Field, value: u32) -> (u8, &'static str) {
    let mut rig = with(profile);
    let end = rig.end(0, Options { mtu: 1, ..Options::default() });
    let nic = rig.hosts[0].nic;
    rig.command(nic, &rst2init(&end), 16);
    let mut rtr = init2rtr(&end, 0x77);
    field.within(QPC_OFFSET).set(&mut rtr, value);
    let out = rig.try_command(nic, &rtr, 16);
    (out[0], syndrome_meaning(&out))
}

const OK: u8 = Status::Ok as u8;
const BAD_PARAM: u8 = Status::BadParam as u8;
const BAD_INDEX: u8 = Status::BadIndex as u8;

#[test]
fn force_loopback_is_refused_without_its_capability() {
    let forced = |profile| try_rtr(profile, ads::FL.within(ADS_OFFSET), 1);
    only(|profile| forced(profile).0 as u32, BAD_PARAM as u32, &["cx5", "bf3", "vf", "ib-ar"]);
    assert!(forced("vf".parse().unwrap()).1.contains("no force loopback"));
    let enabled =
        |profile| capability(&mut with(profile), caps::ROCE, caps::roce::FL_RC_QP_WHEN_ROCE_ENABLED);
    only(enabled, 0, &["cx5", "bf3", "vf", "ib-ar"]);
    // InfiniBand is a port with RoCE off.
    let profile = "ib-ar".parse().unwrap();
    let mut rig =
        Rig::with(1, |config| *config = config.clone().with_profile(profile).with_port_of_profile(0));
    let end = rig.end(0, Options { mtu: 1, ..Options::default() });
    rig.command(rig.hosts[0].nic, &rst2init(&end), 16);
    let mut rtr = init2rtr(&end, 0x77);
    ads::FL.within(QPC_OFFSET + ADS_OFFSET).set(&mut rtr, 1);
    rig.command(rig.hosts[0].nic, &rtr, 16);
}

#[test]
fn a_path_mtu_above_the_ports_is_refused() {
    only(|profile| try_rtr(profile, qpc::MTU, 5).0 as u32, BAD_PARAM as u32, &["vf", "ib-ar"]);
    let ib: Profile = "ib-ar".parse().unwrap();
    assert_eq!(try_rtr(ib, qpc::MTU, 4).0, OK, "2 KiB are what it has");
    assert!(try_rtr(ib, qpc::MTU, 5).1.contains("no larger than the port's"));
}

#[test]
fn an_order_that_the_device_has_not_is_refused() {
    let asked = |profile| try_rtr(profile, qpc::DP_ORDERING_0, 1).0 as u32;
    only(asked, BAD_PARAM as u32, &["soft", "vf", "strict"]);
    assert!(PROFILES.iter().all(|profile| try_rtr(*profile, qpc::DP_ORDERING_1, 1).0 == BAD_PARAM));
}

#[test]
fn capabilities_of_order_are_told() {
    let general = |field| move |profile| capability(&mut with(profile), caps::GENERAL, field);
    only(general(caps::general::QP_DATA_IN_ORDER), 0, &["cx5"]);
    only(general(caps::general::DP_ORDERING_OOO_RW_RC), 0, &["soft", "vf", "strict"]);
    let force = |profile| capability(&mut with(profile), caps::GENERAL_2, caps::general_2::DP_ORDERING_FORCE);
    only(force, 0, &["cx5", "vf", "ib-ar"]);
}

/// A pair whose both ends force their order, or take what the network does.
fn pair(rig: &mut Rig, forced: bool) -> (End, End) {
    let options = Options { mtu: 3, ..Options::default() };
    let (a, b) = (rig.end(0, options), rig.end(1, options));
    let numbers = [a.qpn, b.qpn];
    for (end, remote) in [(&a, 1), (&b, 0)] {
        let (nic, other) = (rig.hosts[end.host].nic, rig.fabric.nic(rig.hosts[remote].nic).config().clone());
        rig.command(nic, &rst2init(end), 16);
        let mut rtr = init2rtr(end, numbers[remote]);
        qpc::DP_ORDERING_FORCE.within(QPC_OFFSET).set(&mut rtr, forced as u32);
        ads::set_rgid(&mut rtr[QPC_OFFSET + ADS_OFFSET..], other.gid);
        let mac = other.mac.iter().fold(0u64, |mac, byte| mac << 8 | *byte as u64);
        let at = |field: Field| field.within(QPC_OFFSET + ADS_OFFSET);
        at(ads::RMAC_47_32).set(&mut rtr, (mac >> 32) as u32);
        at(ads::RMAC_31_0).set(&mut rtr, mac as u32);
        rig.command(nic, &rtr, 16);
        rig.command(nic, &crate::rig::rtr2rts(end), 16);
    }
    (a, b)
}

/// Whether data of 64 KiB, and a flag of 8 bytes behind it, ever lie in memory in the wrong order: (the flag before all
/// of the data, a later packet before an earlier one).
fn overtaken(rig: &mut Rig, a: &mut End) -> (bool, bool) {
    const BYTES: usize = 1 << 16;
    rig.hosts[0].heap.fill(0, BYTES, 3);
    rig.hosts[0].heap.set64(BYTES, 1);
    rig.hosts[1].heap.set64(BYTES, 0);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), rig.local(0, 0, BYTES as u32)]);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, BYTES), rig.local(0, BYTES, 8)]);
    rig.ring(a);
    let (mut flag, mut packet) = (false, false);
    let end = rig.now + 10_000_000;
    rig.step_to(rig.now);
    while let Some(due) = rig.fabric.next_due().filter(|due| *due <= end) {
        rig.step_to(due);
        let heap = &rig.hosts[1].heap;
        let whole = heap.holds(0, BYTES, 3);
        flag |= heap.get64(BYTES) == 1 && !whole;
        let landed: Vec<bool> = (0..BYTES / 1024).map(|n| heap.get64(n * 1024 + 8) != 0).collect();
        packet |= landed.windows(2).any(|two| !two[0] && two[1]);
    }
    assert!(
        rig.hosts[1].heap.holds(0, BYTES, 3) && rig.hosts[1].heap.get64(BYTES) == 1,
        "all lands in the end"
    );
    let done: Vec<_> = std::iter::from_fn(|| a.poll()).map(|done| (done.counter, done.syndrome)).collect();
    assert_eq!(done, [(0, 0), (1, 0)], "completions stay in order");
    (flag, packet)
}

#[test]
fn writes_land_out_of_order_where_the_network_routes_and_nobody_forces() {
    for profile in PROFILES {
        let routed = ["cx7", "bf3", "ib-ar"].contains(&profile.name);
        for forced in [false, true] {
            let mut rig = with(*profile);
            let (mut a, b) = pair(&mut rig, forced);
            let scattered = routed && !(forced && profile.name != "ib-ar");
            let said = rig.query(&b, qpc::DATA_IN_ORDER);
            let told = profile.name != "cx5";
            assert_eq!(said, (told && !scattered) as u32, "{} {forced}", profile.name);
            assert_eq!(overtaken(&mut rig, &mut a), (scattered, scattered), "{} {forced}", profile.name);
        }
    }
}

#[test]
fn data_in_order_is_told_in_rts_only() {
    let mut rig = rig("cx6dx");
    let end = rig.end(0, Options::default());
    assert_eq!(rig.query(&end, qpc::DATA_IN_ORDER), 0);
    let (_, b) = pair(&mut rig, false);
    assert_eq!(rig.query(&b, qpc::DATA_IN_ORDER), 1);
    rig.fence(&b);
    assert_eq!(rig.query(&b, qpc::DATA_IN_ORDER), 0);
}

#[test]
fn atomics_and_receives_stay_behind_what_was_sent_before() {
    const BYTES: usize = 1 << 16;
    let mut rig = rig("ib-ar");
    rig.hosts[0].heap.fill(0, BYTES, 3);
    let (mut a, _) = pair(&mut rig, false);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), rig.local(0, 0, BYTES as u32)]);
    let add: Segment = [0, 1u32.to_be(), 0, 0];
    a.post(Opcode::AtomicFa, &[rig.remote(1, BYTES), add, rig.local(0, BYTES, 8)]);
    rig.ring(&a);
    let mut seen = false;
    let end = rig.now + 10_000_000;
    rig.step_to(rig.now);
    while let Some(due) = rig.fabric.next_due().filter(|due| *due <= end) {
        rig.step_to(due);
        let heap = &rig.hosts[1].heap;
        if heap.get64(BYTES) == 1 {
            assert!(heap.holds(0, BYTES, 3), "the atomic is seen before the data");
            seen = true;
        }
    }
    assert!(seen);
    // The completion of a receive says that its message is there.
    let options = Options { mtu: 3, log_rq: Some(3), ..Options::default() };
    let (mut c, mut d) = rig.pair(0, 1, options);
    d.post_receive(&[rig.local(1, 0, 8)]);
    rig.hosts[1].heap.fill(0x2_0000, BYTES, 9);
    c.post_imm(Opcode::RdmaWriteImm, 5, &[rig.remote(1, 0x2_0000), rig.local(0, 0, BYTES as u32)]);
    rig.ring(&c);
    rig.step_to(rig.now);
    loop {
        if d.poll_receive().is_some() {
            assert!(rig.hosts[1].heap.holds(0x2_0000, BYTES, 3), "the receive completes before the data");
            break;
        }
        let due = rig.fabric.next_due().expect("a completion is due");
        rig.step_to(due);
    }
}

/// An atomic that waited for writes in any order had the instant of the last of them, and was executed before it.
#[test]
fn an_atomic_meets_the_write_before_it() {
    let mut rig = rig("ib-ar");
    let (mut a, _) = pair(&mut rig, false);
    for round in 0..20u64 {
        let word = 100 * round;
        (0..8).for_each(|n| rig.hosts[0].heap.set64(8 * n, word));
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), rig.local(0, 0, 64)]);
        a.post(Opcode::AtomicFa, &[rig.remote(1, 0), [0, 1u32.to_be(), 0, 0], rig.local(0, 64, 8)]);
        rig.complete(&mut a, 2);
        assert_eq!((rig.hosts[0].heap.get64(64), rig.hosts[1].heap.get64(0)), (word, word + 1));
    }
}

#[test]
fn masked_atomics_fail_where_there_are_none() {
    let masked = |profile| {
        let mut rig = with(profile);
        let (mut a, _) = rig.pair(0, 1, Options { mtu: 1, ..Options::default() });
        a.post_with(
            Opcode::AtomicMaskedFa as u8,
            0x09,
            wqe::CqeWhen::Always as u8,
            &[rig.remote(1, 0), [0, 1u32.to_be(), 0, 0], rig.local(0, 64, 8)],
        );
        let syndrome = rig.complete(&mut a, 1)[0].syndrome;
        assert_eq!(rig.hosts[1].heap.get64(0), (syndrome == 0) as u64);
        syndrome as u32
    };
    // Local QP operation error.
    only(masked, 0x02, &["vf"]);
    let told = |profile| capability(&mut with(profile), caps::ATOMIC, caps::atomic::ATOMIC_OPERATIONS);
    only(told, caps::ATOMIC_COMPARE_SWAP | caps::ATOMIC_FETCH_ADD, &["vf"]);
}

#[test]
fn answers_of_atomics_have_the_byte_order_that_is_told() {
    for big_endian in [false, true] {
        let mut profile = Profile::default();
        profile.atomics.big_endian = big_endian;
        let mut rig = with(profile);
        assert_eq!(
            capability(&mut rig, caps::ATOMIC, caps::atomic::REQ_8B_ENDIANNESS_MODE),
            !big_endian as u32
        );
        let (mut a, _) = rig.pair(0, 1, Options::default());
        rig.hosts[1].heap.set64(0, 0x0102);
        a.post(Opcode::AtomicFa, &[rig.remote(1, 0), [0, 1u32.to_be(), 0, 0], rig.local(0, 64, 8)]);
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
        let host = 0x0102u64;
        assert_eq!(rig.hosts[0].heap.get64(64), if big_endian { host.swap_bytes() } else { host });
        assert_eq!(rig.hosts[1].heap.get64(0), 0x0103, "the word itself is always in the host's order");
    }
}

/// CREATE_QP with one more field, on a NIC that has all it needs: the status.
fn try_create(profile: Profile, set: impl Fn(&mut Vec<u8>)) -> (u8, &'static str) {
    let mut rig = as_it_is(profile);
    let (nic, host) = (rig.hosts[0].nic, &rig.hosts[0]);
    let (umem, uar, pd) = (host.umem, host.uar.id, host.pd);
    let options = Options { log_depth: 6, log_cq: 6, ..Options::default() };
    let made = rig.command(nic, &crate::rig::cq_mailbox(umem, uar, options, 0x1_0000, 0x2_0000), 16);
    let mut make = crate::rig::context(Cmd::CreateQp, 0);
    qp::create::WQ_UMEM_ID.set(&mut make, umem);
    let mut put = |field: Field, value| field.within(QPC_OFFSET).set(&mut make, value);
    put(qpc::PM_STATE, qp::PM_STATE_MIGRATED);
    put(qpc::RQ_TYPE, qp::RQ_TYPE_ZERO_SIZE);
    put(qpc::PD, pd);
    put(qpc::UAR_PAGE, uar);
    put(qpc::CQN_SND, shunt_layout::mlx5::prm::cmd::output::OBJECT.get(&made));
    put(qpc::LOG_SQ_SIZE, options.log_depth);
    put(qpc::DBR_UMEM_VALID, 1);
    put(qpc::DBR_UMEM_ID, umem);
    put(qpc::TS_FORMAT, qp::Timestamp::Default as u32);
    set(&mut make);
    let out = rig.try_command(nic, &make, 16);
    (out[0], syndrome_meaning(&out))
}

#[test]
fn a_clock_that_the_device_has_not_is_refused() {
    let clock = |format: qp::Timestamp| {
        move |profile| {
            try_create(profile, |make| qpc::TS_FORMAT.within(QPC_OFFSET).set(make, format as u32)).0 as u32
        }
    };
    only(clock(qp::Timestamp::FreeRunning), BAD_PARAM as u32, &["cx6dx"]);
    only(clock(qp::Timestamp::RealTime), BAD_PARAM as u32, &["cx5"]);
    only(clock(qp::Timestamp::Default), BAD_PARAM as u32, &[]);
    let told = |profile| capability(&mut with(profile), caps::ROCE, caps::roce::QP_TS_FORMAT);
    only(told, TimestampCap::RealTime as u32, &["cx6dx"]);
    only(told, TimestampCap::FreeRunning as u32, &["cx5"]);
}

#[test]
fn queues_off_the_deduced_page_are_refused() {
    let at = |offset: u64| move |make: &mut Vec<u8>| qp::create::WQ_UMEM_OFFSET.set(make, offset);
    only(|profile| try_create(profile, at(0x1000)).0 as u32, BAD_PARAM as u32, &["strict"]);
    only(|profile| try_create(profile, at(0x3_0000)).0 as u32, BAD_PARAM as u32, &[]);
    assert!(try_create("strict".parse().unwrap(), at(0x1000)).1.contains("64 KiB"));
    let queue = |profile| {
        let mut rig = as_it_is(profile);
        let (nic, umem, uar) = (rig.hosts[0].nic, rig.hosts[0].umem, rig.hosts[0].uar.id);
        let make = crate::rig::cq_mailbox(umem, uar, Options::default(), 0x1000, 0x2_0000);
        rig.try_command(nic, &make, 16)[0] as u32
    };
    only(queue, BAD_PARAM as u32, &["strict"]);
}

#[test]
fn message_counts_go_with_2err_on_one_device() {
    let counted = |profile| {
        let mut rig = with(profile);
        let (mut a, b) = rig.pair(0, 1, Options { mtu: 1, ..Options::default() });
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 8), wqe::inline8(1)]);
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
        assert_eq!(rig.query(&b, qpc::RMSN), 1);
        rig.fence(&b);
        rig.query(&b, qpc::RMSN)
    };
    only(counted, 0, &["cx5"]);
}

#[test]
fn an_infiniband_port_tells_its_tables() {
    let profile = "ib-ar".parse().unwrap();
    let mut rig = Rig::with(2, |config| {
        let rail = config.gid[13] as u32;
        *config = config.clone().with_profile(profile).with_port_of_profile(rail);
    });
    let ask = |op, index| {
        let mut mailbox = header(op, 0);
        hca_vport_table_in::PORT_NUM.set(&mut mailbox, 1);
        hca_vport_table_in::INDEX.set(&mut mailbox, index);
        mailbox
    };
    let subnets = [0, 1].map(|host| {
        let out = rig.command(rig.hosts[host].nic, &ask(Cmd::QueryHcaVportGid, 0), HCA_VPORT_GID_OUT_BYTES);
        let gid = hca_vport_gid_out::gid(&out);
        u64::from_be_bytes(gid[..8].try_into().unwrap())
    });
    assert_eq!(subnets, [0xfec0_0000_0000_0100, 0xfec0_0000_0000_0101]);
    let nic = rig.hosts[0].nic;
    let room = HCA_VPORT_TABLE_OFFSET + 8;
    let out = rig.command(nic, &ask(Cmd::QueryHcaVportPkey, ALL_ENTRIES), room);
    assert_eq!(out[HCA_VPORT_TABLE_OFFSET..], [0, 0, 0x7f, 0xff, 0, 0, 0x80, 0x05]);
    let beyond = rig.try_command(nic, &ask(Cmd::QueryHcaVportPkey, 2), HCA_VPORT_PKEY_OUT_BYTES);
    assert_eq!(beyond[0], BAD_INDEX);
    // A queue pair names an entry of that table.
    for (index, status) in [(1, OK), (2, BAD_INDEX)] {
        let end = rig.end(0, Options { mtu: 1, ..Options::default() });
        let mut init = rst2init(&end);
        ads::PKEY_INDEX.within(QPC_OFFSET + ADS_OFFSET).set(&mut init, index);
        rig.command(nic, &init, 16);
        assert_eq!(rig.try_command(nic, &init2rtr(&end, 0x77), 16)[0], status, "{index}");
    }
}

/// Devices without options of connections.
const WITHOUT_ECE: [&str; 3] = ["cx5", "vf", "ib-ar"];

/// Sends a mailbox with `ece` to the first NIC: status, syndrome's meaning, and the options that are answered.
fn with_ece(rig: &mut Rig, mut mailbox: Vec<u8>, options: u32) -> (u8, &'static str, u32) {
    qp::change::ECE.set(&mut mailbox, options);
    let out = rig.try_command(rig.hosts[0].nic, &mailbox, 16);
    (out[0], syndrome_meaning(&out), qp::answer::ECE.get(&out))
}

fn in_force(rig: &mut Rig, end: &End) -> u32 {
    let out = rig.command(rig.hosts[0].nic, &header(Cmd::QueryQp, end.qpn), qp::QUERY_OUT_BYTES);
    qp::queried::ECE.get(&out)
}

#[test]
fn a_queue_pair_that_is_asked_says_the_options_of_its_device() {
    only(
        |profile| capability(&mut with(profile), caps::GENERAL, caps::general::ECE_SUPPORT),
        0,
        &WITHOUT_ECE,
    );
    for profile in PROFILES {
        let mut rig = with(*profile);
        let end = rig.end(0, Options::default());
        let made = |rig: &mut Rig, mailbox, ece| with_ece(rig, mailbox, ece);
        assert_eq!(
            made(&mut rig, end.created.clone(), 0),
            (OK, "none", 0),
            "{}: no option was asked for",
            profile.name
        );
        let asked = made(&mut rig, end.created.clone(), qp::ece::TRIGGER);
        let datagrams = rig.end(0, Options { datagram: Some(1), log_rq: Some(2), ..Options::default() });
        let of_datagrams = made(&mut rig, datagrams.created.clone(), qp::ece::TRIGGER);
        if WITHOUT_ECE.contains(&profile.name) {
            assert_eq!((asked.0, of_datagrams.0), (BAD_PARAM, BAD_PARAM), "{}", profile.name);
            assert!(asked.1.contains("ece_support"), "{}", asked.1);
        } else {
            assert_eq!(asked, (OK, "none", profile.ece.0), "{}", profile.name);
            assert_eq!(of_datagrams, (OK, "none", 0), "{}: connections have options", profile.name);
        }
    }
}

#[test]
fn options_that_the_device_has_not_are_dropped_or_refused() {
    let try_ece = |profile: &str, options| {
        let mut rig = rig(profile);
        let end = rig.end(0, Options { mtu: 1, ..Options::default() });
        rig.command(rig.hosts[0].nic, &rst2init(&end), 16);
        let answer = with_ece(&mut rig, init2rtr(&end, 0x77), options);
        let met = in_force(&mut rig, &end);
        assert_eq!(met, answer.2, "{profile} {options:#x}: QUERY_QP and INIT2RTR");
        answer
    };
    assert_eq!(try_ece("cx7", 0x3000_0007), (OK, "none", 0x3000_0003), "one algorithm");
    assert_eq!(try_ece("cx7", 0x3000_0009), (OK, "none", 0x3000_0001), "an algorithm it has not");
    assert_eq!(try_ece("cx6dx", 0x3000_0007), (OK, "none", 0x2000_0001), "the older version");
    assert_eq!(try_ece("cx7", 0), (OK, "none", 0));
    for (profile, options, why) in [
        ("cx7", 0x3000_0200, "no version"),
        ("cx7", 0x0000_0001, "no version"),
        ("cx6dx", 0x2000_0002, "no version"),
        ("cx5", 0x2000_0001, "ece_support"),
        ("vf", 0x1000_0000, "ece_support"),
    ] {
        let (status, meaning, answer) = try_ece(profile, options);
        assert_eq!((status, answer), (BAD_PARAM, 0), "{profile} {options:#x}");
        assert!(meaning.contains(why), "{profile} {options:#x}: {meaning}");
    }
}

#[test]
fn options_are_settled_once() {
    let mut rig = rig("cx7");
    let end = rig.end(0, Options { mtu: 1, ..Options::default() });
    let refused = |answer: (u8, &str, u32)| answer.0 == BAD_PARAM && answer.1.contains("settled");
    // The RDMA connection manager settles them at RST2INIT, and names none later.
    assert_eq!(with_ece(&mut rig, rst2init(&end), 0x3000_0003), (OK, "none", 0x3000_0003));
    assert!(refused(with_ece(&mut rig, init2rtr(&end, 0x77), 0x2000_0001)));
    assert_eq!(with_ece(&mut rig, init2rtr(&end, 0x77), 0), (OK, "none", 0x3000_0003));
    assert!(refused(with_ece(&mut rig, crate::rig::rtr2rts(&end), 0x2000_0001)));
    assert_eq!(with_ece(&mut rig, crate::rig::rtr2rts(&end), 0x3000_0003), (OK, "none", 0x3000_0003));
    assert_eq!(in_force(&mut rig, &end), 0x3000_0003);
    rig.command(rig.hosts[0].nic, &header(Cmd::Qp2Rst, end.qpn), 16);
    assert_eq!(in_force(&mut rig, &end), 0, "2RST forgets them");
    // Connected without any, it gets none later.
    rig.command(rig.hosts[0].nic, &rst2init(&end), 16);
    rig.command(rig.hosts[0].nic, &init2rtr(&end, 0x77), 16);
    assert!(refused(with_ece(&mut rig, crate::rig::rtr2rts(&end), 0x3000_0003)));
}

#[test]
fn commands_take_what_the_profile_draws() {
    let times = |profile: Profile| {
        let mut rig = with(profile);
        let nic = rig.hosts[0].nic;
        (0..400)
            .map(|_| {
                let from = rig.now;
                rig.command(nic, &header(Cmd::Nop, 0), 16);
                rig.now - from
            })
            .collect::<Vec<u64>>()
    };
    for profile in PROFILES {
        let (met, again) = (times(*profile), times(*profile));
        assert_eq!(met, again, "{}: the same in each run", profile.name);
        let distinct = met.iter().collect::<std::collections::BTreeSet<_>>().len();
        match profile.command_time {
            None => assert_eq!(distinct, 1, "{}", profile.name),
            Some(shares) => {
                assert!(distinct > 100, "{}: {distinct} times", profile.name);
                let fits = |ns: &u64| shares.iter().any(|share| (share.from_ns..share.to_ns).contains(ns));
                assert!(met.iter().all(fits), "{}", profile.name);
                assert!(met.iter().any(|ns| *ns > 1_000_000), "{}: none is slow", profile.name);
            }
        }
    }
}
