//! A peer whose process is gone: its NICs are silent and its agent does not answer. A caller that waits for it learns
//! it.

use shunt_device::{Deadline, FaultKind, HeapOffset, Solo};
use shunt_tests::cluster::Cluster;
use shunt_tests::kernel::Kernel;
use shunt_tests::spec::RunSpec;

const GIVE_UP_NS: u64 = 100_000_000;

/// What a whole chain of four paths may take to be found dead: each is suspected, fenced, and its packets outlived.
const CHAIN_NS: u64 = 4 * (10_000_000 + 50_000_000 + 20_000_000);

fn cluster() -> Cluster {
    Cluster::start(&RunSpec { give_up_ns: GIVE_UP_NS, ..RunSpec::default() })
}

/// Takes the NICs, the agent and the link of a PE away, at once.
fn kill(cluster: &Cluster, pe: u32) {
    for rail in 0..cluster.spec.rails {
        cluster.inject(&format!("0ns:{pe}.{rail}:nic-gone").parse().expect("a fault"));
    }
    cluster.kill_agent(pe);
    cluster.oob.close(pe);
}

/// Waits for a word that only PE 1 writes. Answers with the fault that ended it and when.
fn wait_for_peer(kernel: &Kernel) -> (Option<FaultKind>, u64) {
    let device = kernel.device();
    let until = kernel.world.now() + 10_000_000_000;
    while kernel.world.now() < until {
        let slice = Deadline::after(kernel.world.now(), 10_000_000);
        let seen = device.wait_until_ge(Solo, HeapOffset(64), 1, slice);
        assert!(seen.is_err(), "no PE writes the word");
        if let Err(fault) = device.channel(1, 0).alive() {
            return (Some(fault.kind), kernel.world.now());
        }
    }
    (None, kernel.world.now())
}

#[test]
fn a_waiter_with_nothing_outstanding_learns_that_its_peer_is_gone() {
    let cluster = cluster();
    kill(&cluster, 1);
    let began = cluster.sim.now();
    let waiter = cluster.spawn("wait", 0, wait_for_peer);
    let (kind, at) = cluster.sim.finish(&waiter);
    assert_eq!(kind, Some(FaultKind::PeerLost));
    let took = at - began;
    assert!(took >= GIVE_UP_NS, "{took} ns: every path stays dead for the give-up time first");
    assert!(took < GIVE_UP_NS + CHAIN_NS, "{took} ns of virtual time");
}

/// The agents' own link is broken and known to be: they talk over the rails, and nothing else happens.
#[test]
fn a_broken_link_between_the_agents_alone_loses_nobody() {
    let cluster = cluster();
    cluster.oob.close(1);
    let before = cluster.counters(1, 0).messages;
    let waiter = cluster.spawn("wait", 0, |kernel| {
        let device = kernel.device();
        let until = Deadline::after(kernel.world.now(), 1_000_000_000);
        assert!(device.wait_until_ge(Solo, HeapOffset(64), 1, until).is_err());
        device.channel(1, 0).alive()
    });
    assert_eq!(cluster.sim.finish(&waiter), Ok(()));
    assert!(cluster.records().is_empty(), "{:?}", cluster.records());
    let heard = cluster.counters(1, 0).messages - before;
    assert!(
        (40..=600).contains(&heard),
        "signs of life, asked for and given on two pairs: {heard} in a second"
    );
}

/// Neither link carries anything, and the process lives: its channels are touched, and hold.
#[test]
fn agents_that_no_link_joins_lose_nobody() {
    let cluster = cluster();
    cluster.oob.close(1);
    cluster.kill_agent(1);
    let before = cluster.counters(1, 0).messages;
    let waiter = cluster.spawn("wait", 0, |kernel| {
        let device = kernel.device();
        let until = Deadline::after(kernel.world.now(), 1_000_000_000);
        assert!(device.wait_until_ge(Solo, HeapOffset(64), 1, until).is_err());
        device.channel(1, 0).alive()
    });
    assert_eq!(cluster.sim.finish(&waiter), Ok(()));
    assert!(cluster.records().is_empty(), "{:?}", cluster.records());
    assert!(cluster.counters(1, 0).messages > before);
}
