//! Queues in memory of the host and of a device: one behaviour, and each side keeps to its own memory.

use shunt_device::platform::host::Host;
use shunt_device::{Channel, Deadline, Device, FaultKind, HeapOffset, Put, Signal, Solo};
use shunt_layout::state::DeviceState;
use shunt_tests::cluster::Cluster;
use shunt_tests::lies::Lie;
use shunt_tests::oracle::load;
use shunt_tests::sim::{Access, ActorOptions};
use shunt_tests::spec::RunSpec;
use shunt_tests::swarm::{judge, or_panic};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Where nothing takes longer, nothing happens otherwise: event for event, under every fault that these seeds draw.
#[test]
fn a_seed_is_one_run_wherever_its_queues_lie() {
    for seed in 0..12 {
        let [host, device] =
            [false, true].map(|device| judge(&RunSpec::from_seed(seed).with_queues(device), Lie::None));
        assert!(host.wrongs.is_empty() && device.wrongs.is_empty(), "{:?} {:?}", host.wrongs, device.wrongs);
        assert_eq!(host.digest, device.digest, "seed {seed}");
    }
}

/// Something that the processor does to a channel of PE 0, by the root at `state`.
fn on_the_host<T: 'static>(
    cluster: &Cluster,
    state: *const DeviceState,
    index: u32,
    work: impl Fn(Channel<'_, Host<'_>>, Deadline) -> T + 'static,
) -> T {
    let clock = cluster.clock(0);
    let task = cluster.sim.spawn("a host call", ActorOptions::host(), move || {
        // SAFETY: the cluster keeps the state mapped until all actors have ended.
        let device = unsafe { Device::attach(state, Host::new(&*clock)) }.expect("one build");
        work(device.channel(1, index), Deadline::after(clock.now(), 5_000_000))
    });
    cluster.sim.finish(&task)
}

#[test]
fn the_host_that_touches_memory_of_a_device_is_found() {
    let alive = |spec: &RunSpec| {
        let cluster = Cluster::start(spec);
        let state = cluster.pe(0).state();
        or_panic(|| on_the_host(&cluster, state, 0, |channel, _| channel.alive().is_ok()))
    };
    assert_eq!(alive(&RunSpec::default().with_queues(false)), Ok(true));
    let said =
        alive(&RunSpec::default().with_queues(true)).expect_err("the channel lies in the device's memory");
    assert!(said.contains("a host call: expected the host's memory, got 0x"), "{said}");
}

/// Kernels have the second channel, host calls the first, each by a root of its own; the other's leads nowhere.
#[test]
fn kernels_and_host_calls_have_channels_of_their_own() {
    let spec = RunSpec { channels: 2, host_channels: 1, ..RunSpec::default() }.with_queues(true);
    let cluster = Cluster::start(&spec);
    let post = |number: u64| {
        move |channel: Channel<'_, Host<'_>>, deadline| {
            channel.p_nbi(Solo, HeapOffset(64 * number), number, 8).map_err(|fault| fault.kind)?;
            channel.quiet(Solo, deadline).map_err(|fault| fault.kind)
        }
    };
    let host = cluster.pe(0).host_state();
    assert_eq!(on_the_host(&cluster, host, 0, post(1)), Ok(()));
    assert_eq!(on_the_host(&cluster, host, 1, post(2)), Err(FaultKind::PeerLost));
    let task = cluster.spawn("kernel", 0, |kernel| {
        let post = |index: u32, number: u64| {
            let channel = kernel.device().channel(1, index);
            channel.p_nbi(Solo, HeapOffset(64 * number), number, 8).map_err(|fault| fault.kind)?;
            let deadline = Deadline::after(kernel.world.now(), 5_000_000);
            channel.quiet(Solo, deadline).map_err(|fault| fault.kind)
        };
        [post(0, 3), post(1, 4)]
    });
    assert_eq!(cluster.sim.finish(&task), [Err(FaultKind::PeerLost), Ok(())]);
    cluster.sim.run_for(100_000);
    let heap = cluster.pe(1).heap().address;
    assert_eq!([1, 2, 3, 4].map(|number| load(heap + 64 * number)), [1, 0, 0, 4]);
    // Both roots show the agent their channels in one table.
    assert_eq!(
        [0, 1].map(|index| cluster.mirror_word(0, 1, index).step()),
        [shunt_layout::state::Step::Idle; 2]
    );
}

