//! Warps that sleep across many switches, until the generation is the same again. Rules 3 and 4; F8, F11.

use std::cell::Cell;
use std::mem::offset_of;
use std::rc::Rc;

use shunt_device::{Deadline, HeapOffset, Put, Signal, Solo};
use shunt_layout::state::{Channel, Step, Word};

use super::kit::{Wrongs, brisk, judged, spec, wrong_if};
use super::scenario::Scenario;
use crate::cluster::{Cluster, step_at};
use crate::kernel::Kernel;
use crate::oracle::{load, store};
use crate::sim::{Access, Interference};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "asleep_across_one_switch", seeds: 3, run: |seed| asleep(seed, 1) },
    Scenario { name: "asleep_across_two_switches", seeds: 3, run: |seed| asleep(seed, 2) },
    Scenario { name: "asleep_across_256_switches", seeds: 3, run: |seed| asleep(seed, 256) },
];

/// Where a warp falls asleep, with its group published: before it takes the post lock; with the done word read, before
/// a completion; before it advances the done word.
const POINTS: [&str; 3] = ["try_lock", "load_cqe", "compare_swap"];
/// How long a path that was left has to be recreated before the other one fails.
const APART_NS: u64 = 3_000_000;
/// Three switches take less.
const PATIENCE_NS: u64 = 60_000_000_000;

/// Address of a field of the channel from PE `pe` to the other one.
fn channel_word(cluster: &Cluster, pe: u32, offset: usize) -> u64 {
    cluster.step_word(pe, 1 - pe, 0) - offset_of!(Channel, switch.word) as u64 + offset as u64
}

/// Stops the first who comes to `point` of the channel from PE 0 once `armed`, until `awake`; says so in `asleep`.
fn sleeper(
    cluster: &Cluster,
    point: &'static str,
    [armed, asleep, awake]: [Rc<Cell<bool>>; 3],
) -> Interference {
    let at = |pe: u32, offset: usize| channel_word(cluster, pe, offset);
    let lock = at(0, offset_of!(Channel, post_lock));
    let [done, theirs] = [0, 1].map(|pe| at(pe, offset_of!(Channel, done)));
    let world = cluster.sim.world();
    // The channel whose done word was read last is ours.
    let mut ours = false;
    let hook = move |access: Access| {
        let here = match point {
            "try_lock" => access.address == lock,
            "compare_swap" => access.address == done,
            _ => ours,
        };
        if access.method == "load_acquire" && [done, theirs].contains(&access.address) {
            ours = access.address == done;
        }
        if !armed.get() || asleep.get() || access.method != point || !here {
            return 0;
        }
        asleep.set(true);
        while !awake.get() {
            world.sleep(50_000);
        }
        1
    };
    let interference = Interference::default();
    interference.ask(hook);
    interference
}

/// Puts and signals one after the other until `stop`: how many, and how often quiet returned before all was there.
fn put_until(kernel: &Kernel, number: u64, stop: &Cell<bool>) -> Result<(u64, u64), String> {
    let channel = kernel.device().channel(1, 0);
    let (at, signal) = (HeapOffset(1024 + number * 64), HeapOffset(2048 + number * 64));
    let (mut count, mut early) = (0, 0);
    while !stop.get() {
        count += 1;
        store(kernel.heap + at.0, count);
        let put = Put { dst: at, src: at, bytes: 8 };
        let failed = |fault| format!("put {count} of warp {number}: {fault:?}");
        channel.put_signal_nbi(Solo, put, signal, Signal::Monotone(count)).map_err(failed)?;
        channel.quiet(Solo, Deadline::after(kernel.world.now(), PATIENCE_NS)).map_err(failed)?;
        let seen = [at, signal].map(|at| load(kernel.heaps[1] + at.0));
        early += u64::from(seen != [count; 2]);
        kernel.world.sleep(200_000);
    }
    Ok((count, early))
}

