//! Mailboxes: status codes, states, latency, queries; golden bytes from the PRM.

use crate::rig;
use crate::rig::{Options, Rig, context, header, heap_key, rst2init, rtr2rts};
use shunt_layout::bits::Field;
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::mlx5::prm::caps::{self, CAPABILITY_OFFSET, atomic, general};
use shunt_layout::mlx5::prm::cmd::{Opcode as Cmd, Status, input, output};
use shunt_layout::mlx5::prm::qp::{self, QPC_OFFSET, State, optional, qpc};
use shunt_layout::mlx5::prm::{cq, pd, port};
use shunt_layout::mlx5::wqe::{Opcode as WqeOpcode, inline8};
use shunt_soft_nic::{LinkLayer, NicError, trace};

fn status(rig: &mut Rig, mailbox: &[u8], out_len: usize) -> u8 {
    let nic = rig.hosts[0].nic;
    rig.try_command(nic, mailbox, out_len)[0]
}

#[test]
fn one_command_at_a_time_and_each_takes_its_time() {
    let mut rig = Rig::new(1);
    let nic = rig.hosts[0].nic;
    let start = rig.now;
    let ids: Vec<_> =
        (0..3).map(|_| rig.fabric.nic(nic).command_submit(start, &header(Cmd::Nop, 0), 16)).collect();
    let done_at = |rig: &mut Rig, now: u64| -> Vec<bool> {
        ids.iter().map(|id| rig.fabric.nic(nic).command_poll(now, *id).is_some()).collect()
    };
    assert_eq!(done_at(&mut rig, start + 99_999), [false, false, false]);
    assert_eq!(done_at(&mut rig, start + 100_000), [true, false, false]);
    assert_eq!(done_at(&mut rig, start + 300_000), [false, true, true], "an answer is given once");
}

#[test]
fn effects_happen_at_completion() {
    let mut rig = Rig::new(1);
    let (a, _b) = rig.pair(0, 1, Options::default());
    let nic = rig.hosts[0].nic;
    let now = rig.now;
    rig.fabric.nic(nic).command_submit(now, &header(Cmd::Qp2Err, a.qpn), 16);
    let id = rig.fabric.nic(nic).command_submit(now, &header(Cmd::QueryQp, a.qpn), 272);
    rig.run_for(150_000);
    let out = loop {
        rig.run_for(10_000);
        let now = rig.now;
        if let Some(out) = rig.fabric.nic(nic).command_poll(now, id) {
            break out;
        }
    };
    assert_eq!(qpc::STATE.within(QPC_OFFSET).get(&out), State::Err as u32);
}

#[test]
fn lengths_opcodes_and_objects_are_judged() {
    let mut rig = Rig::new(1);
    assert_eq!(status(&mut rig, &[], 16), Status::BadInputLen as u8);
    assert_eq!(status(&mut rig, &[0; 15], 16), Status::BadInputLen as u8);
    assert_eq!(status(&mut rig, &[0; 16], 16), Status::BadOp as u8);
    assert_eq!(status(&mut rig, &header(Cmd::CreateQp, 0), 16), Status::BadInputLen as u8);
    assert_eq!(status(&mut rig, &header(Cmd::QueryQp, 0x40), 16), Status::BadOutputLen as u8);
    for gone in [
        Cmd::QueryQp,
        Cmd::DestroyQp,
        Cmd::Qp2Err,
        Cmd::Qp2Rst,
        Cmd::DestroyCq,
        Cmd::DestroyMkey,
        Cmd::DeallocPd,
    ] {
        assert_eq!(status(&mut rig, &header(gone, 0x3f), 4112), Status::BadRes as u8, "{gone:?}");
    }
    let nic = rig.hosts[0].nic;
    let out = rig.try_command(nic, &header(Cmd::QueryQp, 0x40_0000), 272);
    assert_eq!(trace::answer(&out), "BAD_RES: no such queue pair");
    assert_eq!(out.len(), 272);
}

