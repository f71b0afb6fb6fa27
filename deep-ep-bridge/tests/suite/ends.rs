//! How things end: kernels behind one that meets a fault, and buffers that go in the middle of a switch.

use shunt_deep_ep_bridge::fault as faults;
use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::{Format, MoeError, Patience};
use shunt_device::platform::host::World;
use shunt_device::{Deadline, FaultKind, Solo};
use shunt_kernels::moe::Stage;
use shunt_layout::moe::Shape;
use shunt_layout::state::Step;
use shunt_soft_nic::NicId;
use shunt_tests::cluster::{Cluster, step_at};
use shunt_tests::moe::{cases, patience, pause, spec, start};
use shunt_tests::sim::{Access, Interference};
use shunt_tests::spec::RunSpec;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

fn shape() -> Shape {
    Shape::new(2, 4, 3, 512).unwrap()
}

/// A wait's last look at channels may take this much longer than its deadline.
const LAST_LOOK_NS: u64 = 1_000_000;

/// Kernels of a stream run one after the other. The first one meets the fault; when the second one starts.
fn second_starts(faults: &[&str], timeout_ns: u64) -> (Result<(), MoeError>, u64) {
    let mut spec = spec(&shape(), 3);
    spec.give_up_ns = 4 * timeout_ns;
    spec.faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let patience = Patience { timeout_ns, slice_ns: 10_000_000, ..patience(&spec) };
    let cases = Rc::new(cases(shape(), 2, Format::Fp8, 3, 2));
    let stream = |rank| {
        let cases = cases.clone();
        start(&cluster, shape(), rank, patience, move |buffer, kernel| {
            let sent = layer::send(buffer, &cases[0]).expect("a sending phase does not wait");
            let began_ns = kernel.world.now_ns();
            let first = buffer.receive_dispatch(sent).map(|_| ());
            // What was queued behind it starts here, whatever came of it.
            let started_ns = kernel.world.now_ns() - began_ns;
            let second = layer::send(buffer, &cases[1]);
            assert_eq!(first.is_err(), matches!(second, Err(MoeError::Broken)), "it runs, or says why not");
            (first, started_ns)
        })
    };
    let tasks = [stream(0), stream(1)];
    let mut ends = cluster.sim.finish_all(&tasks);
    ends.swap_remove(0)
}

#[test]
fn a_kernel_behind_one_that_meets_a_fault_starts_within_its_deadline() {
    const TIMEOUT_NS: u64 = 200_000_000;
    for fault in
        ["0us:0.0:down", "0us:1.0:down", "0us:0.0:blackhole-tx", "0us:0.0:nic-gone", "0us:0.0:drop-acks"]
    {
        let (first, started_ns) = second_starts(&[fault], TIMEOUT_NS);
        assert_eq!(first, Ok(()), "{fault}: a path is left");
        assert!(started_ns < TIMEOUT_NS, "{fault}: started after {started_ns} ns");
    }
    // No path is left, and the peer is not given up yet: the deadline ends the first.
    let dead = ["0us:1.0:down", "0us:1.1:down"];
    let (first, started_ns) = second_starts(&dead, TIMEOUT_NS);
    let Err(MoeError::Fault(fault)) = first else { panic!("{first:?}: nothing could come") };
    assert_eq!((fault.fault.kind, fault.fault.peer), (FaultKind::Overdue, 1));
    assert!(
        (TIMEOUT_NS..TIMEOUT_NS + LAST_LOOK_NS).contains(&started_ns),
        "the second one started after {started_ns} ns, the deadline was {TIMEOUT_NS}"
    );
}

/// A phase that sends waits for nobody, but its posts find a channel that a switch holds, or whose ring is full: the
/// kernel's deadline ends them, long before a chain of switches would.
#[test]
fn posts_that_find_no_room_end_by_the_kernels_deadline() {
    const TIMEOUT_NS: u64 = 200_000_000;
    // In the second case nothing tells the port's end: the ring fills, and silence is what is found.
    for (kind, pause_ns) in [("down", 50_000_000), ("blackhole-tx", 0)] {
        let mut spec = spec(&shape(), 3);
        (spec.give_up_ns, spec.log_depth) = (20 * TIMEOUT_NS, 3);
        (spec.suspect_ns, spec.suspect_floor_ns) = (2_000_000, 2_000_000);
        let cluster = Cluster::start(&spec);
        for port in ["0.0", "0.1"] {
            cluster.inject(&format!("0us:{port}:{kind}").parse().unwrap());
        }
        let patience =
            Patience { timeout_ns: TIMEOUT_NS, slice_ns: 10_000_000, blocks: 1, ..patience(&spec) };
        let ended = start(&cluster, shape(), 0, patience, move |buffer, kernel| {
            let cases = cases(shape(), 4, Format::Fp8, 3, 2);
            // The first goes where there is room.
            let _early = layer::send(buffer, &cases[1]).expect("there is room");
            pause(kernel, pause_ns);
            let began_ns = kernel.world.now_ns();
            let sent = layer::send(buffer, &cases[0]).map(|_| ());
            (sent, kernel.world.now_ns() - began_ns)
        });
        let (sent, took_ns) = cluster.sim.finish(&ended);
        let Err(MoeError::Fault(fault)) = sent else { panic!("{kind}: {sent:?}, nothing could go") };
        let named = (fault.at, fault.fault.kind, fault.fault.peer);
        assert_eq!(named, (faults::At::Stage(Stage::DispatchSend), FaultKind::Overdue, 1), "{kind}: {fault}");
        assert!(
            fault.path.is_some_and(|path| path.qpns.0 != 0 && path.local.1 != [0; 16]),
            "{kind}: the path is named"
        );
        let bound = TIMEOUT_NS..TIMEOUT_NS + LAST_LOOK_NS;
        assert!(bound.contains(&took_ns), "{kind}: ended after {took_ns} ns");
    }
}

