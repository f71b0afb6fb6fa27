//! Everything a user can get wrong, one row each: status 2, what was met and what would be right, nothing printed as if
//! it were a result, nothing written, and a result that was there before is left alone.

use crate::common::{Running, folder};
use crate::put_bw::program;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Arguments, variables, what was met, what would be right. `{}` is the folder of the test.
type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str, &'static str);

/// Rank 0 of two, up to the point of joining.
macro_rules! rank_0 {
    ($($more:literal)?) => {
        concat!("--rank 0 --world 2 --root 127.0.0.1:9 --fabric bad-input" $(, " ", $more)?)
    };
}

const FLAGS: &[Case] = &[
    ("-b 4", &[], "-b: expected at least 8", "got 4"),
    ("-b 64 -e 32", &[], "got 32", "-e: expected a size from that of -b, 64, to 1G"),
    ("-e 2G", &[], "-e: expected a size", "to 1G, got 2G"),
    ("-f 1", &[], "'1'", "expected a whole number from 2 to 1024"),
    ("-n many", &[], "'many' for '--iterations <N>'", "expected a whole number from 0"),
    ("-c 0", &[], "'0'", "from 1 to 32"),
    ("--pes 3", &[], "got 3", "--pes: expected an even number"),
    ("--rails 9", &[], "'9'", "from 1 to 8"),
    ("--rail-gbps nan", &[], "'nan'", "expected a number of Gb/s from 0.01 to 800"),
    ("--rail-gbps fast", &[], "'fast'", "0.01 to 800"),
    ("--duration 1ms", &[], "got 1ms", "--duration: expected 20ms to 60m"),
    ("--duration 3", &[], "'3'", "ns, us, ms, s or m"),
    ("--seed -1", &[], "-1", "a whole number from 0"),
    ("--give-up 11m", &[], "got 660s", "--give-up: expected at most 10m"),
    ("--suspect 1us", &[], "got 1us", "--suspect: expected 100us to 10s"),
    ("--backups 8", &[], "'8'", "from 0 to 7"),
    ("--backups -1", &[], "'-1'", "--backups <N>"),
    ("--backups 4", &[], "got 4", "--backups: expected at most 3"),
    ("--backups 1 --rails 1", &[], "got 1", "--backups: expected at most 0"),
    ("--mode signal --verify off", &[], "--verify off with --mode signal", "leave --verify out"),
    ("--ft off --backups 2", &[], "--ft off leaves no path", "leave --backups out"),
    ("--recovery-window 0", &[], "got 0ns", "--recovery-window: expected 1ms to 10m"),
    ("--recovery-window soon", &[], "'soon'", "ns, us, ms, s or m"),
    ("--ft off --recovery-window 1s", &[], "--ft off leaves no path", "leave --recovery-window out"),
    ("--signal twice", &[], "'twice'", "monotone, cleared, add"),
    ("--uncertain maybe --signal add", &[], "'maybe'", "stop, applied, not"),
    ("--uncertain applied", &[], "got puts and monotone signals", "--signal add or --mode amo"),
    ("--mode amo --ft off --uncertain not", &[], "--ft off leaves no path", "leave --uncertain out"),
    ("--mode amo --size 64", &[], "--size 64 with --mode amo", "leave --size out"),
    ("--fence loose", &[], "'loose'", "strict, time"),
    ("--ft off --fence time", &[], "--ft off leaves no path", "leave --fence out"),
    ("--size 12", &[], "--size: expected a multiple of 8", "got 12"),
    ("--size 1G --window 512", &[], "a heap of at most 4G", "got 1099"),
    ("--window 1", &[], "'1'", "from 2 to 512"),
    ("--mode read", &[], "'read'", "write, p, signal, amo"),
    ("--mode p --size 64", &[], "--size 64 with --mode p", "leave --size out"),
    ("--ft maybe", &[], "'maybe'", "on, off"),
    ("--nic mlx5 --rail-gbps 4", &[], "--rail-gbps with --nic mlx5", "shunt soft-rdma run"),
    ("--watch --inject 1s:0.0:down", &[], "--watch injects nothing", "leave --inject out"),
    ("--no-such-option", &[], "'--no-such-option'", "--help"),
];

