//! Words that many PEs add to: one NIC of their PE takes all of it. Rule 16; F10.
//!
//! The NICs read a word and write it a while later, so that two of them lose adds between them.

use shunt_device::{Deadline, FaultKind, HeapOffset, Put, Solo};
use shunt_layout::state::{PathState, SwitchKind};

use super::kit::{
    Wrongs, both_ways, brisk, clean, failovers_of, faults_of_kernels, judged, promises, wrong_if,
};
use super::scenario::Scenario;
use super::sharing::{Roles, adds, inject, moved, press, shared, sums, verdict};
use crate::cluster::Cluster;
use crate::outcome::Outcome;
use crate::run::{finish, start_streams};
use crate::sharer::Share;
use crate::spec::RunSpec;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_sender_rail_lost_while_others_add", seeds: 4, run: sender_rail_lost },
    Scenario { name: "a_receiver_rail_lost_while_all_add", seeds: 4, run: receiver_rail_lost },
    Scenario { name: "a_home_moves_while_all_add", seeds: 4, run: moves_while_all_add },
    Scenario { name: "a_home_moves_and_a_third_pe_is_idle", seeds: 4, run: moves_past_an_idle_one },
    Scenario { name: "a_home_moves_and_an_agent_is_out_of_reach", seeds: 6, run: moves_past_an_agent },
    Scenario { name: "a_home_on_a_nic_that_answers_no_commands", seeds: 2, run: dead_nic },
    Scenario { name: "a_home_that_nobody_can_prove_silent", seeds: 2, run: unprovable },
    Scenario { name: "a_home_moves_past_a_pair_that_nobody_used", seeds: 4, run: unused_pair },
    Scenario { name: "the_first_add_finds_the_channel_on_a_backup", seeds: 6, run: first_add_on_a_backup },
    Scenario { name: "a_stale_home_and_a_recreated_path", seeds: 4, run: stale_home },
    Scenario { name: "two_homes_and_one_backup", seeds: 6, run: two_homes },
    Scenario { name: "a_nic_that_does_not_let_go_and_one_backup", seeds: 4, run: held_by_its_nic },
    Scenario { name: "the_last_path_that_works_is_kept", seeds: 4, run: last_path },
    Scenario { name: "a_slot_that_works_is_given_away", seeds: 4, run: given_away },
    Scenario { name: "a_fault_while_a_home_moves", seeds: 12, run: fault_during_the_move },
];

/// One writer loses the rail it sends by: it goes on over its other rail, to the same rail of the receiver.
fn sender_rail_lost(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 3);
        let cluster = Cluster::start(&shared(seed, 3));
        inject(&cluster, &[format!("1ms:{}.0:down", roles.from[seed as usize / 2 % 2])]);
        let share = |from: &u32| Share { adds: 8_000, pace_ns: 1_000, ..adds(roles.to, *from) };
        let sharers: Vec<_> = roles.from.iter().map(|from| cluster.share(share(from))).collect();
        [verdict(&cluster, &sharers), moved(&cluster, roles.to, 0..=0)].concat()
    })
}

/// The home's own rail goes down: the home moves, and stays when the rail is back. Another writer lost a rail before.
fn receiver_rail_lost(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 3);
        let cluster = Cluster::start(&shared(seed, 3));
        let mut faults = vec![format!("2ms:{}.0:down", roles.to), format!("6ms:{}.0:up", roles.to)];
        if seed >= 2 {
            faults.push(format!("1ms:{}.0:down=3ms", roles.from[0]));
        }
        inject(&cluster, &faults);
        let share = |from: &u32| Share { adds: 2_000, ..adds(roles.to, *from) };
        let sharers: Vec<_> = roles.from.iter().map(|from| cluster.share(share(from))).collect();
        [verdict(&cluster, &sharers), moved(&cluster, roles.to, 1..=1)].concat()
    })
}

/// Every path works, all add, and somebody presses.
fn moves_while_all_add(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 4);
        let cluster = Cluster::start(&shared(seed, 4));
        let sharers: Vec<_> = roles.from.iter().map(|from| cluster.share(adds(roles.to, *from))).collect();
        cluster.sim.run_for(1_000_000 + 7_000 * seed);
        press(&cluster, roles.from[0], roles.to);
        [verdict(&cluster, &sharers), moved(&cluster, roles.to, 1..=1)].concat()
    })
}

