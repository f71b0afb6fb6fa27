//! Encodings against bytes written by hand from the PRM.
//!
//! Nothing expected here comes from our own encoder: a mistake in a layout would be invisible to host, device
//! and soft NIC alike, since all three use it. Buffers start dirty (0xa5), so a byte that should have been
//! written and was not shows up, and so does one that should have been left alone.

use shunt_layout::bits::{Field, Field64};
use shunt_layout::mlx5::cqe::{self, Syndrome, Tail};
use shunt_layout::mlx5::doorbell::{self, Doorbell};
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::{caps, cmd, cq, mkey, pd, port, qp};
use shunt_layout::mlx5::wqe::{self, Ctrl, DataSegment, Opcode, Segment};

const DIRTY: u8 = 0xa5;

/// Bytes of a string of hex digits; blanks are for the reader.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {text:?}");
    let nibble = |b: u8| (b as char).to_digit(16).expect("hex digit") as u8;
    digits.chunks(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect()
}

/// Lays segments into a dirty block as device code stores them: words as they are, low address first.
fn block(segments: &[Segment]) -> Vec<u8> {
    let mut bytes = vec![DIRTY; 64];
    for (i, word) in segments.iter().flatten().enumerate() {
        bytes[i * 4..i * 4 + 4].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Reads a segment as a little-endian machine loads it.
fn segment(bytes: &[u8]) -> Segment {
    let mut out = [0; 4];
    for (word, four) in out.iter_mut().zip(bytes.chunks(4)) {
        *word = u32::from_ne_bytes(four.try_into().expect("four bytes"));
    }
    out
}

fn dirty(bytes: usize) -> Vec<u8> {
    vec![DIRTY; bytes]
}

#[test]
fn write_wqe() {
    let wqe = block(&[
        wqe::ctrl(Opcode::RdmaWrite, 0x0102, 0xabc << 8, 3, wqe::CqeWhen::Always as u8),
        wqe::remote(0x1000, 0x1234_u32.to_be()),
        wqe::data(0x2000, 0x5678_u32.to_be(), 4),
    ]);
    let want = hex("00010208 000abc03 00000008 00000000
                    00000000 00001000 00001234 00000000
                    00000004 00005678 00000000 00002000");
    assert_eq!(wqe[..48], want);
    assert_eq!(wqe[48..], dirty(16), "a WQE of 3 segments ends after 48 bytes");
}

#[test]
fn write_wqe_with_every_bit_of_its_fields() {
    let wqe = block(&[
        wqe::ctrl(Opcode::RdmaWrite, 0xffff, 0xff_ffff << 8, 0x3f, wqe::FENCE_BEFORE | 0x08),
        wqe::remote(0x0123_4567_89ab_cdef, 0xdead_beef_u32.to_be()),
        wqe::data(0xfedc_ba98_7654_3210, 0xcafe_f00d_u32.to_be(), 0x7fff_ffff),
    ]);
    let want = hex("00ffff08 ffffff3f 00000088 00000000
                    01234567 89abcdef deadbeef 00000000
                    7fffffff cafef00d fedcba98 76543210");
    assert_eq!(wqe[..48], want);
}

#[test]
fn inline_signal_wqe() {
    // A signal: 8 bytes inline, little-endian in the target's memory as any store would leave them.
    let wqe = block(&[
        wqe::ctrl(Opcode::RdmaWrite, 6, 0xabc << 8, 3, wqe::CqeWhen::Always as u8),
        wqe::remote(0x7000_0000_1008, 0x1234_u32.to_be()),
        wqe::inline8(0x1122_3344_5566_7788),
    ]);
    let want = hex("00000608 000abc03 00000008 00000000
                    00007000 00001008 00001234 00000000
                    80000008 88776655 44332211 00000000");
    assert_eq!(wqe[..48], want);
}

#[test]
fn inline_header_lengths() {
    assert_eq!(block(&[wqe::inline_small(0xaabb_ccdd, 4)])[..8], hex("80000004 ddccbbaa"));
    assert_eq!(block(&[wqe::inline_small(0x11, 1)])[..8], hex("80000001 11000000"));
    assert_eq!(DataSegment::read(segment(&hex("8000000c 00000000 00000000 00000000"))), {
        DataSegment::Inline { bytes: 12 }
    });
}

#[test]
fn read_and_zero_length_write_wqes() {
    let read = wqe::ctrl(Opcode::RdmaRead, 0x0203, 0x11_2233 << 8, 3, wqe::CqeWhen::Always as u8);
    assert_eq!(block(&[read])[..16], hex("00020310 11223303 00000008 00000000"));
    let empty = wqe::ctrl(Opcode::RdmaWrite, 0, 0x11_2233 << 8, 2, wqe::CqeWhen::Always as u8);
    assert_eq!(block(&[empty])[..16], hex("00000008 11223302 00000008 00000000"));
}

#[test]
fn control_segments_are_read_back() {
    let masked_fa = Ctrl::read(segment(&hex("08000515 000abc04 00000008 00000000")));
    assert_eq!((masked_fa.opmod, masked_fa.index, masked_fa.opcode, masked_fa.ds), (0x08, 5, 0x15, 4));
    assert_eq!(Opcode::from_raw(masked_fa.opcode), Some(Opcode::AtomicMaskedFa));
    let masked_cs = Ctrl::read(segment(&hex("09000514 000abc05 00000000 00000000")));
    assert_eq!(
        (masked_cs.opmod, masked_cs.opcode, masked_cs.ds, masked_cs.signalled()),
        (0x09, 0x14, 5, false)
    );
    let plain_fa = Ctrl::read(segment(&hex("00000512 ffffff04 0000000c 12345678")));
    assert_eq!((plain_fa.opcode, plain_fa.qpn, plain_fa.imm), (0x12, 0xff_ffff, 0x1234_5678));
    assert!(plain_fa.signalled());
    assert_eq!(Opcode::from_raw(0x25), None, "UMR is not of the IBGDA path");
}

#[test]
fn data_and_remote_segments_are_read_back() {
    let remote = segment(&hex("01234567 89abcdef deadbeef 00000000"));
    assert_eq!(wqe::remote_address(remote), 0x0123_4567_89ab_cdef);
    assert_eq!(wqe::remote_key(remote), 0xdead_beef);
    let pointer = DataSegment::read(segment(&hex("00000004 00005678 00000000 00002000")));
    assert_eq!(pointer, DataSegment::Pointer { bytes: 4, lkey: 0x5678, address: 0x2000 });
}

#[test]
fn doorbell_record_and_register() {
    let mut record = dirty(doorbell::RECORD_BYTES);
    let at = doorbell::SEND_COUNTER_OFFSET;
    record[at..at + 4].copy_from_slice(&doorbell::send_counter(0x1_0006).to_ne_bytes());
    assert_eq!(record, hex("a5a5a5a5 00000006"), "16 bits, zero extended; the receive counter is not ours");

    let register = doorbell::register(6, 0xabc << 8);
    assert_eq!(register.to_ne_bytes().to_vec(), hex("00000600 000abc00"));
    let wrapped = doorbell::register(0x1_0000, 0xff_ffff << 8);
    assert_eq!(wrapped.to_ne_bytes().to_vec(), hex("00000000 ffffff00"));
    assert_eq!((doorbell::BLUEFLAME_OFFSET, doorbell::CQ_ARM_OFFSET), (0x800, 0x20));
}

#[test]
fn doorbell_register_is_read_back_from_both_kinds_of_producers() {
    let read =
        |text: &str| Doorbell::from_register(u64::from_ne_bytes(hex(text).try_into().expect("8 bytes")));
    assert_eq!(read("00000600 000abc00"), Doorbell { next_index: 6, qpn: 0xabc });
    // libmlx5: the last WQE's own control words, here index 5, one block.
    assert_eq!(read("00000508 000abc03"), Doorbell { next_index: 6, qpn: 0xabc });
    // Five segments take two blocks.
    assert_eq!(read("09ffff14 000abc05").next_index, 1);
    // A producer that shifts a counter wider than 16 bits spills into the opmod byte.
    assert_eq!(read("03000600 000abc00").next_index, 6);
}

#[test]
fn completion_queues_are_armed() {
    // Sequence 1, any completion, consumer index 0x10, CQN 0x105.
    let arm = doorbell::Arm { sequence: 1, solicited_only: false, consumed: 0x10 };
    assert_eq!(arm.to_register(0x105).to_ne_bytes().to_vec(), hex("10000010 00000105"));
    assert_eq!(arm.to_record().to_ne_bytes().to_vec(), hex("10000010"));
    let read = doorbell::Arm::from_register(u64::from_ne_bytes([0x31, 0, 0, 7, 0xff, 0, 4, 2]));
    let solicited = doorbell::Arm { sequence: 3, solicited_only: true, consumed: 7 };
    assert_eq!(read, (solicited, 0x402), "the CQN has 24 bits");
    assert_eq!(doorbell::Arm::from_record(solicited.to_record()), solicited);
    assert_eq!((doorbell::RECEIVE_COUNTER_OFFSET, doorbell::ARM_WORD_OFFSET), (0, 4));
}

#[test]
fn receive_wqe_and_its_end() {
    let list = block(&[wqe::data(0x2000, 0x5678_u32.to_be(), 64), wqe::scatter_end()])[..32].to_vec();
    assert_eq!(list, hex("00000040 00005678 00000000 00002000 00000000 00000100 00000000 00000000"));
}

#[test]
fn send_with_immediate_wqe() {
    let flags = wqe::CqeWhen::Always as u8 | wqe::SOLICITED_EVENT;
    let ctrl = wqe::with_immediate(wqe::ctrl(Opcode::SendImm, 5, 0xabc << 8, 2, flags), 0x1122_3344);
    assert_eq!(block(&[ctrl])[..16], hex("0000050b 000abc02 0000000a 11223344"));
    assert_eq!(Ctrl::read(ctrl).imm, 0x1122_3344);
}

#[test]
fn datagram_address_vector() {
    let vector = wqe::AddressVector {
        qkey: 0x1122_3344,
        qpn: 0xabcdef,
        full: true,
        rlid: 0xc123,
        service_level: 5,
        rmac: [2, 0x53, 0x48, 1, 2, 3],
        tclass: 0x68,
        hop_limit: 0xff,
        grh: true,
        source_gid_index: 3,
        flow_label: 0xf_1234,
        rgid: std::array::from_fn(|n| n as u8 + 0x10),
    };
    let bytes = block(&vector.segments())[..48].to_vec();
    let expected = "11223344 00000000 80abcdef 0500c123 00000000 02534801 020368ff 403f1234\
                    10111213 14151617 18191a1b 1c1d1e1f";
    assert_eq!(bytes, hex(expected));
    let words: Vec<Segment> = bytes.chunks_exact(16).map(segment).collect();
    assert_eq!(wqe::AddressVector::read([words[0], words[1], words[2]]), vector);
}

#[test]
fn requester_completion() {
    // RDMA_WRITE of QPN 0xabc, wqe_counter 0x0102, first pass.
    let mut bytes = dirty(cqe::CQE_BYTES);
    bytes[0x38..].copy_from_slice(&hex("08000abc 01020000"));
    let tail = u32::from_ne_bytes(bytes[cqe::TAIL_OFFSET..].try_into().expect("4 bytes"));
    let read = Tail::from_memory(tail);
    assert_eq!(read, Tail { wqe_counter: 0x0102, opcode: cqe::opcode::REQ, owner: false });
    assert_eq!(read.to_memory(), tail);
    assert_eq!(bytes[cqe::OPCODE_QPN_OFFSET..cqe::OPCODE_QPN_OFFSET + 4], hex("08000abc"));
    // Signature set, owner of the second pass: neither disturbs the counter.
    let second = Tail::from_memory(u32::from_ne_bytes(hex("ffff5a01").try_into().expect("4 bytes")));
    assert_eq!(second, Tail { wqe_counter: 0xffff, opcode: 0, owner: true });
}

#[test]
fn owner_bit_follows_the_pass() {
    let owner = |owner| Tail { wqe_counter: 0, opcode: cqe::opcode::REQ, owner };
    for (index, first_pass) in [(0, true), (15, true), (16, false), (31, false), (32, true), (1 << 40, true)]
    {
        assert_eq!(owner(false).belongs_to(index, 4), first_pass, "index {index}");
        assert_eq!(owner(true).belongs_to(index, 4), !first_pass, "index {index}");
    }
    let fresh = Tail::from_memory(u32::from_ne_bytes([cqe::FRESH_BYTE; 4]));
    assert_eq!(fresh.opcode, cqe::opcode::INVALID);
    assert!(!fresh.belongs_to(0, 4) && !fresh.belongs_to(16, 4), "an entry never written belongs to no pass");
}

#[test]
fn error_completion() {
    // ACK timeout exhausted on a WRITE of QPN 0xabc, index 0xfffe, second pass.
    let bytes = hex("a5a5a5a5 a5a5a5a5 a5a5a5a5 a5a5a5a5 a5a5a5a5 a5a5a5a5 a5a5a5a5 a5a5a5a5
                     00000007 a5a5a5a5 a5a5a5a5 a5a5a5a5 a5a5a5a5 00008115 08000abc fffe00d1");
    assert_eq!(bytes.len(), cqe::CQE_BYTES);
    assert_eq!(Syndrome(bytes[cqe::SYNDROME_OFFSET]), Syndrome::RETRY_EXCEEDED);
    assert_eq!(bytes[cqe::VENDOR_SYNDROME_OFFSET], cqe::vendor::ACK_TIMEOUT);
    assert_eq!(bytes[cqe::SYNDROME_WORD_OFFSET..cqe::SYNDROME_WORD_OFFSET + 4], hex("00008115"));
    assert_eq!(bytes[cqe::USER_INDEX_OFFSET..cqe::USER_INDEX_OFFSET + 4], hex("00000007"));
    let tail = Tail::from_memory(u32::from_ne_bytes(bytes[cqe::TAIL_OFFSET..].try_into().expect("4 bytes")));
    assert_eq!(tail, Tail { wqe_counter: 0xfffe, opcode: cqe::opcode::REQ_ERR, owner: true });
}

#[test]
fn flush_completion() {
    let word = hex("0000f505");
    assert_eq!(Syndrome(word[3]), Syndrome::FLUSHED);
    assert_eq!(word[2], cqe::vendor::REQUESTER_FLUSH);
    let tail = Tail { wqe_counter: 0x0102, opcode: cqe::opcode::REQ_ERR, owner: false };
    assert_eq!(tail.to_memory().to_ne_bytes().to_vec(), hex("010200d0"));
}

/// Writes fields into a zeroed mailbox, as a command is built.
fn mailbox(bytes: usize, fields: &[(Field, u32)], wide: &[(Field64, u64)]) -> Vec<u8> {
    let mut out = vec![0; bytes];
    for (field, value) in fields {
        field.set(&mut out, *value);
    }
    for (field, value) in wide {
        field.set(&mut out, *value);
    }
    out
}

/// Compares a mailbox with the dwords that are not zero, by offset.
fn assert_dwords(bytes: &[u8], dwords: &[(usize, &str)]) {
    let mut want = vec![0; bytes.len()];
    for (offset, text) in dwords {
        let value = hex(text);
        want[*offset..*offset + value.len()].copy_from_slice(&value);
    }
    for (offset, (got, want)) in bytes.chunks(4).zip(want.chunks(4)).enumerate() {
        assert_eq!(got, want, "dword at {:#x}", offset * 4);
    }
}

#[test]
fn query_hca_cap_mailbox() {
    let general = mailbox(
        16,
        &[
            (cmd::input::OPCODE, cmd::Opcode::QueryHcaCap as u32),
            (cmd::input::OP_MOD, caps::op_mod_current(caps::GENERAL)),
        ],
        &[],
    );
    assert_eq!(general, hex("01000000 00000001 00000000 00000000"));
    assert_eq!(caps::op_mod_current(caps::ATOMIC), 7);
    assert_eq!(caps::op_mod_current(caps::ROCE), 9);
}

#[test]
fn capabilities_lie_where_the_prm_has_them() {
    let mut out = vec![0; caps::OUT_BYTES];
    let union = caps::CAPABILITY_OFFSET;
    for (offset, text) in [
        (0x10, "00 0f 00 12"), // QPs of up to 2^15 blocks, 2^18 of them
        (0x18, "00 16 00 18"), // CQs of up to 2^22 entries, 2^24 of them
        (0x34, "00 00 01 02"), // Ethernet, two ports
        (0x38, "1e 00 00 00"), // messages of up to 2^30 bytes
        (0x3c, "00 00 00 01"), // CQE version 1
        (0x40, "00 00 00 06"), // RoCE and atomics
        (0x44, "80 00 00 01"), // overrun ignore, RC
        (0x4c, "80 09 00 00"), // BlueFlame registers of 512 bytes
    ] {
        out[union + offset..union + offset + 4].copy_from_slice(&hex(text));
    }
    let read = |field: Field| field.within(union).get(&out);
    assert_eq!((read(caps::general::LOG_MAX_QP_SZ), read(caps::general::LOG_MAX_QP)), (15, 18));
    assert_eq!((read(caps::general::LOG_MAX_CQ_SZ), read(caps::general::LOG_MAX_CQ)), (22, 24));
    assert_eq!((read(caps::general::PORT_TYPE), read(caps::general::NUM_PORTS)), (1, 2));
    assert_eq!((read(caps::general::LOG_MAX_MSG), read(caps::general::CQE_VERSION)), (30, 1));
    assert_eq!((read(caps::general::ROCE), read(caps::general::ATOMIC)), (1, 1));
    assert_eq!((read(caps::general::CQ_OI), read(caps::general::RC)), (1, 1));
    assert_eq!((read(caps::general::BF), read(caps::general::LOG_BF_REG_SIZE)), (1, 9));
}

/// The bits that say how far a device keeps order, loops back and stamps.
#[test]
fn capabilities_of_order_loopback_clocks_and_atomics() {
    let union = |lines: &[(usize, &str)]| {
        let mut out = vec![0; caps::OUT_BYTES];
        for (offset, text) in lines {
            let at = caps::CAPABILITY_OFFSET + offset;
            out[at..at + 4].copy_from_slice(&hex(text));
        }
        out
    };
    let one = |out: &[u8], field: Field| field.within(caps::CAPABILITY_OFFSET).get(out);
    use caps::general as g;
    // Only the bits asked for are set, so that a field one bit off reads zero.
    let out = union(&[
        (0x04, "80 00 00 00"),
        (0x0c, "20 00 00 00"),
        (0x14, "10 00 00 00"),
        (0x30, "00 00 00 02"),
        (0x38, "00 20 00 00"),
        (0x48, "00 80 00 00"),
        (0x64, "00 00 08 00"),
        (0x88, "90 00 00 00"),
    ]);
    let said = [
        g::HCA_CAP_2,
        g::QP_DATA_IN_ORDER,
        g::ECE_SUPPORT,
        g::PKEY_TABLE_SIZE,
        g::DP_ORDERING_OOO_RW_RC,
        g::FL_RC_QP_WHEN_ROCE_DISABLED,
        g::DP_ORDERING_OOO_ALL_RC,
        g::SQ_TS_FORMAT,
        g::RQ_TS_FORMAT,
    ];
    assert_eq!(said.map(|field| one(&out, field)), [1, 1, 1, 2, 1, 1, 1, 2, 1]);
    assert_eq!(one(&union(&[(0x10, "00 80 00 00")]), caps::general_2::DP_ORDERING_FORCE), 1);
    let roce =
        union(&[(0x00, "06 00 00 02"), (0x10, "00 00 00 04"), (0x14, "00 00 12 b7"), (0x1c, "00 00 00 ff")]);
    use caps::roce as r;
    let said = [
        r::FL_RC_QP_WHEN_ROCE_DISABLED,
        r::FL_RC_QP_WHEN_ROCE_ENABLED,
        r::QP_TS_FORMAT,
        r::ROCE_VERSION,
        r::R_ROCE_DEST_UDP_PORT,
        r::ROCE_ADDRESS_TABLE_SIZE,
    ];
    assert_eq!(said.map(|field| one(&roce, field)), [1, 1, 2, 4, 4791, 255]);
    assert_eq!(one(&union(&[(0x00, "02 00 00 00")]), r::FL_RC_QP_WHEN_ROCE_DISABLED), 0);
    let atomic = union(&[(0x08, "42 00 00 00"), (0x10, "00 00 00 0f")]);
    use caps::atomic as a;
    let said = [a::REQ_8B_ENDIANNESS_MODE, a::SUPPORTED_REQ_8B_ENDIANNESS_MODE_1, a::ATOMIC_OPERATIONS];
    assert_eq!(said.map(|field| one(&atomic, field)), [1, 1, 0xf]);
    assert_eq!(caps::op_mod_current(caps::GENERAL_2), 0x41);
}

#[test]
fn order_and_clock_of_a_queue_pair() {
    let context = |dword: usize, text: &str| {
        let mut out = vec![0; qp::qpc::BYTES];
        out[dword..dword + 4].copy_from_slice(&hex(text));
        out
    };
    assert_eq!(qp::qpc::DP_ORDERING_FORCE.get(&context(4, "01 00 00 00")), 1);
    assert_eq!(qp::qpc::DP_ORDERING_0.get(&context(4, "02 00 00 00")), 1);
    assert_eq!(qp::qpc::DATA_IN_ORDER.get(&context(8, "00 00 00 20")), 1);
    assert_eq!(qp::qpc::TS_FORMAT.get(&context(8, "00 00 00 40")), qp::Timestamp::Default as u32);
    assert_eq!(qp::qpc::TS_FORMAT.get(&context(8, "00 00 00 80")), qp::Timestamp::RealTime as u32);
}

#[test]
fn tables_of_an_infiniband_port() {
    let mut asked = vec![0; port::hca_vport_table_in::BYTES];
    cmd::input::OPCODE.set(&mut asked, cmd::Opcode::QueryHcaVportPkey as u32);
    port::hca_vport_table_in::PORT_NUM.set(&mut asked, 1);
    port::hca_vport_table_in::INDEX.set(&mut asked, port::ALL_ENTRIES);
    assert_eq!(asked, hex("07650000 00000000 00010000 0000ffff"));
    let pkey = hex("00000000 00000000 00000000 00000000 00008005");
    assert_eq!(port::hca_vport_pkey_out::PKEY.get(&pkey), 0x8005);
    let gid = hex("00000000 00000000 00000000 00010000 fe800000 00000000 00112233 44556677");
    assert_eq!(port::hca_vport_gid_out::GIDS_NUM.get(&gid), 1);
    assert_eq!(port::hca_vport_gid_out::gid(&gid)[..], hex("fe800000 00000000 00112233 44556677"));
    assert_eq!(cmd::Opcode::QueryHcaVportGid as u16, 0x764);
}

#[test]
fn create_mkey_mailbox() {
    let c = mkey::MKC_OFFSET;
    let bytes = mailbox(
        mkey::CREATE_IN_BYTES,
        &[
            (cmd::input::OPCODE, cmd::Opcode::CreateMkey as u32),
            (mkey::create::MKEY_UMEM_VALID, 1),
            (mkey::mkc::A.within(c), 1),
            (mkey::mkc::RW.within(c), 1),
            (mkey::mkc::RR.within(c), 1),
            (mkey::mkc::LW.within(c), 1),
            (mkey::mkc::LR.within(c), 1),
            (mkey::mkc::ACCESS_MODE_1_0.within(c), mkey::ACCESS_MODE_MTT),
            (mkey::mkc::QPN.within(c), 0xff_ffff),
            (mkey::mkc::MKEY_7_0.within(c), 0x5a),
            (mkey::mkc::PD.within(c), 0x12),
            (mkey::mkc::LOG_PAGE_SIZE.within(c), 12),
            (mkey::create::MKEY_UMEM_ID, 0x77),
        ],
        &[
            (mkey::mkc::START_ADDR.within(c), 0x7f00_0000_1000),
            (mkey::mkc::LEN.within(c), 0x20_0000),
            (mkey::create::MKEY_UMEM_OFFSET, 0x3000),
        ],
    );
    assert_dwords(
        &bytes,
        &[
            (0x00, "02000000"),
            (0x0c, "40000000"),
            (0x10, "00007d00"),
            (0x14, "ffffff5a"),
            (0x1c, "00000012"),
            (0x20, "00007f00 00001000"),
            (0x28, "00000000 00200000"),
            (0x48, "0000000c"),
            (0x64, "00000077"),
            (0x68, "00000000 00003000"),
        ],
    );
    assert_eq!(mkey::key(0x12_3456, 0x5a), 0x1234_565a);
}

#[test]
fn create_cq_mailbox() {
    let c = cq::CQC_OFFSET;
    let bytes = mailbox(
        cq::CREATE_IN_BYTES,
        &[
            (cmd::input::OPCODE, cmd::Opcode::CreateCq as u32),
            (cq::cqc::DBR_UMEM_VALID.within(c), 1),
            (cq::cqc::CC.within(c), 1),
            (cq::cqc::OI.within(c), 1),
            (cq::cqc::DBR_UMEM_ID.within(c), 0x31),
            (cq::cqc::LOG_CQ_SIZE.within(c), 10),
            (cq::cqc::UAR_PAGE.within(c), 0x55),
            (cq::cqc::C_EQN.within(c), 7),
            (cq::cqc::LOG_PAGE_SIZE.within(c), 4),
            (cq::create::CQ_UMEM_ID, 0x32),
            (cq::create::CQ_UMEM_VALID, 1),
        ],
        &[(cq::cqc::DBR_ADDR.within(c), 0x40), (cq::create::CQ_UMEM_OFFSET, 0x1000)],
    );
    assert_dwords(
        &bytes,
        &[
            (0x00, "04000000"),
            (0x10, "02120000"),
            (0x14, "00000031"),
            (0x1c, "0a000055"),
            (0x24, "00000007"),
            (0x28, "04000000"),
            (0x48, "00000000 00000040"),
            (0x50, "00000000 00001000"),
            (0x58, "00000032"),
            (0x5c, "80000000"),
        ],
    );
}

#[test]
fn create_qp_mailbox() {
    let c = qp::QPC_OFFSET;
    let bytes = mailbox(
        qp::CONTEXT_COMMAND_BYTES,
        &[
            (cmd::input::OPCODE, cmd::Opcode::CreateQp as u32),
            (qp::qpc::ST.within(c), qp::SERVICE_RC),
            (qp::qpc::PM_STATE.within(c), qp::PM_STATE_MIGRATED),
            (qp::qpc::PD.within(c), 0x12_3456),
            (qp::qpc::LOG_SQ_SIZE.within(c), 8),
            (qp::qpc::UAR_PAGE.within(c), 0x55),
            (qp::qpc::USER_INDEX.within(c), 0xff_ffff),
            (qp::qpc::CQN_SND.within(c), 0x105),
            (qp::qpc::CQN_RCV.within(c), 0x106),
            (qp::qpc::RQ_TYPE.within(c), qp::RQ_TYPE_ZERO_SIZE),
            (qp::qpc::DBR_UMEM_VALID.within(c), 1),
            (qp::qpc::DBR_UMEM_ID.within(c), 0x31),
            (qp::create::ECE, qp::ece::TRIGGER),
            (qp::create::WQ_UMEM_ID, 0x33),
            (qp::create::WQ_UMEM_VALID, 1),
        ],
        &[(qp::qpc::DBR_ADDR.within(c), 0x80), (qp::create::WQ_UMEM_OFFSET, 0x1_0000_2000)],
    );
    assert_dwords(
        &bytes,
        &[
            (0x00, "05000000"),
            (0x14, "10000000"), // ece: version 1
            (0x18, "00001800"),
            (0x1c, "00123456"),
            (0x20, "00004000"),
            (0x24, "00000055"),
            (0x28, "00ffffff"),
            (0x94, "00000105"),
            (0xb4, "00000106"),
            (0xb8, "00000000 00000080"),
            (0xc4, "03000000"),
            (0xe8, "10000000"),
            (0xfc, "00000031"),
            (0x100, "00000001 00002000"),
            (0x108, "00000033"),
            (0x10c, "80000000"),
        ],
    );
}

/// Where `ece` stands in inputs and outputs, and what is in it: `mlx5_ifc.h`, `mlx5_ece.h`.
#[test]
fn options_of_connection_establishment() {
    let wanted = mailbox(
        qp::CONTEXT_COMMAND_BYTES,
        &[(cmd::input::OPCODE, cmd::Opcode::Init2RtrQp as u32), (qp::change::ECE, 0x3000_0005)],
        &[],
    );
    assert_dwords(&wanted, &[(0x00, "05030000"), (0x14, "30000005")]);
    assert_eq!(qp::answer::ECE.get(&hex("00000000 00000000 00000abc 20000001")), 0x2000_0001);
    let mut queried = vec![0; qp::QUERY_OUT_BYTES];
    queried[0x0c..0x18].copy_from_slice(&hex("ffffffff 00000000 30000003"));
    assert_eq!(qp::queried::ECE.get(&queried), 0x3000_0003);
    let word = hex("300001fd");
    let fields = [qp::ece::VERSION, qp::ece::CONGESTION_CONTROL, qp::ece::SELECTIVE_REPEAT];
    assert_eq!(fields.map(|field| field.get(&word)), [3, 0xfe, 1]);
    assert_eq!(qp::ece::TRIGGER.to_be_bytes().as_slice(), hex("10000000"));
}

#[test]
fn queue_pair_fields_of_receive_queues_and_datagrams() {
    let c = qp::QPC_OFFSET;
    let bytes = mailbox(
        qp::CONTEXT_COMMAND_BYTES,
        &[
            (qp::qpc::ST.within(c), qp::SERVICE_UD),
            (qp::qpc::LOG_RQ_SIZE.within(c), 9),
            (qp::qpc::LOG_RQ_STRIDE.within(c), 5),
            (qp::qpc::RQ_TYPE.within(c), qp::RQ_TYPE_REGULAR),
            (qp::qpc::Q_KEY.within(c), 0x8001_0000),
            (qp::qpc::HW_RQ_COUNTER.within(c), 3),
            (qp::qpc::SW_RQ_COUNTER.within(c), 4),
        ],
        &[],
    );
    let dwords = [(0x18, "00020000"), (0x20, "004d0000"), (0xc0, "80010000"), (0xd0, "00000003 00000004")];
    assert_dwords(&bytes, &dwords);
}

#[test]
fn rst2init_mailbox() {
    let (c, a) = (qp::QPC_OFFSET, qp::QPC_OFFSET + qp::ADS_OFFSET);
    let bytes = mailbox(
        qp::CONTEXT_COMMAND_BYTES,
        &[
            (cmd::input::OPCODE, cmd::Opcode::Rst2InitQp as u32),
            (cmd::input::OBJECT, 0xabc),
            (qp::qpc::PM_STATE.within(c), 3),
            (qp::ads::VHCA_PORT_NUM.within(a), 1),
            (qp::qpc::RRE.within(c), 1),
            (qp::qpc::RWE.within(c), 1),
            (qp::qpc::RAE.within(c), 1),
            (qp::qpc::ATOMIC_MODE.within(c), qp::ATOMIC_MODE_UP_TO_8),
        ],
        &[],
    );
    assert_dwords(
        &bytes,
        &[(0x00, "05020000"), (0x08, "00000abc"), (0x18, "00001800"), (0x54, "00010000"), (0xa8, "0003e000")],
    );
}

#[test]
fn init2rtr_mailbox() {
    let (c, a) = (qp::QPC_OFFSET, qp::QPC_OFFSET + qp::ADS_OFFSET);
    let mut bytes = mailbox(
        qp::CONTEXT_COMMAND_BYTES,
        &[
            (cmd::input::OPCODE, cmd::Opcode::Init2RtrQp as u32),
            (cmd::input::OBJECT, 0xabc),
            (qp::qpc::MTU.within(c), 5),
            (qp::qpc::LOG_MSG_MAX.within(c), 30),
            (qp::qpc::REMOTE_QPN.within(c), 0xdef),
            (qp::ads::SRC_ADDR_INDEX.within(a), 3),
            (qp::ads::HOP_LIMIT.within(a), 255),
            (qp::ads::DSCP.within(a), 26),
            (qp::ads::UDP_SPORT.within(a), 0xc001),
            (qp::ads::ETH_PRIO.within(a), 3),
            (qp::ads::VHCA_PORT_NUM.within(a), 1),
            (qp::ads::RMAC_47_32.within(a), 0x0242),
            (qp::ads::RMAC_31_0.within(a), 0x0a00_0102),
            (qp::qpc::LOG_RRA_MAX.within(c), 4),
            (qp::qpc::MIN_RNR_NAK.within(c), 12),
            (qp::qpc::NEXT_RCV_PSN.within(c), 0xff_fffe),
        ],
        &[],
    );
    let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 2];
    qp::ads::set_rgid(&mut bytes[a..], gid);
    assert_dwords(
        &bytes,
        &[
            (0x00, "05030000"),
            (0x08, "00000abc"),
            (0x20, "be000000"),
            (0x2c, "00000def"),
            (0x38, "000300ff"),
            (0x40, "00000000 00000000 0000ffff 0a000102"),
            (0x50, "001ac001"),
            (0x54, "30010242"),
            (0x58, "0a000102"),
            (0xa8, "00800000"),
            (0xac, "0cfffffe"),
        ],
    );
    assert_eq!(qp::ads::rgid(&bytes[a..]), gid);
}

#[test]
fn rtr2rts_mailbox() {
    let (c, a) = (qp::QPC_OFFSET, qp::QPC_OFFSET + qp::ADS_OFFSET);
    let bytes = mailbox(
        qp::CONTEXT_COMMAND_BYTES,
        &[
            (cmd::input::OPCODE, cmd::Opcode::Rtr2RtsQp as u32),
            (cmd::input::OBJECT, 0xabc),
            (qp::ads::ACK_TIMEOUT.within(a), 20),
            (qp::qpc::RETRY_COUNT.within(c), 7),
            (qp::qpc::RNR_RETRY.within(c), 7),
            (qp::qpc::NEXT_SEND_PSN.within(c), 0x12_3456),
        ],
        &[],
    );
    assert_dwords(
        &bytes,
        &[(0x00, "05040000"), (0x08, "00000abc"), (0x38, "a0000000"), (0x88, "0007e000"), (0x90, "00123456")],
    );
}

#[test]
fn short_qp_commands() {
    for (opcode, want) in [
        (cmd::Opcode::Qp2Err, "05070000"),
        (cmd::Opcode::Qp2Rst, "050a0000"),
        (cmd::Opcode::QueryQp, "050b0000"),
        (cmd::Opcode::DestroyQp, "05010000"),
    ] {
        let fields = [(cmd::input::OPCODE, opcode as u32), (cmd::input::OBJECT, 0xabc)];
        let bytes = mailbox(qp::SHORT_COMMAND_BYTES, &fields, &[]);
        assert_dwords(&bytes, &[(0, want), (8, "00000abc")]);
    }
}

#[test]
fn query_qp_output() {
    let mut out = vec![0; qp::QUERY_OUT_BYTES];
    for (offset, text) in [
        (0x00, "00000000"),
        (0x18, "60001800"), // ERR, RC, migrated
        (0x90, "00000105"), // next send PSN
        (0xa0, "00000104"), // last acked PSN
        (0xac, "0c000042"), // next receive PSN, RNR timer 12
        (0xc8, "00000039"), // messages executed
        (0xcc, "0007fffe"), // blocks consumed, announced
    ] {
        out[offset..offset + 4].copy_from_slice(&hex(text));
    }
    let read = |field: Field| field.within(qp::QPC_OFFSET).get(&out);
    assert_eq!(qp::State::from_raw(read(qp::qpc::STATE)), Some(qp::State::Err));
    assert_eq!((read(qp::qpc::NEXT_SEND_PSN), read(qp::qpc::LAST_ACKED_PSN)), (0x105, 0x104));
    assert_eq!((read(qp::qpc::NEXT_RCV_PSN), read(qp::qpc::RMSN)), (0x42, 0x39));
    assert_eq!((read(qp::qpc::HW_SQ_WQEBB_COUNTER), read(qp::qpc::SW_SQ_WQEBB_COUNTER)), (7, 0xfffe));
}

#[test]
fn command_output_header() {
    let out = hex("03000000 00a1b2c3 00000abc 00000000");
    assert_eq!(cmd::output::STATUS.get(&out), cmd::Status::BadParam as u32);
    assert_eq!(cmd::output::SYNDROME.get(&out), 0x00a1_b2c3);
    assert_eq!(cmd::output::OBJECT.get(&out), 0xabc);
    assert_eq!(cmd::Status::name(out[0]), "BAD_PARAM");
}

#[test]
fn port_and_address_outputs() {
    let vport = hex("00000000 00000000 00000000 00000021");
    assert_eq!((port::vport_state::ADMIN_STATE.get(&vport), port::vport_state::STATE.get(&vport)), (2, 1));
    let mut roce = vec![0; port::ROCE_ADDRESS_OUT_BYTES];
    roce[0x10..0x2c].copy_from_slice(&hex("00000000 00000000 0000ffff 0a000102 00000242 0a000102 00000002"));
    assert_eq!(port::roce_address_out::gid(&roce)[12..], [10, 0, 1, 2]);
    assert_eq!(port::roce_address_out::MAC_47_32.get(&roce), 0x0242);
    assert_eq!(port::roce_address_out::MAC_31_0.get(&roce), 0x0a00_0102);
    assert_eq!(port::roce_address_out::L3_TYPE.get(&roce), 0);
    assert_eq!(port::roce_address_out::ROCE_VERSION.get(&roce), 2);
    let special = hex("00000000 00000000 00000700 00000100 00000300 00000000 00000000 00000000");
    assert_eq!(pd::special::RESD_LKEY.get(&special), 0x100);
    assert_eq!(pd::special::NULL_MKEY.get(&special), 0x300);
}

#[test]
fn event_entries() {
    // Port 1 of the card went down. Type and sub type are bytes 1 and 3.
    let mut port = dirty(64);
    port[..4].copy_from_slice(&hex("00090001"));
    port[0x28] = 0x10;
    port[0x3f] = 0x01;
    assert_eq!(eqe::EVENT_TYPE.get(&port) as u8, eqe::event::PORT_CHANGE);
    assert_eq!(eqe::SUB_TYPE.get(&port) as u8, eqe::port::DOWN);
    assert_eq!((eqe::PORT_NUM.get(&port), eqe::OWNER.get(&port)), (1, 1));
    // A QP in ERR: the queue's type is the first byte of its dword, its number the dword after.
    let mut queue = dirty(64);
    queue[..4].copy_from_slice(&hex("00050000"));
    queue[0x34..0x3c].copy_from_slice(&hex("00a5a5a5 00000abc"));
    assert_eq!(eqe::EVENT_TYPE.get(&queue) as u8, eqe::event::WQ_CATASTROPHIC);
    assert_eq!((eqe::QUEUE_TYPE.get(&queue), eqe::OBJECT.get(&queue)), (0, 0xabc));
    // A CQ overrun names its CQ in the first dword of the event's data.
    let mut overrun = dirty(64);
    overrun[..4].copy_from_slice(&hex("00040000"));
    overrun[0x20..0x24].copy_from_slice(&hex("00000105"));
    assert_eq!(eqe::EVENT_TYPE.get(&overrun) as u8, eqe::event::CQ_ERROR);
    assert_eq!(eqe::CQ_ERROR_CQN.get(&overrun), 0x105);
}

/// Every field of every table: all ones and all zeros into a dirty buffer, and no other bit moves.
#[test]
fn no_field_touches_its_neighbours() {
    for (name, fields, wide, bytes) in [
        ("input", cmd::input::ALL, cmd::input::ALL_WIDE, cmd::input::BYTES),
        ("output", cmd::output::ALL, cmd::output::ALL_WIDE, cmd::output::BYTES),
        ("cqc", cq::cqc::ALL, cq::cqc::ALL_WIDE, cq::cqc::BYTES),
        ("create_cq", cq::create::ALL, cq::create::ALL_WIDE, cq::create::BYTES),
        ("mkc", mkey::mkc::ALL, mkey::mkc::ALL_WIDE, mkey::mkc::BYTES),
        ("create_mkey", mkey::create::ALL, mkey::create::ALL_WIDE, mkey::create::BYTES),
        ("qpc", qp::qpc::ALL, qp::qpc::ALL_WIDE, qp::qpc::BYTES),
        ("create_qp", qp::create::ALL, qp::create::ALL_WIDE, qp::create::BYTES),
        ("change_qp", qp::change::ALL, qp::change::ALL_WIDE, qp::change::BYTES),
        ("qp_answer", qp::answer::ALL, qp::answer::ALL_WIDE, qp::answer::BYTES),
        ("queried_qp", qp::queried::ALL, qp::queried::ALL_WIDE, qp::queried::BYTES),
        ("ece", qp::ece::ALL, qp::ece::ALL_WIDE, qp::ece::BYTES),
        ("ads", qp::ads::ALL, qp::ads::ALL_WIDE, qp::ads::BYTES),
        ("general", caps::general::ALL, caps::general::ALL_WIDE, caps::general::BYTES),
        ("general_2", caps::general_2::ALL, caps::general_2::ALL_WIDE, caps::general_2::BYTES),
        ("roce", caps::roce::ALL, caps::roce::ALL_WIDE, caps::roce::BYTES),
        ("atomic", caps::atomic::ALL, caps::atomic::ALL_WIDE, caps::atomic::BYTES),
        ("nic_vport", port::nic_vport::ALL, port::nic_vport::ALL_WIDE, port::nic_vport::BYTES),
        ("hca_vport", port::hca_vport::ALL, port::hca_vport::ALL_WIDE, port::hca_vport::BYTES),
        ("eqe", eqe::ALL, eqe::ALL_WIDE, eqe::BYTES),
    ] {
        for (field_name, field) in fields {
            let ones = field.mask() >> field.lsb;
            for value in [ones, 0] {
                let mut buffer = dirty(bytes);
                field.set(&mut buffer, value);
                assert_eq!(field.get(&buffer), value, "{name}.{field_name}");
                let word =
                    u32::from_be_bytes(buffer[field.offset..field.offset + 4].try_into().expect("4 bytes"));
                assert_eq!(word & !field.mask(), 0xa5a5_a5a5 & !field.mask(), "{name}.{field_name}");
                buffer[field.offset..field.offset + 4].fill(DIRTY);
                assert_eq!(buffer, dirty(bytes), "{name}.{field_name}");
            }
        }
        for (field_name, field) in wide {
            let mut buffer = dirty(bytes);
            field.set(&mut buffer, 0x0123_4567_89ab_cdef);
            assert_eq!(
                buffer[field.offset..field.offset + 8],
                hex("01234567 89abcdef"),
                "{name}.{field_name}"
            );
            buffer[field.offset..field.offset + 8].fill(DIRTY);
            assert_eq!(buffer, dirty(bytes), "{name}.{field_name}");
        }
    }
}
