//! The library in NVSHMEM's place: C programs that link it, as processes that `shunt run` starts.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Barrier, Mutex, OnceLock};

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn done(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}{}", text(&output.stdout), text(&output.stderr));
}

/// A shared library that this build made: beside the programs, or among what they depend on.
pub fn library(name: &str) -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_shunt")).parent().unwrap();
    let file = format!("lib{name}.so");
    let places = [beside.join("deps").join(&file), beside.join(&file)];
    places.into_iter().find(|path| path.is_file()).expect("the library is built with its users")
}

/// Puts the library into a folder, with the name that programs are linked with.
pub fn install(folder: &Path) {
    std::fs::copy(library("shunt_nvshmem"), folder.join("libshunt_nvshmem.so.3")).unwrap();
    std::os::unix::fs::symlink("libshunt_nvshmem.so.3", folder.join("libnvshmem_host.so.3")).unwrap();
}

/// A folder with the library, and two programs that link it.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvshmem-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("other")).unwrap();
        install(&folder);
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nvshmem-compat");
        for (program, sources) in [
            ("suite", "conformance"),
            ("odd", "conformance/odd"),
            ("exact", "conformance/exact"),
            ("linger", "conformance/linger"),
        ] {
            let sources =
                std::fs::read_dir(crate_folder.join(sources)).unwrap().map(|entry| entry.unwrap().path());
            let sources = sources.filter(|path| path.extension().is_some_and(|end| end == "c"));
            let flags =
                ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-l:libnvshmem_host.so.3", "-ldl"];
            let mut command = Command::new("cc");
            command
                .args(sources)
                .arg("-I")
                .arg(crate_folder.join("include"))
                .arg("-L")
                .arg(&folder)
                .args(flags);
            done(command.arg(format!("-Wl,-rpath,{}", folder.display())).arg("-o").arg(folder.join(program)));
        }
        std::fs::write(folder.join("other/other.c"), "int nvshmemx_init_status(void) { return 2; }\n")
            .unwrap();
        let other = folder.join("other/libnvshmem_host.so.3");
        done(
            Command::new("cc")
                .args(["-shared", "-fPIC"])
                .arg(folder.join("other/other.c"))
                .arg("-o")
                .arg(other),
        );
        folder
    })
}

/// What the jobs here are started with, unless said.
pub const USUAL: [(&str, &str); 8] = [
    ("SHUNT_NIC", "soft"),
    ("NVSHMEM_SYMMETRIC_SIZE", "32M"),
    ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "1"),
    ("SHUNT_GIVE_UP", "60s"),
    ("SHUNT_RECOVERY_WINDOW", "20ms"),
    ("SHUNT_CALL_DEADLINE", "120s"),
    // A process that waits for a core is silent: ports that go down are told, and found out by that.
    ("SHUNT_SUSPECT", "1s"),
    ("SHUNT_SUSPECT_FLOOR", "1s"),
];

/// `shunt run` over so many processes, with room for a loaded machine.
pub fn run(pes: u32, environment: &[(&str, &str)], program: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(["run", "-n", &pes.to_string(), "--"]);
    command.arg(folder().join(program[0])).args(&program[1..]);
    command.envs(USUAL).envs(environment.iter().copied()).output().unwrap()
}

/// The lines of a run that went well, and how often its channels left a path.
fn suite(pes: u32, flags: &[&str]) -> (String, u64) {
    let output = run(pes, &[], &[&["suite"], flags].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{pes} PEs {flags:?}\n{}{said}", text(&output.stdout));
    assert!(!said.contains("are left"), "{said}");
    let failovers = said
        .lines()
        .filter_map(|line| line.split(" failovers").next()?.split(": ").last()?.parse::<u64>().ok());
    (text(&output.stdout), failovers.sum())
}

/// Those of two PEs with a heap in the host's memory, without a fault.
pub fn two_calm_pes() -> &'static (String, u64) {
    static CALM: OnceLock<(String, u64)> = OnceLock::new();
    CALM.get_or_init(|| suite(2, &[]))
}

fn same_with_a_port_down(pes: u32) {
    let (lines, calm) = if pes == 2 { two_calm_pes() } else { &suite(pes, &[]) };
    assert_eq!(lines.lines().count(), 10, "{lines}");
    let (faulty, failovers) = suite(pes, &["--fault"]);
    assert_eq!(faulty, *lines);
    assert!(pes == 1 || failovers > *calm, "{failovers} failovers with a port down, {calm} without");
}

