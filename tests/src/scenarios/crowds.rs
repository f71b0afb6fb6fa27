//! Many channels that lose their path at once (scenario 21, H7).

use super::kit::{
    Wrongs, both_ways, brisk, clean, failovers_of, faults_of_kernels, gap_below, held, idle_faults, judged,
    promises, spec, steered, wrong_if,
};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::lies::Lie;
use crate::run::{Streams, finish, start_streams};
use crate::scale::{Hit, ScaleSpec, quantile, run};
use crate::spec::RunSpec;
use crate::traffic::Traffic;
use shunt_device::{Deadline, FaultKind, HeapOffset, Put, Solo};
use shunt_host::events::{Event, Told};
use shunt_layout::state::{CauseKind, SwitchKind};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_thousand_channels_fenced_at_once", seeds: 1, run: thousand_channels },
    Scenario { name: "fences_that_wait_for_their_turn", seeds: 2, run: wait_for_their_turn },
    Scenario { name: "a_port_with_more_pairs_than_a_lifetime", seeds: 1, run: more_than_a_lifetime },
    Scenario { name: "counted_with_packets_on_their_way", seeds: 6, run: counted_on_their_way },
    Scenario { name: "counted_and_moved_to_err_later", seeds: 6, run: counted_for_good },
    Scenario { name: "large_messages_on_a_slow_rail", seeds: 2, run: large_on_a_slow_rail },
    Scenario { name: "a_large_message_on_a_dead_path", seeds: 2, run: large_on_a_dead_path },
    Scenario { name: "a_large_message_on_a_suspect_rail", seeds: 2, run: large_on_a_suspect_rail },
    Scenario { name: "a_large_message_while_it_is_drained", seeds: 2, run: large_while_drained },
    Scenario { name: "said_in_hand_and_no_more", seeds: 2, run: said_in_hand_and_no_more },
];

/// NICs that take so long over all their fences that a caller that waits for the last of them has waited twice as long
/// as for a silent agent. The one whose port is down has those of two peers to fence, and each of them waits for it for
/// longer than for a silent peer. All answer, and each fence gives its truth.
fn wait_for_their_turn(seed: u64) -> Wrongs {
    let mut spec = both_ways(seed, &["1ms:1.0:down"]);
    (spec.pes, spec.channels, spec.firmware_ns) = (3, 10, 600_000);
    (spec.fence_wait_ns, spec.agent.peer_ns, spec.agent.lifetime_ns) = (4_000_000, 2_000_000, 500_000);
    (spec.agent.resend_ns, spec.agent.doubt_ns) = (300_000, 200_000);
    spec.traffic = Traffic { messages: 40, slots: 4, pace_ns: 300_000, ..spec.traffic };
    spec.step_limit = 8_000_000;
    clean(&spec, |outcome| {
        let guessed = outcome.records.iter().filter(|(_, record)| record.ledger == 1).count();
        let mut wrongs = failovers_of(outcome, 20);
        wrongs.extend(wrong_if(guessed > 0, || format!("{guessed} cuts came from the ledger\n{outcome}")));
        wrongs
    })
}

/// A port goes down that carries so many pairs that a packet lifetime passes before the half of them are fenced. From
/// then on a query is all that a half needs: the last is counted in less than two thirds of the time that three
/// commands each would take. Each is moved to ERR all the same, before it is recreated.
fn more_than_a_lifetime(seed: u64) -> Wrongs {
    judged(|| {
        let spec = ScaleSpec { peers: 16, seed: seed + 1, ..ScaleSpec::mass(300_000) };
        let outcome = run(&ScaleSpec { time_limit_ns: 10_000_000_000, ..spec });
        let pairs = u64::from(spec.peers * spec.channels / 2);
        let opened = outcome.opened_ns.len().min(outcome.far_opened_ns.len()) as u64;
        let last_ns = quantile(&outcome.opened_ns, 1.0).max(quantile(&outcome.far_opened_ns, 1.0));
        let mut wrongs = wrong_if(opened < pairs, || format!("{opened} of {pairs} channels were switched"));
        wrongs.extend(wrong_if(outcome.without_truth > 0, || "a fence ended without a truth".into()));
        wrongs.extend(wrong_if(last_ns > pairs * 2 * spec.firmware_ns, || {
            format!("the last took {last_ns} ns")
        }));
        wrongs.extend(wrong_if(outcome.stopped < pairs, || {
            format!("{} of {pairs} halves were moved to ERR", outcome.stopped)
        }));
        wrongs
    })
}

