//! Many channels that lose their path at once (scenario 21, H7).

use super::Scenario;
use super::kit::{Wrongs, both_ways, clean, failovers_of, judged, spec, wrong_if};
use crate::scale::{Hit, ScaleSpec, quantile, run};
use crate::workload::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_thousand_channels_fenced_at_once", seeds: 1, run: thousand_channels },
    Scenario { name: "fences_that_wait_for_their_turn", seeds: 2, run: wait_for_their_turn },
    Scenario { name: "large_messages_on_a_slow_rail", seeds: 2, run: large_on_a_slow_rail },
];

/// NICs that take so long over all their fences that whoever waits for the last of them has waited twice as long as for
/// a silent agent. The one whose port is down has those of two peers to fence, and each of them waits for it for longer
/// than for a silent peer. All answer, and each fence gives its truth.
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
                    "{share} of the channels are open after {took} ns, {bound} are right: {commands} commands"
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
