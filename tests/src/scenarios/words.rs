//! The words of a channel: reserve, publish, ring, poll, close, open. Rules 1 to 8; F7, F8, F11, F12.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::rc::Rc;

use shunt_device::{Deadline, FaultKind, HeapOffset, Put, Signal, Solo};
use shunt_layout::state::{Channel, HotPath, Mirror, Step};

use super::kit::{
    Wrongs, both_ways, brisk, clean, failovers_of, faults_of_kernels, gap_below, idle_faults, judged,
    promises, spec, wrong_if,
};
use super::mirrors::made_again_in_use;
use super::scenario::Scenario;
use crate::cluster::{Cluster, step_at};
use crate::kernel::Kernel;
use crate::oracle::{load, store};
use crate::outcome::Outcome;
use crate::run::{finish, start_streams};
use crate::sim::{Access, Interference, Task};
use crate::spec::RunSpec;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "ring_full_at_the_close", seeds: 6, run: ring_full_at_the_close },
    Scenario { name: "disturbed_at_every_access", seeds: 24, run: disturbed_at_every_access },
    Scenario { name: "stopped_for_long_at_a_doorbell", seeds: 12, run: stopped_for_long_at_a_doorbell },
    Scenario { name: "stopped_before_tickets_open", seeds: 8, run: stopped_before_tickets_open },
    Scenario { name: "stopped_before_flags_change", seeds: 6, run: stopped_before_flags_change },
    Scenario { name: "stopped_before_done_opens", seeds: 8, run: stopped_before_done_opens },
    Scenario {
        name: "stopped_before_idle_while_the_path_fails",
        seeds: 4,
        run: |seed| stopped_before_idle(seed, false),
    },
    Scenario {
        name: "stopped_before_idle_on_a_device",
        seeds: 4,
        run: |seed| stopped_before_idle(seed, true),
    },
    Scenario { name: "owner_gone_while_opening", seeds: 6, run: owner_gone_while_opening },
    Scenario { name: "stopped_before_a_look", seeds: 12, run: stopped_before_a_look },
    Scenario { name: "stopped_before_a_first_look", seeds: 5, run: stopped_before_a_first_look },
    Scenario { name: "doorbells_only_go_up", seeds: 4, run: doorbells_only_go_up },
    Scenario { name: "owner_gone_mid_step", seeds: 6, run: owner_gone_mid_step },
    Scenario { name: "kernel_gone_with_work_in_flight", seeds: 2, run: kernel_gone_with_work_in_flight },
    Scenario { name: "kernel_gone_between_reserve_and_publish", seeds: 2, run: hole_in_the_publish_chain },
    Scenario { name: "done_means_delivered", seeds: 4, run: done_means_delivered },
];

/// Rings of four, groups up to as deep, many warps: a switch nearly always finds warps that wait for room.
fn ring_full_at_the_close(seed: u64) -> Wrongs {
    let mut spec = both_ways(seed, &["300us:0.0:down", "20ms:0.0:up"]);
    spec.log_depth = 1 + (seed % 2) as u32;
    spec.warps = 8;
    let puts = if spec.log_depth == 1 { 1 } else { 1 + seed % 3 };
    spec.traffic = Traffic { messages: 150, puts, pace_ns: 0, ..spec.traffic };
    clean(&spec, |outcome| failovers_of(outcome, 1))
}

/// Everybody is stopped before one access in sixteen; a port goes and comes back.
fn disturbed_at_every_access(seed: u64) -> Wrongs {
    let mut spec = brisk(both_ways(seed, &["150us:0.0:down", "4ms:0.0:up"]));
    spec.warps = 3;
    spec.log_depth = 2;
    spec.interference = 16;
    spec.traffic = Traffic { messages: 40, slots: 4, pace_ns: 5_000, credit_lag: 1, ..spec.traffic };
    clean(&spec, |_| Vec::new())
}

