//! `moe_pressure` as a process, or as several: short runs that are clean, one that is broken on purpose, and bad flags.

use crate::common::{Running, free_port};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn program(arguments: &str) -> Output {
    program_with(arguments, &[])
}

fn program_with(arguments: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moe_pressure"));
    command.args(arguments.split_whitespace()).envs(environment.iter().copied()).output().unwrap()
}

/// Nothing is sent again because a thread has no core for a while: bytes are counted.
const PATIENT: [(&str, &str); 3] =
    [("SHUNT_SUSPECT", "10s"), ("SHUNT_SUSPECT_FLOOR", "10s"), ("NVSHMEM_IB_TIMEOUT", "20")];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs, and reads the JSON that it wrote.
fn run(name: &str, arguments: &str) -> (Output, Value) {
    run_with(name, arguments, &[])
}

fn run_with(name: &str, arguments: &str, environment: &[(&str, &str)]) -> (Output, Value) {
    let json = file(name);
    let output = program_with(&format!("{arguments} --json {}", json.display()), environment);
    let bytes = std::fs::read(&json).unwrap_or_else(|_| panic!("no JSON: {}", text(&output.stderr)));
    (output, serde_json::from_slice(&bytes).unwrap())
}

/// Of so many layers that faults come in time on a quick machine as well, which has done with one in 0.2 ms.
#[test]
fn layers_under_random_faults_are_clean_and_draw_a_timeline() {
    let svg = file("moe.svg");
    // A port that goes down leaves the responder's truth: words that are cleared are never in doubt.
    let arguments =
        "--ranks 2 --iters 1000 --tokens 2 --every 30ms --faults down=20ms --signals cleared --seed 6";
    let (output, json) = run("moe-cleared.json", arguments);
    assert_eq!(
        (output.status.code(), &json["uncertain"]),
        (Some(0), &Value::from(0)),
        "{}",
        text(&output.stdout)
    );
    let arguments = "--ranks 2 --iters 1000 --tokens 3 --hidden 512 --topk 2 --every 30ms --seed 5";
    let (output, json) = run("moe.json", &format!("{arguments} --plot {}", svg.display()));
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    for (key, right) in [("iterations", 1000), ("mismatches", 0), ("hangs", 0), ("masked_ranks", 0)] {
        assert_eq!(json[key], right, "{key}: {out}");
    }
    assert!(json["failovers"].as_u64().unwrap() > 0, "{out}");
    let [by_nic, mapped, crossing] = bytes(&json, &out);
    assert!(mapped == 0 && crossing > 0 && by_nic > crossing, "each rank is a node of its own: {out}");
    assert!(json["faults"].as_array().unwrap().iter().any(|fault| fault["hits"].as_u64() > Some(0)), "{out}");
    assert_eq!(json["verdict"], "clean");
    let picture = std::fs::read_to_string(svg).unwrap();
    assert!(picture.contains("MoE layers") && picture.ends_with("</svg>\n"));
}

#[test]
fn layers_of_normal_mode_under_random_faults_are_clean() {
    let arguments = "--mode normal --ranks 4 --nodes 2 --iters 200 --tokens 9 --topk 3 --every 30ms --seed 7";
    let (output, json) = run("moe-normal.json", arguments);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    for (key, right) in [("iterations", 200), ("mismatches", 0), ("hangs", 0), ("uncertain", 0)] {
        assert_eq!(json[key], right, "{key}: {out}");
    }
    assert_eq!((&json["mode"], &json["verdict"]), (&Value::from("normal"), &Value::from("clean")), "{out}");
    assert!(json["faults"].as_array().unwrap().iter().any(|fault| fault["hits"].as_u64() > Some(0)), "{out}");
}

/// Bytes by NIC, by memory of the node, and for other nodes, of a run whose layers were right.
fn bytes(json: &Value, said: &str) -> [u64; 3] {
    assert_eq!((&json["verdict"], &json["mismatches"]), (&Value::from("clean"), &Value::from(0)), "{said}");
    ["bytes_by_nic", "bytes_by_mapping", "bytes_for_other_nodes"].map(|key| json[key].as_u64().unwrap())
}

