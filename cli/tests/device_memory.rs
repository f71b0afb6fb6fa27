//! A heap in a device's memory, which host code does not touch: memory that stands for a GPU's,
//! `SHUNT_HEAP=simulated`. What touches it otherwise than by the copy interface ends by SIGSEGV, and its job with it.

use crate::device_functions;
use crate::nvshmem::{run, text, two_calm_pes};

const SIMULATED: (&str, &str) = ("SHUNT_HEAP", "simulated");

/// The lines of the C suite, and how often channels left a path.
fn suite(pes: u32, environment: &[(&str, &str)], flags: &[&str]) -> (String, u64) {
    let output = run(pes, environment, &[&["suite"], flags].concat());
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{environment:?} {flags:?}\n{out}{said}");
    assert!(!said.contains("are left"), "{said}");
    let counts = said
        .lines()
        .filter_map(|line| line.split(" failovers").next()?.split(": ").last()?.parse::<u64>().ok());
    (out, counts.sum())
}

/// Puts, gets, atomics, signals, waits, collective calls, calls on streams.
#[test]
fn host_calls_give_the_same_while_ports_go_down() {
    let (lines, failovers) = suite(2, &[SIMULATED], &["--fault"]);
    // Nobody maps a device's memory of another PE here, so that each is alone in NVSHMEM_TEAM_SHARED.
    let alone = suite(2, &[("NVSHMEM_DISABLE_P2P", "1")], &["teams"]).0;
    let in_host_memory = two_calm_pes().0.lines();
    let in_host_memory =
        in_host_memory.map(|line| if line.starts_with("teams ") { alone.trim_end() } else { line });
    assert_eq!(lines.lines().collect::<Vec<_>>(), in_host_memory.collect::<Vec<_>>());
    assert!(failovers > 0, "no channel left its path");
}

/// Keys of a few pages each, made as the program allocates: at a port that is down as well.
#[test]
fn keys_are_made_as_the_heap_is_allocated() {
    let few = ("NVSHMEM_CUMEM_GRANULARITY", "64K");
    for (environment, family) in [(&[few][..], "rma"), (&[few, SIMULATED], "rma"), (&[few, SIMULATED], "amo")]
    {
        let (line, failovers) = suite(2, environment, &["--fault", family]);
        assert!(two_calm_pes().0.lines().any(|other| other == line.trim_end()), "{environment:?}: {line}");
        assert!(failovers > 0, "{environment:?}, {family}: no channel left its path");
    }
}

/// A word of the PE's own is then changed by one of its NICs, since the processor does not reach it.
#[test]
fn atomics_go_by_nics_where_no_agent_executes_them() {
    let (in_host_memory, _) = suite(2, &[], &["amo"]);
    for other in [("SHUNT_FETCH", "nic"), ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0")] {
        assert_eq!(suite(2, &[SIMULATED, other], &["amo"]).0, in_host_memory, "{other:?}");
    }
    assert_eq!(suite(1, &[SIMULATED, ("SHUNT_FETCH", "nic")], &["amo"]).0, suite(1, &[], &["amo"]).0);
}

/// Kernels are the device: they touch its memory, and the tables that the host keeps for them beside it.
#[test]
fn kernels_find_their_tables_beside_a_devices_memory() {
    for family in device_functions::FAMILIES {
        // The answer of a kernel's atomic may be lost with its port, which ends a job as uncertain, wherever the heap
        // lies.
        let fails = family != "amo";
        let environment = [SIMULATED, ("PROGRAM_FAULTS", "down")];
        let failovers = device_functions::right(2, &environment[..1 + usize::from(fails)], family);
        assert_eq!(failovers > 0, fails, "{family}: {failovers} failovers");
    }
}

#[test]
fn a_heap_that_cannot_lie_where_it_was_asked_for_is_refused() {
    for (asked, said) in [
        ("device", "SHUNT_HEAP: expected auto, host, gpu, simulated, got \"device\""),
        ("gpu", "SHUNT_HEAP: expected auto or host for a program whose kernels run on no GPU, got gpu"),
    ] {
        let output = run(1, &[("SHUNT_HEAP", asked)], &["suite", "heap"]);
        assert_eq!(output.status.code(), Some(2), "{asked}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(said), "{asked}: {}", text(&output.stderr));
    }
}

/// Offsets would not mean the same.
#[test]
fn pes_with_heaps_in_different_memories_are_named() {
    let program = "if [ $SHUNT_RANK = 1 ]; then export SHUNT_HEAP=simulated; fi; exec ./order";
    let output = device_functions::run(2, &[], program);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let want = "PE 1 was started with SHUNT_HEAP simulated, PE 0 with SHUNT_HEAP host; all PEs must agree";
    assert!(said.contains(want), "{said}");
}