/// Somebody sleeps inside the doorbell, or just before its lock, while the only path is recreated more than once, with
/// queue pair numbers that come back.
fn stopped_for_long_at_a_doorbell(seed: u64) -> Wrongs {
    let faults = ["300us:0.0:down=3ms", "9ms:1.0:down=3ms", "18ms:0.0:down=3ms"];
    let mut spec = brisk(both_ways(seed, &faults));
    (spec.rails, spec.backups, spec.warps, spec.log_depth, spec.qpn_reused) = (1, 0, 3, 3, true);
    spec.traffic = Traffic { messages: 250, slots: 6, pace_ns: 100_000, credit_lag: 1, ..spec.traffic };
    let method = ["store_doorbell_record", "store_register", "try_lock"][(seed % 3) as usize];
    let mut left = 4 + seed;
    let chosen = move |access: Access| {
        left -= u64::from(access.method == method && left > 0);
        left == 0
    };
    stopped(&spec, |_| Interference::stop_when(chosen, 14_000_000))
}

/// Runs `spec` with device code held up as `interference` says.
fn stopped(spec: &RunSpec, interference: impl FnOnce(&Cluster) -> Interference) -> Wrongs {
    stopped_and(spec, interference, |_| Vec::new())
}

/// The same, and `also`.
fn stopped_and(
    spec: &RunSpec,
    interference: impl FnOnce(&Cluster) -> Interference,
    also: impl FnOnce(&Outcome) -> Wrongs,
) -> Wrongs {
    judged(|| {
        let mut cluster = Cluster::start(spec);
        cluster.interference = Rc::new(interference(&cluster));
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        let never = wrong_if(!cluster.interference.struck.get(), || "no caller was stopped".into());
        [promises(&outcome), faults_of_kernels(&outcome), idle_faults(&outcome), never, also(&outcome)]
            .concat()
    })
}

/// Picks access number `number` (from 0) of those made while the channel from PE 0 to PE 1 stands at `step`.
fn in_step(cluster: &Cluster, step: Step, number: u64) -> impl FnMut(Access) -> bool + use<> {
    let (word, mut left) = (cluster.step_word(0, 1, 0), number + 1);
    move |_| {
        left -= u64::from(step_at(word) == step && left > 0);
        left == 0
    }
}

/// Steps that a kernel does something in, and how many accesses it is into it.
const PLACES: [(Step, u64); 6] = [
    (Step::Settle, 3),
    (Step::Settle, 12),
    (Step::Fence, 5),
    (Step::Settle, 7),
    (Step::Replay, 9),
    (Step::Replay, 60),
];

/// The kernel that owns a switch is never resumed: the agent takes the switch over once the lease has ended, or
/// another kernel does where the agent does not look: it would be the owner of a replay itself.
fn owner_gone_mid_step(seed: u64) -> Wrongs {
    judged(|| {
        let (step, number) = PLACES[seed as usize % PLACES.len()];
        let mut spec = spec(seed, &["60us:0.0:down"]);
        spec.step_limit = 6_000_000;
        if step == Step::Replay {
            (spec.agent.looks, spec.idle_ns) = (0, 1_000_000);
        }
        let mut cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let stop = Interference::stop_when(in_step(&cluster, step, number), u64::MAX / 4);
        cluster.interference = Rc::new(stop);
        let owner = cluster.spawn("owner", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            kernel.world.sleep(70_000);
            for word in 0..8 {
                store(kernel.heap + word * 8, 70 + word);
                let put = Put { dst: HeapOffset(128 + word * 8), src: HeapOffset(word * 8), bytes: 8 };
                channel.put_signal_nbi(Solo, put, HeapOffset(256), Signal::Monotone(word + 1)).expect("room");
            }
            let _ = channel.quiet(Solo, Deadline::after(kernel.world.now(), 100_000_000));
        });
        cluster.spawn("heir", 0, move |kernel| {
            if step == Step::Replay {
                // A lease ends for those who see it pass.
                kernel.world.sleep(5_000_000);
                let _ =
                    kernel.device().channel(1, 0).quiet(Solo, Deadline::after(AFTER_LEASE_NS, 1_000_000_000));
            }
        });
        cluster.sim.run_for(12_000_000_000);
        let heap = cluster.pe(1).heap().address;
        let seen: Vec<u64> = (0..8).map(|word| load(heap + 128 + word * 8)).collect();
        let want: Vec<u64> = (70..78).collect();
        let mut wrongs = wrong_if(owner.is_done(), || format!("no caller was stopped in {step:?}"));
        wrongs.extend(wrong_if(seen != want, || format!("the puts are {seen:?} after the lease")));
        let signal = load(heap + 256);
        wrongs.extend(wrong_if(signal != 8, || format!("the signal is {signal} after the lease")));
        wrongs
    })
}