/// All ranks tell all others their terms once, by NIC: 64 bytes and a word behind them.
const TERMS: u64 = 4 * 3 * 72;

/// The same layers with other nodes: what ranks of a node give each other goes through no NIC, also while a port of
/// each of them is down for good.
#[test]
fn what_stays_on_a_node_goes_through_no_nic() {
    let layers = "--mode normal --ranks 4 --iters 60 --seed 11";
    let of = |locals: u32, faults: &str| {
        let name = format!("moe-node-{locals}-{}.json", faults.len());
        let arguments = format!("{layers} --ranks-per-node {locals} --faults {faults}");
        let (output, json) = run_with(&name, &arguments, &PATIENT);
        assert_eq!(json["ranks_per_node"], locals);
        (bytes(&json, &text(&output.stdout)), json)
    };
    let ([by_nic, all, crossing], _) = of(4, "none");
    assert_eq!((by_nic, crossing), (TERMS, 0));
    let ([by_nic, mapped, crossing], json) = of(1, "none");
    assert_eq!((mapped, crossing), (0, all));
    assert!(by_nic > all, "{by_nic} of {all} bytes");
    let nics = json["nics"].as_array().unwrap();
    assert_eq!(nics.iter().map(|nic| nic["bytes"].as_u64().unwrap()).sum::<u64>(), by_nic);
    let ([by_nic, mapped, crossing], _) = of(2, "none");
    assert!(0 < mapped && mapped < all && 0 < crossing && crossing < all, "{mapped}, {crossing} of {all}");
    assert!(by_nic > crossing, "{by_nic} of {crossing} bytes");
    // Ports that stay down: paths are left, and agents talk about that.
    let ([by_nic, mapped, crossing], json) = of(4, "down --every 20ms");
    assert_eq!((mapped, crossing), (all, 0));
    assert!(json["failovers"].as_u64().unwrap() > 0, "{json}");
    assert!(by_nic < all, "{by_nic} of {all} bytes");
}

/// The same of low latency: kernels post nothing for a rank of their node, and what words there are go the same way.
#[test]
fn what_stays_on_a_node_goes_through_no_nic_in_low_latency() {
    let of = |locals: u32, more: &str| {
        let name = format!("moe-ll-node-{locals}-{}.json", more.len());
        let arguments = format!("--ranks 4 --iters 400 --seed 11 --ranks-per-node {locals} {more}");
        let (output, json) = run_with(&name, &arguments, &PATIENT);
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!((&json["ranks_per_node"], &json["posted_on_node"]), (&locals.into(), &0.into()), "{said}");
        (bytes(&json, &said), json)
    };
    let ([by_nic, all, crossing], _) = of(4, "--faults none --signals cleared");
    assert_eq!((by_nic, crossing), (0, 0));
    let ([by_nic, mapped, crossing], _) = of(1, "--faults none");
    assert_eq!((mapped, crossing), (0, all));
    assert!(by_nic > all, "{by_nic} of {all} bytes");
    let ([by_nic, mapped, crossing], _) = of(2, "--faults none");
    assert_eq!(mapped + crossing, all);
    assert!(0 < mapped && by_nic > crossing && by_nic < crossing + all / 4, "{by_nic}, {crossing} of {all}");
    // Ports that stay down: agents talk about that, and kernels never hear of it.
    let ([by_nic, mapped, crossing], json) = of(4, "--faults down --every 5ms --signals cleared");
    assert_eq!((mapped, crossing), (all, 0));
    assert!(by_nic < all / 100, "{by_nic} of {all} bytes");
    assert!(
        json["faults"].as_array().unwrap().iter().any(|fault| fault["hits"].as_u64() > Some(0)),
        "{json}"
    );
    // Half of it by NICs that fail.
    let ([_, mapped, crossing], json) = of(2, "--faults down=20ms --every 20ms");
    assert_eq!(mapped + crossing, all);
    assert!(json["failovers"].as_u64().unwrap() > 0, "{json}");
}

