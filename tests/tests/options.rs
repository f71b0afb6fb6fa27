//! Options of connections (enhanced connection establishment): what both ends of a path have in force, at start and
//! after it was made again.

use shunt_layout::mlx5::prm::qp;
use shunt_layout::state::{OrderPolicy, PathState};
use shunt_tests::cluster::Cluster;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// Devices of the two rails of each PE.
const DEVICES: [[&str; 2]; 2] = [["cx7", "cx7"], ["cx7", "cx5"]];
/// What two ConnectX-7 have in common: selective repeat, and the first algorithm of congestion control.
const COMMON: u32 = 0x3000_0003;

/// Options in force at both ends of each path that is ready, checked: by rails, with its incarnation.
fn in_force(cluster: &Cluster) -> Vec<((u32, u32), u32, u32)> {
    let slots = 0..cluster.first_paths()[&(0, 1, 0)].len() as u32;
    let rows = slots.map(|slot| cluster.path_row(0, 1, 0, slot));
    let ready = rows.filter(|row| row.state == PathState::Ready as u32).map(|row| row.identity);
    ready
        .map(|ends| {
            let of = |pe, rail, qpn| qp::queried::ECE.get(&cluster.query_qp(pe, rail, qpn));
            let here = of(0, ends.local_rail, ends.local_qpn);
            let there = of(1, ends.remote_rail, ends.remote_qpn);
            assert_eq!(here, there, "{ends:?}");
            ((ends.local_rail, ends.remote_rail), ends.incarnation, here)
        })
        .collect()
}

fn wanted((local, remote): (u32, u32)) -> u32 {
    let both = [DEVICES[0][local as usize], DEVICES[1][remote as usize]];
    if both == ["cx7"; 2] { COMMON } else { 0 }
}

#[test]
fn a_path_that_was_made_again_has_what_both_nics_have() {
    let faults = ["5ms:0.0:down", "60ms:1.1:down", "100ms:1.1:up", "300ms:0.0:up"];
    let spec = RunSpec {
        profile: DEVICES.concat().join(","),
        ordering: OrderPolicy::Unordered as u32,
        both_ways: true,
        traffic: Traffic { messages: 2_000, pace_ns: 200_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    };
    let cluster = Cluster::start(&spec);
    let at_start = in_force(&cluster);
    assert!(
        at_start.len() == 4 && at_start.iter().all(|(_, incarnation, _)| *incarnation == 1),
        "{at_start:?}"
    );
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    let outcome = finish(&cluster, streams);
    assert!(outcome.wrongs().is_empty(), "{:?}", outcome.wrongs());
    let at_end = in_force(&cluster);
    let again = |rails| at_end.iter().any(|(of, incarnation, _)| *of == rails && *incarnation > 1);
    assert!(again((0, 0)) && again((1, 1)), "both were left in their turn: {at_end:?}");
    for (rails, incarnation, options) in at_start.iter().chain(&at_end) {
        assert_eq!(*options, wanted(*rails), "rails {rails:?}, incarnation {incarnation}");
    }
}
