//! Low latency where ranks share a node: what stays there goes through no NIC, and what fails a NIC does not disturb
//! it.

use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::{Format, MoeError, Patience, Signals};
use shunt_host::agent::words::StateWords;
use shunt_layout::moe::Shape;
use shunt_tests::cluster::Cluster;
use shunt_tests::kernel::Kernel;
use shunt_tests::moe::{all, cases, patience, pause, spec, start_on_nodes};
use shunt_tests::spec::RunSpec;
use std::rc::Rc;

const RANKS: u32 = 4;

fn shape() -> Shape {
    Shape::new(RANKS, 8, 4, 512).unwrap()
}

/// Payload bytes that all NICs of all ranks have sent.
fn by_nic(cluster: &Cluster) -> u64 {
    let of = |rank| (0..cluster.spec.rails).map(move |rail| cluster.counters(rank, rail).bytes_tx);
    (0..RANKS).flat_map(of).sum()
}

const MANNERS: [Manner; 3] = [Manner::Copied, Manner::ZeroCopy, Manner::LogFmt];

/// Layers on nodes of so many ranks, then a cleaning and two more: what is wrong, and bytes by NIC.
fn layers(spec: &RunSpec, locals: u32, signals: Signals) -> (Vec<String>, u64) {
    let cluster = Cluster::start(spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let before = by_nic(&cluster);
    let formats = [Format::Fp8, Format::Bf16, Format::Fp8Exponents];
    let of = |(number, format): (usize, &Format)| cases(shape(), 3, *format, spec.seed + number as u64, 2);
    let cases: Rc<Vec<_>> = Rc::new(formats.iter().enumerate().flat_map(of).collect());
    let patience = Patience { signals, ..patience(spec) };
    let part = |rank: u32| {
        let cases = cases.clone();
        start_on_nodes(&cluster, shape(), locals, rank, patience, move |buffer, kernel| {
            let mut wrongs = Vec::new();
            for (number, case) in cases.iter().enumerate() {
                wrongs.extend(layer::run(buffer, case, MANNERS[number % 3])?);
                pause(kernel, 50_000);
            }
            buffer.clean()?;
            for two in cases.chunks(2).take(1) {
                let sent = (layer::send(buffer, &two[0])?, layer::send(buffer, &two[1])?);
                let received = (buffer.receive_dispatch(sent.0)?, buffer.receive_dispatch(sent.1)?);
                let first = layer::answer(buffer, &two[0], received.0, Manner::default())?;
                let second = layer::answer(buffer, &two[1], received.1, Manner::ZeroCopy)?;
                let combined = (buffer.receive_combine(first)?, buffer.receive_combine(second)?);
                wrongs.extend(layer::check_combined(buffer, &two[0], &combined.0));
                wrongs.extend(layer::check_combined(buffer, &two[1], &combined.1));
            }
            wrongs.extend(posted_on_node(kernel, rank, locals));
            Ok::<_, MoeError>(wrongs)
        })
    };
    let tasks: Vec<_> = (0..RANKS).map(part).collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    (wrongs, by_nic(&cluster) - before)
}

/// Entries that were posted to another rank of this one's node: none is right.
fn posted_on_node(kernel: &Kernel, me: u32, locals: u32) -> Vec<String> {
    // SAFETY: the cluster keeps the state mapped until every kernel has ended.
    let words = unsafe { StateWords::new(kernel.state, kernel.world.clone()) }.expect("one build");
    let channels = words.root().channels_per_pe;
    let mates = (0..RANKS).filter(|mate| *mate != me && mate / locals == me / locals);
    let rows = mates.flat_map(|mate| mate * channels..(mate + 1) * channels);
    let told = rows.map(|row| (row, words.published(row))).filter(|(_, posted)| *posted != 0);
    told.map(|(row, posted)| format!("rank {me}: {posted} entries on row {row}, to its node")).collect()
}

/// All ranks on one node: not a byte by NIC, and nothing disturbs them, whatever becomes of the NICs, all of a rank's
/// among them. Agents tell each other of that by their own queue pairs.
#[test]
fn what_stays_on_a_node_goes_through_no_nic() {
    let all_gone = ["1us:1.0:down", "1us:1.1:down", "20us:2.0:nic-gone", "20us:2.1:nic-gone"];
    for (faults, signals) in [
        (&[][..], Signals::Cleared),
        (&["10us:0.0:down", "40us:3.1:down"][..], Signals::Cleared),
        (&["10us:0.0:down"][..], Signals::Absolute),
        (&all_gone[..], Signals::Cleared),
    ] {
        let faults: Vec<_> = faults.iter().map(|fault| fault.parse().expect("a fault")).collect();
        let spec = RunSpec { faults, ..spec(&shape(), 3) };
        let (wrongs, bytes) = layers(&spec, RANKS, signals);
        assert!(wrongs.is_empty(), "{:?}: {}", spec.faults, wrongs.join("\n"));
        assert!(bytes == 0 || !spec.faults.is_empty(), "{bytes} bytes by NIC");
    }
}

/// Half of what ranks send each other stays on their nodes.
#[test]
fn ranks_of_other_nodes_are_reached_by_nic_and_those_of_this_one_are_not() {
    for faults in [&[][..], &["10us:0.0:down", "90us:2.1:blackhole-tx"][..]] {
        let faults: Vec<_> = faults.iter().map(|fault| fault.parse().expect("a fault")).collect();
        let spec = RunSpec { faults, ..spec(&shape(), 5) };
        let (wrongs, two) = layers(&spec, 2, Signals::Absolute);
        assert!(wrongs.is_empty(), "{:?}: {}", spec.faults, wrongs.join("\n"));
        let (_, none) = layers(&RunSpec { faults: Vec::new(), ..spec.clone() }, 1, Signals::Absolute);
        assert!(0 < two && (!spec.faults.is_empty() || 4 * two < 3 * none), "{two} of {none} bytes");
    }
}