/// Starts each rank as a process of its own, and answers with rank 0's JSON and what all of them said.
fn processes(name: &str, ranks: u16, arguments: &str, environment: &[(&str, &str)]) -> (Value, String) {
    let (json, port) = (file(&format!("{name}.json")), free_port());
    let start = |rank: u16| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moe_pressure"));
        command.args(arguments.split_whitespace()).arg("--json").arg(&json);
        command.env("SHUNT_RANK", rank.to_string()).env("SHUNT_WORLD", ranks.to_string());
        command.env("SHUNT_ROOT", format!("127.0.0.1:{port}")).env("SHUNT_FABRIC", format!("{name}-{port}"));
        Running::start(command.envs(environment.iter().copied()).env_remove("SHUNT_NIC"))
    };
    let running: Vec<Running> = (0..ranks).map(start).collect();
    let ended: Vec<_> = running.into_iter().map(Running::end).collect();
    shunt_soft_nic::uplink::remove_fabric(&format!("{name}-{port}")).unwrap();
    let said: String = ended.iter().map(|ended| format!("{}{}", ended.out, ended.err)).collect();
    assert!(ended.iter().all(|ended| ended.code == Some(0)), "{said}");
    assert!(ended[1..].iter().all(|ended| ended.out.is_empty()), "rank 0 alone prints: {said}");
    let bytes = std::fs::read(&json).unwrap_or_else(|_| panic!("no JSON: {said}"));
    (serde_json::from_slice(&bytes).unwrap(), said)
}

/// Ranks of a node share memory there, each a process.
#[test]
fn layers_of_both_modes_are_clean_where_each_rank_is_a_process() {
    let few = "--every 20ms --faults down=20ms --seed 5 --tokens 5 --nic soft";
    for (name, ranks, mode) in
        [("moe-ll", 3, "--iters 150"), ("moe-nm", 4, "--iters 60 --mode normal --nodes 2")]
    {
        let (json, said) = processes(name, ranks, &format!("{mode} {few}"), &[]);
        assert_eq!(
            (&json["verdict"], &json["mismatches"]),
            (&Value::from("clean"), &Value::from(0)),
            "{said}"
        );
        assert_eq!(
            (&json["processes"], &json["iterations"]),
            (&Value::from(ranks), &json["asked"]),
            "{said}"
        );
        assert!(json["failovers"].as_u64().unwrap() > 0, "{said}");
        let faults = json["faults"].as_array().unwrap();
        let ranks: std::collections::BTreeSet<&str> =
            faults.iter().filter_map(|fault| fault["where"].as_str()?.split('.').next()).collect();
        assert!(ranks.len() > 1, "faults of several processes: {said}");
    }
    let one_node = "--mode normal --ranks-per-node 4 --iters 40 --faults none --nic soft";
    let (json, said) = processes("moe-one-node", 4, one_node, &PATIENT);
    let [by_nic, mapped, crossing] = bytes(&json, &said);
    assert_eq!((by_nic, crossing), (TERMS, 0), "{said}");
    assert!(mapped > TERMS, "{said}");
    let one_node = "--ranks-per-node 4 --iters 200 --faults down --every 10ms --signals cleared --nic soft";
    let (json, said) = processes("moe-ll-one-node", 4, one_node, &PATIENT);
    let [by_nic, mapped, crossing] = bytes(&json, &said);
    assert_eq!((&json["posted_on_node"], crossing), (&Value::from(0), 0), "{said}");
    assert!(mapped > 100 * by_nic, "{said}");
}

#[test]
fn a_job_says_which_ranks_and_nics_would_be_right() {
    let refused = |arguments: &str, variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moe_pressure"));
        command.args(arguments.split_whitespace()).envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    let job = [("SHUNT_RANK", "1"), ("SHUNT_WORLD", "3"), ("SHUNT_ROOT", "127.0.0.1:9")];
    assert!(refused("--ranks 4", &job).contains("--ranks 4: expected 3, the processes of the job"));
    assert!(refused("--mode normal --nodes 2", &job).contains("a divisor of the 3 ranks"));
    assert!(refused("", &job[..2]).contains("rank, world and root belong together"));
    assert!(
        refused("", &[("SHUNT_NIC", "cx7")]).contains("SHUNT_NIC: expected auto, mlx5 or soft, got \"cx7\"")
    );
    assert!(refused("--nic mlx5", &[]).contains("expected a device with an ACTIVE port"));
}

