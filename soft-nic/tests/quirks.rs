//! Behaviour that is switched on: numbers used again, counts near their wrap; and the wraps themselves.

use crate::rig::{Options, Rig, good, header};
use shunt_layout::mlx5::prm::cmd::Opcode as Cmd;
use shunt_layout::mlx5::prm::qp::qpc;
use shunt_layout::mlx5::wqe::{Opcode, inline8};

#[test]
fn psns_and_message_counts_wrap_under_loss() {
    let mut rig = Rig::with(1, |config| config.quirks.first_msn = 0xff_fff0);
    let psn = [0xff_ffe0, 0xff_ffff];
    let options = Options { psn, mtu: 1, log_rq: Some(6), min_rnr: 1, ack_timeout: 6, ..Options::default() };
    let (mut a, mut b) = rig.pair(0, 1, options);
    rig.inject(0, "drop=0.1/50ms");
    rig.inject(1, "dup=0.1/50ms");
    rig.hosts[1].heap.fill(0x1000, 4096, 5);
    for n in 0..60u64 {
        b.post_receive(&[rig.local(1, 0x4000, 1024)]);
        match n % 4 {
            0 => a.post(Opcode::Send, &[rig.local(0, 0, 700)]),
            1 => a.post(Opcode::RdmaRead, &[rig.remote(1, 0x1000), rig.local(0, 0x1000, 600)]),
            2 => a.post(
                Opcode::AtomicFa,
                &[rig.remote(1, 0), [0, 1u32.to_be(), 0, 0], rig.local(0, 0x2000, 8)],
            ),
            _ => a.post_imm(Opcode::RdmaWriteImm, n as u32, &[rig.remote(1, 8), inline8(n)]),
        }
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0, "{n}");
    }
    // Three packets a SEND, three a READ, one for each of the others.
    assert_eq!(rig.query(&b, qpc::NEXT_RCV_PSN), (0xff_ffe0 + 15 * 8) & 0xff_ffff);
    assert_eq!(rig.query(&b, qpc::RMSN), (0xff_fff0 + 60) & 0xff_ffff);
    assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[1].heap.get64(8)), (15, 59));
    let messages = b.poll_receives();
    assert_eq!(messages.len(), 30);
    assert_eq!(messages[29].imm, 59);
    assert!(rig.hits().iter().all(|hits| *hits > 0), "{:?}", rig.hits());
}

#[test]
fn a_number_used_again_names_a_new_pair() {
    let mut rig = Rig::with(1, |config| config.quirks.qpn_reused = true);
    let (mut a, b) = rig.pair(0, 1, Options::default());
    rig.hosts[1].heap.set64(0, 7);
    // The old pair leaves a READ behind that waits for a write to become visible.
    rig.inject(1, "placement-delay=2ms/5ms");
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 8), inline8(1)]);
    a.post(Opcode::RdmaRead, &[rig.remote(1, 0), rig.local(0, 0, 8)]);
    rig.ring(&a);
    rig.run_for(50_000);
    let old = [a.qpn, b.qpn];
    for end in [&a, &b] {
        rig.command(rig.hosts[end.host].nic, &header(Cmd::DestroyQp, end.qpn), 16);
    }
    let (mut c, d) = rig.pair(0, 1, Options { log_rq: Some(3), ..Options::default() });
    assert_eq!([c.qpn, d.qpn], old);
    c.post(Opcode::RdmaWrite, &[rig.remote(1, 16), inline8(3)]);
    c.post(Opcode::RdmaRead, &[rig.remote(1, 16), rig.local(0, 16, 8)]);
    assert_eq!(rig.complete(&mut c, 2), [good(0, Opcode::RdmaWrite), good(1, Opcode::RdmaRead)]);
    rig.settle();
    assert_eq!(rig.hosts[0].heap.get64(16), 3, "it waits for its own write, not for the old pair's");
    assert_eq!(rig.hosts[0].heap.get64(0), 0, "the old READ is not answered");
    assert_eq!((rig.query(&d, qpc::RMSN), rig.hosts[1].heap.get64(8)), (2, 1));
    assert_eq!((a.poll(), a.poll()), (Some(good(0, Opcode::RdmaWrite)), None), "nor is it flushed");
    // The next number is a new one.
    assert_eq!(rig.end(0, Options::default()).qpn, c.qpn + 1);
}