/// A port that is down for a few milliseconds, firmware that is silent until after the other halves are fenced, and
/// packets that reach the port after it has come back: none of them may be executed behind a count.
fn counted_on_their_way(seed: u64) -> Wrongs {
    let late = ["4ms", "4200us", "4500us"][seed as usize % 3];
    let delay = format!("500us:0.0:delay={late}/2ms");
    let mut spec = both_ways(seed, &[&delay, "1900us:1.0:fw-timeout=1600us", "2ms:1.0:down=2500us"]);
    (spec.channels, spec.firmware_ns, spec.agent.lifetime_ns) = (24, 50_000, 10_000_000);
    spec.traffic = Traffic { messages: 400, slots: 300, pace_ns: 20_000, signals: 2, ..spec.traffic };
    spec.step_limit = 20_000_000;
    clean(&spec, |outcome| failovers_of(outcome, 6))
}

/// The same with a lifetime so short that halves are counted, each once the other end has been in ERR for that long.
/// The port comes back while they are being counted, before they are all moved to ERR, or later. Each of them shows ERR
/// before its path is made again, with its number given to another.
fn counted_for_good(seed: u64) -> Wrongs {
    judged(|| {
        let down = ["3ms", "3300us", "6ms"][seed as usize % 3];
        let down = format!("2ms:1.0:down={down}");
        let mut spec = brisk(both_ways(seed, &["1900us:1.0:fw-timeout=3ms", &down]));
        (spec.channels, spec.firmware_ns) = (24, 50_000);
        let signals = 1 + (seed / 3) as u32;
        spec.traffic = Traffic { messages: 600, slots: 300, pace_ns: 20_000, signals, ..spec.traffic };
        spec.step_limit = 20_000_000;
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        let is_count =
            |told: &Told| matches!(told.event, Event::HalfFenced { truth: "exact", error_ns: 0, .. });
        let counted = cluster.events(1).iter().filter(|told| is_count(told)).count();
        let failed = |told: &Told| matches!(told.event, Event::FenceFailed { .. });
        let mut wrongs = [promises(&outcome), faults_of_kernels(&outcome), idle_faults(&outcome)].concat();
        wrongs.extend(wrong_if(counted < 6, || {
            format!("{counted} halves were counted, at least 6 are wanted")
        }));
        wrongs
            .extend(wrong_if(cluster.events(1).iter().any(failed), || "a half was not moved to ERR".into()));
        wrongs
    })
}

/// One message takes three times as long as a path may be silent, and nothing is wrong with the path.
fn large_on_a_slow_rail(seed: u64) -> Wrongs {
    let mut spec = spec(seed, &[]);
    (spec.rail_gbps, spec.suspect_floor_ns) = (1, if seed == 0 { 1_000_000 } else { spec.suspect_ns });
    spec.traffic =
        Traffic { messages: 6, slots: 2, slot_bytes: 4 << 20, puts: 1, pace_ns: 0, ..spec.traffic };
    clean(&spec, |outcome| {
        wrong_if(!outcome.records.is_empty(), || format!("a healthy path was left\n{outcome}"))
    })
}

/// Messages that take seven times as long as a path may be silent, at the rate that is assumed of a rail; they come ten
/// times as fast.
fn large(seed: u64, faults: &[&str]) -> RunSpec {
    let mut spec = spec(seed, faults);
    spec.rail_gbps = 10;
    spec.traffic =
        Traffic { messages: 8, slots: 2, slot_bytes: 8 << 20, puts: 1, pace_ns: 0, ..spec.traffic };
    spec
}

/// Bytes excuse a path that carries nothing as long as they might take, and no longer.
fn large_on_a_dead_path(seed: u64) -> Wrongs {
    let spec = large(seed, &["10ms:0.0:blackhole-tx"]);
    let excused_ns = spec.traffic.slot_bytes / 128 * 1_024;
    clean(&spec, |outcome| {
        let mut wrongs = failovers_of(outcome, 1);
        wrongs.extend(gap_below(outcome, excused_ns + 4 * spec.suspect_ns));
        wrongs
    })
}

/// Others find a rail to carry nothing: who waits for a large message leaves it as soon as anybody.
fn large_on_a_suspect_rail(seed: u64) -> Wrongs {
    let mut spec = large(seed, &["10ms:0.0:blackhole-tx"]);
    (spec.channels, spec.stream_channels) = (4, 1);
    let small = |cluster: &Cluster, _: &Streams| {
        // Channel 2 has the same primary as the stream on channel 0.
        cluster.spawn("small", 0, |kernel| {
            let channel = kernel.device().channel(1, 2);
            for _ in 0..1_000 {
                let done = channel
                    .put_nbi(Solo, SMALL)
                    .and_then(|_| channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000_000)));
                if done.is_err() {
                    return;
                }
                kernel.world.sleep(100_000);
            }
        });
    };
    steered(&spec, Lie::None, small, |outcome| {
        let mut wrongs = failovers_of(outcome, 2);
        wrongs.extend(gap_below(outcome, 4 * spec.suspect_ns));
        wrongs
    })
}

