//! Revival and the way back. Rules 17 to 19; F1, F2, F4, F5, H6, H7.

use std::rc::Rc;

use shunt_device::{Deadline, HeapOffset, Put, Signal, Solo};
use shunt_host::agent::message::{Home, Message, PairId, SideTruth};
use shunt_host::connect::card::{HalfCard, RailCard};
use shunt_host::connect::oob::Oob;
use shunt_layout::state::Step;

use super::kit::{
    Wrongs, both_ways, brisk, clean, failovers_of, faults_of_kernels, idle, idle_faults, judged, promises,
    spec, steered, unexercised, ways_back, wrong_if,
};
use super::scenario::Scenario;
use crate::cluster::{Cluster, step_at};
use crate::lies::Lie;
use crate::oracle::{load, store};
use crate::outcome::Outcome;
use crate::run::{finish, start_streams};
use crate::sim::{Access, Interference};
use crate::spec::RunSpec;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "there_and_back", seeds: 4, run: there_and_back },
    Scenario { name: "posted_writes_of_the_backup", seeds: 6, run: posted_writes_of_the_backup },
    Scenario { name: "the_recovery_window", seeds: 2, run: recovery_window },
    Scenario { name: "a_flapping_primary", seeds: 2, run: flapping_primary },
    Scenario { name: "a_primary_that_is_up_and_carries_nothing", seeds: 2, run: carries_nothing },
    Scenario { name: "a_revival_that_fails_and_is_tried_again", seeds: 8, run: revival_fails },
    Scenario { name: "one_direction_leaves_long_before_the_other", seeds: 8, run: leaves_late },
    Scenario { name: "late_messages_of_an_old_incarnation", seeds: 2, run: late_messages },
    Scenario { name: "ghosts_older_than_a_revival", seeds: 16, run: ghosts_older_than_a_revival },
    Scenario { name: "ghosts_older_than_two_revivals", seeds: 8, run: ghosts_near },
    Scenario { name: "ghosts_of_acknowledgements", seeds: 6, run: ghost_acks },
    Scenario { name: "twenty_flaps_of_fifty_milliseconds", seeds: 2, run: flap_train },
    Scenario { name: "ghosts_within_the_lifetime_at_a_revival", seeds: 8, run: ghosts_within_the_lifetime },
    Scenario { name: "a_half_that_could_not_be_fenced", seeds: 4, run: not_fenced },
    Scenario { name: "a_peer_that_names_what_does_not_exist", seeds: 2, run: names_what_is_not },
];

/// Each direction went back, and onto pairs whose numbers only grow.
fn back_and_newer(outcome: &Outcome, least: usize) -> Wrongs {
    let count = ways_back(outcome).count();
    let mut wrongs = wrong_if(count < least, || format!("{count} ways back, at least {least} were wanted"));
    let same = outcome.records.iter().find(|(_, record)| {
        let again = record.kind == shunt_layout::state::SwitchKind::SwitchBack as u32;
        again && record.entered.incarnation <= record.left.incarnation
    });
    wrongs.extend(same.map(|(pe, _)| format!("PE {pe} went back to a path that was not recreated")));
    wrongs
}

fn there_and_back(seed: u64) -> Wrongs {
    let mut spec = brisk(both_ways(seed, &["1ms:0.0:down", "3ms:0.0:up", "9ms:0.0:down", "11ms:0.0:up"]));
    spec.traffic.messages = 900;
    clean(&spec, |outcome| back_and_newer(outcome, 2))
}

/// The backup's NIC places late, the primary's at once (F1 on the return).
fn posted_writes_of_the_backup(seed: u64) -> Wrongs {
    let delay = ["400us", "900us", "2ms"][seed as usize % 3];
    let slow = format!("0ns:{}.1:placement-delay={delay}", seed % 2);
    let mut spec = brisk(both_ways(seed, &[&slow, "1ms:0.0:down", "2ms:0.0:up"]));
    spec.traffic = Traffic { messages: 700, slots: 300, pace_ns: 15_000, ..spec.traffic };
    clean(&spec, |outcome| wrong_if(ways_back(outcome).count() == 0, || "no channel went back".into()))
}

fn recovery_window(seed: u64) -> Wrongs {
    let mut spec = both_ways(seed, &["1ms:0.0:down", "3ms:0.0:up"]);
    spec.agent.lifetime_ns = 1_000_000;
    spec.agent.probe_ns = 100_000;
    spec.agent.backoff_ns = 200_000;
    spec.traffic = Traffic { messages: 400, pace_ns: 100_000, ..spec.traffic };
    let window_ns = spec.recovery_ns;
    clean(&spec, |outcome| {
        let up_ns = outcome.began_ns + 3_000_000;
        let early = ways_back(outcome).find(|record| record.stamps[5] < up_ns + window_ns);
        let mut wrongs =
            wrong_if(early.is_some(), || "went back before the recovery window had passed".into());
        wrongs.extend(back_and_newer(outcome, 2));
        wrongs
    })
}