/// When a buffer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Step(u32),
    Received,
}

/// A buffer goes while the switch of its channel stands at `at`, and then the rank with all that it has. Whether the
/// switch was there, and what is left on NICs.
fn destroyed(spec: &RunSpec, at: At) -> (bool, usize) {
    let mut cluster = Cluster::start(spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let cases = Rc::new(cases(shape(), 2, Format::Bf16, 1, 1));
    let word = cluster.step_word(0, 1, 0);
    if let At::Step(step) = at {
        // A caller that carries the switch on is held up there, so that others see it.
        let there = move |_: Access| step != Step::Idle as u32 && step_at(word) as u32 == step;
        cluster.interference = Rc::new(Interference::stop_when(there, 1_000_000_000));
    }
    let seen = Rc::new(Cell::new(false));
    let peer_cases = cases.clone();
    let peer = start(&cluster, shape(), 1, patience(spec), move |buffer, _| {
        let sent = layer::send(buffer, &peer_cases[0])?;
        buffer.receive_dispatch(sent).map(|_| ())
    });
    let there = seen.clone();
    let task = start(&cluster, shape(), 0, patience(spec), move |buffer, kernel| {
        let sent = layer::send(buffer, &cases[0])?;
        match at {
            At::Step(step) => {
                let until = kernel.world.now_ns() + 100_000_000;
                while step_at(word) as u32 != step && kernel.world.now_ns() < until {
                    kernel.world.relax();
                }
                there.set(step_at(word) as u32 == step);
            }
            At::Received => {
                let received = buffer.receive_dispatch(sent)?;
                drop(layer::answer(buffer, &cases[0], received, Manner::default())?);
                there.set(true);
            }
        }
        Ok::<(), MoeError>(())
    });
    // Another kernel of this rank that carries the switch on.
    let driver = cluster.spawn("driver", 0, |kernel| {
        kernel.world.sleep(20_000);
        let _ =
            kernel.device().channel(1, 0).quiet(Solo, Deadline::after(kernel.world.now_ns(), 500_000_000));
    });
    // The buffer goes with the kernel that has it; the peer, if it still waits, and the driver with their cluster.
    cluster.sim.finish(&task).expect("no fault");
    if at == At::Received {
        cluster.sim.finish(&peer).expect("no fault");
    }
    drop((task, peer, driver));
    let fabric = cluster.fabric.clone();
    drop(cluster);
    let nics = spec.pes * spec.rails;
    let left = (0..nics).map(|nic| fabric.with(|fabric| fabric.nic(NicId(nic)).live_objects())).sum();
    (seen.get(), left)
}

#[test]
fn a_buffer_that_goes_at_any_step_of_a_switch_hangs_nothing_and_leaves_nothing() {
    let steps = [Step::Idle, Step::Settle, Step::Fence, Step::Choose, Step::Ledger, Step::Replay];
    let mut reached = BTreeSet::new();
    for seed in 0..6 {
        for at in steps.map(|step| At::Step(step as u32)).into_iter().chain([At::Received]) {
            let mut spec = spec(&shape(), seed);
            // The agent fences, and leaves channels to kernels.
            spec.agent.looks = 0;
            // Without the count of executed requests the ledger is read as well.
            spec.rmsn_cleared = seed % 2 == 0;
            // No NIC that answers no commands: it keeps what it has, by design.
            let fault = ["0us:0.0:down", "0us:0.0:blackhole-tx", "0us:0.0:drop-acks"][seed as usize % 3];
            spec.faults = vec![fault.parse().unwrap()];
            let (seen, left) = destroyed(&spec, at);
            assert_eq!(left, 0, "seed {seed}, {at:?}: objects are left on NICs");
            if seen {
                reached.insert(at);
            }
        }
    }
    let missed: Vec<_> = steps.iter().filter(|step| !reached.contains(&At::Step(**step as u32))).collect();
    assert!(missed.is_empty() && reached.contains(&At::Received), "never reached: {missed:?}");
}
