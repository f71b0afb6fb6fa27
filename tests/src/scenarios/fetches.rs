//! Exact fetching atomics: the word's owner executes them and keeps the answer. Rule 23.
//!
//! Every answer is held against those of all writers: none is missing, none comes twice.

use shunt_device::{Amo, Deadline, HeapOffset, Solo};

use super::kit::{Wrongs, judged};
use super::scenario::Scenario;
use super::sharing::{Roles, adds, inject, moved, press, shared, verdict};
use crate::cluster::Cluster;
use crate::sharer::{Share, Sharer};
use crate::spec::RunSpec;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "exact_fetches_without_a_fault", seeds: 2, run: without_a_fault },
    Scenario { name: "exact_fetches_of_two_blocks_use_rings_up", seeds: 1, run: wide },
    Scenario { name: "exact_fetches_and_a_port_of_either_end", seeds: 8, run: port_of_either_end },
    Scenario { name: "exact_fetches_and_both_ports_in_turn", seeds: 4, run: both_ports },
    Scenario { name: "exact_fetches_and_an_owners_agent_that_restarts", seeds: 8, run: agent_restarts },
    Scenario {
        name: "exact_fetches_beside_atomics_of_the_nic_while_a_home_moves",
        seeds: 8,
        run: home_moves,
    },
    Scenario { name: "exact_fetches_of_a_home_that_moves_behind_a_slow_nic", seeds: 8, run: slow_nic },
    Scenario { name: "exact_fetches_of_an_owner_whose_nic_answers_no_commands", seeds: 4, run: deaf_nic },
    Scenario { name: "exact_fetches_of_an_owner_whose_nic_is_gone", seeds: 4, run: nic_gone },
    Scenario { name: "exact_fetches_of_a_deaf_nic_that_is_not_ready", seeds: 8, run: deaf_and_not_ready },
];

fn exact(seed: u64, pes: u32) -> RunSpec {
    RunSpec { exact: 1, ..shared(seed, pes) }
}

fn share_all(cluster: &Cluster, roles: &Roles, share: impl Fn(u32) -> Share) -> Vec<Sharer> {
    roles.from.iter().map(|from| cluster.share(share(*from))).collect()
}

fn run(seed: u64, pes: u32, faults: &[String]) -> Wrongs {
    let (roles, cluster) = (Roles::of(seed, pes), Cluster::start(&exact(seed, pes)));
    inject(&cluster, faults);
    let sharers =
        share_all(&cluster, &roles, |from| Share { adds: 300, exact: true, ..adds(roles.to, from) });
    verdict(&cluster, &sharers)
}

fn without_a_fault(seed: u64) -> Wrongs {
    judged(|| run(seed, 3, &[]))
}

/// Each takes two blocks of a ring and gives one back: the worker panicked once its ring had no more.
fn wide(seed: u64) -> Wrongs {
    judged(|| {
        let cluster = Cluster::start(&exact(seed, 2));
        let task = cluster.spawn("swap", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            (0..1_200).find_map(|number| {
                let deadline = Deadline::after(kernel.world.now(), 1_000_000_000);
                let old = channel.fetch_exact(Solo, HeapOffset(64), Amo::Swap64(number + 1), deadline);
                (old != Ok(number)).then(|| format!("swap {number}: {old:?}"))
            })
        });
        cluster.sim.finish_all(&[task]).into_iter().flatten().collect()
    })
}

/// The port that the requester sends by, or that of the word's home, is down for a while.
fn port_of_either_end(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 2);
        let pe = if (seed / 2).is_multiple_of(2) { roles.to } else { roles.from[0] };
        let at = 1_000 + 37 * seed;
        run(seed, 2, &[format!("{at}us:{pe}.0:down=3ms")])
    })
}