/// Down and up twenty times: followed ever more rarely.
fn flapping_primary(seed: u64) -> Wrongs {
    let mut spec = brisk(both_ways(seed, &["1ms:0.0:flap=16ms/20"]));
    spec.traffic = Traffic { messages: 1_700, pace_ns: 200_000, ..spec.traffic };
    clean(&spec, |outcome| {
        let count = ways_back(outcome).count();
        wrong_if(count > 12, || format!("the primary was followed {count} times in 20 flaps both ways"))
    })
}

/// The port is up, and nothing gets through it: probes find out, not the traffic.
fn carries_nothing(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:blackhole-tx", "1ms:1.0:blackhole-tx"][seed as usize % 2];
    let mut spec = brisk(both_ways(seed, &[fault]));
    spec.traffic = Traffic { messages: 800, pace_ns: 100_000, ..spec.traffic };
    clean(&spec, |outcome| {
        let count = ways_back(outcome).count();
        wrong_if(count > 0, || format!("went back {count} times to a path that carries nothing"))
    })
}

/// The port comes back and goes again while the pair is being made: what fails uses its number up.
fn revival_fails(seed: u64) -> Wrongs {
    let again = 3_000 + 150 * seed;
    let faults = [
        "1ms:0.0:down".to_owned(),
        "3ms:0.0:up".to_owned(),
        format!("{again}us:0.0:blackhole-tx=9ms"),
        format!("{again}us:1.0:delay=2500us/3ms"),
    ];
    let mut spec = brisk(both_ways(seed, &faults.each_ref().map(String::as_str)));
    spec.agent.revive_ns = 4_000_000;
    spec.traffic = Traffic { messages: 1_500, pace_ns: 100_000, ..spec.traffic };
    unexercised(&spec, |outcome| back_and_newer(outcome, 1))
}

/// A switcher is held up before it has its cut, while the other direction leaves, the port comes back, and the pair may
/// be recreated: nothing of it may be taken away before both have left.
fn leaves_late(seed: u64) -> Wrongs {
    let mut spec = brisk(both_ways(seed, &["400us:0.0:drop-acks=100us", "450us:0.0:down=600us"]));
    (spec.agent.looks, spec.log_depth) = (0, 5);
    spec.traffic = Traffic { messages: 300, slots: 16, pace_ns: 20_000, ..spec.traffic };
    let pe = (seed % 2) as u32;
    let at = 2 + seed / 2 * 3;
    judged(|| {
        let mut cluster = Cluster::start(&spec);
        let (word, mut left) = (cluster.step_word(pe, 1 - pe, 0), at);
        let held_up = move |_: Access| {
            left -= u64::from(step_at(word) == Step::Settle && left > 0);
            left == 0
        };
        cluster.interference = Rc::new(Interference::stop_when(held_up, 12_000_000));
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        let idle = idle_faults(&outcome);
        [promises(&outcome), faults_of_kernels(&outcome), failovers_of(&outcome, 2), idle].concat()
    })
}

/// Messages about the first incarnation of a pair come again once it was recreated.
fn late_messages(seed: u64) -> Wrongs {
    let mut spec = brisk(both_ways(seed, &["1ms:0.0:down", "3ms:0.0:up"]));
    spec.traffic.messages = 900;
    steered(
        &spec,
        Lie::None,
        |cluster, _| {
            cluster.sim.run_for(14_000_000);
            let id = PairId { channel: 0, slot: 0, incarnation: 1 };
            let truth = SideTruth::Exact { executed: 1, next_rcv_psn: 1 };
            let late = [Message::Fence(id), Message::Truth(id, truth), Message::Left(id)];
            let from = (seed % 2) as u32;
            let end = cluster.oob.end(from);
            late.iter().for_each(|message| end.send(1 - from, message.to_bytes()));
        },
        |outcome| {
            let count = outcome.failovers();
            let mut wrongs =
                wrong_if(count > 2, || format!("one failure was {count} failovers of 2 channels"));
            wrongs.extend(back_and_newer(outcome, 2));
            wrongs
        },
    )
}

/// A peer's words name a rail that it was not asked for, and numbers that leave none for later: nothing of it is
/// believed, and the pair is recreated as ever.
fn names_what_is_not(seed: u64) -> Wrongs {
    let mut spec = brisk(both_ways(seed, &["1ms:0.0:down", "3ms:0.0:up"]));
    spec.traffic.messages = 900;
    steered(
        &spec,
        Lie::None,
        |cluster, _| {
            let end = cluster.oob.end(1);
            let rail = RailCard { index: 7, ..cluster.pe(1).rails()[0].card() };
            let id = |incarnation| PairId { channel: 0, slot: 0, incarnation };
            let card = HalfCard { qpn: 99, psn: 0, incarnation: 2, ece: 0, rail };
            let far = PairId { channel: 0, slot: 0, incarnation: u32::MAX };
            for round in 0..200 {
                cluster.sim.run_for(50_000);
                end.send(0, Message::Made(id(2), card, Home { rail: 0, version: 0 }).to_bytes());
                if round % 2 == seed % 2 {
                    end.send(0, Message::Fence(far).to_bytes());
                }
            }
        },
        |outcome| back_and_newer(outcome, 2),
    )
}

