//! The command line: every bad value is refused with what was met and what would be right, and nothing is
//! ignored.

use shunt_bench::options::{Mode, NicKind, OnOff, Options, Uncertain};
use shunt_bench::plan::default_plan;
use shunt_bench::usage::Usage;
use shunt_host::config::FenceMode;

fn parse(line: &str) -> Result<Options, Usage> {
    Options::from_parts(std::iter::once("shmem_put_bw").chain(line.split_whitespace()), &|_| None)
}

/// Arguments, and what the message must contain.
const BAD: &[(&str, &[&str])] = &[
    ("-b 4", &["-b: expected at least 8", "got 4"]),
    ("-b 8 -c 2", &["2 blocks", "at least 16"]),
    ("-b 1.5K", &["1.5K", "one with K, M or G"]),
    ("-b 64 -e 32", &["got 32", "that of -b, 64"]),
    ("-e 2G", &["to 1G"]),
    ("-e 8q", &["8q", "bytes"]),
    ("-f 1", &["'1'", "from 2 to 1024"]),
    ("-n -3", &["invalid value '-3'", "--iterations"]),
    ("-n many", &["expected a whole number from 0 to 4294967295, got \"many\""]),
    ("-w x", &["'x'"]),
    ("-c 0", &["'0'", "from 1 to 32"]),
    ("-t 2000", &["2000", "from 1 to 1024"]),
    ("--pes 3", &["--pes: expected an even number", "got 3"]),
    ("--pes 1", &["'1'", "from 2 to 16"]),
    ("--rails 9", &["'9'", "from 1 to 8"]),
    ("--rails 0", &["'0'", "from 1 to 8"]),
    ("--rail-gbps 0", &["'0'", "0.01 to 800"]),
    ("--rail-gbps nan", &["'nan'", "0.01 to 800"]),
    ("--rail-gbps fast", &["'fast'", "0.01 to 800"]),
    ("--device gpu -n 10", &["-n 10 with --device gpu", "-n 0 or none", "--device cpu"]),
    ("--device gpu --signal add --uncertain not", &["--uncertain not with --device gpu", "--uncertain stop"]),
    (
        "--device gpu --signal add --uncertain applied",
        &["--uncertain applied with --device gpu", "--device cpu"],
    ),
    ("--device gpu -t 33", &["got 33", "-t with --device gpu: expected 1, or a multiple of 32 up to 256"]),
    ("--device gpu -t 512", &["got 512", "a multiple of 32 up to 256"]),
    ("--kernels mine.cubin", &["--kernels mine.cubin", "--device gpu"]),
    ("--device tpu", &["tpu", "cpu, gpu"]),
    ("--nic mlx5 --rail-gbps 4", &["--rail-gbps with --nic mlx5", "shunt soft-rdma run"]),
    ("--nic mlx5 --rank 0 --world 2 --root 127.0.0.1:7000 --fabric a", &["--fabric with --nic mlx5"]),
    ("--nic mlx4", &["mlx4", "soft, mlx5"]),
    ("--mode read", &["read", "write, p, signal, amo"]),
    ("--signal 2", &["'2'", "monotone, cleared, add"]),
    ("--uncertain stop", &["got puts and monotone signals", "--mode amo"]),
    ("--mode amo --size 8", &["--size 8", "whose words are 8 bytes"]),
    ("--duration 3", &["'3'", "ns, us, ms, s or m"]),
    ("--duration 1ms", &["got 1ms", "expected 20ms to 60m"]),
    ("--duration 2m61", &["2m61"]),
    ("--duration 90m", &["expected 20ms to 60m"]),
    ("--seed -1", &["-1", "a whole number from 0"]),
    ("--give-up 1h", &["1h", "ns, us, ms, s or m"]),
    ("--give-up 11m", &["at most 10m"]),
    ("--suspect 1us", &["--suspect: expected 100us to 10s", "got 1us"]),
    ("--size 12", &["got 12", "multiple of 8"]),
    ("--size 0", &["got 0", "multiple of 8"]),
    ("--size 1G --window 512", &["heap", "at most 4G"]),
    ("--window 1", &["'1'", "from 2 to 512"]),
    ("--ft maybe", &["maybe", "on, off"]),
    ("--fence none", &["none", "strict, time"]),
    ("--verify perhaps", &["perhaps", "on, off"]),
    ("--plot out.png", &["expected a file that ends in .svg", "got out.png"]),
    ("--watch --inject 1s:0.0:down", &["--watch injects nothing"]),
    ("--inject 500ms", &["500ms", "<time>:<pe>.<rail>:<fault>"]),
    ("--inject 500ms:0.0", &["500ms:0.0", "<time>:<pe>.<rail>:<fault>"]),
    ("--inject soon:0.0:down", &["soon", "ns, us, ms, s, m"]),
    ("--inject 1s:a.0:down", &["a.0", "<pe>.<rail>"]),
    ("--inject 1s:0.0.0:down", &["0.0.0", "<pe>.<rail>"]),
    ("--inject 1s:0.0:peer-killed", &["0.0:peer-killed", "expected a whole PE"]),
    ("--inject 1s:0:exec=/bin/true", &["exec", "expected one rail"]),
    ("--inject 1s:0:down", &["0:down", "expected one rail"]),
    ("--inject 1s:2:peer-killed", &["expected PE 0 to 1", "got 2"]),
    ("--inject 1s:0:clock-jump=0", &["clock-jump=0", "does nothing"]),
    ("--inject 1s:0.0:exec=", &["exec=", "exec=COMMAND"]),
    ("--inject 1s:0.0:dwon", &["dwon", "--list-faults"]),
    ("--inject 1s:0.0:drop=2", &["from 0 to 1", "--list-faults"]),
    ("--inject 1s:2.0:down", &["expected PE 0 to 1", "got 2.0"]),
    ("--inject 1s:0.2:down", &["rail 0 to 1", "got 0.2"]),
    ("--inject 3s:0.0:down", &["before the end of the stream, 3s", "got 3s"]),
    ("-w -1", &["-1"]),
    ("-e -1K", &["-1K", "whole number of bytes"]),
    ("--rail-gbps -4", &["'-4'", "0.01 to 800"]),
    ("--duration -1s", &["-1s", "ns, us, ms, s or m"]),
    ("--duration 99999999999999s", &["99999999999999s", "at most 370 days"]),
    ("--size 99999999999999999999", &["less than 2^64 bytes"]),
    ("--give-up -1s", &["-1s", "ns, us, ms, s or m"]),
    ("--inject -5ms:0.0:down", &["-5ms", "ns, us, ms, s, m"]),
    ("--inject 1s:0.0:drop=0", &["drop=0", "does nothing"]),
    ("--inject 1s:0.0:dup=0/5ms", &["dup=0", "does nothing"]),
    ("--mode p --size 1K", &["--size 1K", "--mode p", "leave"]),
    ("--mode signal --size 8", &["--size 8", "--mode signal", "leave"]),
    ("--ft off --give-up 1s", &["--ft off", "--give-up"]),
    ("-c 4 -b 8", &["4 blocks", "at least 32", "got 8"]),
    ("-c 32 -e 64", &["got 64", "that of -b, 256"]),
    ("--bidir", &["--bidir"]),
    ("extra", &["extra"]),
];

