//! Owners of a switch that are gone for longer than their lease, and come back; switches whose second path fails too,
//! or that find none for a while. Rules 7, 14, 21.

use std::mem::offset_of;
use std::rc::Rc;

use shunt_device::{Amo, Deadline, FaultKind, HeapOffset, Put, Resolution, Signal, Solo};
use shunt_layout::state::{Channel, OwnerWord, Step, Word};

use super::kit::{Wrongs, brisk, judged, kept, spec, wrong_if};
use super::scenario::Scenario;
use crate::cluster::{Cluster, step_at};
use crate::kernel::Kernel;
use crate::lies::Lie;
use crate::oracle::{load, store};
use crate::sim::{Access, Interference};
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "owner_gone_at_the_close", seeds: 4, run: owner_gone_at_the_close },
    Scenario { name: "owner_back_after_its_lease", seeds: 6, run: owner_back_after_its_lease },
    Scenario { name: "owner_back_with_nothing_left", seeds: 10, run: owner_back_with_nothing_left },
    Scenario { name: "a_clock_that_jumps_ends_no_lease", seeds: 1, run: a_jump_ends_no_lease },
    Scenario { name: "callers_wait_for_the_next_owner", seeds: 3, run: callers_wait_for_the_next_owner },
    Scenario { name: "a_ledger_path_that_failed", seeds: 6, run: a_ledger_path_that_failed },
    Scenario { name: "a_post_lock_that_is_never_let_go", seeds: 2, run: lock_never_let_go },
    Scenario { name: "twice_without_a_path", seeds: 2, run: twice_without_a_path },
];

/// Longer than the lease of a switch's owner.
const AFTER_LEASE_NS: u64 = 10_500_000_000;
/// When an owner that was stopped comes back.
const BACK_NS: u64 = 10_500_700_000;
const SIGNAL: HeapOffset = HeapOffset(256);
/// Puts of an heir: more than it has done when the owner comes back.
const ROUNDS: u64 = 8_000;

fn put_and_signal(kernel: &Kernel, number: u64) {
    let word = number % 8;
    store(kernel.heap + word * 8, 70 + number);
    let put = Put { dst: HeapOffset(128 + word * 8), src: HeapOffset(word * 8), bytes: 8 };
    let channel = kernel.device().channel(1, 0);
    let _ = channel.put_signal_nbi(Solo, put, SIGNAL, Signal::Monotone(number + 1));
}

fn quiet(kernel: &Kernel, span_ns: u64) -> bool {
    let deadline = Deadline::after(kernel.world.now(), span_ns);
    kernel.device().channel(1, 0).quiet(Solo, deadline).is_ok()
}

/// What the receiver holds after `count` rounds of [`put_and_signal`].
fn delivered(cluster: &Cluster, count: u64) -> Wrongs {
    let heap = cluster.pe(1).heap().address;
    let seen: Vec<u64> = (0..8).map(|word| load(heap + 128 + word * 8)).collect();
    let want: Vec<u64> = (count - 8..count).map(|number| 70 + number).collect();
    let signal = load(heap + SIGNAL.0);
    let mut wrongs = wrong_if(seen != want, || format!("the puts are {seen:?}, not {want:?}"));
    wrongs.extend(wrong_if(signal != count, || format!("the signal is {signal}, not {count}")));
    wrongs
}

/// The owner closes the ticket word and is never seen again: no step says that a switch is under way.
fn owner_gone_at_the_close(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = spec(seed, &["60us:0.0:down"]);
        (spec.step_limit, spec.idle_ns) = (6_000_000, 1_000_000);
        let mut cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let step = cluster.step_word(0, 1, 0);
        let ticket = step - offset_of!(Channel, switch.word) as u64 + offset_of!(Channel, ticket) as u64;
        let mut left = 1 + seed;
        let closed = move |_: Access| {
            left -= u64::from(step_at(step) == Step::Idle && Word(load(ticket)).flag() && left > 0);
            left == 0
        };
        cluster.interference = Rc::new(Interference::stop_when(closed, u64::MAX / 4));
        let owner = cluster.spawn("owner", 0, |kernel| {
            kernel.world.sleep(70_000);
            (0..8).for_each(|number| put_and_signal(kernel, number));
            quiet(kernel, 100_000_000)
        });
        cluster.sim.run_for(13_000_000_000);
        let mut wrongs = wrong_if(owner.is_done(), || "no caller was stopped".into());
        wrongs.extend(delivered(&cluster, 8));
        wrongs
    })
}