/// Longer than the lease of a switch's owner.
const AFTER_LEASE_NS: u64 = 10_500_000_000;

/// Somebody who opens a channel is stopped just before an access that `at` picks, while others go on posting.
fn opening<F: FnMut(Access) -> bool + 'static>(seed: u64, at: impl FnOnce(&Cluster) -> F) -> Wrongs {
    let mut spec = spec(seed, &["150us:0.0:down"]);
    (spec.warps, spec.log_depth, spec.agent.looks) = (24, 5, 0);
    spec.traffic =
        Traffic { messages: 5, slots: 8, puts: 1, pace_ns: 2_000_000, credit_lag: 1, ..spec.traffic };
    let hit = Rc::new(Cell::new(false));
    let seen = hit.clone();
    let stop = |cluster: &Cluster| {
        let mut at = at(cluster);
        let noted = move |access| {
            let now = at(access);
            seen.set(seen.get() | now);
            now
        };
        Interference::stop_when(noted, 250_000)
    };
    // Whatever was posted meanwhile is rung without anybody's suspicion.
    let mut wrongs = stopped_and(&spec, stop, |outcome| gap_below(outcome, 8_000_000));
    wrongs.extend(wrong_if(!hit.get(), || "no caller was stopped".into()));
    wrongs
}

/// Stopped once its ring is in place, before the ticket word shows the new generation: callers go on taking tickets.
fn stopped_before_tickets_open(seed: u64) -> Wrongs {
    opening(seed, |cluster| {
        let root = cluster.pe(0).root();
        let row = size_of::<HotPath>() as u64;
        let first = root.hot + u64::from(root.channels_per_pe * root.slots) * row;
        let bases: Vec<u64> = (0..u64::from(root.slots))
            .map(|slot| first + slot * row + offset_of!(HotPath, base) as u64)
            .collect();
        let word = cluster.step_word(0, 1, 0);
        move |access: Access| {
            step_at(word) == Step::Replay && access.method == "store" && bases.contains(&access.address)
        }
    })
}

/// Stopped just before the flags of the ticket word change.
fn stopped_before_flags_change(seed: u64) -> Wrongs {
    opening(seed, |cluster| {
        let word = cluster.step_word(0, 1, 0);
        let ticket = word - offset_of!(Channel, switch.word) as u64 + offset_of!(Channel, ticket) as u64;
        move |access: Access| {
            step_at(word) == Step::Replay && access.method == "compare_swap" && access.address == ticket
        }
    })
}

/// Stopped once the ticket word shows the new generation, before the done word does.
fn stopped_before_done_opens(seed: u64) -> Wrongs {
    opening(seed, |cluster| {
        let word = cluster.step_word(0, 1, 0);
        // Only an opener clears the flag of the ready word.
        move |access: Access| step_at(word) == Step::Replay && access.method == "fetch_and"
    })
}

/// Address of a field of the channel whose step word is at `word`.
fn channel_word(word: u64, offset: usize) -> u64 {
    word - offset_of!(Channel, switch.word) as u64 + offset as u64
}

