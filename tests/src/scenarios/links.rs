//! What agents say over the rails, and what they suspect. Rule 20, H16; invariant 7; scenario 22.

use shunt_device::Solo;
use shunt_layout::state::SwitchKind;

use super::kit::{
    Wrongs, both_ways, brisk, clean, failovers_of, gap_below, judged, spec, ways_back, wrong_if,
};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::outcome::Outcome;
use crate::spec::RunSpec;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_port_fails_behind_a_cut_link", seeds: 6, run: behind_a_cut_link },
    Scenario { name: "old_news_of_a_port", seeds: 2, run: old_news },
    Scenario { name: "copies_of_old_news_behind_a_cut_link", seeds: 2, run: copies_of_old_news },
    Scenario { name: "old_news_of_a_port_and_another_agent", seeds: 2, run: old_news_restarted },
    Scenario { name: "messages_doubled_late_and_overtaken", seeds: 8, run: doubled_late_overtaken },
    Scenario { name: "a_process_that_was_stopped", seeds: 8, run: process_stopped },
    Scenario { name: "a_suspect_rail_is_better_than_none", seeds: 2, run: suspect_is_better_than_none },
    Scenario { name: "a_dead_rail_is_left_by_all_in_one_suspect_time", seeds: 2, run: left_by_all },
];

/// The agents' own link is cut, one way or both: they fence over the rails, as exactly, and nobody waits for a packet
/// lifetime.
fn behind_a_cut_link(seed: u64) -> Wrongs {
    let cut = ["oob-cut", "oob-cut-tx", "oob-cut-rx"][seed as usize % 3];
    let fault = ["0.0:down", "1.0:down"][seed as usize / 3];
    let spec = both_ways(seed, &[&format!("1ms:0:{cut}"), &format!("3ms:{fault}")]);
    clean(&spec, |outcome| {
        let slow = |record: &&shunt_layout::state::SwitchRecord| {
            record.ledger != 0 || record.stamps[2] - record.stamps[1] > 20_000_000
        };
        let guessed = outcome.of_kind(SwitchKind::Failover).filter(slow).count();
        let mut wrongs = failovers_of(outcome, 2);
        wrongs.extend(wrong_if(guessed > 0, || format!("{guessed} fences without the peer's agent")));
        wrongs
    })
}

/// Both directions are back on the primary.
fn both_back(outcome: &Outcome) -> Wrongs {
    let back = |pe: u32| {
        let mut ways = outcome.records.iter().filter(|(of, _)| *of == pe);
        ways.any(|(_, record)| record.kind == SwitchKind::SwitchBack as u32)
    };
    let stayed: Vec<_> = (0..2).filter(|pe| !back(*pe)).collect();
    let count = ways_back(outcome).count();
    wrong_if(!stayed.is_empty(), || format!("PE {stayed:?} stayed on the backup; {count} ways back"))
}

/// A port goes and comes back; one copy of the news that it went arrives after the news that it came.
fn news(seed: u64, also: &str, place: &str) -> RunSpec {
    let delay = format!("2900us:{place}:delay={}us/900us", 5_000 + 300 * seed);
    let faults = [also, &delay, "3ms:0.0:down", "4ms:0.0:up"];
    let faults: Vec<&str> = faults.into_iter().filter(|fault| !fault.is_empty()).collect();
    let mut spec = brisk(both_ways(seed, &faults));
    spec.traffic.messages = 1_000;
    spec
}

/// The copy goes over a rail that is slow for a moment; all else goes over the agents' own link.
fn old_news(seed: u64) -> Wrongs {
    clean(&news(seed, "", "0.1"), both_back)
}

/// What agents say arrives twice, late, or behind what was said later, all the time: a port goes and comes back twice,
/// each direction leaves as often, and goes back.
fn doubled_late_overtaken(seed: u64) -> Wrongs {
    let how =
        ["oob-dup=1", "oob-dup=2", "oob-reorder=2", "oob-reorder=3", "oob-delay=300us", "oob-delay=2ms"];
    let (how, other) = (how[seed as usize % how.len()], how[(seed as usize + 2) % how.len()]);
    let mut faults = vec![format!("100us:{}:{how}", seed % 2)];
    if seed >= 6 {
        faults.push(format!("100us:{}:{other}", 1 - seed % 2));
    }
    faults.extend(["3ms:0.0:down", "5ms:0.0:up", "25ms:0.0:down", "27ms:0.0:up"].map(str::to_owned));
    let faults: Vec<&str> = faults.iter().map(String::as_str).collect();
    let mut spec = brisk(both_ways(seed, &faults));
    spec.traffic = Traffic { messages: 1_200, pace_ns: 40_000, ..spec.traffic };
    clean(&spec, |outcome| {
        let (left, back) = (outcome.failovers(), ways_back(outcome).count());
        wrong_if((left, back) != (4, 4), || {
            format!("{left} failovers, {back} ways back, expected 4\n{outcome}")
        })
    })
}