#[test]
fn bad_values_are_refused_with_what_was_met_and_what_is_right() {
    for (line, parts) in BAD {
        let error = parse(line).err().unwrap_or_else(|| panic!("{line} was accepted"));
        let message = error.to_string();
        for part in *parts {
            assert!(message.contains(part), "{line}: {part:?} is not in: {message}");
        }
    }
}

#[test]
fn nothing_is_injected_at_nics_that_are_not_known_yet() {
    assert!(parse("--nic mlx5").unwrap().inject.is_empty());
    assert_eq!(parse("--nic mlx5 --inject 1s:0.1:down").unwrap().inject.len(), 1);
}

#[test]
fn the_flag_says_what_carries_the_packets_before_the_variable_does() {
    let nic = |line: &str, variable: Option<&str>| {
        let lookup = |name: &str| variable.filter(|_| name == "SHUNT_NIC").map(str::to_owned);
        let words = std::iter::once("shmem_put_bw").chain(line.split_whitespace());
        Options::from_parts(words, &lookup).unwrap().nic
    };
    assert_eq!((nic("", None), nic("", Some("soft"))), (NicKind::Soft, NicKind::Soft));
    assert_eq!((nic("", Some("mlx5")), nic("--nic mlx5", Some("soft"))), (NicKind::Mlx5, NicKind::Mlx5));
    assert_eq!(nic("--nic soft", Some("mlx5")), NicKind::Soft);
}