/// The owner of a replay is stopped for longer than its lease. An heir opens the channel and goes on, round and round
/// the ring; then the first one comes back in the middle of what it did.
fn owner_back_after_its_lease(seed: u64) -> Wrongs {
    judged(|| {
        // The heir's path falls silent just before the owner comes back: its ring is full of what is the journal of the
        // next switch.
        let mut spec = spec(seed, &["60us:0.0:down", "10500600us:0.1:blackhole-tx"]);
        (spec.rails, spec.backups) = (3, 2);
        (spec.step_limit, spec.agent.looks, spec.log_depth, spec.idle_ns) = (6_000_000, 0, 5, 1_000_000);
        let mut cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        cluster.watch(1, SIGNAL.0);
        let step = cluster.step_word(0, 1, 0);
        // Never between a look at the generation and the one store behind it, of which nothing is promised.
        let mut left = 6 + seed * 27;
        let replaying = move |_: Access| {
            left -= u64::from(step_at(step) == Step::Replay && left > 0);
            left == 0
        };
        cluster.interference = Rc::new(Interference::stop_when(replaying, BACK_NS));
        let owner = cluster.spawn("owner", 0, |kernel| {
            kernel.world.sleep(70_000);
            (0..8).for_each(|number| put_and_signal(kernel, number));
            quiet(kernel, 1_000_000_000);
            kernel.world.now()
        });
        let heir = cluster.spawn("heir", 0, |kernel| {
            // A lease ends for those who see it pass.
            kernel.world.sleep(1_000_000);
            quiet(kernel, AFTER_LEASE_NS);
            kernel.world.sleep(AFTER_LEASE_NS.saturating_sub(kernel.world.now()));
            for number in 8..ROUNDS {
                put_and_signal(kernel, number);
            }
            quiet(kernel, 1_000_000_000)
        });
        cluster.sim.run_for(13_000_000_000);
        let back = owner.is_done() && cluster.sim.finish(&owner) > AFTER_LEASE_NS;
        let mut wrongs = wrong_if(!back, || "the owner did not come back".into());
        let done = heir.is_done() && cluster.sim.finish(&heir);
        wrongs.extend(wrong_if(!done, || "the heir's last quiet failed".into()));
        let watched = cluster.watched(1, SIGNAL.0);
        let once = watched.writes == ROUNDS && watched.not_increasing == 0;
        wrongs.extend(wrong_if(!once, || format!("each signal once, in order: {watched:?}")));
        wrongs.extend(delivered(&cluster, ROUNDS));
        wrongs
    })
}

/// The same where nothing was outstanding: a port's hint alone began the switch, so there is nothing to replay. What
/// the heir posts is executed, and its completions are lost just before the owner comes back.
fn owner_back_with_nothing_left(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = spec(seed, &["300us:0.0:down", "10500300us:0.1:drop-acks=400ms"]);
        (spec.rails, spec.backups) = (3, 2);
        (spec.step_limit, spec.agent.looks, spec.idle_ns) = (6_000_000, 0, 1_000_000);
        let mut cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        cluster.watch(1, SIGNAL.0);
        let step = cluster.step_word(0, 1, 0);
        let (mut left, begun) = (1 + seed * 3, cluster.began_ns());
        let replaying = move |_: Access| {
            left -= u64::from(step_at(step) == Step::Replay && left > 0);
            left == 0
        };
        cluster.interference = Rc::new(Interference::stop_when(replaying, BACK_NS));
        let watch = |kernel: &Kernel, span_ns: u64| {
            let deadline = Deadline::after(kernel.world.now(), span_ns);
            let _ = kernel.device().wait_until_ge(Solo, HeapOffset(8_000), 1, deadline);
        };
        let owner = cluster.spawn("owner", 0, move |kernel| {
            (0..8).for_each(|number| put_and_signal(kernel, number));
            quiet(kernel, 100_000_000);
            watch(kernel, 20_000_000);
            kernel.world.now()
        });
        let heir = cluster.spawn("heir", 0, move |kernel| {
            kernel.world.sleep(1_000_000);
            watch(kernel, AFTER_LEASE_NS - 2_000_000);
            kernel.world.sleep((begun + AFTER_LEASE_NS + 310_000).saturating_sub(kernel.world.now()));
            (8..40).for_each(|number| put_and_signal(kernel, number));
            kernel.world.sleep(1_000_000);
            quiet(kernel, 1_000_000_000)
        });
        cluster.sim.run_for(AFTER_LEASE_NS - 1_000_000);
        let followed = cluster.step(0, 1, 0) == Step::Idle;
        cluster.sim.run_for(2_500_000_000);
        let back = owner.is_done() && cluster.sim.finish(&owner) > AFTER_LEASE_NS;
        let mut wrongs = wrong_if(!back, || "the owner did not come back".into());
        wrongs.extend(wrong_if(!followed, || "no owner followed it".into()));
        let done = heir.is_done() && cluster.sim.finish(&heir);
        wrongs.extend(wrong_if(!done, || "the heir's last quiet failed".into()));
        let watched = cluster.watched(1, SIGNAL.0);
        let once = watched.writes == 40 && watched.not_increasing == 0;
        wrongs.extend(wrong_if(!once, || format!("each signal once, in order: {watched:?}")));
        wrongs.extend(delivered(&cluster, 40));
        wrongs
    })
}