#[test]
fn transitions_start_from_their_state() {
    let mut rig = Rig::new(1);
    let end = rig.end(0, Options::default());
    let bad_state = Status::BadQpState as u8;
    assert_eq!(status(&mut rig, &context(Cmd::Init2RtrQp, end.qpn), 16), bad_state);
    assert_eq!(status(&mut rig, &rtr2rts(&end), 16), bad_state);
    assert_eq!(status(&mut rig, &header(Cmd::Qp2Err, end.qpn), 16), bad_state);
    assert_eq!(status(&mut rig, &context(Cmd::Rst2InitQp, end.qpn), 16), Status::BadParam as u8, "pm_state");
    assert_eq!(status(&mut rig, &rst2init(&end), 16), 0);
    assert_eq!(status(&mut rig, &rst2init(&end), 16), bad_state);
    assert_eq!(status(&mut rig, &context(Cmd::Init2RtrQp, end.qpn), 16), Status::BadParam as u8, "mtu 0");
    assert_eq!(rig.state(&end), State::Init);
    assert_eq!(status(&mut rig, &header(Cmd::Qp2Err, end.qpn), 16), 0);
    assert_eq!(status(&mut rig, &header(Cmd::Qp2Err, end.qpn), 16), 0, "ERR to ERR is allowed");
    assert_eq!(status(&mut rig, &header(Cmd::Qp2Rst, end.qpn), 16), 0);
    assert_eq!(rig.state(&end), State::Rst);
}

#[test]
fn objects_in_use_stay() {
    let mut rig = Rig::new(1);
    let end = rig.end(0, Options::default());
    let (pd, umem, nic) = (rig.hosts[0].pd, rig.hosts[0].umem, rig.hosts[0].nic);
    let busy = Status::ResBusy as u8;
    assert_eq!(status(&mut rig, &header(Cmd::DestroyCq, end.cqn), 16), busy);
    assert_eq!(status(&mut rig, &header(Cmd::DeallocPd, pd), 16), busy);
    assert_eq!(rig.fabric.nic(nic).deregister_umem(umem), Err(NicError::UmemBusy { id: umem, users: 1 }));
    assert_eq!(status(&mut rig, &header(Cmd::DestroyQp, end.qpn), 16), 0);
    assert_eq!(status(&mut rig, &header(Cmd::DestroyQp, end.qpn), 16), Status::BadRes as u8);
    assert_eq!(status(&mut rig, &header(Cmd::DestroyCq, end.cqn), 16), 0);
    let key = rig.hosts[0].key >> 8;
    assert_eq!(status(&mut rig, &header(Cmd::DestroyMkey, key), 16), 0);
    assert_eq!(status(&mut rig, &header(Cmd::DeallocPd, pd), 16), 0);
    assert_eq!(rig.fabric.nic(nic).deregister_umem(umem), Ok(()));
    assert_eq!(rig.fabric.nic(nic).deregister_umem(umem), Err(NicError::UnknownUmem(umem)));
    let again = rig.hosts[1].nic;
    // SAFETY: refused before anything is touched.
    assert!(unsafe { rig.fabric.nic(again).register_umem(u64::MAX, 2) }.is_err());
}

#[test]
fn a_queue_pair_number_is_not_used_again() {
    let mut rig = Rig::new(1);
    let mut last = 0;
    for _ in 0..20 {
        let end = rig.end(0, Options::default());
        assert!(end.qpn > last);
        last = end.qpn;
        rig.command(rig.hosts[0].nic, &header(Cmd::DestroyQp, end.qpn), 16);
    }
}