const FAULTS: &[Case] = &[
    ("--inject 500ms", &[], "\"500ms\"", "<time>:<pe>.<rail>:<fault>"),
    ("--inject soon:0.0:down", &[], "\"soon\"", "a time like 10ms"),
    ("--inject 1s:a.0:down", &[], "\"a.0\"", "<pe>.<rail>"),
    ("--inject 1s:0.0:dwon", &[], "`dwon`; did you mean `down`?", "--list-faults"),
    ("--inject 1s:0.0:drop=2", &[], "`2`", "a probability from 0 to 1"),
    ("--inject 1s:0.0:drop=0", &[], "drop=0", "expected a value above 0"),
    ("--inject 1s:9.0:down", &[], "got 9.0", "expected PE 0 to 1 and rail 0 to 1"),
    ("--inject 1s:0.7:down", &[], "got 0.7", "rail 0 to 1"),
    ("--inject 1s:4:peer-killed", &[], "got 4", "expected PE 0 to 1"),
    ("--inject 3s:0.0:down", &[], "3s:0.0:down", "before the end of the stream, 3s (--duration), got 3s"),
    ("--inject 1s:0.0:peer-killed", &[], "0.0:peer-killed", "expected a whole PE"),
    ("--inject 1s:0:down", &[], "0:down", "expected one rail for down, e.g. 0.0:down"),
    ("--inject 1s:0:agent-stalled", &[], "agent-stalled", "agent-stalled=T"),
    ("--inject 1s:0:oob-cut=long", &[], "long", "a time like 10ms"),
    ("--inject 1s:0:clock-jump=0", &[], "clock-jump=0", "a value above 0"),
    ("--inject 1s:0.0:exec=", &[], "exec=", "exec=COMMAND"),
    ("--inject 1s:1.0:double-atomic=3", &[], "double-atomic=3", "--list-faults"),
];