/// A process is stopped for up to half a second, and goes on: its clock says that all its deadlines have passed. Alone
/// that is nobody's silence and moves no channel; with a port that fails meanwhile each direction leaves it, and
/// nothing is lost.
fn process_stopped(seed: u64) -> Wrongs {
    let (who, span_ms) = (seed % 2, [3, 30, 200, 500][seed as usize / 2 % 4]);
    let stop = format!("2ms:{who}:peer-stopped={span_ms}ms");
    let wait = |spec: &mut RunSpec| {
        spec.traffic = Traffic { messages: 400, slots: 12, pace_ns: 40_000, ..spec.traffic.clone() };
    };
    let mut alone = both_ways(seed, &[&stop]);
    wait(&mut alone);
    let mut with_port =
        both_ways(seed, &[&stop, &format!("{}us:{}.0:down", 2_000 + 500 * span_ms, seed / 2 % 2)]);
    wait(&mut with_port);
    let quiet = clean(&alone, |outcome| {
        let left = outcome.records.len();
        wrong_if(left > 0, || format!("{left} switches, and nothing was wrong\n{outcome}"))
    });
    [quiet, clean(&with_port, |outcome| failovers_of(outcome, 2))].concat()
}

/// The same, and between the news and its late copy another agent takes over: it knows no less of what was said.
fn old_news_restarted(seed: u64) -> Wrongs {
    let mut spec = news(seed, "", "0.1");
    spec.faults.push("5ms:1:agent-restart".parse().expect("a fault"));
    clean(&spec, |outcome| {
        let believed = outcome.failovers() > 2;
        [both_back(outcome), wrong_if(believed, || format!("an old message was believed\n{outcome}"))]
            .concat()
    })
}

/// The link is cut: copies of one datagram go over two rails of the peer, one of them slow.
fn copies_of_old_news(seed: u64) -> Wrongs {
    clean(&news(seed, "1ms:0:oob-cut", "1.1"), both_back)
}

/// A rail is suspected while it carries nothing. It carries again, and nobody has asked it since; the other one dies.
fn suspect_is_better_than_none(seed: u64) -> Wrongs {
    let again = 27_700 + 900 * seed;
    let faults = [format!("5ms:1.0:blackhole-rx={again}us"), format!("{}us:1.1:down", 5_000 + again + 500)];
    let mut spec = both_ways(seed, &faults.each_ref().map(String::as_str));
    spec.channels = 2;
    spec.traffic = Traffic { messages: 450, pace_ns: 100_000, ..spec.traffic };
    clean(&spec, |outcome| gap_below(outcome, 14_000_000))
}

/// Eight channels on the rail that dies in silence, none of which has anything outstanding when another does: the
/// first waits its suspect time, the others hardly longer than it.
fn left_by_all(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = spec(seed, &["40ms:0.0:blackhole-tx"]);
        spec.channels = 16;
        spec.traffic = Traffic { messages: 10, pace_ns: 9_000_000, puts: 1, ..spec.traffic };
        let (cluster, reports) = staggered(&spec);
        let left: Vec<u64> = cluster
            .records()
            .iter()
            .filter(|(pe, record)| *pe == 0 && record.kind == SwitchKind::Failover as u32 && record.from == 0)
            .map(|(_, record)| record.stamps[0] - cluster.began_ns() - 40_000_000)
            .collect();
        let last = left.iter().copied().max().unwrap_or(0);
        let bound = spec.suspect_ns * 3 / 2;
        let mut wrongs = wrong_if(left.len() < 8, || format!("{} channels left the rail", left.len()));
        wrongs.extend(wrong_if(last > bound, || format!("the last channel left after {last} ns")));
        wrongs.extend(wrong_if(cluster.oracle.total() > 0, || cluster.oracle.describe()));
        wrongs.extend(reports.into_iter().filter_map(|fault| Some(format!("{:?}", fault?))));
        wrongs
    })
}

/// Runs senders that begin one after another, so that no two channels have something outstanding at one time.
fn staggered(spec: &RunSpec) -> (Cluster, Vec<Option<shunt_device::Fault>>) {
    let cluster = Cluster::start(spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let mut tasks = Vec::new();
    for stream in cluster.streams().iter().copied() {
        let (traffic, receiving) = (spec.traffic.clone(), spec.traffic.clone());
        let after_ns = u64::from(stream.id) * traffic.pace_ns / cluster.streams().len() as u64;
        tasks.push(cluster.spawn(&format!("send{}", stream.id), stream.from, move |kernel| {
            kernel.world.sleep(after_ns);
            kernel.send(Solo, stream, &traffic)
        }));
        tasks.push(cluster.spawn(&format!("receive{}", stream.id), stream.to, move |kernel| {
            kernel.receive(Solo, stream, &receiving)
        }));
    }
    let reports = cluster.sim.finish_all(&tasks);
    let faults = reports.into_iter().map(|report| report.fault).collect();
    (cluster, faults)
}