/// Dense traffic whose first packets linger while the port goes down and its pair is recreated, under the numbers of
/// queue pairs that were destroyed.
fn lingering(seed: u64, delay_us: u64) -> RunSpec {
    let linger = format!("0us:0.0:delay={delay_us}us/300us");
    let mut spec = brisk(both_ways(seed, &[&linger, "300us:0.0:down", "600us:0.0:up"]));
    (spec.qpn_reused, spec.log_depth) = (true, 7);
    spec.traffic = Traffic { messages: 700, slots: 32, pace_ns: 5_000, credit_lag: 0, ..spec.traffic };
    spec
}

/// Packets that live longer than anybody may expect: they come to a pair of the same number, and only the PSN tells.
fn ghosts_older_than_a_revival(seed: u64) -> Wrongs {
    clean(&lingering(seed, 2_400 + 150 * seed), |outcome| failovers_of(outcome, 2))
}

/// They come to the pair that was recreated twice: its PSNs follow theirs closely, for two halves are a whole.
fn ghosts_near(seed: u64) -> Wrongs {
    let late_us = 111_000 + 150 * seed;
    let mut spec = lingering(seed, late_us);
    spec.faults.extend(["6ms:0.0:down=300us"].map(|fault| fault.parse().expect("a fault")));
    spec.traffic = Traffic { messages: 2_600, pace_ns: 45_000, ..spec.traffic };
    clean(&spec, |outcome| {
        let third = outcome.records.iter().filter(|(_, record)| record.entered.incarnation == 3);
        let third = third.map(|(_, record)| record.stamps[5] - outcome.began_ns).min();
        let wrongs = failovers_of(outcome, 4);
        let there = third.is_some_and(|at_ns| at_ns < (late_us + 300) * 1_000);
        [wrongs, wrong_if(!there, || format!("recreated for the second time at {third:?}\n{outcome}"))]
            .concat()
    })
}

/// Puts of the first and of the second burst: the second has as many before those that are waited for.
const BURST: u64 = 100;
const WAITED: u64 = 20;

/// ACKs of a burst come once its path was recreated under the same number and has another burst outstanding, of which
/// nothing has arrived yet: what they acknowledge lies half of all PSNs away.
fn ghost_acks(seed: u64) -> Wrongs {
    judged(|| {
        let late = format!("101us:1.0:delay={}us/9us", 7_000 + 150 * seed);
        let faults = [&late, "120us:0.0:down", "500us:0.0:up", "6490us:0.0:delay=3ms/200us"];
        let mut spec = brisk(spec(seed, &faults));
        spec.qpn_reused = true;
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let begun = cluster.began_ns();
        let task = cluster.spawn("bursts", 0, move |kernel| {
            let channel = kernel.device().channel(1, 0);
            let until = |at_ns: u64| kernel.world.sleep((begun + at_ns).saturating_sub(kernel.world.now()));
            for (round, at_ns) in [(1, 100_000), (2, 6_500_000)] {
                until(at_ns);
                let mut tickets = Vec::new();
                for word in 0..BURST {
                    store(kernel.heap + 1024 + word * 8, round);
                    let at = HeapOffset(1024 + word * 8);
                    tickets.push(channel.put_nbi(Solo, Put { dst: at, src: at, bytes: 8 }).expect("room"));
                }
                let deadline = || Deadline::after(kernel.world.now(), 1_000_000_000);
                if round == 2 {
                    channel.wait(Solo, tickets[WAITED as usize - 1], deadline()).expect("a path works");
                    let there = |word: &u64| load(kernel.heaps[1] + 1024 + word * 8) == round;
                    let there = (0..WAITED).filter(there).count() as u64;
                    return (there, kernel.world.now() - begun);
                }
                channel.quiet(Solo, deadline()).expect("a path works");
            }
            unreachable!("the second round returns")
        });
        cluster.sim.run_for(6_400_000);
        let (slot, path) = (cluster.active_slot(0, 1, 0), cluster.path_row(0, 1, 0, 0));
        let (there, at_ns) = cluster.sim.finish(&task);
        let mut wrongs = wrong_if(there != WAITED, || {
            format!("{there} of {WAITED} puts that count as done have arrived, at {at_ns} ns")
        });
        let recreated = slot == 0 && path.incarnation == 2;
        wrongs.extend(wrong_if(!recreated, || format!("slot {slot}, incarnation {}", path.incarnation)));
        wrongs.extend(idle(&cluster.faults()));
        wrongs
    })
}

