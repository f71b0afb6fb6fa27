//! Segments of strangers: whatever they are, nothing panics, and the device works on.

use crate::rig::{QKEY, Rig, Weather};
use shunt_soft_srd::answering::Incoming;
use shunt_soft_srd::format::Status;
use shunt_soft_srd::qp::Service;
use shunt_soft_srd::segment::{HEADER_BYTES, Header, Kind};

#[test]
fn garbage_changes_nothing() {
    let mut rig = Rig::new(11, Service::Reliable, Weather::default());
    let qpn = rig.programs[1].qpn;
    let header = Header {
        kind: Kind::Send,
        status: Status::Ok,
        mac: 0,
        epoch: 1 << 40,
        number: 1,
        floor: 0,
        offset: 0,
        bytes: 100,
        address: 0,
        key: 0,
        imm: None,
    };
    for n in 0..200_000 {
        let mut segment = header.segment(rig.dice() as usize % 200);
        // Some bytes of the header are anything; the magic often stays.
        for _ in 0..1 + n % 6 {
            let at = 4 + rig.dice() as usize % (HEADER_BYTES - 4);
            segment[at] = rig.dice() as u8;
        }
        segment[4] = 1 + rig.dice() as u8 % 6;
        segment[5] = 0;
        let cut = if n % 10 == 0 { rig.dice() as usize % segment.len() } else { segment.len() };
        let qpn = if n % 3 == 0 { rig.dice() as u16 } else { qpn };
        let incoming = Incoming { source: 9, source_qpn: 4, qpn, qkey: QKEY, segment: &segment[..cut] };
        let now = rig.now;
        rig.programs[1].device.receive(incoming, now);
        // Its answers lead nowhere.
        while rig.programs[1].device.take_outgoing(u64::MAX).is_some() {}
    }
    assert!(rig.counters(1).dropped > 0);
    assert_eq!(rig.programs[1].poll(), None, "no receive was posted");
    rig.programs[1].receive(3, 0, 100);
    rig.programs[0].send(1, 0, 100, qpn);
    assert_eq!((rig.completion(0).status, rig.completion(1).request), (0, 3));
}
