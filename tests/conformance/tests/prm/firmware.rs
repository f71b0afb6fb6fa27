//! The soft NIC's firmware, driven by mailboxes that are not ours and read with descriptions that are not ours.

use crate::oracle::{Oracle, Values, values};
use shunt_conformance::draw::Draw;
use shunt_soft_nic::{Fabric, FabricConfig, FaultKind, LinkLayer, NicConfig, NicId, RailAt, SoftNic, trace};
use std::sync::atomic::AtomicU64;

const MEMORY: usize = 1 << 20;
const AT: RailAt = RailAt { pe: 0, rail: 0 };

/// A NIC, its host's memory, and the descriptions.
struct Bench {
    oracle: Oracle,
    fabric: Fabric,
    nic: NicId,
    now: u64,
    /// Atomics only: the NIC shares it.
    memory: Vec<AtomicU64>,
    umem: u64,
    uar: u64,
}

impl Bench {
    fn new(adjust: impl Fn(&mut NicConfig)) -> Option<Self> {
        let oracle = Oracle::start()?;
        let mut config = NicConfig::new("mlx5_0".to_owned(), AT.pe, AT.rail);
        adjust(&mut config);
        let mut fabric = Fabric::new(FabricConfig { link_ns: 2_000, seed: 1 });
        let nic = fabric.add(SoftNic::new(config), AT);
        let memory: Vec<AtomicU64> = (0..MEMORY / 8 + 512).map(|_| AtomicU64::new(0)).collect();
        let start = (memory.as_ptr() as u64).next_multiple_of(4096);
        // SAFETY: the memory lives as long as the fabric, in this struct, and is atomics only.
        let umem = unsafe { fabric.nic(nic).register_umem(start, MEMORY as u64) }.unwrap() as u64;
        let uar = fabric.nic(nic).alloc_uar().id as u64;
        Some(Self { oracle, fabric, nic, now: 0, memory, umem, uar })
    }

    fn start(&self) -> u64 {
        (self.memory.as_ptr() as u64).next_multiple_of(4096)
    }

    /// Sends a packet of theirs, reads the answer as a packet of theirs.
    fn command(&mut self, sent: (&str, &Values), answer: (&str, usize)) -> Values {
        let mailbox = self.oracle.build(sent.0, sent.1);
        let id = self.fabric.nic(self.nic).command_submit(self.now, &mailbox, answer.1);
        loop {
            if let Some(out) = self.fabric.nic(self.nic).command_poll(self.now, id) {
                let said = self.oracle.parse(answer.0, &out);
                let text = trace::answer(&out);
                assert_eq!(said["status"], 0, "{}: {text}", trace::command(&mailbox));
                return said;
            }
            self.now = self.fabric.next_due().expect("a command is due").max(self.now);
            while self.fabric.step(self.now) {}
        }
    }

    fn pd(&mut self) -> u64 {
        self.command(("AllocPdIn", &values([("opcode", 0x800)])), ("AllocPdOut", 16))["pd"]
    }

    fn cq(&mut self, umem_offset: u64) -> u64 {
        let input = values([
            ("opcode", 0x400),
            ("sw_cqc.dbr_umem_valid", 1),
            ("sw_cqc.dbr_umem_id", self.umem),
            ("sw_cqc.log_cq_size", 6),
            ("sw_cqc.uar_page", self.uar),
            ("sw_cqc.db_record_addr_31_3", 0x40 >> 3),
            ("e_mtt_pointer_or_cq_umem_offset", umem_offset),
            ("cq_umem_id", self.umem),
            ("cq_umem_valid", 1),
        ]);
        self.command(("CreateCqIn", &input), ("CreateCqOut", 16))["cqn"]
    }

    fn qp(&mut self, pd: u64, cqn: u64, user_index: u64) -> u64 {
        let input = values([
            ("opcode", 0x500),
            ("sw_qpc.pm_state", 3),
            ("sw_qpc.pd", pd),
            ("sw_qpc.log_sq_size", 6),
            ("sw_qpc.log_rq_size", 5),
            ("sw_qpc.log_rq_stride", 2),
            ("sw_qpc.uar_page", self.uar),
            ("sw_qpc.user_index", user_index),
            ("sw_qpc.cqn_snd", cqn),
            ("sw_qpc.cqn_rcv", cqn),
            ("sw_qpc.dbr_umem_valid", 1),
            ("sw_qpc.dbr_umem_id", self.umem),
            ("e_mtt_pointer_or_wq_umem_offset", 0x8000),
            ("wq_umem_id", self.umem),
            ("wq_umem_valid", 1),
        ]);
        self.command(("CreateQpIn", &input), ("CreateQpOut", 16))["qpn"]
    }