#[test]
fn perftests_own_arguments_are_taken() {
    let options = parse("-n 200 -w 20 -c 4 -t 1024 -b 32 -e 32M").unwrap();
    assert_eq!(
        (options.iterations, options.warmup, options.ctas, options.threads_per_cta),
        (200, 20, 4, 1024)
    );
    assert_eq!((options.min_size(), options.max_size), (32, 32 << 20));
}

/// The table is left out where it cannot be made, and only there: what was asked for is made or refused.
#[test]
fn a_gpu_has_no_table() {
    let iterations = |line| parse(line).unwrap().iterations;
    assert_eq!((iterations(""), iterations("-n 7"), iterations("-n 0")), (100, 7, 0));
    assert_eq!((iterations("--device gpu"), iterations("--device gpu -n 0")), (0, 0));
    assert!(parse("--device gpu --mode amo").is_ok());
    assert_eq!(parse("--device gpu --signal add --uncertain stop").unwrap().uncertain(), Uncertain::Stop);
}

#[test]
fn defaults_are_the_designs() {
    let options = parse("").unwrap();
    assert_eq!((options.pes(), options.rails, options.duration), (2, 2, 3_000_000_000));
    assert_eq!((options.give_up(), options.mode, options.verify), (1_000_000_000, Mode::Write, OnOff::On));
    let plan: Vec<_> = options.inject.iter().map(|i| (i.at_ns, i.pe, i.rail, i.fault.to_string())).collect();
    assert_eq!(
        plan,
        [(500_000_000, 0, Some(0), "down".to_owned()), (1_500_000_000, 0, Some(0), "up".to_owned())]
    );
}

#[test]
fn nothing_is_injected_when_faults_are_not_tolerated_or_only_watched() {
    assert!(parse("--ft off").unwrap().inject.is_empty());
    assert!(parse("--watch").unwrap().inject.is_empty());
    let own = parse("--inject 200ms:1.0:flap=50ms/20 --inject 300ms:0.0:drop-acks=10ms").unwrap().inject;
    assert_eq!(own.len(), 2);
    assert_eq!((own[0].pe, own[0].rail, own[1].at_ns), (1, Some(0), 300_000_000));
}

#[test]
fn the_default_plan_scales() {
    let plan = default_plan(6_000_000_000);
    assert_eq!((plan[0].at_ns, plan[1].at_ns), (1_000_000_000, 3_000_000_000));
}

#[test]
fn the_smallest_size_follows_the_blocks_and_no_table_checks_no_sizes() {
    assert_eq!((parse("-c 4").unwrap().min_size(), parse("").unwrap().min_size()), (32, 8));
    let none = parse("-n 0 -c 4 -b 8 -e 100G").unwrap();
    assert_eq!((none.ctas, none.table_bytes()), (4, 0));
}

#[test]
fn with_many_rails_each_has_a_channel_that_starts_on_it() {
    let ctas = |line: &str| parse(line).unwrap().ctas;
    assert_eq!((ctas(""), ctas("--rails 2"), ctas("--rails 3"), ctas("--rails 8")), (1, 1, 3, 8));
    assert_eq!((ctas("--rails 8 -c 1"), ctas("--rails 8 --ctas 24")), (1, 24));
    assert_eq!(parse("--rails 8").unwrap().min_size(), 64);
}

#[test]
fn modes_without_a_size_write_8_bytes() {
    assert_eq!(parse("--mode p").unwrap().put_size(), 8);
    assert_eq!(parse("--size 1K").unwrap().put_size(), 1024);
}

#[test]
fn signals_that_may_be_uncertain_are_known_and_rings_hold_them() {
    let options = |line: &str| parse(line).unwrap();
    assert!(!options("--mode p").may_be_uncertain());
    for (line, tickets) in [("--mode amo", 3), ("--signal add", 2), ("--signal cleared --mode amo", 5)] {
        let options = options(line);
        assert!(options.may_be_uncertain(), "{line}");
        assert_eq!((options.tickets_per_put(), options.uncertain()), (tickets, Uncertain::Stop), "{line}");
    }
    assert_eq!(options("--signal add --uncertain not").uncertain(), Uncertain::Not);
    assert_eq!(options("--mode amo").put_size(), 8);
}