/// The rail of PE 0 that its channel uses. Slots are given to other pairs of rails.
fn rail_in_use(cluster: &Cluster) -> u32 {
    cluster.paths()[&(0, 1, 0)][cluster.active_slot(0, 1, 0) as usize].0
}

/// Who has published sleeps across `switches` of its channel. Two paths serve it in turn, each recreated each time
/// under the old numbers; after 256 of them the generation reads as before. (Who has not published holds up the
/// first switch, or, if its ring was full or closed, the second.)
fn asleep(seed: u64, switches: u32) -> Wrongs {
    judged(|| {
        let mut spec = brisk(spec(seed, &[]));
        (spec.backups, spec.log_depth, spec.qpn_reused, spec.idle_ns) = (1, 4, true, 50_000);
        (spec.firmware_ns, spec.recovery_ns, spec.agent.lifetime_ns) = (10_000, PATIENCE_NS, 200_000);
        (spec.step_limit, spec.agent.looks) = (12_000_000, 0);
        let mut cluster = Cluster::start(&spec);
        let flags = [(); 3].map(|()| Rc::new(Cell::new(false)));
        let [armed, asleep, awake] = flags.clone();
        cluster.interference = Rc::new(sleeper(&cluster, POINTS[seed as usize % POINTS.len()], flags));
        [0, 1]
            .iter()
            .for_each(|word| (0..4).for_each(|warp| cluster.watch(1, 1024 + word * 1024 + warp * 64)));
        let stop = Rc::new(Cell::new(false));
        let warps: Vec<_> = (0..4)
            .map(|number| {
                let stop = stop.clone();
                cluster.spawn("warp", 0, move |kernel| put_until(kernel, number, &stop))
            })
            .collect();
        cluster.sim.run_for(300_000);
        let (step, ticket) =
            (cluster.step_word(0, 1, 0), channel_word(&cluster, 0, offset_of!(Channel, ticket)));
        let generation = || Word(load(ticket)).generation();
        let first = generation();
        armed.set(true);
        let until = cluster.sim.now() + 10_000_000;
        cluster.sim.run_until(|| asleep.get() || cluster.sim.now() > until);
        let mut count = 0;
        for _ in 0..switches {
            let (now, rail) = (cluster.sim.now() - cluster.began_ns(), rail_in_use(&cluster));
            cluster.inject(&format!("{now}ns:0.{rail}:cqe-error=0x15").parse().expect("a fault"));
            let (before, until) = (generation(), cluster.sim.now() + 1_000_000_000);
            let open = || generation() != before && step_at(step) == Step::Idle;
            cluster.sim.run_until(|| open() || cluster.sim.now() > until);
            count += u32::from(open());
            cluster.sim.run_for(APART_NS);
        }
        let last = generation();
        let mut wrongs = wrong_if(!asleep.get(), || "no caller slept".into());
        awake.set(true);
        cluster.sim.run_for(5_000_000);
        stop.set(true);
        for (number, warp) in warps.iter().enumerate() {
            let said = cluster.sim.finish(warp);
            let posts = said.as_ref().map_or(0, |(count, _)| *count);
            wrongs.extend(wrong_if(said.as_ref().map_or(true, |(_, early)| *early > 0), || {
                format!("{said:?}")
            }));
            let watched = cluster.watched(1, 2048 + number as u64 * 64);
            let once = (watched.writes, watched.not_increasing) == (posts, 0);
            wrongs.extend(wrong_if(!once, || format!("warp {number}: {posts} signals, {watched:?}")));
        }
        let bad: u64 = (0..2).map(|rail| cluster.counters(0, rail).bad_doorbells).sum();
        wrongs.extend(wrong_if(bad > 0, || format!("{bad} doorbells made no sense")));
        let again = switches == 256;
        let switched = cluster.records().iter().filter(|(pe, _)| *pe == 0).count() as u32;
        wrongs.extend(wrong_if([count, switched] != [switches; 2] || (first == last) != again, || {
            format!("{switches} failures were {switched} switches, generation {first}, then {last}")
        }));
        wrongs
    })
}