    fn transition(&mut self, opcode: u64, qpn: u64, context: &Values) {
        let mut input = values([("opcode", opcode), ("qpn", qpn)]);
        input.extend(context.clone());
        self.command(("ModifyQpIn", &input), ("ModifyQpOut", 16));
    }
}

/// Values for the three transitions.
fn contexts(draw: &mut Draw) -> [Values; 3] {
    const PATH: &str = "sw_qpc.primary_address_path.";
    let flag = |draw: &mut Draw| draw.bits(1);
    let init = values([
        ("sw_qpc.pm_state", 3),
        ("sw_qpc.rre", flag(draw)),
        ("sw_qpc.rwe", flag(draw)),
        ("sw_qpc.rae", flag(draw)),
        ("sw_qpc.atomic_mode", draw.bits(2)),
        (&format!("{PATH}vhca_port_num"), 1),
    ]);
    let mut rtr = values([
        ("sw_qpc.mtu", 1 + draw.below(5)),
        ("sw_qpc.log_msg_max", 30),
        ("sw_qpc.remote_qpn", draw.bits(24)),
        ("sw_qpc.next_rcv_psn", draw.bits(24)),
        ("sw_qpc.log_rra_max", draw.below(5)),
        ("sw_qpc.min_rnr_nak", draw.bits(5)),
        (&format!("{PATH}vhca_port_num"), 1),
    ]);
    let path =
        [("src_addr_index", 8), ("hop_limit", 8), ("tclass", 8), ("flow_label", 20), ("udp_sport", 16)];
    let gid = [("rgid_rip.0", 32), ("rgid_rip.1", 32), ("rgid_rip.2", 32), ("rgid_rip.3", 32)];
    for (name, bits) in path.into_iter().chain(gid).chain([("rmac", 48), ("eth_prio", 3), ("dscp", 6)]) {
        rtr.insert(format!("{PATH}{name}"), draw.bits(bits));
    }
    let rts = values([
        ("sw_qpc.retry_count", draw.bits(3)),
        ("sw_qpc.rnr_retry", draw.bits(3)),
        ("sw_qpc.next_send_psn", draw.bits(24)),
        ("sw_qpc.log_sra_max", draw.below(5)),
        ("sw_qpc.log_ack_req_freq", draw.bits(4)),
        (&format!("{PATH}ack_timeout"), draw.bits(5)),
    ]);
    [init, rtr, rts]
}

#[test]
fn a_queue_pair_made_moved_and_read_by_their_packets() {
    let Some(mut bench) = Bench::new(|_| {}) else { return };
    let mut draw = Draw::new(0xfeed);
    let pd = bench.pd();
    let cqn = bench.cq(0x1000);
    for _ in 0..60 {
        let user_index = draw.bits(24);
        let qpn = bench.qp(pd, cqn, user_index);
        let moves = contexts(&mut draw);
        let mut want = values([
            ("sw_qpc.pd", pd),
            ("sw_qpc.cqn_snd", cqn),
            ("sw_qpc.cqn_rcv", cqn),
            ("sw_qpc.user_index", user_index),
            ("sw_qpc.log_sq_size", 6),
            ("sw_qpc.log_rq_size", 5),
            ("sw_qpc.log_rq_stride", 2),
            ("sw_qpc.uar_page", bench.uar),
        ]);
        for ((opcode, state), context) in [(0x502, 1), (0x503, 2), (0x504, 3)].into_iter().zip(&moves) {
            bench.transition(opcode, qpn, context);
            want.extend(context.clone());
            want.insert("sw_qpc.state".to_owned(), state);
            let query = values([("opcode", 0x50b), ("qpn", qpn)]);
            let said = bench.command(("QueryQpIn", &query), ("QueryQpOut", 272));
            for (name, value) in &want {
                assert_eq!(said[name], *value, "{name} after {opcode:#x}");
            }
        }
    }
}