/// The path is open and in use, and its switch is not at an end, because its owner sleeps. The path fails meanwhile,
/// the other direction leaves it, the port comes back: nothing of it may be recreated, for this direction uses it.
fn stopped_before_idle(seed: u64, on_device: bool) -> Wrongs {
    let (first, second) = (seed % 2, seed / 2 % 2);
    let faults = [format!("150us:{first}.0:down"), format!("700us:{second}.1:down=2ms")];
    let mut spec = brisk(both_ways(seed, &faults.each_ref().map(String::as_str)));
    (spec.rails, spec.backups, spec.warps, spec.agent.looks) = (3, 7, 6, 0);
    spec.queues_on_device = on_device;
    spec.traffic = Traffic { messages: 150, slots: 4, pace_ns: 50_000, credit_lag: 1, ..spec.traffic };
    let (hit, again) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(None)));
    let (seen, said) = (hit.clone(), again.clone());
    let stop = |cluster: &Cluster| {
        let (word, mut made_again) = (cluster.step_word(0, 1, 0), made_again_in_use(cluster));
        let last = cluster.mirror(0, 1, 0) + offset_of!(Mirror, dead_since_ns) as u64;
        let at = move |access: Access| {
            if let Some(text) = made_again() {
                said.borrow_mut().get_or_insert(text);
            }
            let now = step_at(word) == Step::Replay && access.method == "store" && access.address == last;
            let first = now && !seen.replace(true);
            if first { 20_000_000 } else { 0 }
        };
        let interference = Interference::default();
        interference.ask(at);
        interference
    };
    let mut wrongs = stopped_and(&spec, stop, |_| Vec::new());
    wrongs.extend(wrong_if(!hit.get(), || "no caller was stopped".into()));
    wrongs.extend(again.take());
    wrongs
}

/// The owner of a switch is never resumed before one of the stores that open the channel. A caller that takes it over
/// once the lease has ended finishes it from there: what callers posted since stays posted.
fn owner_gone_while_opening(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = spec(seed, &["60us:0.0:down"]);
        (spec.step_limit, spec.agent.looks, spec.idle_ns) = (6_000_000, 0, 1_000_000);
        let mut cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let word = cluster.step_word(0, 1, 0);
        let (method, field) = [
            ("compare_swap", offset_of!(Channel, ticket)),
            ("fetch_and", offset_of!(Channel, ready)),
            ("compare_swap", offset_of!(Channel, done)),
            ("store", offset_of!(Mirror, dead_since_ns)),
            ("compare_swap", offset_of!(Channel, switch.word)),
            ("compare_swap", offset_of!(Mirror, word)),
        ][seed as usize % 6];
        let mirror = cluster.mirror(0, 1, 0);
        let address =
            if seed % 6 % 2 == 1 && seed % 6 > 1 { mirror + field as u64 } else { channel_word(word, field) };
        let mut stopped = false;
        let last = seed % 6 == 5;
        let stop = move |access: Access| {
            // The agent is shown last, when the word says already that the switch is over.
            let step = if last { Step::Idle } else { Step::Replay };
            let here = step_at(word) == step && access.method == method && access.address == address;
            let now = here && !stopped;
            stopped |= now;
            now
        };
        cluster.interference = Rc::new(Interference::stop_when(stop, u64::MAX / 4));
        let post = |kernel: &Kernel, words: std::ops::Range<u64>| {
            for word in words {
                store(kernel.heap + word * 8, 70 + word);
                let put = Put { dst: HeapOffset(128 + word * 8), src: HeapOffset(word * 8), bytes: 8 };
                let signal = Signal::Monotone(word + 1);
                kernel
                    .device()
                    .channel(1, 0)
                    .put_signal_nbi(Solo, put, HeapOffset(256), signal)
                    .expect("a channel that lives");
            }
            let _ =
                kernel.device().channel(1, 0).quiet(Solo, Deadline::after(kernel.world.now(), 400_000_000));
        };
        let owner = cluster.spawn("owner", 0, move |kernel| {
            kernel.world.sleep(70_000);
            post(kernel, 0..8);
        });
        // Posts behind it while the owner is gone, and waits long enough to be its heir.
        let heir = cluster.spawn("heir", 0, move |kernel| {
            kernel.world.sleep(5_000_000);
            // A lease ends for those who see it pass.
            let _ = kernel.device().channel(1, 0).quiet(Solo, Deadline::after(0, 10_000_000_000));
            kernel.world.sleep(10_000_000_000u64.saturating_sub(kernel.world.now()));
            post(kernel, 8..11);
        });
        // Nobody else is needed once the path is chosen, and time passes faster without.
        cluster.sim.run_for(5_000_000);
        (0..2).for_each(|pe| cluster.kill_agent(pe));
        cluster.sim.run_for(10_500_000_000);
        let heap = cluster.pe(1).heap().address;
        let seen: Vec<u64> = (0..11).map(|word| load(heap + 128 + word * 8)).collect();
        let want: Vec<u64> = (70..81).collect();
        let mut wrongs = wrong_if(owner.is_done(), || "no caller was stopped".into());
        wrongs.extend(wrong_if(!heir.is_done(), || "the heir waits without an end".into()));
        wrongs.extend(wrong_if(seen != want, || format!("the puts are {seen:?}")));
        let signal = load(heap + 256);
        wrongs.extend(wrong_if(signal != 11, || format!("the signal is {signal}")));
        wrongs
    })
}

