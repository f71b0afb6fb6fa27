//! The first put: from a WQE in a ring to bytes in the peer's heap and a completion, with one lane and with 32.

use shunt_device::{CqCheck, Deadline, HeapOffset, Put, Solo};
use shunt_tests::cluster::Cluster;
use shunt_tests::oracle::{load, store};
use shunt_tests::sim::ActorOptions;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;
use shunt_tests::warp::spawn_warp;

#[test]
fn a_put_arrives_and_completes() {
    let cluster = Cluster::start(&RunSpec::default());
    let task = cluster.spawn("put", 0, |kernel| {
        for word in 0..64 {
            store(kernel.heap + word * 8, 1000 + word);
        }
        let device = kernel.device();
        let channel = device.channel(1, 0);
        let put = Put { dst: HeapOffset(1024), src: HeapOffset(0), bytes: 512 };
        let ticket = channel.put_nbi(Solo, put).expect("a ring with room");
        let deadline = Deadline::after(kernel.world.now(), 1_000_000);
        assert_eq!(channel.check(ticket, deadline), CqCheck::Pending, "no time has passed");
        channel.wait(Solo, ticket, deadline).expect("a healthy path");
        assert_eq!(channel.check(ticket, deadline), CqCheck::Done);
        kernel.world.now()
    });
    let began = cluster.sim.now();
    let took = cluster.sim.finish(&task) - began;
    assert!(took >= 4_000, "a round trip of a 2 us link takes at least 4 us, this took {took} ns");
    assert!(took < 50_000, "a put took {took} ns of virtual time");
    cluster.sim.run_for(100_000);
    let heap = cluster.pe(1).heap().address;
    for word in 0..64 {
        assert_eq!(load(heap + 1024 + word * 8), 1000 + word);
    }
    assert_eq!(load(heap + 1024 + 512), 0, "not a byte more");
}

#[test]
fn a_value_in_the_wqe_arrives() {
    let cluster = Cluster::start(&RunSpec::default());
    let task = cluster.spawn("p", 0, |kernel| {
        let channel = kernel.device().channel(1, 0);
        channel.p_nbi(Solo, HeapOffset(64), 0x1122_3344_5566_7788, 8).expect("room");
        channel.p_nbi(Solo, HeapOffset(76), 0xaabb_ccdd, 3).expect("room");
        channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000))
    });
    cluster.sim.finish(&task).expect("a healthy path");
    cluster.sim.run_for(100_000);
    let heap = cluster.pe(1).heap().address;
    assert_eq!(load(heap + 64), 0x1122_3344_5566_7788);
    assert_eq!(load(heap + 72), 0xbbccdd << 32, "three bytes at offset 4 and nothing beside them");
}

#[test]
fn thirty_two_lanes_put_in_pieces_and_signal_once() {
    // 4 KiB chunks: a put of 60 KB is 15 or 16 WQEs, written by as many lanes.
    let spec = RunSpec {
        log2_chunk: 12,
        traffic: Traffic {
            messages: 12,
            slots: 3,
            slot_bytes: 60_000,
            puts: 1,
            credit_lag: 1,
            ..Traffic::default()
        },
        ..RunSpec::default()
    };
    let cluster = Cluster::start(&spec);
    let stream = cluster.streams()[0];
    cluster.watch(1, stream.signal());
    let (sender, receiver) = (cluster.kernel(0), cluster.kernel(1));
    let (traffic, again) = (spec.traffic.clone(), spec.traffic.clone());
    let options = ActorOptions::kernel();
    let sending = spawn_warp(&cluster.sim, "send", 32, options.clone(), move |lane| {
        sender.send(lane, stream, &traffic)
    });
    let receiving =
        spawn_warp(&cluster.sim, "receive", 32, options, move |lane| receiver.receive(lane, stream, &again));
    for report in cluster.sim.finish_all(&sending).iter().chain(&cluster.sim.finish_all(&receiving)) {
        assert_eq!((report.fault, report.messages), (None, 12));
    }
    assert_eq!(cluster.oracle.total(), 0, "{}", cluster.oracle.describe());
    assert_eq!(cluster.watched(1, stream.signal()).writes, 12);
    assert!(cluster.counters(0, 0).wqes >= 12 * 15, "pieces of one chunk each");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let spec = |seed| RunSpec {
        seed,
        both_ways: true,
        channels: 2,
        warps: 2,
        interference: 64,
        faults: vec!["500us:0.0:down".parse().expect("a fault"), "5ms:0.0:up".parse().expect("a fault")],
        ..RunSpec::default()
    };
    let run = |seed| {
        let outcome = shunt_tests::run::run(&spec(seed));
        outcome.assert_clean();
        (outcome.trace, outcome.steps, outcome.lasted_ns)
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11).0, run(12).0);
}
