//! Reads of remote memory.

use crate::rig::{MEMORY, Rig, Weather, ended};
use shunt_soft_srd::format::Status;
use shunt_soft_srd::qp::Service;

#[test]
fn a_read_brings_every_byte_whatever_is_lost() {
    for weather in [Weather::default(), Weather { lost: 150, doubled: 150 }] {
        let mut rig = Rig::new(7, Service::Reliable, weather);
        let bytes = 300_001;
        let there: Vec<u8> = (0..bytes).map(|n| (n * 7 + n / 251) as u8).collect();
        rig.programs[1].memory.put(1000, &there);
        let (to, key) = (rig.programs[1].qpn, rig.programs[1].key);
        let remote = rig.programs[1].memory.address() + 1000;
        rig.programs[0].read(9, (remote, key), 77, bytes as u32, to);
        let seen = rig.completion(0);
        assert_eq!((seen.request, seen.status), ended(9, Status::Ok));
        assert!(rig.programs[0].memory.get(77, bytes) == there);
        assert_eq!(rig.programs[0].memory.get(77 + bytes, 1), [0], "and not one more");
        assert_eq!((rig.lost > 0, rig.doubled > 0), (weather.lost > 0, weather.doubled > 0));
        (0..1000).for_each(|_| rig.step());
        assert_eq!(rig.programs[0].poll(), None, "it is complete once");
    }
}

#[test]
fn a_read_that_no_key_allows_says_so() {
    let mut rig = Rig::new(7, Service::Reliable, Weather::default());
    let (to, key) = (rig.programs[1].qpn, rig.programs[1].key);
    let remote = rig.programs[1].memory.address();
    rig.programs[0].read(1, (remote, key + 1), 0, 10, to);
    rig.programs[0].read(2, (remote + MEMORY as u64 - 9, key), 0, 10, to);
    rig.programs[0].read(3, (remote, key), 0, 10, to + 1);
    rig.programs[0].read(4, (remote, key), MEMORY - 9, 10, to);
    rig.programs[0].read(5, (remote, key), 0, 0, to);
    let mut seen = [(); 5].map(|()| rig.completion(0)).map(|seen| (seen.request, seen.status));
    seen.sort_unstable();
    let wanted = [
        ended(1, Status::BadRemoteAddress),
        ended(2, Status::BadRemoteAddress),
        ended(3, Status::BadRemoteQp),
        ended(4, Status::BadLocalKey),
        ended(5, Status::Ok),
    ];
    assert_eq!(seen, wanted);
}