const ENVIRONMENT: &[Case] = &[
    ("", &[("SHUNT_GIVE_UP", "banana")], "SHUNT_GIVE_UP: expected", "such as 50ms"),
    ("", &[("SHUNT_GIVE_UP", "")], "SHUNT_GIVE_UP: expected", "such as 50ms"),
    ("", &[("SHUNT_BACKUPS", "9")], "SHUNT_BACKUPS: expected", "a whole number from 0 to 7"),
    ("", &[("SHUNT_FENCE", "loose")], "SHUNT_FENCE: expected", "strict or time"),
    ("", &[("SHUNT_MPL", "5")], "SHUNT_MPL: expected", "such as 50ms"),
    ("", &[("SHUNT_MPL", "1000s")], "SHUNT_MPL: expected", "up to 60s"),
    ("", &[("SHUNT_SUSPECT", "1000s")], "SHUNT_SUSPECT: expected", "from 100us to 10s"),
    ("", &[("SHUNT_GIVE_UP", "11m")], "SHUNT_GIVE_UP: expected", "up to 10m"),
    (
        "",
        &[("SHUNT_SUSPECT", "1ms"), ("SHUNT_SUSPECT_FLOOR", "2ms")],
        "SHUNT_SUSPECT_FLOOR: expected",
        "not above SHUNT_SUSPECT",
    ),
    ("", &[("SHUNT_METRICS", "foo")], "SHUNT_METRICS: expected", "got \"foo\""),
    ("", &[("SHUNT_STATUS", "3")], "SHUNT_STATUS: expected", "got \"3\""),
    ("", &[("NVSHMEM_QP_DEPTH", "1")], "NVSHMEM_QP_DEPTH: expected", "from 128 to 32768"),
    ("", &[("NVSHMEM_IB_TIMEOUT", "0")], "NVSHMEM_IB_TIMEOUT: expected", "from 1 to 31"),
    ("", &[("NVSHMEM_IB_RETRY_CNT", "8")], "NVSHMEM_IB_RETRY_CNT: expected", "from 0 to 7"),
    (
        "-c 4",
        &[("NVSHMEM_IBGDA_NUM_RC_PER_PE", "2")],
        "NVSHMEM_IBGDA_NUM_RC_PER_PE: expected at least 4",
        "got 2",
    ),
    (
        "",
        &[("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "perhaps")],
        "NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE: expected",
        "on or off",
    ),
    (
        "",
        &[("NVSHMEM_MACHINE_READABLE_OUTPUT", "2")],
        "NVSHMEM_MACHINE_READABLE_OUTPUT: expected",
        "0, 1, true",
    ),
    ("", &[("SHUNT_NIC", "roce")], "SHUNT_NIC: expected auto, mlx5 or soft", "got \"roce\""),
    ("", &[("SHUNT_RANK", "one")], "SHUNT_RANK: expected", "a whole number below SHUNT_WORLD"),
    ("", &[("SHUNT_RANK", "0")], "rank is given, world is not", "belong together"),
    ("", &[("SHUNT_WORLD", "0")], "SHUNT_WORLD: expected", "a whole number from 1"),
    ("--rank 0 --world 2", &[("SHUNT_ROOT", "nowhere")], "SHUNT_ROOT: expected", "HOST:PORT"),
    (rank_0!(), &[("SHUNT_ROOT_FD", "x")], "SHUNT_ROOT_FD: expected", "an open descriptor"),
    (
        rank_0!(),
        &[("SHUNT_ROOT_FD", "999")],
        "SHUNT_ROOT_FD=999 is not open",
        "a listening TCP socket of port 9",
    ),
    (
        "--rank 1 --world 2 --root 127.0.0.1:9",
        &[("SHUNT_ROOT_FD", "3")],
        "SHUNT_ROOT_FD is set on rank 1",
        "only rank 0",
    ),
    (rank_0!(), &[("SHUNT_FABRIC", "ignored"), ("SHUNT_SECRET", "")], "SHUNT_SECRET: expected", "(hidden)"),
    (
        rank_0!(),
        &[("SHUNT_SECRET", "0123456789abcdef"), ("SHUNT_SECRET_FILE", "{}/secret")],
        "SHUNT_SECRET and SHUNT_SECRET_FILE are both set",
        "set only one of them",
    ),
    (
        "--rank 0 --world 2 --root 127.0.0.1:9",
        &[("SHUNT_FABRIC", "a/b")],
        "SHUNT_FABRIC: expected",
        "letters, digits",
    ),
    (
        rank_0!(),
        &[("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "nosuch0"), ("SHUNT_SECRET", "0123456789abcdef")],
        "nosuch0",
        "this machine has",
    ),
];

const JOBS: &[Case] = &[
    ("--rank 2 --world 2 --root 127.0.0.1:9", &[], "rank: expected 0 to 1 in a world of 2", "got 2"),
    ("--rank -1 --world 2 --root 127.0.0.1:9", &[], "'-1'", "--rank <R>"),
    ("--rank 0", &[], "rank is given", "rank, world and root belong together"),
    ("--root 127.0.0.1:9", &[], "root is given", "rank, world and root belong together"),
    (
        "--rank 0 --world 3 --root 127.0.0.1:9",
        &[],
        "got 3 from ",
        "--world: expected an even number from 2 to 16",
    ),
    (
        "--rank 0 --world 32 --root 127.0.0.1:9",
        &[],
        "got 32 from ",
        "--world: expected an even number from 2 to 16",
    ),
    (
        "--rank 0 --world 1 --root 127.0.0.1:9",
        &[],
        "got 1 from ",
        "--world: expected an even number from 2 to 16",
    ),
    ("--rank 0 --world 2 --root nohost", &[], "nohost", "HOST:PORT"),
    ("--rank 0 --world 2 --root 300.1.1.1:9", &[], "300.1.1.1:9", "HOST:PORT"),
    ("--rank 0 --world 2 --root 127.0.0.1:99999", &[], "127.0.0.1:99999", "HOST:PORT"),
    ("--rank 0 --world 2 --root 127.0.0.1:0", &[], "port of the root: expected", "1 to 65535"),
    ("--rank 0 --world 2 --root 10.0.0.1:7000", &[], "10.0.0.1:7000", "set SHUNT_SECRET"),
    (rank_0!("--pes 4"), &[], "--pes 4 in a world of 2", "leave --pes out"),
    ("--rank 0 --world 2 --root 127.0.0.1:9 --fabric a/b", &[], "a/b", "letters, digits"),
    (
        "--rank 0 --world 2 --root 127.0.0.1:9 --fabric 0123456789012345678901234567890123456789",
        &[],
        "SHUNT_FABRIC: expected",
        "1 to 32 letters",
    ),
    ("--fabric lone", &[], "--fabric without a job", "--rank, --world and --root"),
    ("--secret-file {}/secret", &[], "--secret-file without a job", "--rank, --world and --root"),
    (rank_0!("--secret-file {}/none"), &[], "{}/none", "give a file"),
    (rank_0!("--secret-file {}/empty"), &[], "at least 16 random characters", "got 0 characters"),
    (rank_0!("--secret-file {}/open"), &[], "{}/open has mode 644", "run chmod go-rwx"),
    (rank_0!("--secret-file {}"), &[], "{}", "give a file"),
];

const OUTPUTS: &[Case] = &[
    ("--json {}/no/such.json", &[], "--json {}/no/such.json", "in a folder that exists"),
    ("--json {}", &[], "--json {}", "not a folder"),
    ("--plot {}/picture.png", &[], "got {}/picture.png", "--plot: expected a file that ends in .svg"),
    ("--report {}/page.txt", &[], "got {}/page.txt", "--report: expected a file that ends in .html"),
    ("--report {}/no/such.html", &[], "--report {}/no/such.html", "in a folder that exists"),
    (
        "--report {}/same.html --trace {}/same.html",
        &[],
        "--report and --trace both name",
        "a file of its own",
    ),
    ("--json {}/same.svg --plot {}/same.svg", &[], "--json and --plot both name", "a file of its own"),
    (rank_0!("--plot {}/no/such.svg"), &[], "--plot {}/no/such.svg", "in a folder that exists"),
];

/// Files of a folder with their contents.
fn contents(folder: &Path) -> Vec<(OsString, Option<Vec<u8>>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> =
        entries.map(|path| (path.file_name().unwrap().to_owned(), std::fs::read(&path).ok())).collect();
    all.sort();
    all
}

fn prepare(name: &str) -> std::path::PathBuf {
    let folder = folder(name);
    let write = |name: &str, text: &str, mode: u32| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::DirBuilder::new().mode(0o700).create(folder.join("run")).unwrap();
    write("old.json", "a result of yesterday", 0o644);
    write("old.svg", "a picture of yesterday", 0o644);
    write("secret", "a secret that is long enough\n", 0o600);
    write("empty", "", 0o600);
    write("open", "a secret that all can read\n", 0o644);
    folder
}

/// What is wrong with how a case ended.
fn wrong(folder: &Path, case: &Case, variables: &[(&str, OsString)]) -> Option<String> {
    let (arguments, _, met, right) = case;
    let here = |text: &str| text.replace("{}", folder.to_str().unwrap());
    let mut command = program();
    command.current_dir(folder).env("XDG_RUNTIME_DIR", folder.join("run"));
    // Files of an earlier run, where the case names none.
    let named = |option: &str| arguments.contains(option);
    if !named("--json") && !named("--plot") {
        command.args(["--json", "old.json", "--plot", "old.svg"]);
    }
    command.args(here(arguments).split_whitespace());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let before = contents(folder);
    let end = Running::start(&mut command).end();
    if end.code != Some(2) {
        return Some(format!("status {:?}: {}{}", end.code, end.out, end.err));
    }
    if !end.out.is_empty() {
        return Some(format!("it printed {:?}", end.out));
    }
    if let Some(part) = [met, right].into_iter().find(|part| !end.err.contains(&here(part))) {
        return Some(format!("{part:?} is not in {}", end.err));
    }
    (contents(folder) != before).then(|| "a file changed".to_owned())
}

fn all_refused(name: &str, cases: &[Case]) {
    let folder = prepare(name);
    let mut failed = Vec::new();
    for case in cases {
        let value = |text: &str| OsString::from(text.replace("{}", folder.to_str().unwrap()));
        let variables: Vec<_> = case.1.iter().map(|(name, text)| (*name, value(text))).collect();
        if let Some(wrong) = wrong(&folder, case, &variables) {
            failed.push(format!("{} {:?}: {wrong}", case.0, case.1));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn bad_flags() {
    all_refused("bad-flags", FLAGS);
}

#[test]
fn bad_fault_plans() {
    all_refused("bad-faults", FAULTS);
}

#[test]
fn bad_environment() {
    all_refused("bad-environment", ENVIRONMENT);
}

#[test]
fn bad_jobs() {
    all_refused("bad-jobs", JOBS);
}

#[test]
fn bad_outputs() {
    all_refused("bad-outputs", OUTPUTS);
}

#[test]
fn a_value_that_is_no_text_is_refused_like_any_other() {
    let folder = prepare("bad-text");
    let value = OsString::from_vec(vec![b'5', 0xff, b'm', b's']);
    let case: Case = ("", &[], "SHUNT_GIVE_UP: expected", "such as 50ms");
    assert_eq!(wrong(&folder, &case, &[("SHUNT_GIVE_UP", value)]), None);
}

#[test]
fn there_are_more_than_forty_of_them() {
    let all = [FLAGS, FAULTS, ENVIRONMENT, JOBS, OUTPUTS];
    assert!(all.iter().map(|cases| cases.len()).sum::<usize>() > 80);
}
