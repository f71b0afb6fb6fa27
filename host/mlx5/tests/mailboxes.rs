//! Firmware mailboxes against bytes worked out by hand from the PRM: every dword that is not listed is zero.

use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_layout::mlx5::prm::qp::State;
use shunt_mlx5::nic::caps::{Link, query_caps_in, query_roce_address_in, roce_mtu_code};
use shunt_mlx5::nic::cq::{self, CqShape};
use shunt_mlx5::nic::datagram::{self, DatagramShape};
use shunt_mlx5::nic::mkey::{self, Access, MkeyShape};
use shunt_mlx5::nic::qp::{self, QpShape, QpTruth, QpTuning, Route};
use shunt_mlx5::nic::short_in;

/// A mailbox of `N` bytes with these dwords.
fn mailbox<const N: usize>(dwords: &[(usize, u32)]) -> [u8; N] {
    let mut bytes = [0; N];
    for (offset, value) in dwords {
        bytes[*offset..offset + 4].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

/// Compares dword by dword, so that a failure names the offset.
fn same<const N: usize>(met: [u8; N], dwords: &[(usize, u32)]) {
    let want = mailbox::<N>(dwords);
    for offset in (0..N).step_by(4) {
        let word = |bytes: &[u8; N]| u32::from_be_bytes(bytes[offset..offset + 4].try_into().unwrap());
        assert_eq!(word(&met), word(&want), "dword {offset:#x}: {:08x}, not {:08x}", word(&met), word(&want));
    }
}

const TUNING: QpTuning = QpTuning {
    ack_timeout: 20,
    retry: 7,
    rnr_retry: 7,
    min_rnr: 12,
    log_ra: 4,
    unordered: false,
    force_order: false,
};

fn route(link: Link) -> Route {
    Route {
        link,
        gid: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        mac: [0x02, 0x53, 0x48, 0x01, 0x00, 0x07],
        lid: 0x1234,
        gid_index: 3,
        mtu: 5,
        udp_sport: 0xc0de,
        traffic_class: 0x68,
        service_level: 3,
        pkey_index: 0x21,
        global: true,
        loopback: false,
        ece: 0x2000_0001,
    }
}

#[test]
fn create_qp() {
    let shape = QpShape {
        pd: 0x12,
        uar: 0x34,
        cqn: 0x56,
        log_depth: 10,
        user_index: 0x789,
        umem: 0x9a,
        queue_offset: 0x1_0000_3000,
        record_offset: 0x1040,
        ts_format: 1,
        ece: true,
        receive: None,
    };
    assert_eq!(qp::create_in(&QpShape { ece: false, ..shape })[0x14..0x18], [0; 4]);
    same(
        qp::create_in(&shape),
        &[
            (0x00, 0x0500_0000),
            (0x14, 0x1000_0000), // ece, version 1
            (0x18, 0x0000_1800), // st 0 (RC), pm_state 3
            (0x1c, 0x0000_0012), // dp_ordering_0 and _force 0, pd
            (0x20, 0x0000_5040), // log_sq_size 10, ts_format 1
            (0x24, 0x0000_0034),
            (0x28, 0x0000_0789),
            (0x94, 0x0000_0056), // cqn_snd
            (0xb4, 0x0000_0056), // cqn_rcv
            (0xbc, 0x0000_1040), // dbr_addr
            (0xc4, 0x0300_0000), // rq_type 3
            (0xe8, 0x1000_0000), // dbr_umem_valid
            (0xfc, 0x0000_009a), // dbr_umem_id
            (0x100, 0x0000_0001),
            (0x104, 0x0000_3000),
            (0x108, 0x0000_009a),
            (0x10c, 0x8000_0000),
        ],
    );
}

#[test]
fn rst2init() {
    same(
        qp::init_in(0xabc, 0x21),
        &[
            (0x00, 0x0502_0000),
            (0x08, 0x0000_0abc),
            (0x18, 0x0000_1800),
            (0x30, 0x0000_0021), // pkey_index
            (0x54, 0x0001_0000), // vhca_port_num 1
            (0xa8, 0x0003_e000), // atomic_mode 3, rre, rwe, rae
        ],
    );
}

#[test]
fn init2rtr_on_roce() {
    same(
        qp::rtr_in(0xabc, 0xdef, 0xff_fffe, &route(Link::Ethernet), &TUNING),
        &[
            (0x00, 0x0503_0000),
            (0x08, 0x0000_0abc),
            (0x14, 0x2000_0001), // ece
            (0x20, 0xbe00_0000), // mtu 5, log_msg_max 30
            (0x2c, 0x0000_0def),
            (0x38, 0x0003_00ff), // src_addr_index 3, hop_limit 255
            (0x3c, 0x0680_0000), // tclass
            (0x40, 0x0001_0203),
            (0x44, 0x0405_0607),
            (0x48, 0x0809_0a0b),
            (0x4c, 0x0c0d_0e0f),
            (0x50, 0x001a_c0de), // dscp, udp_sport
            (0x54, 0x3001_0253), // eth_prio 3, port 1, rmac
            (0x58, 0x4801_0007),
            (0xa8, 0x0080_0000), // log_rra_max 4
            (0xac, 0x0cff_fffe), // min_rnr_nak 12, next_rcv_psn
        ],
    );
}

#[test]
fn init2rtr_on_infiniband_and_loopback() {
    let route = Route { loopback: true, ece: 0, ..route(Link::InfiniBand) };
    same(
        qp::rtr_in(0xabc, 0xdef, 0, &route, &TUNING),
        &[
            (0x00, 0x0503_0000),
            (0x08, 0x0000_0abc),
            (0x20, 0xbe00_0000),
            (0x2c, 0x0000_0def),
            (0x30, 0x8000_0021), // fl, pkey_index
            (0x34, 0x0080_1234), // grh, rlid
            (0x38, 0x0003_00ff),
            (0x3c, 0x0680_0000),
            (0x40, 0x0001_0203),
            (0x44, 0x0405_0607),
            (0x48, 0x0809_0a0b),
            (0x4c, 0x0c0d_0e0f),
            (0x54, 0x0301_0000), // sl 3, port 1
            (0xa8, 0x0080_0000),
            (0xac, 0x0c00_0000),
        ],
    );
    let forced = QpTuning { force_order: true, ..TUNING };
    let with = qp::rtr_in(0xabc, 0xdef, 0, &route, &forced);
    assert_eq!(with[0x1c..0x20], [1, 0, 0, 0], "dp_ordering_force, and both ordering bits 0");
    let near = Route { global: false, ..route };
    assert_eq!(
        qp::rtr_in(0xabc, 0xdef, 0, &near, &TUNING)[0x34..0x38],
        [0, 0, 0x12, 0x34],
        "no grh in a subnet"
    );
}

#[test]
fn rtr2rts() {
    same(
        qp::rts_in(0xabc, 0x7f_fffe, &TUNING),
        &[
            (0x00, 0x0504_0000),
            (0x08, 0x0000_0abc),
            (0x38, 0xa000_0000), // ack_timeout 20
            (0x88, 0x0087_e000), // log_sra_max 4, retry 7, rnr_retry 7
            (0x90, 0x007f_fffe), // next_send_psn
        ],
    );
    let plain = QpTuning { log_ra: 0, ..TUNING };
    assert_eq!(qp::rts_in(0xabc, 0, &plain)[0x88..0x8c], [0x00, 0x07, 0xe0, 0x00]);
}

#[test]
fn short_commands() {
    same(short_in(Opcode::Qp2Err, 0xabc), &[(0, 0x0507_0000), (8, 0xabc)]);
    same(short_in(Opcode::QueryQp, 0xabc), &[(0, 0x050b_0000), (8, 0xabc)]);
    same(short_in(Opcode::DestroyQp, 0xabc), &[(0, 0x0501_0000), (8, 0xabc)]);
    same(short_in(Opcode::AllocPd, 0), &[(0, 0x0800_0000)]);
    same(query_caps_in(), &[(0, 0x0100_0000), (4, 1)]);
    same(query_roce_address_in(3), &[(0, 0x0760_0000), (8, 0x0003_0000)]);
}

#[test]
fn create_cq() {
    let shape = CqShape {
        umem: 0x9a,
        entries_offset: 0x4000,
        record_offset: 0x1080,
        log_entries: 10,
        uar: 0x34,
        eqn: 7,
    };
    same(
        cq::create_in(&shape),
        &[
            (0x00, 0x0400_0000),
            (0x10, 0x0202_0000), // dbr_umem_valid, oi; cc 0, cqe_sz 0
            (0x14, 0x0000_009a),
            (0x1c, 0x0a00_0034), // log_cq_size 10, uar_page
            (0x24, 0x0000_0007),
            (0x4c, 0x0000_1080), // dbr_addr
            (0x54, 0x0000_4000), // cq_umem_offset
            (0x58, 0x0000_009a),
            (0x5c, 0x8000_0000),
        ],
    );
}

#[test]
fn create_mkey() {
    let shape = MkeyShape {
        pd: 0x12,
        umem: 0x9a,
        offset: 0x10_0000,
        address: 0x7f00_1234_0000,
        bytes: 0x10_0000,
        access: Access::Remote,
    };
    let common = [
        (0x00, 0x0200_0000),
        (0x0c, 0x4000_0000), // mkey_umem_valid
        (0x14, 0xffff_ff00), // qpn any, low byte 0
        (0x1c, 0x0000_0012), // length64 0, pd
        (0x20, 0x0000_7f00),
        (0x24, 0x1234_0000),
        (0x2c, 0x0010_0000),
        (0x44, 0x0000_0080), // translations_octword_size: 256 pages, two in each
        (0x48, 0x0000_000c), // relaxed_ordering_read 0, log_page_size 12
        (0x60, 0x0000_0080), // translations_octword_actual_size
        (0x64, 0x0000_009a),
        (0x6c, 0x0010_0000),
    ];
    let with = |first: u32| [&common[..], &[(0x10, first)]].concat();
    same(mkey::create_in(&shape), &with(0x0000_7d00)); // a, rw, rr, lw, lr, MTT; relaxed ordering off
    same(mkey::create_in(&MkeyShape { access: Access::Local, ..shape }), &with(0x0000_0d00));
}

#[test]
fn query_qp_output() {
    let output: [u8; 272] = mailbox(&[
        (0x14, 0x3000_0003), // ece
        (0x18, 0x6000_1800), // state 6
        (0x1c, 0x0000_0012),
        (0x20, 0x0000_0020), // data_in_order
        (0x90, 0x0012_3456), // next_send_psn
        (0xa0, 0x0065_4321), // last_acked_psn
        (0xa8, 0x0083_e000),
        (0xac, 0x0cab_cdef), // next_rcv_psn
        (0xc8, 0x0000_0102), // rmsn
    ]);
    let want = QpTruth {
        state: Some(State::Err),
        rmsn: 0x102,
        next_rcv_psn: 0xab_cdef,
        next_send_psn: 0x12_3456,
        last_acked_psn: 0x65_4321,
        in_order: true,
        ece: 0x3000_0003,
    };
    assert_eq!(QpTruth::read(&output), want);
    // The NIC's own word, and not the bits that were asked for: an administrator's setting may win over those.
    let unsaid: [u8; 272] = mailbox(&[(0x18, 0x3000_1800)]);
    assert!(!QpTruth::read(&unsaid).in_order);
}

#[test]
fn path_mtu_from_the_ethernet_mtu() {
    for (ethernet, code) in [(9000, 5), (4200, 5), (4175, 4), (1500, 3), (1024, 2), (576, 1), (64, 1)] {
        assert_eq!(roce_mtu_code(ethernet), code, "{ethernet}");
    }
}

#[test]
fn a_datagram_queue_pair() {
    let shape = DatagramShape {
        pd: 0x12,
        uar: 0x34,
        send_cqn: 0x56,
        receive_cqn: 0x57,
        log_send: 8,
        log_receive: 10,
        umem: 0x9a,
        queue_offset: 0x3000,
        record_offset: 0x1040,
        ts_format: 1,
    };
    same(
        datagram::create_in(&shape),
        &[
            (0x00, 0x0500_0000),
            (0x18, 0x0002_1800), // st 2 (UD), pm_state 3
            (0x1c, 0x0000_0012),
            (0x20, 0x0050_4040), // log_rq_size 10, stride 16, log_sq_size 8, ts_format 1
            (0x24, 0x0000_0034),
            (0x94, 0x0000_0056),
            (0xb4, 0x0000_0057),
            (0xbc, 0x0000_1040),
            (0xe8, 0x1000_0000),
            (0xfc, 0x0000_009a),
            (0x104, 0x0000_3000),
            (0x108, 0x0000_009a),
            (0x10c, 0x8000_0000),
        ],
    );
    same(
        datagram::init_in(0x77, 0x1122_3344, 0),
        &[(0x00, 0x0502_0000), (0x08, 0x77), (0x18, 0x0000_1800), (0x54, 0x0001_0000), (0xc0, 0x1122_3344)],
    );
    same(
        datagram::rtr_in(0x77, 5),
        &[(0x00, 0x0503_0000), (0x08, 0x77), (0x20, 0xac00_0000), (0x54, 0x0001_0000)],
    );
    same(datagram::rts_in(0x77), &[(0x00, 0x0504_0000), (0x08, 0x77)]);
}