fn under(variables: &[(&str, &str)], line: &str) -> Options {
    let lookup =
        |name: &str| variables.iter().find(|(have, _)| *have == name).map(|(_, value)| value.to_string());
    Options::from_parts(std::iter::once("shmem_put_bw").chain(line.split_whitespace()), &lookup).unwrap()
}

#[test]
fn variables_are_honoured_and_flags_win() {
    let variables = [
        ("SHUNT_GIVE_UP", "250ms"),
        ("SHUNT_BACKUPS", "1"),
        ("SHUNT_MPL", "20ms"),
        ("SHUNT_FENCE", "time"),
        ("SHUNT_SUSPECT", "4ms"),
        ("SHUNT_SUSPECT_FLOOR", "1ms"),
        ("NVSHMEM_QP_DEPTH", "1024"),
        ("NVSHMEM_IBGDA_NUM_RC_PER_PE", "3"),
        ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0"),
        ("NVSHMEM_MACHINE_READABLE_OUTPUT", "1"),
    ];
    let options = under(&variables, "");
    assert_eq!((options.give_up(), options.channels(), options.tolerant()), (250_000_000, 3, false));
    assert!(options.inject.is_empty(), "no fault of its own where none is tolerated");
    let said = &options.environment;
    assert_eq!((said.backups, said.log_depth, said.machine_readable), (Some(1), Some(10), true));
    assert_eq!(said.config.packet_lifetime_ns, 20_000_000);
    assert_eq!((options.backups(), under(&variables, "--ft on --backups 3").backups()), (Some(1), Some(3)));
    let suspect = |line: &str| under(&variables, line).suspect();
    assert_eq!((suspect(""), suspect("--suspect 7ms")), (Some(4_000_000), Some(7_000_000)));
    assert_eq!((said.suspect_floor, parse("").unwrap().suspect()), (Some(1_000_000), None));
    let fence = |line: &str| under(&variables, line).fence();
    assert_eq!((fence(""), fence("--ft on --fence strict")), (FenceMode::Time, FenceMode::Strict));
    assert_eq!(parse("").unwrap().fence(), FenceMode::Strict);
    let options = under(&variables, "--ft on --give-up 2s -c 2");
    assert_eq!((options.give_up(), options.channels(), options.tolerant()), (2_000_000_000, 3, true));
    let options = under(&[], "-c 2");
    assert_eq!((options.give_up(), options.channels(), options.tolerant()), (1_000_000_000, 2, true));
}

#[test]
fn a_job_is_named_by_flags_or_variables_and_makes_the_pes() {
    let variables = [
        ("SHUNT_RANK", "1"),
        ("SHUNT_WORLD", "4"),
        ("SHUNT_ROOT", "127.0.0.1:7000"),
        ("SHUNT_FABRIC", "blue"),
    ];
    let options = under(&variables, "--inject 1s:3:peer-killed");
    let job = options.job.as_ref().unwrap();
    assert_eq!((job.rank, job.world, job.fabric.as_deref(), options.pes()), (1, 4, Some("blue"), 4));
    let options = under(&variables, "--rank 0 --world 2 --fabric red");
    let job = options.job.as_ref().unwrap();
    assert_eq!((job.rank, job.world, job.fabric.as_deref(), options.processes()), (0, 2, Some("red"), 2));
    assert_eq!((under(&[], "").pes(), under(&[], "").processes()), (2, 1));
}

#[test]
fn ranks_compare_what_must_be_alike_and_nothing_else() {
    let lines = |line: &str| parse(line).unwrap().shared_lines();
    assert_eq!(lines("--json a.json"), lines("--plot b.svg"));
    for other in [
        "--seed 2",
        "--inject 1s:0.0:down",
        "--watch",
        "-c 2",
        "--backups 1",
        "--recovery-window 1s",
        "--mode p",
        "--give-up 2s",
        "-n 0",
    ] {
        assert_ne!(lines(""), lines(other), "{other}");
    }
}