#[test]
fn queues_must_lie_in_their_umems() {
    let mut rig = Rig::new(1);
    let (nic, umem, uar, pd) = (rig.hosts[0].nic, rig.hosts[0].umem, rig.hosts[0].uar.id, rig.hosts[0].pd);
    let cq = |umem: u32, offset: u64, uar: u32, record: u64| {
        let mut make = header(Cmd::CreateCq, 0);
        make.resize(cq::CREATE_IN_BYTES, 0);
        cq::create::CQ_UMEM_ID.set(&mut make, umem);
        cq::create::CQ_UMEM_OFFSET.set(&mut make, offset);
        cq::cqc::DBR_UMEM_VALID.within(cq::CQC_OFFSET).set(&mut make, 1);
        cq::cqc::DBR_UMEM_ID.within(cq::CQC_OFFSET).set(&mut make, umem);
        cq::cqc::LOG_CQ_SIZE.within(cq::CQC_OFFSET).set(&mut make, 4);
        cq::cqc::UAR_PAGE.within(cq::CQC_OFFSET).set(&mut make, uar);
        cq::cqc::DBR_ADDR.within(cq::CQC_OFFSET).set(&mut make, record);
        make
    };
    let end = rig::HEAP as u64;
    let (bad_res, bad_param) = (Status::BadRes as u8, Status::BadParam as u8);
    assert_eq!(status(&mut rig, &cq(umem + 1, 0, uar, 0), 16), bad_res);
    assert_eq!(status(&mut rig, &cq(umem, 0, uar + 1, 0), 16), bad_res);
    assert_eq!(status(&mut rig, &cq(umem, end - 1023, uar, 0), 16), bad_param);
    assert_eq!(status(&mut rig, &cq(umem, u64::MAX, uar, 0), 16), bad_param);
    assert_eq!(status(&mut rig, &cq(umem, 32, uar, 0), 16), bad_param, "entries start at 64");
    assert_eq!(status(&mut rig, &cq(umem, 0, uar, 4), 16), bad_param, "records start at 8");
    assert_eq!(status(&mut rig, &cq(umem, 0, uar, end), 16), bad_param);
    assert_eq!(status(&mut rig, &cq(umem, end - 1024, uar, 0), 16), 0);
    let mut key = heap_key(&rig.hosts[0]);
    shunt_layout::mlx5::prm::mkey::create::MKEY_UMEM_OFFSET.set(&mut key, 1);
    assert_eq!(status(&mut rig, &key, 16), bad_param, "a key one byte beyond its umem");
    let whole = heap_key(&rig.hosts[0]);
    let key = |octwords: [u32; 2], log_page| {
        use shunt_layout::mlx5::prm::mkey::{MKC_OFFSET, create, mkc};
        let mut key = whole.clone();
        mkc::TRANSLATIONS_OCTWORD_SIZE.within(MKC_OFFSET).set(&mut key, octwords[0]);
        create::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(&mut key, octwords[1]);
        mkc::LOG_PAGE_SIZE.within(MKC_OFFSET).set(&mut key, log_page);
        key
    };
    // Enough for the heap wherever it begins.
    let enough = rig::HEAP as u32 / 8192 + 1;
    for (octwords, log_page, want, why) in [
        ([0, 0], 12, bad_param, "no translations"),
        ([enough, enough - 1], 12, bad_param, "two sizes"),
        ([enough / 2, enough / 2], 12, bad_param, "half of the pages"),
        ([enough, enough], 11, bad_param, "pages of 2 KiB"),
        ([enough, enough], 12, 0, "all pages"),
    ] {
        let mailbox = key(octwords, log_page);
        assert_eq!(status(&mut rig, &mailbox, 16), want, "{why}");
    }
    let _ = (nic, pd);
}