#[test]
fn a_key_made_by_their_packet() {
    let Some(mut bench) = Bench::new(|_| {}) else { return };
    let (pd, mut draw, mut last) = (bench.pd(), Draw::new(3), 0);
    for _ in 0..200 {
        let offset = draw.bits(12) << 4;
        // Up to two pages, in one unit of 16 bytes.
        let input = values([
            ("opcode", 0x200),
            ("translations_octword_actual_size", 1),
            ("sw_mkc.translations_octword_size", 1),
            ("mkey_umem_valid", 1),
            ("mkey_umem_id", bench.umem),
            ("mkey_umem_offset", offset),
            ("sw_mkc.lr", 1),
            ("sw_mkc.lw", draw.bits(1)),
            ("sw_mkc.rr", draw.bits(1)),
            ("sw_mkc.access_mode_1_0", 1),
            ("sw_mkc.qpn", 0xff_ffff),
            ("sw_mkc.mkey_7_0", draw.bits(8)),
            ("sw_mkc.pd", pd),
            ("sw_mkc.start_addr", bench.start() + offset),
            ("sw_mkc.len", 1 + draw.bits(12)),
            ("sw_mkc.log_entity_size", 12),
        ]);
        let index = bench.command(("CreateMkeyIn", &input), ("CreateMkeyOut", 16))["mkey_index"];
        assert_ne!(index, last);
        last = index;
        // QUERY_MKEY is not described; its context is the same, at the same place as in CREATE_MKEY.
        let query = bench.oracle.build("QueryQpIn", &values([("opcode", 0x201), ("qpn", index)]));
        let id = bench.fabric.nic(bench.nic).command_submit(bench.now, &query, 272);
        let out = loop {
            if let Some(out) = bench.fabric.nic(bench.nic).command_poll(bench.now, id) {
                break out;
            }
            bench.now = bench.fabric.next_due().expect("a command is due").max(bench.now);
            while bench.fabric.step(bench.now) {}
        };
        assert_eq!(out[0], 0, "{}", trace::answer(&out));
        let said = bench.oracle.parse("CreateMkeyIn", &out);
        for name in
            ["lr", "lw", "rr", "rw", "a", "qpn", "mkey_7_0", "pd", "start_addr", "len", "access_mode_1_0"]
        {
            let name = format!("sw_mkc.{name}");
            assert_eq!(said[&name], input.get(&name).copied().unwrap_or(0), "{name}");
        }
    }
}

#[test]
fn capabilities_as_their_packet_reads_them() {
    let Some(mut bench) = Bench::new(|_| {}) else { return };
    let query = values([("opcode", 0x100), ("op_mod", 1)]);
    let said = bench.command(("QueryHcaCapIn", &query), ("QueryCmdHcaCapOut", 4112));
    let wants = [
        ("cqe_version", 1),
        ("rc", 1),
        ("ud", 1),
        ("dct", 1),
        ("roce", 1),
        ("atomic", 1),
        ("uar_4k", 1),
        ("cq_oi", 1),
        ("log_bf_reg_size", 9),
        ("num_ports", 1),
        ("port_type", 1),
        ("log_max_qp", 18),
        ("log_max_msg", 30),
        // Where `dp_ordering_force` and its like stand.
        ("hca_cap_2", 1),
        // What would make drivers use what is not there.
        ("xrc", 0),
        ("ib_cyclic_striding_wq", 0),
        ("compact_address_vector", 0),
        ("sctr_data_cqe", 0),
        ("cqe_compression", 0),
        ("eswitch_manager", 0),
    ];
    for (name, value) in wants {
        let said = said.get(&format!("capability.{name}"));
        assert_eq!(said, Some(&value), "{name}");
    }
}

#[test]
fn a_port_of_infiniband_as_their_packet_reads_it() {
    let adjust = |config: &mut NicConfig| {
        config.link_layer = LinkLayer::InfiniBand;
        config.lid = 0x1234;
    };
    let Some(mut bench) = Bench::new(adjust) else { return };
    let query = values([("opcode", 0x762)]);
    let read = |bench: &mut Bench| {
        let said = bench.command(("QueryHcaVportContextIn", &query), ("QueryHcaVportContextOut", 0x210));
        ["port_state", "lid"].map(|name| said[&format!("hca_vport_context.{name}")])
    };
    assert_eq!(read(&mut bench), [4, 0x1234]);
    bench.fabric.plan(0, AT, "down".parse::<FaultKind>().unwrap());
    while bench.fabric.step(bench.now) {}
    assert_eq!(read(&mut bench), [1, 0x1234]);
}

#[test]
fn a_port_event_as_their_packet_reads_it() {
    let Some(mut bench) = Bench::new(|_| {}) else { return };
    bench.fabric.plan(0, AT, "down=1ms".parse::<FaultKind>().unwrap());
    for sub_type in [1, 4] {
        let entry = loop {
            if let Some(entry) = bench.fabric.nic(bench.nic).next_event(bench.now) {
                break entry;
            }
            assert!(bench.now < 1_000_000_000, "no event within a second");
            while bench.fabric.step(bench.now) {}
            bench.now = bench.fabric.next_due().unwrap_or(bench.now + 1_000_000).max(bench.now + 1);
        };
        let said = bench.oracle.parse("SwEqe", &entry);
        let names = ["event_type", "event_sub_type", "event_data.port_num"];
        assert_eq!(names.map(|name| said[name]), [9, sub_type, 1]);
    }
}