/// Puts and gets between PEs of a node go by its memory; here they go by NICs, as between nodes.
#[test]
fn two_pes_that_do_not_map_each_others_heaps() {
    for family in ["rma", "strided", "move", "reduce"] {
        let output = run(2, &[("NVSHMEM_DISABLE_P2P", "1")], &["suite", "--fault", family]);
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{family}\n{out}{said}");
        assert!(two_calm_pes().0.lines().any(|line| line == out.trim_end()), "{family}: {out}");
        assert!(!said.contains(": 0 failovers"), "{said}");
    }
}

#[test]
fn one_pe() {
    same_with_a_port_down(1);
}

#[test]
fn two_pes() {
    same_with_a_port_down(2);
}

#[test]
fn three_pes() {
    same_with_a_port_down(3);
}

#[test]
fn four_pes() {
    same_with_a_port_down(4);
}

#[test]
fn without_fault_tolerance_results_are_the_same() {
    let off = [("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0")];
    let output = run(2, &off, &["suite", "rma"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), suite(2, &["rma"]).0);
}

#[test]
fn a_port_that_dies_with_fault_tolerance_off_says_what_would_have_helped() {
    let off = [("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0")];
    let output = run(2, &off, &["suite", "--fault", "strided"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("fault tolerance is off, NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE=1 goes on by another"),
        "{said}"
    );
}

/// Jobs whose atomics or signals must all be there, with a NIC that fails in the middle: `SHUNT_EXACT_JOBS` of each
/// plan.
fn exact(what: &str, environment: &[(&str, &str)], plans: &[&[&str]]) {
    let jobs = std::env::var("SHUNT_EXACT_JOBS").map_or(1, |jobs| jobs.parse().expect("a number of jobs"));
    let (mut failovers, environment) = (0, [&[("SHUNT_GIVE_UP", "30s")], environment].concat());
    for (job, plan) in (0..jobs * plans.len()).zip(plans.iter().cycle()) {
        let at = (5 + 37 * job % 150).to_string();
        let fixed = ["exact", what, "200", plan[0], plan[1], &at];
        let output = run(2, &environment, &[&fixed, &plan[2..]].concat());
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "job {job}, {plan:?}\n{out}{said}");
        let counted = out.lines().filter_map(|line| line.strip_suffix(" failovers")?.split(' ').next_back());
        failovers += counted.map(|count| count.parse::<u64>().unwrap()).sum::<u64>();
    }
    eprintln!("{} jobs of {what}: {failovers} failovers", jobs * plans.len());
    assert!(failovers > 0, "no channel left a path: nothing was tried");
}

/// An answer that a port took along ended the job, with a good path ready.
#[test]
fn fetched_values_are_all_there_when_a_port_of_either_end_goes_down() {
    exact(
        "fetch",
        &[],
        &[&["0", "0", "down=30ms"], &["1", "0", "down=30ms"], &["0", "0", "down=5ms", "down=30ms"]],
    );
}

/// An agent that takes over answers what the one before it executed, and does not execute it again.
#[test]
fn fetched_values_are_all_there_when_agents_are_restarted() {
    let (all, owner) = ("agent-restart,down=30ms", "agent-restart");
    exact("fetch", &[], &[&["-1", "0", all, owner, owner], &["1", "0", owner, all, owner]]);
}

/// A signal whose fate only the receiver's NIC could tell was uncertain when that NIC answered nothing.
#[test]
fn signals_are_counted_once_when_a_nic_answers_no_commands() {
    let plans: [&[&str]; 3] =
        [&["0", "0", "down=300ms"], &["1", "0", "fw-timeout,down"], &["0", "0", "fw-timeout,down"]];
    exact("signal", &[], &plans);
}

/// The channel entered the path between the two NICs that were gone, and ended because nobody could fence it.
#[test]
fn puts_go_on_where_a_nic_of_each_end_is_gone() {
    let patience = [("SHUNT_SUSPECT", "20ms"), ("SHUNT_SUSPECT_FLOOR", "20ms"), ("NVSHMEM_DISABLE_P2P", "1")];
    exact("put", &patience, &[&["-1", "0", "nic-gone"]]);
}