/// The clock of a PE jumps while the owner of a switch is held up for a moment: nobody follows it.
fn a_jump_ends_no_lease(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = spec(seed, &["60us:0.0:down", "10ms:0:clock-jump=11s"]);
        (spec.agent.looks, spec.idle_ns) = (0, 20_000);
        let mut cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let step = cluster.step_word(0, 1, 0);
        let replaying = move |_: Access| step_at(step) == Step::Replay;
        cluster.interference = Rc::new(Interference::stop_when(replaying, 20_000_000));
        let tasks: Vec<_> = (0..2)
            .map(|turn| {
                cluster.spawn("kernel", 0, move |kernel| {
                    kernel.world.sleep(70_000 + turn * 1_000_000);
                    (turn * 8..turn * 8 + 8).for_each(|number| put_and_signal(kernel, number));
                    quiet(kernel, 60_000_000_000)
                })
            })
            .collect();
        let owner = cluster.owner_word(0, 1, 0);
        cluster.sim.run_for(9_000_000);
        let before = OwnerWord(load(owner));
        cluster.sim.run_for(6_000_000);
        let after = OwnerWord(load(owner));
        let mut wrongs = wrong_if(before.is_free(), || "no caller was held up".into());
        wrongs.extend(wrong_if(!before.same_owner(after), || {
            format!("{before:x?} was followed by {after:x?}")
        }));
        cluster.sim.run_for(200_000_000);
        let all = tasks.iter().all(|task| task.is_done() && cluster.sim.finish(task));
        wrongs.extend(wrong_if(!all, || "not all is delivered".into()));
        wrongs.extend(delivered(&cluster, 16));
        wrongs
    })
}

/// An owner is gone with its kernel while a caller waits for room or for its turn. That one's patience is longer than
/// the lease: the next owner carries the switch on.
fn callers_wait_for_the_next_owner(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = spec(seed, &["60us:0.0:down"]);
        (spec.step_limit, spec.idle_ns) = (6_000_000, 1_000_000);
        let mut cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let step = cluster.step_word(0, 1, 0);
        let mut left = 1 + seed * 2;
        let settling = move |_: Access| {
            left -= u64::from(step_at(step) == Step::Settle && left > 0);
            left == 0
        };
        cluster.interference = Rc::new(Interference::stop_when(settling, u64::MAX / 4));
        let owner = cluster.spawn("owner", 0, |kernel| {
            kernel.world.sleep(70_000);
            (0..8).for_each(|number| put_and_signal(kernel, number));
            quiet(kernel, 100_000_000)
        });
        let caller = cluster.spawn("caller", 0, |kernel| {
            kernel.world.sleep(20_000_000);
            (8..16).for_each(|number| put_and_signal(kernel, number));
            quiet(kernel, 1_000_000_000)
        });
        cluster.sim.run_for(13_000_000_000);
        let mut wrongs = wrong_if(owner.is_done(), || "no caller was stopped".into());
        let done = caller.is_done() && cluster.sim.finish(&caller);
        wrongs.extend(wrong_if(!done, || "the caller gave the channel up".into()));
        wrongs.extend(delivered(&cluster, 16));
        wrongs
    })
}

/// Without agents: the READs of a ledger are answered too late, the third path is taken, and when that one fails too
/// nobody goes back to the second, whose ring the late READs went through.
fn a_ledger_path_that_failed(seed: u64) -> Wrongs {
    let faults = [
        "500us:0:agent-killed",
        "500us:1:agent-killed",
        "2ms:0.0:cqe-error=0x15",
        // Longer than a READ has, which is as long as the suspicion below.
        "45ms:0.1:blackhole-rx=300ms",
        // The next ledger waits 2.2 s for a word of the last one's path, which nobody is there to say: until RC has
        // given up and a packet lifetime is over.
        "2700ms:0.2:cqe-error=0x15",
    ];
    let mut spec = spec(seed, &faults);
    (spec.rails, spec.backups, spec.time_fence, spec.step_limit) = (3, 2, true, 6_000_000);
    (spec.suspect_ns, spec.suspect_floor_ns) = (200_000_000, 200_000_000);
    spec.traffic = Traffic {
        messages: 3_000,
        slots: 64,
        credit_lag: 8 + seed % 8,
        pace_ns: 150_000,
        wait_ns: 3_000_000_000,
        ..spec.traffic
    };
    kept(&spec, Lie::None, |_| Vec::new())
}

