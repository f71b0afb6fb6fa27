//! Soft EFAs behind the ports of NICs: what they send passes the same faults, and is counted with the NIC.

use shunt_soft_nic::packet::{Body, Packet};
use shunt_soft_nic::soft_srd::format::{CQE_BYTES, RECEIVE_BYTES, WQE_BYTES};
use shunt_soft_nic::soft_srd::memory::{Region, Shared, access};
use shunt_soft_nic::soft_srd::qp::{Change, Parts, Service, State};
use shunt_soft_nic::soft_srd::queues::{CompletionQueue, ReceiveQueue, Ring, SendQueue};
use shunt_soft_nic::{Fabric, FabricConfig, NicConfig, NicId, RailAt, SoftNic, SrdConfig};
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of each ring.
const DEPTH: u32 = 4;

/// Words that a program and its device share.
struct Words(Vec<AtomicU64>);

impl Words {
    fn new(bytes: usize) -> Self {
        Self((0..bytes / 8).map(|_| AtomicU64::new(0)).collect())
    }

    fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    fn shared(&self) -> Shared {
        // SAFETY: a program keeps its words as long as the fabric; both touch them by whole words.
        unsafe { Shared::new(self.address(), self.0.len() * 8) }
    }
}

/// A program with one queue pair, number 1, and one receive that is posted.
struct Program {
    rings: [Words; 3],
    pages: [Words; 3],
    memory: Words,
}

impl Program {
    fn new(fabric: &mut Fabric, nic: NicId, other: (u128, u64)) -> Self {
        let rings = [WQE_BYTES, RECEIVE_BYTES, CQE_BYTES].map(|entry| Words::new(entry * DEPTH as usize));
        let (pages, memory) = ([64; 3].map(Words::new), Words::new(64));
        let ring = |n: usize| Ring {
            entries: rings[n].shared(),
            page: pages[n].shared(),
            register: 0,
            depth: DEPTH,
        };
        let device = fabric.srd(nic).unwrap();
        let pd = device.add_pd().unwrap();
        let cq = device.add_cq(CompletionQueue::new(ring(2), CQE_BYTES, true)).unwrap();
        let (send, receive) = (Some(SendQueue::new(ring(0))), Some(ReceiveQueue::new(ring(1))));
        let service = Service::Reliable;
        let parts = Parts { service, pd, send_cq: cq, receive_cq: cq, send, receive };
        let qpn = device.add_qp(parts).unwrap();
        for state in [State::Init, State::Receives, State::Sends] {
            device.change_qp(qpn, Change { state: Some(state), qkey: Some(5), retries: None }).unwrap();
        }
        let start = memory.address();
        let region = Region { pd, start, iova: 0, bytes: 64, access: access::LOCAL_WRITE };
        // SAFETY: the program keeps its memory as long as the fabric.
        let key = unsafe { device.add_region(region) }.unwrap();
        assert_eq!((qpn, device.add_handle(pd, other.0, other.1)), (1, Some(0)));
        rings[1].0[1].store(9 | 64 << 16 | (u64::from(key) | 0xc000_0000) << 32, Ordering::Release);
        pages[1].0[0].store(1, Ordering::Release);
        // It asks for an event.
        pages[2].0[0].store(1 << 31, Ordering::Release);
        Self { rings, pages, memory }
    }

    /// Sends eight bytes that lie in the WQE.
    fn send(&self, bytes: u64) {
        let words = [7 | 0xa0 << 16 | 0x1c << 24 | 1 << 32 | 8 << 48, 0, 5, 0, bytes];
        words.iter().zip(&self.rings[0].0).for_each(|(word, into)| into.store(*word, Ordering::Relaxed));
        self.pages[0].0[0].store(1, Ordering::Release);
    }

    /// Request, status and flags of the first completion, once it is there.
    fn completion(&self) -> Option<[u8; 4]> {
        let [low, high, status, flags, ..] = self.rings[2].0[0].load(Ordering::Acquire).to_le_bytes();
        (flags & 1 == 1).then_some([low, high, status, flags])
    }
}

