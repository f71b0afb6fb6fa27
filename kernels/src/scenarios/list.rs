//! The list. A fault-free launch of every kernel, in every group of threads it is made for, and what must be refused.

use super::launch::{Group, HEAP_BYTES, Launch, PES, Scenario};
use crate::{Call, KERNELS};
use shunt_device::FaultKind;

/// Patience of every wait that must not run out.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Bytes of one key in the machines that run the list: messages that cross it are sent in pieces.
const CHUNK: u64 = 4096;

const GROUPS: [Group; 3] = [Group::Thread, Group::Warp, Group::Block];
/// Lengths and offsets that touch no edge, one, or several.
const SPANS: [(u64, u64, u64); 7] = [
    (1, 3, 5),
    (8, 64, 128),
    (100, 7, 1),
    (CHUNK, 0, 0),
    (CHUNK + 1, CHUNK - 1, 17),
    (3 * CHUNK + 5, 9, CHUNK - 4),
    (0, 0, 0),
];

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    let attach = vec![vec![launch("attach", Group::Thread, call())]];
    let mut out = vec![scenario("attach", Group::Thread, attach)];
    for group in GROUPS {
        out.extend(messages(group));
        out.extend(collectives(group));
        out.extend(words(group));
    }
    out.extend(atomics());
    out.extend(refusals());
    // Only what there is an entry point for.
    let has_entry = |launch: &Launch| {
        KERNELS
            .iter()
            .any(|(name, entries)| *name == launch.kernel && entries.contains(&launch.entry().as_str()))
    };
    out.retain(|scenario| scenario.steps.iter().flatten().all(has_entry));
    out
}

/// The first scenario of each entry point, for lookers-on under whom kernels take long.
pub fn each() -> Vec<Scenario> {
    let mut seen = Vec::new();
    let mut out = all();
    out.retain(|scenario| {
        let entries: Vec<String> = scenario.steps.iter().flatten().map(Launch::entry).collect();
        let new: Vec<String> = entries.into_iter().filter(|entry| !seen.contains(entry)).collect();
        let keep = !new.is_empty();
        seen.extend(new);
        keep
    });
    out
}

fn call() -> Call {
    Call { peer: 1, timeout_ns: PATIENCE_NS, ..Call::default() }
}

fn launch(kernel: &'static str, group: Group, call: Call) -> Launch {
    Launch { kernel, pe: 0, blocks: 1, group, call }
}

/// A launch, and a quiet on its channel.
fn quieted(kernel: &'static str, group: Group, call: Call) -> Vec<Vec<Launch>> {
    // A single thread's kernels are waited for by a thread.
    vec![vec![launch(kernel, group, call)], vec![launch("quiet", group, call)]]
}

fn scenario(name: impl Into<String>, group: Group, steps: Vec<Vec<Launch>>) -> Scenario {
    Scenario { name: format!("{} by a {}", name.into(), group.suffix()), steps, status: 0 }
}

/// Puts and gets of all lengths.
fn messages(group: Group) -> Vec<Scenario> {
    let mut out = Vec::new();
    for (bytes, from, to) in SPANS {
        let call = Call { src: 4 * CHUNK + from, dst: 12 * CHUNK + to, bytes, ..call() };
        let name = |what: &str| format!("{what} of {bytes} bytes from +{from} to +{to}");
        out.push(scenario(name("put"), group, quieted("put", group, call)));
        out.push(scenario(name("get"), group, vec![vec![launch("get", group, call)]]));
        let both = Call { channel: 2, word: 64, value: 7, ..call };
        let wait = Launch { pe: 1, ..launch("wait_until", group, both) };
        let sent = launch("put_signal", group, both);
        let steps = vec![vec![sent, wait], vec![launch("quiet", group, both)]];
        out.push(scenario(name("put with signal, waited for,"), group, steps));
    }
    out
}

/// What runs in several blocks, or on all PEs.
fn collectives(group: Group) -> Vec<Scenario> {
    let call = Call {
        src: 4 * CHUNK,
        dst: 12 * CHUNK,
        bytes: 1000,
        stride: 1024,
        word: 128,
        value: 5,
        rounds: 40,
        window: 8,
        ..call()
    };
    let mut out = Vec::new();
    for kernel in ["put_bw", "put_latency", "drill"] {
        let blocks = Launch { blocks: 3, ..launch(kernel, group, call) };
        out.push(scenario(format!("{kernel} in three blocks"), group, vec![vec![blocks]]));
        let all = Call { window: 0, rounds: 10, ..call };
        out.push(scenario(
            format!("{kernel} with all in flight"),
            group,
            vec![vec![launch(kernel, group, all)]],
        ));
    }
    let part = |pe: u32, value: u64| {
        let call = Call { channel: 3, bytes: 4000, stride: 4000, word: 256, value, ..call };
        Launch { pe, blocks: PES, ..launch("all_to_all", group, call) }
    };
    let steps = [1, 2, 9].map(|value| (0..PES).map(|pe| part(pe, value)).collect());
    out.push(scenario("all_to_all, three times", group, steps.to_vec()));
    out
}