/// A caller that held the post lock is gone with its kernel. Callers, a switch because of a fault (seed 0) and a drain
/// (seed 1) end by their deadlines, and the agent goes on.
fn lock_never_let_go(seed: u64) -> Wrongs {
    const WAIT_NS: u64 = 200_000_000;
    judged(|| {
        let faults: &[&str] = if seed == 0 { &[] } else { &["60us:0.0:down", "5ms:0.0:up"] };
        let mut spec = brisk(spec(seed, faults));
        (spec.step_limit, spec.idle_ns) = (6_000_000, 20_000);
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let step = cluster.step_word(0, 1, 0);
        let lock = step - offset_of!(Channel, switch.word) as u64 + offset_of!(Channel, post_lock) as u64;
        let caller = cluster.spawn("caller", 0, move |kernel| {
            kernel.world.sleep(70_000);
            (0..8).for_each(|number| put_and_signal(kernel, number));
            let before = quiet(kernel, 3_000_000);
            kernel.world.sleep(6_000_000);
            if seed == 0 {
                (8..16).for_each(|number| put_and_signal(kernel, number));
                quiet(kernel, WAIT_NS);
            } else {
                let deadline = Deadline::after(kernel.world.now(), WAIT_NS);
                let _ = kernel.device().wait_until_ge(Solo, HeapOffset(8_000), 1, deadline);
            }
            before
        });
        cluster.sim.run_for(4_000_000);
        let free = cluster.step(0, 1, 0) == Step::Idle;
        store(lock, load(lock) | 1);
        // As long as a whole chain may take, and a lease.
        cluster.sim.run_for(16_000_000_000);
        let mut wrongs = wrong_if(!free, || "a switch was under way before".into());
        wrongs.extend(wrong_if(!caller.is_done(), || "the caller waits without a deadline".into()));
        let clean = caller.is_done() && cluster.sim.finish(&caller);
        wrongs.extend(wrong_if(!clean, || "not all was done before".into()));
        let waiter = cluster.spawn("waiter", 0, |kernel| quiet(kernel, WAIT_NS));
        cluster.sim.run_for(2 * WAIT_NS);
        wrongs.extend(wrong_if(!waiter.is_done(), || "a quiet waits without a deadline".into()));
        let stands = cluster.step(0, 1, 0);
        wrongs.extend(wrong_if(stands != Step::Dead, || format!("{stands:?} at the end, not dead")));
        wrongs.extend(delivered(&cluster, 8));
        wrongs
    })
}

/// No path for a while, one is found, an operation is asked about; when its owner has answered there is no path for
/// another while. Each is shorter than the give-up time.
fn twice_without_a_path(seed: u64) -> Wrongs {
    judged(|| {
        let faults = [
            "0ns:0.0:lost-atomic-response",
            "1ms:0.1:down=600ms",
            "5ms:0.0:down=700ms",
            "1100ms:0.0:down=300ms",
            "1100ms:0.1:down=300ms",
        ];
        let mut spec = spec(seed, &faults);
        (spec.rmsn_cleared, spec.backups, spec.idle_ns) = (true, 1, 100_000);
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        cluster.sim.run_for(10_000);
        let task = cluster.spawn("adder", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            let at = channel.amo_nbi(Solo, SIGNAL, Amo::Add64(5)).expect("room");
            let deadline = Deadline::after(kernel.world.now(), 2_000_000_000);
            match channel.quiet(Solo, deadline) {
                Err(fault) if fault.kind == FaultKind::Uncertain => {}
                other => return format!("{other:?} where the add is uncertain"),
            }
            kernel.world.sleep(1_150_000_000u64.saturating_sub(kernel.world.now()));
            channel.resolve(at, Resolution::Applied).expect("it asks");
            match channel.quiet(Solo, Deadline::after(kernel.world.now(), 2_000_000_000)) {
                Ok(()) => String::new(),
                Err(fault) => format!("{fault:?} after 50 ms without a path"),
            }
        });
        let said = cluster.sim.finish(&task);
        let sum = load(cluster.pe(1).heap().address + SIGNAL.0);
        let mut wrongs = wrong_if(!said.is_empty(), || said);
        wrongs.extend(wrong_if(sum != 5, || format!("the sum is {sum}, not 5")));
        wrongs
    })
}