/// A port of each channel's path goes down: the kernels' channel is switched by kernels, that of host calls by the
/// agent, and paths of both are made again, one by copies into the device's memory.
#[test]
fn both_kinds_of_channels_go_over_and_come_back() {
    let faults =
        vec!["1ms:0.0:down=5ms".parse().expect("a fault"), "1ms:0.1:down=5ms".parse().expect("a fault")];
    let spec = RunSpec { channels: 2, host_channels: 1, rails: 3, ..RunSpec::default() }.with_queues(true);
    let mut spec = RunSpec { faults, ..spec };
    spec.agent = RunSpec::default().agent;
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let (world, host) = (cluster.clock(0), cluster.pe(0).host_state());
    let until_ns = cluster.sim.now() + 150_000_000;
    let calls = cluster.sim.spawn("host calls", ActorOptions::host(), move || {
        // SAFETY: the cluster keeps the state mapped until all actors have ended.
        let device = unsafe { Device::attach(host, Host::new(&*world)) }.expect("one build");
        let channel = device.channel(1, 0);
        let mut number = 0;
        while world.now() < until_ns {
            number += 1;
            channel.p_nbi(Solo, HeapOffset(64), number, 8).expect("a path");
            channel.quiet(Solo, Deadline::after(world.now(), 1_000_000_000)).expect("a path");
            world.sleep(20_000);
        }
        number
    });
    let kernel = cluster.spawn("kernel", 0, move |kernel| {
        let channel = kernel.device().channel(1, 1);
        let mut number = 0;
        while kernel.world.now() < until_ns {
            number += 1;
            channel.p_nbi(Solo, HeapOffset(128), number, 8).expect("a path");
            channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000_000)).expect("a path");
            kernel.world.sleep(20_000);
        }
        number
    });
    // The other direction of the kernels' channel leaves a path that is fenced when a kernel there looks.
    let peer = cluster.spawn("peer", 1, move |kernel| {
        let (device, mut rounds) = (kernel.device(), kernel.device().rounds());
        while kernel.world.now() < until_ns {
            device.look_after(&mut rounds);
            kernel.world.sleep(20_000);
        }
    });
    let [called, posted] = [cluster.sim.finish(&calls), cluster.sim.finish(&kernel)];
    cluster.sim.finish(&peer);
    cluster.sim.run_for(100_000);
    let heap = cluster.pe(1).heap().address;
    assert_eq!((load(heap + 64), load(heap + 128)), (called, posted));
    // Each side has a ring of records of its own, and the agent reads both.
    let switched = |index| {
        let records = cluster.records();
        records.iter().any(|(pe, record)| *pe == 0 && record.channel == index)
    };
    assert_eq!([0, 1].map(switched), [true; 2]);
    for index in 0..2 {
        let word = cluster.mirror_word(0, 1, index);
        assert_eq!((word.step(), word.slot()), (shunt_layout::state::Step::Idle, 0), "channel {index}");
        let row = cluster.path_row(0, 1, index, 0);
        assert!(row.incarnation > 1, "channel {index}: its first path was made again");
        let on_device = cluster.sim.world().lies_on_a_device(row.send_queue);
        assert_eq!(on_device, index == 1, "channel {index}");
    }
}