/// Values and signals of each kind.
fn words(group: Group) -> Vec<Scenario> {
    let mut out = Vec::new();
    for bytes in 1..=8 {
        let call = Call { dst: 12 * CHUNK + 3 * bytes, value: 0x8877_6655_4433_2211, bytes, ..call() };
        out.push(scenario(format!("p of {bytes} bytes"), group, quieted("p", group, call)));
    }
    for kernel in ["signal_monotone", "signal_cleared", "signal_cleared32", "signal_add"] {
        // The second of two words where they are half as long.
        let word = if kernel.ends_with("32") { 324 } else { 320 };
        let call = Call { channel: 1, word, value: 0x1_0000_0001, ..call() };
        let again = Call { value: 0x2_0000_0003, ..call };
        let mut steps = quieted(kernel, group, call);
        steps.extend(quieted(kernel, group, again));
        out.push(scenario(kernel, group, steps));
    }
    out
}

/// Each atomic twice on the same random word, with and without an answer; one that finds what it expects, one that does
/// not.
fn atomics() -> Vec<Scenario> {
    let mut out = Vec::new();
    for (kernel, entries) in
        KERNELS.iter().filter(|(name, _)| name.starts_with("amo_") || name.starts_with("fetch_"))
    {
        for group in
            GROUPS.into_iter().filter(|group| entries.iter().any(|entry| entry.ends_with(group.suffix())))
        {
            let word = if kernel.ends_with("32") { 12 * CHUNK + 4 } else { 12 * CHUNK + 8 };
            let first = Call { channel: 1, word, value: 0xdead_beef_8000_0001, result: 4 * CHUNK, ..call() };
            let second =
                Call { value: 0x0123_4567_7fff_ffff, expect: first.value, result: 4 * CHUNK + 8, ..first };
            let set = if kernel.ends_with("32") { "amo_set32" } else { "amo_set64" };
            let mut steps = quieted(kernel, group, first);
            // A known word, which a compare-and-swap then finds.
            steps.extend(quieted(set, Group::Thread, first));
            steps.extend(quieted(kernel, group, second));
            out.push(scenario(*kernel, group, steps));
        }
    }
    out
}

/// What must change nothing, and say so.
fn refusals() -> Vec<Scenario> {
    let outside = HEAP_BYTES as u64 * 1024;
    let mut out = Vec::new();
    let mut refuse = |name: &str, kind: FaultKind, launch: Launch| {
        let steps = vec![vec![launch]];
        out.push(Scenario { status: kind as u32, ..scenario(name, launch.group, steps) });
    };
    for group in GROUPS {
        let beyond = Call { dst: outside, src: 0, bytes: 8, ..call() };
        refuse("put beyond the heap", FaultKind::BadAddress, launch("put", group, beyond));
        refuse("get into what is no heap", FaultKind::BadAddress, launch("get", group, beyond));
        let wraps = Call { dst: 8, src: 0, bytes: u64::MAX - 4, ..call() };
        refuse("put whose end wraps", FaultKind::BadAddress, launch("put", group, wraps));
        let odd = Call { word: 12, value: 1, ..call() };
        refuse("signal on an odd word", FaultKind::BadAddress, launch("signal_monotone", group, odd));
        refuse("wait on an odd word", FaultKind::BadAddress, launch("wait_until", group, odd));
        let never = Call { word: 64, value: 1, timeout_ns: 200_000, ..call() };
        refuse("wait for what never comes", FaultKind::Overdue, launch("wait_until", group, never));
        let nine = Call { dst: 8 * CHUNK, value: 1, bytes: 9, ..call() };
        refuse("p of nine bytes", FaultKind::BadAddress, launch("p", group, nine));
    }
    let misplaced = Call { word: 12 * CHUNK + 2, value: 1, ..call() };
    refuse("atomic on an odd word", FaultKind::BadAddress, launch("amo_add32", Group::Thread, misplaced));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_in_a_scenario_by_every_entry_point() {
        let mut entries: Vec<&str> = KERNELS.iter().flat_map(|(_, entries)| *entries).copied().collect();
        for launch in all().iter().flat_map(|scenario| scenario.steps.iter().flatten()) {
            entries.retain(|entry| *entry != launch.entry());
        }
        assert_eq!(entries, Vec::<&str>::new());
    }

    #[test]
    fn the_first_of_each_leaves_no_entry_point_out() {
        let (each, all) = (each(), all());
        let entries = |list: &[Scenario]| -> std::collections::BTreeSet<String> {
            list.iter().flat_map(|scenario| scenario.steps.iter().flatten()).map(Launch::entry).collect()
        };
        assert_eq!(entries(&each), entries(&all));
        assert!(each.len() <= entries(&all).len() && each.len() < all.len());
    }

    #[test]
    fn names_are_their_own() {
        let mut names: Vec<String> = all().into_iter().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