/// First one end's port, then the other's, which is what the channel went over to.
fn both_ports(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 2);
        let (to, from) = (roles.to, roles.from[0]);
        let at = 1_000 + 41 * seed;
        let faults = [format!("{at}us:{from}.0:down=20ms"), format!("{}us:{to}.1:down=20ms", at + 2_000)];
        run(seed, 2, &faults)
    })
}

/// The agent that executes goes, again and again, with a port down in between: the next one finds what was executed.
fn agent_restarts(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 3);
        let mut faults: Vec<String> = (0..60)
            .map(|number| format!("{}us:{}:agent-restart", 900 + 97 * number + 3 * seed, roles.to))
            .collect();
        if seed >= 4 {
            faults.push(format!("3ms:{}.0:down=5ms", roles.to));
        }
        run(seed, 3, &faults)
    })
}

/// Some have the NIC answer and some the owner, while the home moves from one NIC to the other.
fn home_moves(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 4);
        let cluster = Cluster::start(&exact(seed, 4));
        let sharers = share_all(&cluster, &roles, |from| Share {
            adds: 400,
            exact: from != roles.from[0],
            ..adds(roles.to, from)
        });
        cluster.sim.run_for(1_000_000 + 53_000 * seed);
        press(&cluster, roles.from[0], roles.to);
        [verdict(&cluster, &sharers), moved(&cluster, roles.to, 1..=1)].concat()
    })
}

/// The NICs take long over an atomic, and the home moves meanwhile. Requests come in over the other rail, so that
/// nothing holds them up.
fn slow_nic(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 4);
        let cluster = Cluster::start(&RunSpec { atomic_gap_ns: 1_500_000, ..exact(seed, 4) });
        let (at, to) = (3_000_000 + 43_000 * seed, roles.to);
        inject(
            &cluster,
            &roles.from[1..].iter().map(|from| format!("500us:{from}.0:down")).collect::<Vec<_>>(),
        );
        let sharers = share_all(&cluster, &roles, |from| {
            let beside = from == roles.from[0];
            Share { adds: if beside { 40 } else { 8 }, exact: !beside, ..adds(to, from) }
        });
        cluster.sim.run_for(at);
        press(&cluster, roles.from[0], to);
        [verdict(&cluster, &sharers), moved(&cluster, to, 1..=1)].concat()
    })
}

/// The home's NIC executes what is posted and answers no commands: it serves, and so does the other one.
fn deaf_nic(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 2);
        let at = 1_000 + 43 * seed;
        let to = roles.to;
        run(seed, 2, &[format!("{at}us:{to}.0:fw-timeout"), format!("{}us:{to}.0:down", at + 150)])
    })
}

/// The home's NIC is gone with what it was executing: the home moves, and only that one answer may be lost.
fn nic_gone(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 2);
        let at = 1_000 + 43 * seed;
        run(seed, 2, &[format!("{at}us:{}.0:nic-gone", roles.to)])
    })
}

/// A NIC that answers no commands refuses requests for a while: its requester repeated for ever, and was taken for one
/// that had given up.
fn deaf_and_not_ready(seed: u64) -> Wrongs {
    judged(|| {
        let roles = Roles::of(seed, 2);
        let (at, to) = (4_000 + 43 * seed, roles.to);
        let faults = [format!("{at}us:{to}.0:fw-timeout=700ms"), format!("{at}us:{to}.0:rnr=450ms")];
        outlast(seed, &roles, &faults)
    })
}

/// Fetches until long after the faults are over, so that what was left behind may show. Requests come in over the other
/// rail: what the home's NIC does to those of others holds nothing up.
fn outlast(seed: u64, roles: &Roles, faults: &[String]) -> Wrongs {
    let cluster = Cluster::start(&exact(seed, 2));
    inject(&cluster, &[format!("500us:{}.0:down", roles.from[0])]);
    inject(&cluster, faults);
    let sharers = share_all(&cluster, roles, |from| Share { adds: 600, exact: true, ..adds(roles.to, from) });
    cluster.sim.run_for(800_000_000);
    verdict(&cluster, &sharers)
}