/// A word that nobody looks at, behind what the library keeps there of nothing.
const SMALL: Put = Put { dst: HeapOffset(0), src: HeapOffset(0), bytes: 8 };

/// A message takes longer than a drain may stand still, and nothing is wrong with the backup: the way back is one.
fn large_while_drained(seed: u64) -> Wrongs {
    let mut spec = brisk(spec(seed, &["1ms:0.0:down=5ms"]));
    spec.rail_gbps = 1;
    spec.traffic =
        Traffic { messages: 8, slots: 2, slot_bytes: 4 << 20, puts: 1, pace_ns: 0, ..spec.traffic };
    clean(&spec, |outcome| {
        let of_sender = || outcome.records.iter().filter(|(pe, _)| *pe == 0).map(|(_, record)| record);
        let failed = of_sender().filter(|record| record.cause == CauseKind::DrainFailed as u32).count();
        let back = of_sender().filter(|record| record.kind == SwitchKind::SwitchBack as u32).count();
        wrong_if(failed > 0 || back == 0, || {
            format!("{back} ways back, {failed} of them taken for a failure\n{outcome}")
        })
    })
}

/// A fence is in hand for longer than it is waited for, as its agent says until it dies: from then on it is a wait like
/// any other.
fn said_in_hand_and_no_more(seed: u64) -> Wrongs {
    const DIES_NS: u64 = 8_000_000;
    let mut spec = spec(seed, &["0ns:0.0:fw-timeout=10s", "1ms:0.0:down", "8ms:0:agent-killed"]);
    (spec.fence_wait_ns, spec.command_timeout_ns) = (20_000_000, 60_000_000_000);
    (spec.agent.lifetime_ns, spec.agent.resend_ns) = (1_000_000, 300_000);
    // It waits for room, which ends with its channel, and not for credit, which is asked for now and then.
    spec.traffic.slots = spec.traffic.messages;
    held(&spec, Lie::None, |outcome| {
        let sender = &outcome.senders[0];
        let unproven = sender.fault.is_some_and(|fault| fault.kind == FaultKind::FenceUnproven);
        let waited_ns = sender.ended_ns.saturating_sub(outcome.began_ns + DIES_NS);
        let bound_ns = spec.fence_wait_ns * 5 / 4;
        wrong_if(!unproven || waited_ns > bound_ns, || {
            format!("{:?} {waited_ns} ns after the last word, expected {bound_ns}\n{outcome}", sender.fault)
        })
    })
}

/// Channels of one NIC, and how many of them begin to send only while the others are being fenced.
const CHANNELS: u32 = 1_000;
const LATE: u32 = 400;
/// A firmware command. The late ones come somewhat faster than three of them, so that the queue stays full.
const FIRMWARE_NS: u64 = 20_000;
const PACE_NS: u64 = 50_000;
/// What a host takes until it has seen a command's answer; what a channel takes beyond its commands: polls, messages.
const HOST_NS: u64 = 10_000;
const SLACK_NS: u64 = 8_000_000;
/// Who asked no more than this later asked at the same time.
const AT_ONCE_NS: u64 = 200_000;
/// Four fences share a flush, and the answers of their peers come in any order.
const OVERTAKEN_MAX: usize = 8;

/// Firmware does three commands for each channel, one after the other; nobody can be faster than that, and nobody may
/// be slower: 99 of 100 are open after as many commands as 99 of 100 channels take, the last one after all of them, and
/// none waits for somebody who asked after it.
fn thousand_channels(seed: u64) -> Wrongs {
    judged(|| {
        let hit = Hit::Port;
        let spec = ScaleSpec {
            late: LATE,
            pace_ns: PACE_NS,
            backups: 1,
            ..ScaleSpec::new(CHANNELS, FIRMWARE_NS, hit)
        };
        let outcome = run(&ScaleSpec { seed: seed + 1, time_limit_ns: 10_000_000_000, ..spec });
        let (opened, commands) = (outcome.opened_ns.len(), outcome.own.all());
        let mut wrongs = wrong_if(opened != CHANNELS as usize, || format!("{opened} channels were switched"));
        wrongs.extend(wrong_if(outcome.without_truth > 0, || "a fence ended without a truth".into()));
        for share in [0.99, 1.0] {
            let took = quantile(&outcome.opened_ns, share);
            let bound = (commands as f64 * share) as u64 * (FIRMWARE_NS + HOST_NS) + SLACK_NS;
            wrongs.extend(wrong_if(took > bound, || {
                format!(
                    "{share} of the channels are open after {took} ns, expected {bound}: {commands} commands"
                )
            }));
        }
        let (overtaken, which) = outcome.most_overtaken(AT_ONCE_NS);
        wrongs.extend(wrong_if(overtaken > OVERTAKEN_MAX, || {
            format!("{overtaken} fences were answered before {which:?}, which had been asked for before them")
        }));
        wrongs
    })
}