/// Down for 25 ms and up for 25 ms, twenty times. What is recreated only ever gets newer, and in no recovery window a
/// channel switches twice, be the window shorter than what the port is up for, or longer than a whole flap.
fn flap_train(seed: u64) -> Wrongs {
    let mut spec = both_ways(seed, &["1ms:0.0:flap=50ms/20"]);
    let window_ns = [20_000_000, 120_000_000][seed as usize % 2];
    (spec.recovery_ns, spec.step_limit, spec.idle_ns) = (window_ns, 4_000_000, 50_000);
    spec.traffic = Traffic { messages: 1_100, pace_ns: 1_000_000, ..spec.traffic };
    clean(&spec, |outcome| {
        let mut wrongs = failovers_of(outcome, 2);
        for pe in 0..2 {
            let of_pe = outcome.records.iter().filter(|(at, _)| *at == pe).map(|(_, record)| record);
            let records: Vec<_> = of_pe.collect();
            let mut newest = [0; 8];
            for record in &records {
                for (slot, path) in [(record.from, record.left), (record.to, record.entered)] {
                    let newest = &mut newest[slot as usize];
                    let older = path.incarnation < *newest;
                    wrongs.extend(wrong_if(older, || format!("{} after {newest}", path.incarnation)));
                    *newest = path.incarnation;
                }
            }
            let within = records.windows(2).find(|two| two[1].stamps[0] < two[0].stamps[5] + window_ns);
            wrongs.extend(within.map(|two| format!("PE {pe} switched within one window: {two:?}")));
        }
        wrongs
    })
}

/// Packets that live nearly as long as they may: nothing is recreated before they are gone.
fn ghosts_within_the_lifetime(seed: u64) -> Wrongs {
    let mut spec = lingering(seed, 2_400 + 150 * seed);
    spec.agent.lifetime_ns = 5_000_000;
    clean(&spec, |outcome| failovers_of(outcome, 2))
}

/// A put is outstanding on a recreated path that carried nothing yet; firmware is silent, so nobody fences it, and then
/// answers again. The path is recreated under the old number: what the old half still retries must reach nobody. The
/// path to another peer is left just before, so that the 2ERR of the first is not even submitted.
fn not_fenced(seed: u64) -> Wrongs {
    judged(|| {
        let faults = ["300us:0.0:down=1ms", "25ms:0.0:blackhole-tx=30ms", "25ms:0.0:fw-timeout=40ms"];
        let mut spec = brisk(both_ways(seed, &faults));
        (spec.qpn_reused, spec.pes) = (true, 3);
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let begun = cluster.began_ns();
        let sender = cluster.spawn("sender", 0, move |kernel| {
            let device = kernel.device();
            // The second put finds the path silent; the others use its buffer again.
            for (value, at_ns) in [(1, 100_000), (2, 25_100_000), (3, 60_000_000), (4, 1_000_000_000)] {
                kernel.world.sleep((begun + at_ns).saturating_sub(kernel.world.now()));
                store(kernel.heap, value);
                for peer in [2, 1] {
                    let put = Put { dst: HeapOffset(128), src: HeapOffset(0), bytes: 8 };
                    let posted = device.channel(peer, 0).put_signal_nbi(
                        Solo,
                        put,
                        HeapOffset(256),
                        Signal::Monotone(value),
                    );
                    posted.map_err(|fault| format!("{value} to {peer}: {fault:?}"))?;
                    kernel.world.sleep(300_000);
                }
                for peer in [2, 1] {
                    let deadline = Deadline::after(kernel.world.now(), 2_000_000_000);
                    let quiet = device.channel(peer, 0).quiet(Solo, deadline);
                    quiet.map_err(|fault| format!("{value} to {peer}: {fault:?}"))?;
                }
                // Nothing may change the words from now until the next put.
                let until = begun + if value == 3 { 990_000_000 } else { 0 };
                kernel.world.sleep(until.saturating_sub(kernel.world.now()));
                let seen: Vec<u64> =
                    [1, 2].iter().flat_map(|pe| [128, 256].map(|at| load(kernel.heaps[*pe] + at))).collect();
                if seen != [value; 4] {
                    return Err(format!("{value} was put, {seen:?} is there"));
                }
            }
            Ok(())
        });
        let mut wrongs: Wrongs = cluster.sim.finish(&sender).err().into_iter().collect();
        let records = cluster.records();
        let recreated = records.iter().filter(|(_, record)| record.entered.incarnation > 2).count();
        wrongs.extend(wrong_if(recreated < 2, || format!("{recreated} switches to a recreated path twice")));
        wrongs
    })
}