/// One writer has nothing outstanding while the home moves, and adds again later.
fn moves_past_an_idle_one(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 4);
        let cluster = Cluster::start(&shared(seed, 4));
        let idle = |from: u32| Share { adds: 300, rest_ns: 4_000_000, ..adds(roles.to, from) };
        let share = |from: &u32| if *from == roles.from[1] { idle(*from) } else { adds(roles.to, *from) };
        let sharers: Vec<_> = roles.from.iter().map(|from| cluster.share(share(from))).collect();
        cluster.sim.run_until(|| sharers[1].begun() == 150);
        cluster.sim.run_for(300_000);
        press(&cluster, roles.from[0], roles.to);
        [verdict(&cluster, &sharers), moved(&cluster, roles.to, 1..=1)].concat()
    })
}

/// The agent of one writer does nothing, or is cut off, while the home moves: the receiver's own halves are enough,
/// and what that writer goes on to send finds nobody.
fn moves_past_an_agent(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 3);
        let cluster = Cluster::start(&shared(seed, 3));
        let asleep = roles.from[1];
        let fault = ["agent-stalled=6ms", "oob-cut=6ms", "oob-cut-rx=6ms"][seed as usize / 2 % 3];
        inject(&cluster, &[format!("900us:{asleep}:{fault}")]);
        let share = |from: &u32| Share { adds: 1_500, ..adds(roles.to, *from) };
        let sharers: Vec<_> = roles.from.iter().map(|from| cluster.share(share(from))).collect();
        cluster.sim.run_for(1_000_000);
        press(&cluster, roles.from[0], roles.to);
        [verdict(&cluster, &sharers), moved(&cluster, roles.to, 1..=1)].concat()
    })
}

/// The home's NIC executes nothing any more and answers no commands: the writers' halves, and the packet lifetime,
/// prove that it is silent.
fn dead_nic(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 3);
        let cluster = Cluster::start(&shared(seed, 3));
        inject(
            &cluster,
            &[format!("900us:{}.0:fw-timeout", roles.to), format!("1ms:{}.0:blackhole-rx", roles.to)],
        );
        let sharers: Vec<_> = roles.from.iter().map(|from| cluster.share(adds(roles.to, *from))).collect();
        [verdict(&cluster, &sharers), moved(&cluster, roles.to, 1..=1)].concat()
    })
}

/// Neither the home's NIC nor one writer's answers commands: the home cannot move, and a caller that needs it to is
/// told.
fn unprovable(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 3);
        let mut spec = shared(seed, 3);
        spec.give_up_ns = 400_000_000;
        let cluster = Cluster::start(&spec);
        let silent = roles.from[0];
        inject(
            &cluster,
            &[
                format!("900us:{}.0:fw-timeout", roles.to),
                format!("900us:{silent}.0:fw-timeout"),
                format!("1ms:{}.0:blackhole-rx", roles.to),
            ],
        );
        let sharers: Vec<_> = roles.from.iter().map(|from| cluster.share(adds(roles.to, *from))).collect();
        let mut wrongs = sums(&cluster, &sharers);
        let ended: Vec<_> = sharers.iter().map(|one| one.fault().map(|fault| fault.kind)).collect();
        let right = [Some(FaultKind::FenceUnproven), Some(FaultKind::PeerLost)];
        wrongs
            .extend(wrong_if(ended != right, || format!("the writers ended with {ended:?}, not {right:?}")));
        wrongs.extend(moved(&cluster, roles.to, 0..=0));
        wrongs
    })
}

/// The home's NIC and the other NIC of a writer are gone. The pair between these two cannot be fenced: its writer says
/// that it never sent through it. The job ended because the home could not leave.
fn unused_pair(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 3);
        let cluster = Cluster::start(&shared(seed, 3));
        let gone = [(roles.to, 0), (roles.from[seed as usize / 2], 1)];
        let faults = ["900us:{}:fw-timeout", "1ms:{}:down"];
        let of = |(pe, rail)| faults.map(|fault| fault.replace("{}", &format!("{pe}.{rail}")));
        inject(&cluster, &gone.into_iter().flat_map(of).collect::<Vec<_>>());
        let sharers: Vec<_> = roles.from.iter().map(|from| cluster.share(adds(roles.to, *from))).collect();
        let mut wrongs = sums(&cluster, &sharers);
        let ended = sharers
            .iter()
            .filter_map(|one| Some(format!("PE {} ended with {:?}", one.share.from, one.fault()?)));
        wrongs.extend(ended);
        [wrongs, moved(&cluster, roles.to, 1..=1)].concat()
    })
}