/// Each other's heaps are mapped, or each PE has its own: where one PE wants that, all do.
#[test]
fn pes_of_a_node_reach_each_others_heaps_without_a_nic() {
    for (environment, mode) in [(&[][..], "shared"), (&[("NVSHMEM_DISABLE_P2P", "1")][..], "apart")] {
        let output = run(3, environment, &["odd", mode]);
        assert_eq!(output.status.code(), Some(0), "{mode}: {}{}", text(&output.stdout), text(&output.stderr));
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(["run", "-n", "2", "--", "sh", "-c"]).envs(USUAL);
    let one = format!("NVSHMEM_DISABLE_P2P=$SHUNT_RANK {} apart", folder().join("odd").display());
    let output = command.arg(one).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// No port of any of them is up, and none comes back.
#[test]
fn host_calls_reach_pes_of_a_node_without_a_nic() {
    let output = run(3, &[("SHUNT_CALL_DEADLINE", "10s")], &["odd", "nearby"]);
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{said}");
    assert_eq!(out.matches("by memory").count(), 3, "{out}{said}");
}

/// With a heap of its own for each PE all of it goes by NIC.
#[test]
fn a_fence_orders_what_goes_by_nic_and_what_goes_by_memory() {
    for environment in [&[][..], &[("NVSHMEM_DISABLE_P2P", "1")][..]] {
        let output = run(3, environment, &["odd", "ordered"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{environment:?}: {}{said}", text(&output.stdout));
    }
}

#[test]
fn a_peer_that_dies_is_named_and_nobody_hangs() {
    let quick = [("SHUNT_GIVE_UP", "300ms")];
    let output = run(3, &quick, &["odd", "lost"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("nvshmem_barrier_all: peer 2 on channel 0, path "), "{said}");
    assert!(said.contains("operations unfinished") && said.contains("syndrome 0x"), "{said}");
    let output = run(3, &quick, &["odd", "told"]);
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(out.matches("told of 2: all").count(), 2, "{out}{said}");
    assert_eq!(out.matches("finalized").count(), 2, "{out}{said}");
    assert!(!said.contains("are left"), "{said}");
}

/// A wait did not ask who is lost while anybody else was left: it lasted for `SHUNT_CALL_DEADLINE`, and a loop of tests
/// for ever.
#[test]
fn a_wait_for_a_word_of_a_peer_that_dies_ends() {
    let quick = [("SHUNT_GIVE_UP", "300ms")];
    for (how, call) in [("signal", "nvshmem_signal_wait_until"), ("test", "nvshmem_uint64_test")] {
        let output = run(3, &quick, &["odd", "awaited", how]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        let want = format!("{call}: waited for 1 of 1 words from 0x");
        assert!(said.contains(&want) && said.contains("; peer 2 on channel 0, path "), "{said}");
        assert!(said.contains("every path to the peer is dead"), "{said}");
    }
    let output = run(3, &quick, &["odd", "awaited", "told"]);
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(out.matches("went on").count(), 2, "{out}{said}");
}

#[test]
fn one_pe_ends_the_job() {
    let output = run(3, &[], &["odd", "ends"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("PE 0 ended the job with nvshmem_global_exit(7)"), "{said}");
}

#[test]
fn inits_are_counted_and_the_last_finalize_ends() {
    for pes in [1, 3] {
        let output = run(pes, &[], &["odd", "nested"]);
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{out}{said}");
        assert_eq!(out.matches("nested").count() as u32, pes, "{out}{said}");
        let refused = format!("of {} is named, and the library is up as PE 0 of {pes}", pes + 1);
        assert!(said.contains(&refused) && !said.contains("are left"), "{said}");
    }
}

#[test]
fn a_job_by_unique_id() {
    let path = folder().join("id");
    let mut ranks: Vec<_> = (0..3)
        .map(|rank| {
            let mut command = Command::new(folder().join("odd"));
            command.arg("unique").arg(&path).arg(rank.to_string()).arg("3");
            command.env("NVSHMEM_SYMMETRIC_SIZE", "1M").spawn().unwrap()
        })
        .collect();
    for rank in &mut ranks {
        assert_eq!(rank.wait().unwrap().code(), Some(0));
    }
}

/// What a launcher with a key-value store does for one process.
fn keep(stream: UnixStream, store: &Mutex<BTreeMap<String, String>>, barrier: &Barrier) {
    let mut out = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let fields: BTreeMap<&str, &str> =
            line.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let answer = match fields["cmd"] {
            "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".to_owned(),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=store".to_owned(),
            "put" => {
                store.lock().unwrap().insert(fields["key"].to_owned(), fields["value"].to_owned());
                "cmd=put_result rc=0".to_owned()
            }
            "barrier_in" => {
                barrier.wait();
                "cmd=barrier_out rc=0".to_owned()
            }
            "get" => format!("cmd=get_result rc=0 value={}", store.lock().unwrap()[fields["key"]]),
            other => format!("cmd={other}_ack rc=0"),
        };
        out.write_all(format!("{answer}\n").as_bytes()).unwrap();
    }
}

#[test]
fn a_launcher_that_keeps_values_for_its_processes() {
    let (store, barrier) = (Mutex::default(), Barrier::new(3));
    std::thread::scope(|scope| {
        let start = |rank: u32| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
            let mut command = Command::new(folder().join("odd"));
            command.arg("once").env("PMI_RANK", rank.to_string()).env("PMI_SIZE", "3");
            command.env("PMI_FD", theirs.as_raw_fd().to_string()).env("NVSHMEM_SYMMETRIC_SIZE", "1M");
            let process = command.stdout(Stdio::piped()).spawn().unwrap();
            drop(theirs);
            scope.spawn(|| keep(ours, &store, &barrier));
            process
        };
        // One after another: none inherits another's socket.
        let processes: Vec<_> = (0..3).map(start).collect();
        for (rank, process) in (0..).zip(processes) {
            let output = process.wait_with_output().unwrap();
            assert_eq!(text(&output.stdout), format!("PE {rank} of 3\n"));
        }
    });
}

/// A program alone, with nothing in its environment but this.
fn alone(environment: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(folder().join("odd"));
    let runtime = std::env::var("XDG_RUNTIME_DIR").ok();
    command.args(arguments).env_clear().envs(environment.iter().copied());
    command.envs(runtime.map(|runtime| ("XDG_RUNTIME_DIR", runtime)));
    let output = command.output().unwrap();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn a_process_that_nobody_started_is_a_job_of_one() {
    let (status, said) = alone(&[("NVSHMEM_SYMMETRIC_SIZE", "1M")], &["alone"]);
    assert_eq!((status, said.contains("PE 0 of 1, twice")), (Some(0), true), "{said}");
}

/// NVSHMEM's own measurements do so; here `nvshmem_malloc` gave nothing.
#[test]
fn a_heap_that_is_asked_for_as_small_as_its_buffer_has_room_for_it() {
    for bytes in ["8192", "8388608"] {
        let (status, said) = alone(&[("NVSHMEM_SYMMETRIC_SIZE", bytes)], &["exact", bytes]);
        assert_eq!(status, Some(0), "{said}");
    }
}

/// What is set, what the program is called with, what it must say.
type Refused<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a [&'a str]);

#[test]
fn what_cannot_be_is_refused_with_what_is_wrong() {
    let twin = folder().join("other/libnvshmem_host.so.3");
    let twin = twin.to_str().unwrap();
    let cases: [Refused; 8] = [
        (&[], &["early"], &["nvshmem_quiet: the library is not initialised"]),
        (&[], &["device"], &["linked with NVIDIA's libnvshmem_device.a", "link the one of the prefix"]),
        (&[], &["comm"], &["no MPI communicator is given"]),
        (&[], &["twin", twin], &["another NVSHMEM library", "is initialised", twin, "this one is "]),
        (
            &[("NVSHMEM_IBGDA_NUM_DCI", "4")],
            &["alone"],
            &["NVSHMEM_IBGDA_NUM_DCI=4 is refused", "no DC transport"],
        ),
        (
            &[("NVSHMEM_SYMMETRIC_SIZE", "much")],
            &["alone"],
            &["NVSHMEM_SYMMETRIC_SIZE: expected", "got \"much\""],
        ),
        (&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], &["alone"], &["rank 0 of 2", "SHUNT_ROOT"]),
        (
            &[("SHUNT_NIC", "roce")],
            &["alone"],
            &["nvshmem_init: SHUNT_NIC: expected auto, mlx5 or soft, got \"roce\""],
        ),
    ];
    for (environment, arguments, wanted) in cases {
        let (status, said) = alone(environment, arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {said}");
        assert!(wanted.iter().all(|words| said.contains(words)), "{arguments:?}: {said}");
    }
}

/// Through libibverbs: the stage `mlx5` of `cargo xtask ci`.
#[test]
fn without_rdma_devices_nics_are_software_unless_others_are_asked_for() {
    if std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some()) {
        return;
    }
    let small = ("NVSHMEM_SYMMETRIC_SIZE", "1M");
    let (status, said) = alone(&[("SHUNT_NIC", "mlx5"), small], &["alone"]);
    assert_eq!(status, Some(2), "{said}");
    for words in ["SHUNT_NIC=mlx5: expected a device with an ACTIVE port", "got none", "SHUNT_NIC=soft"] {
        assert!(said.contains(words), "{said}");
    }
    let (status, said) = alone(&[("SHUNT_NIC", "auto"), small], &["alone"]);
    let why = "shunt: NICs: software, because libibverbs lists no device; this machine only";
    assert!(status == Some(0) && said.contains(why), "{said}");
    let (status, said) = alone(&[("SHUNT_NIC", "soft"), small], &["alone"]);
    assert!(status == Some(0) && !said.contains("NICs:"), "{said}");
}

/// Two PEs of which the second has something else in its environment.
fn run_unlike(
    all: &[(&str, &str)],
    (variable, value): (&str, &str),
    program: &str,
) -> (Option<i32>, String, String) {
    let program = format!("{}/{program}", folder().display());
    let script = format!("[ $SHUNT_RANK = 1 ] && export {variable}={value}; exec {program}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(["run", "-n", "2", "--", "sh", "-c", &script]);
    let output = command.envs(USUAL).envs(all.iter().copied()).output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn pes_that_were_started_differently_say_so() {
    for (variable, value) in
        [("NVSHMEM_SYMMETRIC_SIZE", "8388608"), ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0")]
    {
        let (status, _, said) = run_unlike(&[], (variable, value), "odd lost");
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(&format!("PE 1 was started with {variable} {value}, PE 0 with")), "{said}");
    }
}

#[test]
fn pes_of_different_versions_say_so() {
    let other = folder().join("newer");
    std::fs::create_dir_all(&other).unwrap();
    // This library but for the number that it tells the others.
    let (ours, theirs) = (concat!("library ", env!("CARGO_PKG_VERSION")), b"library 9.9.9");
    let mut bytes = std::fs::read(folder().join("libshunt_nvshmem.so.3")).unwrap();
    let at = bytes.windows(ours.len()).position(|window| window == ours.as_bytes()).expect("it tells it");
    bytes[at..at + theirs.len()].copy_from_slice(theirs);
    std::fs::write(other.join("libshunt_nvshmem.so.3"), bytes).unwrap();
    let (status, _, said) = run_unlike(&[], ("LD_LIBRARY_PATH", other.to_str().unwrap()), "odd lost");
    assert_eq!(status, Some(2), "{said}");
    let want =
        format!("PE 1 was started with library 9.9.9 layout {}, PE 0 with {ours}", shunt_layout::ABI_VERSION);
    assert!(said.contains(&want) && said.contains("all PEs must agree"), "{said}");
}

#[test]
fn a_port_that_is_missing_at_one_pe_is_said_and_the_job_runs() {
    let (want, _) = suite(2, &["rma"]);
    for (there, one, words) in [
        ("2", "1", &["PEs [1] have one port", "PEs [1] have fewer ports than others, 1 of 2"][..]),
        ("3", "2", &["PEs [1] have fewer ports than others, 2 of 3"]),
    ] {
        let all = [("SHUNT_SOFT_RAILS", there)];
        let (status, lines, said) = run_unlike(&all, ("SHUNT_SOFT_RAILS", one), "suite rma");
        assert_eq!((status, lines), (Some(0), want.clone()), "{said}");
        assert!(words.iter().all(|words| said.contains(words)), "{said}");
    }
}

#[test]
fn one_port_with_fault_tolerance_is_said() {
    let output = run(2, &[("NVSHMEM_ENABLE_MULTI_PORT", "0")], &["suite", "heap"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("PEs [0, 1] have one port"), "{said}");
}