#[test]
fn capabilities_are_what_ibgda_asks_for() {
    let mut rig = Rig::new(1);
    let nic = rig.hosts[0].nic;
    // Golden: QUERY_HCA_CAP, general, current.
    let golden = [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut query = header(Cmd::QueryHcaCap, 0);
    input::OP_MOD.set(&mut query, caps::op_mod_current(caps::GENERAL));
    assert_eq!(query, golden);
    let out = rig.command(nic, &query, caps::OUT_BYTES);
    let union = &out[CAPABILITY_OFFSET..];
    let expected = [
        (general::CQE_VERSION, 1),
        (general::PORT_TYPE, 1),
        (general::NUM_PORTS, 1),
        (general::CQ_OI, 1),
        (general::ATOMIC, 1),
        (general::LOG_MAX_QP_SZ, 15),
        (general::LOG_MAX_MSG, 30),
        (general::LOG_BF_REG_SIZE, 9),
    ];
    for (field, value) in expected {
        assert_eq!(field.get(union), value, "{field:?}");
    }
    input::OP_MOD.set(&mut query, caps::op_mod_current(caps::ATOMIC));
    let out = rig.command(nic, &query, caps::OUT_BYTES);
    let union = &out[CAPABILITY_OFFSET..];
    assert_eq!((atomic::ATOMIC_OPERATIONS.get(union), atomic::ATOMIC_SIZE_QP.get(union)), (0xf, 0xc));
    assert_eq!(atomic::REQ_8B_ENDIANNESS_MODE.get(union), 1);
    input::OP_MOD.set(&mut query, caps::op_mod_current(0x30));
    assert_eq!(rig.try_command(nic, &query, caps::OUT_BYTES)[0], Status::BadParam as u8);
}

#[test]
fn capabilities_are_cut_to_the_room_there_is_and_what_is_missing_is_zero() {
    let mut rig = Rig::new(1);
    let nic = rig.hosts[0].nic;
    let mut query = header(Cmd::QueryHcaCap, 0);
    input::OP_MOD.set(&mut query, caps::op_mod_current(caps::GENERAL));
    let whole = rig.command(nic, &query, caps::OUT_BYTES);
    for room in [16, 17, 0x40, caps::OUT_BYTES - 1, caps::OUT_BYTES + 8] {
        let out = rig.command(nic, &query, room);
        let shared = room.min(whole.len());
        assert_eq!((out.len(), &out[..shared]), (room, &whole[..shared]));
        assert!(out[shared..].iter().all(|byte| *byte == 0), "{room}");
    }
    for group in caps::OTHERS {
        input::OP_MOD.set(&mut query, caps::op_mod_current(*group));
        let out = rig.command(nic, &query, caps::OUT_BYTES);
        assert!(out.iter().all(|byte| *byte == 0), "{group:#x}");
    }
}

#[test]
fn addresses_and_ports() {
    let mut rig = Rig::new(2);
    let nic = rig.hosts[3].nic;
    let out = rig.command(nic, &header(Cmd::QueryRoceAddress, 0), port::ROCE_ADDRESS_OUT_BYTES);
    assert_eq!(port::roce_address_out::gid(&out), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 0, 2]);
    assert_eq!(port::roce_address_out::ROCE_VERSION.get(&out), 2);
    let mac = (port::roce_address_out::MAC_47_32.get(&out), port::roce_address_out::MAC_31_0.get(&out));
    assert_eq!(mac, (0x0253, 0x4801_0001));
    let mut second = header(Cmd::QueryRoceAddress, 0);
    port::roce_address_in::INDEX.set(&mut second, 1);
    assert_eq!(rig.try_command(nic, &second, 48)[0], Status::BadIndex as u8);
    let out = rig.command(nic, &header(Cmd::QueryNicVportContext, 0), port::NIC_VPORT_OUT_BYTES);
    let nic_context = &out[port::NIC_VPORT_CONTEXT_OFFSET..];
    assert_eq!(port::nic_vport::NODE_GUID.get(nic_context), 0x0053_48ff_fe01_0001);
    let out = rig.command(nic, &header(Cmd::QueryHcaVportContext, 0), port::HCA_VPORT_OUT_BYTES);
    assert_eq!(port::hca_vport::LID.get(&out[port::HCA_VPORT_CONTEXT_OFFSET..]), 18);
    let out = rig.command(nic, &header(Cmd::QuerySpecialContexts, 0), pd::special::BYTES);
    assert_ne!(pd::special::NULL_MKEY.get(&out), 0);
    rig.command(nic, &header(Cmd::QueryAdapter, 0), 272);
    let out = rig.command(nic, &header(Cmd::QueryMkey, rig.hosts[3].key >> 8), 272);
    // Golden: the rights word of a key with everything allowed.
    assert_eq!(out[0x10..0x14], [0, 0, 0x7d, 0]);
    assert_eq!(output::OBJECT.get(&out), 0);
}