/// A channel that carried puts alone fell back to the receiver's other rail, and then adds for the first time.
fn first_add_on_a_backup(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 3);
        let mut spec = shared(seed, 3);
        // Only the way home of rule 16 may move it.
        spec.recovery_ns = 500_000_000;
        let cluster = Cluster::start(&spec);
        let (to, late) = (roles.to, roles.from[0]);
        let down = format!("100us:{late}.0:down{}", if seed < 2 { "" } else { "=1ms" });
        inject(&cluster, &[down]);
        let put = cluster.spawn("put", late, move |kernel| {
            let channel = kernel.device().channel(to, 0);
            kernel.world.sleep(150_000);
            channel.put_nbi(Solo, Put { dst: HeapOffset(64), src: HeapOffset(64), bytes: 8 })?;
            channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000_000))
        });
        let other = cluster.share(Share { adds: 2_000, pace_ns: 1_000, ..adds(to, roles.from[1]) });
        let put = cluster.sim.finish(&put);
        let slot = cluster.active_slot(late, to, 0);
        let first = cluster.share(Share { adds: 300, pace_ns: 0, ..adds(to, late) });
        let mut wrongs = wrong_if(put.is_err() || slot != 1, || {
            format!("the put ended with {put:?}, the channel stands on slot {slot}, not on the backup")
        });
        wrongs.extend(verdict(&cluster, &[other, first]));
        wrongs
    })
}

/// A writer that has not added yet is cut off altogether while the home moves; then its paths to the old home are made
/// again, and it adds.
fn stale_home(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 3);
        let cluster = Cluster::start(&shared(seed, 3));
        let (to, late) = (roles.to, roles.from[1]);
        let rails = (0..2).map(|rail| format!("500us:{late}.{rail}:blackhole-rx=4ms"));
        inject(&cluster, &rails.chain([format!("500us:{late}:oob-cut=4ms")]).collect::<Vec<_>>());
        let other = cluster.share(Share { adds: 9_000, ..adds(to, roles.from[0]) });
        cluster.sim.run_for(1_000_000);
        press(&cluster, roles.from[0], to);
        cluster.sim.run_for(6_000_000);
        // Recreated under its next number, and ready at both ends.
        let ready = |pe: u32, peer: u32| {
            let row = cluster.path_row(pe, peer, 0, 0);
            row.incarnation > 1 && row.state == PathState::Ready as u32
        };
        let until = cluster.sim.now() + 30_000_000;
        cluster.sim.run_until(|| ready(to, late) && ready(late, to) || cluster.sim.now() > until);
        let recreated = ready(to, late) && ready(late, to);
        let mut wrongs = wrong_if(!recreated, || "the path to the old home was not recreated".into());
        let first = cluster.share(Share { adds: 800, pace_ns: 0, ..adds(to, late) });
        wrongs.extend(verdict(&cluster, &[other, first]));
        wrongs.extend(moved(&cluster, to, 1..=1));
        wrongs
    })
}

/// Adds both ways, so there are two homes to reach, and one slot beside the primary: a NIC that is dead to commands for
/// good, then a port of the other end that goes down for a while, or stays down.
fn two_homes(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = shared(seed, 2);
        (spec.backups, spec.give_up_ns) = (1, 400_000_000);
        let cluster = Cluster::start(&spec);
        let (dead, other) = (seed as u32 % 2, 1 - seed as u32 % 2);
        let lasts = ["=5ms", "=40ms", ""][seed as usize / 2 % 3];
        inject(
            &cluster,
            &[
                format!("800us:{dead}.0:fw-timeout"),
                format!("900us:{dead}.0:down=200us"),
                format!("1600us:{other}.0:down{lasts}"),
            ],
        );
        let sharers = [(dead, other), (other, dead)].map(|(to, from)| cluster.share(adds(to, from)));
        // A word each.
        [verdict(&cluster, &sharers[..1]), verdict(&cluster, &sharers[1..])].concat()
    })
}

/// The same with puts and one backup: the slots' own pairs are done with, the primary's because a NIC does not let go
/// of it, and what is left are pairs that were not made ahead.
fn held_by_its_nic(seed: u64) -> Wrongs {
    let (dead, other) = (seed % 2, 1 - seed % 2);
    let mut spec = brisk(both_ways(seed, &[]));
    (spec.backups, spec.give_up_ns) = (1, 400_000_000);
    let lasts = if seed < 2 { "" } else { "=60ms" };
    let faults = [
        format!("800us:{dead}.0:fw-timeout"),
        format!("900us:{dead}.0:down=200us"),
        format!("2600us:{other}.1:down{lasts}"),
    ];
    spec.faults =
        faults.iter().map(|fault| fault.parse().unwrap_or_else(|error| panic!("{error}"))).collect();
    clean(&spec, |outcome| failovers_of(outcome, 2))
}