/// Somebody is stopped between reading the done word and looking at completions, across a switch.
fn stopped_before_a_look(seed: u64) -> Wrongs {
    let mut spec = spec(seed, &["400us:0.0:down"]);
    (spec.warps, spec.rails, spec.backups, spec.log_depth) = (6, 3, 7, 4);
    spec.traffic = Traffic { messages: 80, slots: 4, pace_ns: 4_000, credit_lag: 1, ..spec.traffic };
    judged(|| {
        let mut cluster = Cluster::start(&spec);
        let (begun, mut left) = (cluster.began_ns(), 1 + seed * 2);
        let world = cluster.sim.world();
        let look = move |access: Access| {
            let late = world.now() > begun + 405_000;
            left -= u64::from(late && access.method == "load_cqe" && left > 0);
            left == 0
        };
        cluster.interference = Rc::new(Interference::stop_when(look, 2_000_000));
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        let of_sender = outcome.records.iter().filter(|(pe, _)| *pe == 0).count();
        let twice = wrong_if(of_sender > 1, || format!("one failure was {of_sender} switches"));
        [promises(&outcome), faults_of_kernels(&outcome), idle_faults(&outcome), twice].concat()
    })
}

/// Runs of the same in which an old trigger alone does no harm.
fn stopped_before_a_first_look(seed: u64) -> Wrongs {
    stopped_before_a_look(seed + 7)
}

/// The counter of a doorbell record only ever goes up.
fn doorbells_only_go_up(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = both_ways(seed, &["150us:0.0:down"]);
        (spec.warps, spec.log_depth, spec.interference) = (4, 4, 8);
        spec.traffic = Traffic { messages: 60, slots: 4, pace_ns: 3_000, credit_lag: 1, ..spec.traffic };
        let mut cluster = Cluster::start(&spec);
        let seen: Rc<RefCell<BTreeMap<u64, u16>>> = Rc::default();
        let back = Rc::new(Cell::new(0));
        let (looked, went_back) = (seen.clone(), back.clone());
        let hook = move |access: Access| {
            let mut seen = looked.borrow_mut();
            for (at, last) in &mut *seen {
                let half = load(*at & !7) >> if *at & 4 != 0 { 32 } else { 0 };
                let now = u32::from_be(half as u32) as u16;
                went_back.set(went_back.get() + u64::from(now != 0 && now.wrapping_sub(*last) as i16 <= -1));
                *last = now;
            }
            if access.method == "store_doorbell_record" {
                seen.entry(access.address).or_default();
            }
            0
        };
        let interference = Interference::random(spec.interference);
        interference.ask(hook);
        cluster.interference = Rc::new(interference);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        let back = wrong_if(back.get() > 0, || format!("a doorbell went back {} times", back.get()));
        [promises(&outcome), faults_of_kernels(&outcome), idle_faults(&outcome), back].concat()
    })
}