/// Two NICs with soft EFAs, and their programs.
fn pair() -> (Fabric, [NicId; 2], [Program; 2]) {
    let mut fabric = Fabric::new(FabricConfig::default());
    let configs = [0, 1].map(|pe| NicConfig::new("efa_0", pe, 0));
    let addresses = [0, 1].map(|n: usize| (u128::from_be_bytes(configs[n].gid), configs[n].mac_number()));
    let nics = [0, 1].map(|n: usize| {
        let at = RailAt { pe: n as u32, rail: 0 };
        let nic = fabric.add(SoftNic::new(configs[n].clone()), at);
        fabric.put_srd(nic, SrdConfig { seed: 1, spread_ns: 20_000, epoch: 1 });
        nic
    });
    let programs = [0, 1].map(|n: usize| Program::new(&mut fabric, nics[n], addresses[1 - n]));
    (fabric, nics, programs)
}

/// Steps until both programs have a completion: the instant.
fn complete(fabric: &mut Fabric, programs: &[Program; 2]) -> u64 {
    let mut now = 0;
    while programs.iter().any(|program| program.completion().is_none()) {
        assert!(now < 4_000_000_000, "no completion");
        fabric.step(now);
        now = fabric.next_due().map_or(now + 1_000, |due| due.max(now + 1));
    }
    now
}

#[test]
fn a_message_crosses_and_the_nic_counts_it() {
    let (mut fabric, nics, programs) = pair();
    programs[0].send(0x1122_3344_5566_7788);
    let now = complete(&mut fabric, &programs);
    assert_eq!(programs[0].completion(), Some([7, 0, 0, 0b011]), "sent");
    assert_eq!(programs[1].completion(), Some([9, 0, 0, 0b101]), "received");
    assert_eq!(programs[1].memory.0[0].load(Ordering::Acquire), 0x1122_3344_5566_7788);
    let [sender, receiver] = nics.map(|nic| fabric.nic(nic).counters());
    assert_eq!((sender.wqes, sender.packets_tx, sender.bytes_tx), (1, 1, 8));
    assert_eq!((receiver.messages, receiver.packets_rx, receiver.bytes_rx), (1, 1, 8));
    assert_eq!((sender.cqes, receiver.cqes, sender.retransmits, receiver.dropped), (1, 1, 0, 0));
    let later = now + 1_000_000;
    fabric.step(later);
    let event = nics.map(|nic| fabric.nic(nic).next_event(later).is_some());
    assert_eq!(event, [true, true], "both asked for one");
}

#[test]
fn a_port_that_is_down_holds_it_up_and_loses_nothing() {
    let (mut fabric, nics, programs) = pair();
    fabric.plan(0, RailAt { pe: 1, rail: 0 }, "down=100ms".parse().unwrap());
    programs[0].send(42);
    let now = complete(&mut fabric, &programs);
    assert!(fabric.faults()[0].hits > 0 && now > 100_000_000, "{now}");
    assert_eq!(programs[1].memory.0[0].load(Ordering::Acquire), 42);
    let [sender, receiver] = nics.map(|nic| fabric.nic(nic).counters());
    assert!(sender.retransmits > 0 && receiver.messages == 1, "{sender:?} {receiver:?}");
}

#[test]
fn packets_of_others_are_dropped_and_nics_without_one_have_none() {
    let (mut fabric, nics, programs) = pair();
    let stray = Packet {
        from: 0,
        to: 1,
        source: 1,
        qpn: 1,
        psn: 0,
        ack_request: false,
        solicited: false,
        body: Body::Ack { syndrome: 0, msn: 0 },
    };
    assert!(fabric.forge(stray));
    (0..100).for_each(|n| _ = fabric.step(n * 1_000));
    assert_eq!(fabric.nic(nics[1]).counters().dropped, 1);
    assert_eq!(programs[1].completion(), None);
    let mut plain = Fabric::new(FabricConfig::default());
    let nic = plain.add(SoftNic::new(NicConfig::new("mlx5_0", 0, 0)), RailAt { pe: 0, rail: 0 });
    assert!(plain.srd(nic).is_none());
}