/// Switches of one PE of one kind.
fn switches(outcome: &Outcome, pe: u32, kind: SwitchKind) -> usize {
    outcome.of_kind(kind).filter(|record| record.peer == 1 - pe).count()
}

/// Two slots, and the sender that leads loses the rail that leads home: the other direction works on the other slot,
/// which stays. The home moves there.
fn last_path(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = RunSpec { both_ways: true, ..shared(seed, 2) };
        (spec.backups, spec.give_up_ns) = (1, 100_000_000);
        (spec.traffic.messages, spec.traffic.pace_ns) = (600, 100_000);
        let cluster = Cluster::start(&spec);
        inject(&cluster, &[format!("{}us:0.0:down", 900 + 7 * seed)]);
        let streams = start_streams(&cluster);
        let sharer = cluster.share(adds(1, 0));
        let outcome = finish(&cluster, streams);
        let count = switches(&outcome, 1, SwitchKind::Failover);
        let mut wrongs = [promises(&outcome), faults_of_kernels(&outcome)].concat();
        wrongs.extend([verdict(&cluster, &[sharer]), moved(&cluster, 1, 1..=1)].concat());
        wrongs
            .extend(wrong_if(count != 1, || format!("PE 1 left {count} paths, one had a fault\n{outcome}")));
        wrongs
    })
}

/// Both directions stand on the last of three slots when one of them binds: it goes home, and the slot is given to a
/// second pair that leads there. The other direction, of which the leader knows nothing, leaves it by a drain.
fn given_away(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = RunSpec { both_ways: true, rails: 3, backups: 2, ..shared(seed, 2) };
        spec.recovery_ns = 500_000_000;
        (spec.traffic.messages, spec.traffic.pace_ns) = (600, 100_000);
        let cluster = Cluster::start(&spec);
        inject(&cluster, &["1ms", "1600us"].into_iter().zip(0..).map(cqe_error).collect::<Vec<_>>());
        let streams = start_streams(&cluster);
        cluster.sim.run_for(8_000_000 + 50_000 * seed);
        let stand = [(0, 1), (1, 0)].map(|(pe, peer)| cluster.active_slot(pe, peer, 0));
        let sharer = cluster.share(Share { adds: 100, ..adds(1, 0) });
        let outcome = finish(&cluster, streams);
        let row = cluster.path_row(0, 1, 0, 2);
        let kinds = [SwitchKind::Failover, SwitchKind::SwitchBack];
        let count = [0, 1].map(|pe| kinds.map(|kind| switches(&outcome, pe, kind)));
        let mut wrongs = [promises(&outcome), faults_of_kernels(&outcome)].concat();
        wrongs.extend(verdict(&cluster, &[sharer]));
        wrongs.extend(wrong_if(stand != [2, 2] || row.remote_rail != 0, || {
            format!(
                "they stood on slots {stand:?}; slot 2 was given to {}>{}",
                row.local_rail, row.remote_rail
            )
        }));
        wrongs.extend(wrong_if(count != [[2, 1]; 2], || {
            format!("{count:?} failovers and drains; expected two, and a drain each\n{outcome}")
        }));
        wrongs
    })
}

fn cqe_error((at, rail): (&str, u32)) -> String {
    format!("{at}:0.{rail}:cqe-error=0x15")
}

/// Something else goes wrong while the home moves, a few hundred microseconds after it was asked to.
fn fault_during_the_move(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 3);
        let mut spec = shared(seed, 3);
        (spec.rails, spec.backups) = (3, 7);
        let cluster = Cluster::start(&spec);
        let (to, one, two) = (roles.to, roles.from[0], roles.from[1]);
        let at = 1_000 + 60 * seed;
        let fault = match seed / 2 {
            0 => format!("{at}us:{to}.1:down"),
            1 => format!("{at}us:{one}.0:down"),
            2 => format!("{at}us:{to}:agent-stalled=3ms"),
            3 => format!("{at}us:{two}.1:blackhole-tx"),
            4 => format!("{at}us:{to}.0:down=2ms"),
            _ => format!("{at}us:{two}:oob-cut=5ms"),
        };
        inject(&cluster, &[fault]);
        let share = |from: &u32| Share { adds: 1_500, ..adds(to, *from) };
        let sharers: Vec<_> = roles.from.iter().map(|from| cluster.share(share(from))).collect();
        cluster.sim.run_for(1_000_000);
        press(&cluster, one, to);
        [verdict(&cluster, &sharers), moved(&cluster, to, 1..=3)].concat()
    })
}