#[test]
fn normal_mode_says_what_would_be_right() {
    for (arguments, right) in [
        ("--ranks 4 --nodes 3", "a divisor of the 4 ranks"),
        ("--format ue8m0", "bf16, fp8 or all"),
        ("--hidden 700", "a multiple of 512"),
        ("--signals cleared", "all words there are absolute; give --mode low-latency"),
        ("--hidden 33554432", "expected at most 4G"),
    ] {
        let output = program(&format!("--mode normal {arguments}"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(right), "{arguments}: {said}");
    }
}

#[test]
fn without_faults_nothing_switches() {
    let (output, json) =
        run("moe-none.json", "--ranks 2 --iters 20 --tokens 2 --faults none --signals cleared");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert_eq!((&json["failovers"], &json["iterations"]), (&Value::from(0), &Value::from(20)));
}

/// The deliberate break: NICs that spoil a byte of what they place.
#[test]
fn bytes_that_a_nic_spoils_are_mismatches() {
    let arguments =
        "--ranks 2 --iters 300 --tokens 3 --format bf16 --faults corrupt --every 2ms --timeout 5s";
    let (output, json) = run("moe-broken.json", arguments);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(json["mismatches"].as_u64().unwrap() > 0, "{out}");
    assert!(json["verdict"].as_str().unwrap().starts_with("broken"), "{out}");
}

#[test]
fn bad_flags_are_status_2_and_say_what_would_be_right() {
    let cases = [
        ("--ranks 1", "expected a whole number from 2 to 64, got \"1\""),
        ("--nic cx7", "auto, mlx5, soft"),
        ("--ranks two", "from 2 to 64, got \"two\""),
        ("--iters 0", "expected a whole number from 1 to 100000000"),
        ("--faults dwon", "did you mean `down`"),
        ("--faults peer-killed", "hits a whole PE"),
        ("--hidden 100", "--hidden"),
        ("--every 1ns", "at least 1ms"),
        ("--timeout 0ms", "at least 1ms"),
        ("--seed", "value"),
        ("--format fp4", "bf16"),
        ("--json /nowhere/moe.json", "folder that exists"),
        ("--no-such-option", "unexpected"),
        ("--nodes 3", "--nodes: expected a divisor of the 4 ranks, got 3"),
        ("--ranks-per-node 3", "--ranks-per-node: expected a divisor of the 4 ranks, got 3"),
        ("--mode normal --ranks-per-node 3", "--ranks-per-node: expected a divisor of the 4 ranks, got 3"),
        ("--mode normal --ranks-per-node 2 --nodes 2", "cannot be used with"),
        ("--faults none --every 50ms", "--every 50ms with --faults none: nothing goes wrong there"),
        ("--plot moe.png", "ends in .svg, got moe.png"),
        ("--iters -1", "expected a whole number from 1 to 100000000"),
        ("--seed -1", "a whole number from 0"),
        ("--every -5ms", "such as 500ms, got \"-5ms\""),
        ("--hidden 4294966784", "--hidden 4294966784"),
    ];
    for (line, part) in cases {
        let output = program(line);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(output.stdout.is_empty() && error.contains(part), "{line}: {error}");
    }
}

#[test]
fn a_fault_that_never_strikes_is_not_taken_for_clean() {
    let (output, json) = run("moe-idle.json", "--ranks 2 --iters 3 --tokens 1 --every 60m --faults down");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let verdict = json["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("not exercised: no fault struck: 3 layers took "), "{verdict}");
    assert!(verdict.contains("faults come every 3600.00 s, and none came; "), "{verdict}");
    assert!(verdict.ends_with(" would be enough"), "{verdict}");
}