#[test]
fn infiniband_pairs_find_each_other_by_lid() {
    let mut rig = Rig::with(1, |config| config.link_layer = LinkLayer::InfiniBand);
    let (mut a, mut b) = (rig.end(0, Options::default()), rig.end(1, Options::default()));
    let qpns = [a.qpn, b.qpn];
    for (end, peer) in [(&mut a, qpns[1]), (&mut b, qpns[0])] {
        let (nic, remote) = (rig.hosts[end.host].nic, 1 - end.host as u32);
        rig.command(nic, &rst2init(end), 16);
        let mut rtr = context(Cmd::Init2RtrQp, end.qpn);
        use shunt_layout::mlx5::prm::qp::{ADS_OFFSET, ads};
        qpc::MTU.within(QPC_OFFSET).set(&mut rtr, 5);
        qpc::LOG_MSG_MAX.within(QPC_OFFSET).set(&mut rtr, 30);
        qpc::REMOTE_QPN.within(QPC_OFFSET).set(&mut rtr, peer);
        ads::RLID.within(QPC_OFFSET + ADS_OFFSET).set(&mut rtr, remote * 16 + 1);
        rig.command(nic, &rtr, 16);
        rig.command(nic, &rtr2rts(end), 16);
    }
    use shunt_layout::mlx5::wqe::{Opcode, inline8};
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(5)]);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
    assert_eq!(rig.hosts[1].heap.get64(0), 5);
}

#[test]
fn optional_parameters_change_what_the_mask_names() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { allow: [0, 0, 0], ..Options::default() });
    let nic = rig.hosts[1].nic;
    let mut change = context(Cmd::Rts2RtsQp, b.qpn);
    let mut set = |field: Field, value| field.within(QPC_OFFSET).set(&mut change, value);
    set(qpc::RWE, 1);
    set(qpc::RRE, 1);
    set(qpc::MIN_RNR_NAK, 9);
    qp::change::OPT_PARAM_MASK.set(&mut change, optional::RWE | optional::RNR_TIMEOUT);
    rig.command(nic, &change, 16);
    assert_eq!([qpc::RWE, qpc::RRE, qpc::MIN_RNR_NAK].map(|field| rig.query(&b, field)), [1, 0, 9]);
    a.post(WqeOpcode::RdmaWrite, &[rig.remote(1, 8), inline8(3)]);
    a.post(WqeOpcode::RdmaRead, &[rig.remote(1, 8), rig.local(0, 0, 8)]);
    let done = rig.complete(&mut a, 2);
    assert_eq!((done[0].syndrome, done[1].syndrome), (0, Syndrome::REMOTE_INVALID_REQUEST.0));
    // In another state it is refused, and changes nothing.
    let mut wrong = change.clone();
    input::OPCODE.set(&mut wrong, Cmd::Init2InitQp as u32);
    assert_eq!(rig.try_command(nic, &wrong, 16)[0], Status::BadQpState as u8);
}

#[test]
fn a_pair_in_init_takes_its_rights_again() {
    let mut rig = Rig::new(1);
    let b = rig.end(1, Options { allow: [1, 1, 1], ..Options::default() });
    let nic = rig.hosts[1].nic;
    rig.command(nic, &rst2init(&b), 16);
    let mut change = context(Cmd::Init2InitQp, b.qpn);
    qp::change::OPT_PARAM_MASK.set(&mut change, optional::RAE);
    rig.command(nic, &change, 16);
    assert_eq!([qpc::RWE, qpc::RRE, qpc::RAE].map(|field| rig.query(&b, field)), [1, 1, 0]);
    assert_eq!(rig.query(&b, qpc::STATE), State::Init as u32);
}