/// The kernel ends with work in flight into a black hole; then the port dies. Its agent carries the switch.
fn kernel_gone_with_work_in_flight(seed: u64) -> Wrongs {
    judged(|| {
        let spec = spec(seed, &["0us:0.0:blackhole-tx", "100us:0.0:down"]);
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        cluster.sim.run_for(10_000);
        let task = cluster.spawn("hook", 0, |kernel| {
            store(kernel.heap, 77);
            let put = Put { dst: HeapOffset(8), src: HeapOffset(0), bytes: 8 };
            kernel
                .device()
                .channel(1, 0)
                .put_signal_nbi(Solo, put, HeapOffset(16), Signal::Monotone(5))
                .expect("room")
        });
        cluster.sim.finish(&task);
        cluster.sim.run_for(50_000_000);
        let heap = cluster.pe(1).heap().address;
        let seen = (load(heap + 8), load(heap + 16));
        wrong_if(seen != (77, 5), || format!("50 ms later the put and its signal are {seen:?}"))
    })
}

/// A caller is never resumed between its reserve and its publish: the stream has a hole for good. A caller that waits
/// behind it leaves with a typed fault, once the bound of the chain has passed.
fn hole_in_the_publish_chain(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = spec(seed, &[]);
        // The bound of the chain is the give-up time and the patience for each path.
        (spec.rails, spec.backups, spec.give_up_ns, spec.suspect_ns) = (1, 0, 100_000_000, 1_000_000);
        let mut cluster = Cluster::start(&spec);
        let mut stopped = false;
        let stop = move |access: Access| {
            let now = !stopped && access.method == "store_segment";
            stopped |= now;
            now
        };
        cluster.interference = Rc::new(Interference::stop_when(stop, u64::MAX / 4));
        let put = |word: u64| Put { dst: HeapOffset(128 + word * 8), src: HeapOffset(0), bytes: 8 };
        let gone = cluster.spawn("gone", 0, move |kernel| {
            let _ = kernel.device().channel(1, 0).put_nbi(Solo, put(0));
        });
        cluster.sim.run_for(5_000);
        let waiters: Vec<_> = (1..4)
            .map(|word| {
                cluster.spawn(&format!("behind{word}"), 0, move |kernel| {
                    kernel.device().channel(1, 0).put_nbi(Solo, put(word))
                })
            })
            .collect();
        let until = cluster.sim.now() + 3_000_000_000;
        cluster.sim.run_until(|| cluster.sim.now() > until || waiters.iter().all(Task::is_done));
        let mut wrongs = wrong_if(gone.is_done(), || "no caller was stopped".into());
        for waiter in waiters {
            match waiter.take() {
                Some(Err(fault)) if fault.kind == FaultKind::PeerLost && fault.unfinished == 4 => {}
                Some(other) => wrongs.push(format!("behind the hole: {other:?}")),
                None => wrongs.push("a caller behind the hole still waits after 3 s".into()),
            }
        }
        wrongs
    })
}

/// Puts without signals: when quiet returns they are there.
fn done_means_delivered(seed: u64) -> Wrongs {
    const WORDS: u64 = 256;
    judged(|| {
        let fault = ["0.0:down", "1.0:down", "0.0:drop-acks", "1.0:blackhole-tx"][seed as usize % 4];
        let mut spec = spec(seed, &[&format!("40us:{fault}")]);
        spec.log_depth = 4;
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let task = cluster.spawn("puts", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            for word in 0..WORDS {
                store(kernel.heap + word * 8, 7_000 + word);
                let put = Put { dst: HeapOffset((WORDS + word) * 8), src: HeapOffset(word * 8), bytes: 8 };
                channel.put_nbi(Solo, put)?;
                if word % 8 == 0 {
                    kernel.world.sleep(3_000);
                }
            }
            channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000_000))
        });
        let ended = cluster.sim.finish(&task);
        let heap = cluster.pe(1).heap().address;
        let right = |word: &u64| load(heap + (WORDS + word) * 8) == 7_000 + word;
        let there = (0..WORDS).filter(right).count() as u64;
        let mut wrongs = wrong_if(ended.is_err(), || format!("{ended:?}"));
        wrongs.extend(wrong_if(there != WORDS, || {
            format!("{there} of {WORDS} puts are there when quiet returns")
        }));
        wrongs.extend(wrong_if(cluster.records().is_empty(), || "nothing switched".into()));
        wrongs
    })
}