/// A host call's put fails and nothing more is called. Kernels that wait never look at its channel, wherever its words
/// lie: over PCIe what one of the two changes is not changed atomically for the other. The agent sends it again.
#[test]
fn waits_of_kernels_leave_the_channel_of_host_calls_to_the_agent() {
    let faults =
        ["10us:0.0:blackhole-tx", "10us:0.1:blackhole-tx"].map(|fault| fault.parse().expect("a fault"));
    let spec = RunSpec { pes: 3, rails: 4, channels: 3, host_channels: 1, ..RunSpec::default() };
    let spec = RunSpec { faults: faults.into(), ..spec };
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let until_ns = cluster.sim.now() + 100_000_000;
    let kernel = cluster.spawn("kernel", 0, move |kernel| {
        let (device, mut rounds) = (kernel.device(), kernel.device().rounds());
        let mut looked_at = BTreeSet::new();
        let channel = device.channel(1, 1);
        while kernel.world.now() < until_ns {
            _ = channel.p_nbi(Solo, HeapOffset(64), 7, 8);
            device.look_after(&mut rounds);
            let rows = rounds.words()[0];
            looked_at.extend([(rows >> 32) as u32, rows as u32]);
            kernel.world.sleep(20_000);
        }
        looked_at
    });
    cluster.sim.run_for(50_000);
    let post = |channel: Channel<'_, Host<'_>>, _| channel.p_nbi(Solo, HeapOffset(128), 9, 8).is_ok();
    assert!(on_the_host(&cluster, cluster.pe(0).host_state(), 0, post));
    let looked_at = cluster.sim.finish(&kernel);
    cluster.sim.run_for(100_000);
    assert_eq!(looked_at, BTreeSet::from([1, 2, 4, 5, 7, 8]), "rows of three channels to three PEs");
    let heap = cluster.pe(1).heap().address;
    assert_eq!([64, 128].map(|offset| load(heap + offset)), [7, 9]);
    let left = |index| cluster.mirror_word(0, 1, index).slot() != 0;
    assert_eq!([0, 1].map(left), [true; 2], "both left their path");
}

/// With its queues in memory of a device, nothing that a put, a signal, a quiet or a look does where all is well loads
/// from the host's memory or changes it atomically.
#[test]
fn what_finds_no_fault_waits_for_no_word_of_the_host() {
    let met = |on_device: bool| {
        let cluster = Cluster::start(&RunSpec::default().with_queues(on_device));
        // The first add binds the channel to the word's home, by words of the host.
        let first = cluster.spawn("binds", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            channel.signal_nbi(Solo, HeapOffset(80), Signal::Add(1)).expect("room");
            channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000)).expect("a healthy path");
        });
        cluster.sim.finish(&first);
        let (world, met) = (cluster.sim.world(), Rc::new(RefCell::new(Vec::new())));
        let noted = met.clone();
        let hook = move |access: Access| {
            let waits = !access.method.starts_with("store") && access.method != "unlock";
            if waits && !world.lies_on_a_device(access.address) {
                noted.borrow_mut().push(access.method);
            }
            0
        };
        cluster.interference.ask(hook);
        let task = cluster.spawn("puts", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            let put = Put { dst: HeapOffset(1024), src: HeapOffset(0), bytes: 64 };
            channel.put_nbi(Solo, put).expect("room");
            channel.put_signal_nbi(Solo, put, HeapOffset(64), Signal::Monotone(1)).expect("room");
            channel.signal_nbi(Solo, HeapOffset(72), Signal::Cleared(1)).expect("room");
            channel.signal_nbi(Solo, HeapOffset(80), Signal::Add(1)).expect("room");
            kernel.world.sleep(100_000);
            let until = Deadline::after(kernel.world.now(), 1_000_000);
            channel.quiet(Solo, until).expect("a healthy path");
            channel.progress(until).expect("a healthy path");
        });
        cluster.sim.finish(&task);
        met.take()
    };
    assert_eq!(met(true), Vec::<&str>::new());
    assert!(met(false).len() > 20, "all of it lies there");
}
