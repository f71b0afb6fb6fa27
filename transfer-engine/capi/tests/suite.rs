//! The library and its header as C programs use them. Without a C compiler there is nothing that could use them: the
//! tests say that they are skipped, and fail where `CI` is set, because there one is installed.

use shunt_task::ports;
use shunt_transfer_c::api::ends::{Counters, Options};
use shunt_transfer_c::api::operations::{Event, Outcome};
use shunt_transfer_c::api::peers::Changed;
use shunt_transfer_c::api::several::{RawOther, RawShare};
use shunt_transfer_c::failure::Status;
use shunt_transfer_c::raw::RawPages;
use shunt_transfer_engine::message::MESSAGE_MAX;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A fault or a cancel struck nothing: the run is made again, so often at most.
const NOT_EXERCISED: i32 = 4;
const RUNS: usize = 5;
/// Held by a run, so that runs do not take each other's processors.
static RUN: Mutex<()> = Mutex::new(());

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder with the library under the names that users link and load. `None`: no C compiler, and a line that says so.
fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        if let Err(error) = Command::new("cc").arg("--version").output() {
            assert!(std::env::var_os("CI").is_none(), "cc: {error}, and CI is set: install it there");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let own = std::env::current_exe().expect("this program's path");
        let library = own.with_file_name("libshunt_transfer_c.so");
        std::fs::copy(&library, folder.join("libshunt_transfer.so.0")).expect("built with its tests");
        std::os::unix::fs::symlink("libshunt_transfer.so.0", folder.join("libshunt_transfer.so"))
            .expect("a link");
        Some(folder)
    });
    if made.is_none() {
        println!("SKIPPED: no C compiler 'cc'");
    }
    made.as_deref()
}

/// Compiles a source with every warning an error, and links it with the library.
fn compiled(folder: &Path, source: &Path, compiler: &[&str], name: &str) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let program = folder.join(name);
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if program.is_file() {
        return program;
    }
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-g", "-I"]);
    command.arg(home().join("include")).arg(source).arg("-o").arg(&program);
    command.arg("-L").arg(folder).args(["-Wl,--no-as-needed", "-lshunt_transfer", "-lpthread"]);
    let output = command.arg(format!("-Wl,-rpath,{}", folder.display())).output().expect("it starts");
    assert!(output.status.success(), "{command:?}\n{}", said(&output));
    program
}

const C: &[&str] = &["cc", "-std=c11"];
const CPLUSPLUS: &[&str] = &["c++", "-x", "c++", "-std=c++17"];

fn program(folder: &Path, name: &str) -> PathBuf {
    compiled(folder, &home().join(format!("tests/c/{name}.c")), C, name)
}

/// A program without a launcher's variables, on soft NICs.
fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let launcher =
            ["SHUNT_", "PMI", "OMPI_", "PRTE_", "SLURM_"].iter().any(|start| name.starts_with(start));
        if launcher || ["RANK", "WORLD_SIZE", "LOCAL_RANK"].contains(&name.as_str()) {
            command.env_remove(name);
        }
    }
    // Ends share the processors with whatever else runs: no peer is given up for that.
    command
        .env("SHUNT_NIC", "soft")
        .env("SHUNT_GIVE_UP", "60s")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A runtime folder of one job: its soft NICs meet nobody else's.
struct Runtime(PathBuf);

impl Runtime {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("shunt-capi-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    /// Starts the ends of a job, each with variables of its own.
    fn started(&self, program: &Path, words: &[&str], ends: &[&[(&str, &str)]]) -> Vec<Child> {
        let root = format!("127.0.0.1:{}", ports::free(1).expect("a port"));
        let start = |(rank, own): (usize, &&[(&str, &str)])| {
            let mut command = plain(program);
            command.args(words).envs([("SHUNT_RANK", rank.to_string().as_str()), ("SHUNT_WORLD", "2")]);
            command.env("SHUNT_ROOT", &root).env("XDG_RUNTIME_DIR", &self.0);
            command.envs(own.iter().copied()).spawn().expect("it starts")
        };
        ends.iter().enumerate().map(start).collect()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What becomes of the ends of a job.
fn job(program: &Path, words: &[&str], ends: &[&[(&str, &str)]]) -> Vec<Output> {
    let _alone = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::new();
    let children = runtime.started(program, words, ends);
    children.into_iter().map(|child| child.wait_with_output().expect("its end")).collect()
}

/// Runs until a fault strikes: nothing else is excused.
fn exercised(mut run: impl FnMut() -> Output) -> String {
    let mut last = String::new();
    for _ in 0..RUNS {
        let output = run();
        last = said(&output);
        match output.status.code() {
            Some(0) => return last,
            Some(NOT_EXERCISED) => {}
            other => panic!("expected 0, got {other:?}: {last}"),
        }
    }
    panic!("expected a fault that strikes in one of {RUNS} runs, got {last}");
}

/// What the library says of the numbers and structures in the header, in the words of `layout.c`.
fn own_layout() -> String {
    const NAMES: [&str; 19] = [
        "OK",
        "PEER_LOST",
        "PEER_LEFT",
        "CANCELLED",
        "UNCERTAIN",
        "UNPROVEN",
        "DENIED",
        "MISSING",
        "OUT_OF_REGION",
        "RIGHTS",
        "REFUSED",
        "DESCRIPTION",
        "HANDLE",
        "TOO_SMALL",
        "TIMEOUT",
        "CLOSED",
        "NICS",
        "SYSTEM",
        "DEFECT",
    ];
    let mut text = String::new();
    assert_eq!(NAMES.len(), Status::ALL.len());
    for (name, status) in NAMES.iter().zip(Status::ALL) {
        let camel = |word: &str| word[..1].to_owned() + &word[1..].to_lowercase();
        assert_eq!(format!("{status:?}"), name.split('_').map(camel).collect::<String>());
        let _ = writeln!(text, "STE_{name} {}", *status as i32);
    }
    let version = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse::<u32>().expect("a number"));
    let _ = writeln!(text, "STE_VERSION {}", version.fold(0, |all, part| all << 8 | part));
    macro_rules! layout {
        ($of:ty, $name:literal, $($field:ident)*) => {
            let _ = writeln!(text, "{} {}", $name, size_of::<$of>());
            $(let _ = writeln!(text, "{}.{} {}", $name, stringify!($field), offset_of!($of, $field));)*
        };
    }
    layout!(Options, "ste_options", bytes timeout_ns nic rails ends transport soft_gbps provider addresses);
    layout!(RawPages, "ste_pages", indices count stride offset);
    layout!(Outcome, "ste_result", status quiet);
    layout!(Event, "ste_event", operation user result);
    layout!(Counters, "ste_counters", failovers opened again);
    layout!(RawShare, "ste_share", peer reserved to to_offset from_offset bytes imm);
    layout!(RawOther, "ste_other", peer reserved target);
    layout!(Changed, "ste_change", peer joined);
    let _ = writeln!(text, "STE_MESSAGE_MAX {MESSAGE_MAX}");
    let _ = writeln!(text, "STE_OPTIONS {} 5", size_of::<Options>());
    text
}

#[test]
fn header_and_library_agree_in_c_and_in_cplusplus() {
    let Some(folder) = folder() else { return };
    let source = home().join("tests/c/layout.c");
    for (compiler, name) in [(C, "layout"), (CPLUSPLUS, "layout-cplusplus")] {
        let output = plain(&compiled(folder, &source, compiler, name)).output().expect("it starts");
        assert_eq!(said(&output), own_layout(), "{name}");
    }
}

#[test]
fn the_library_has_the_functions_of_the_header_and_no_others() {
    let Some(folder) = folder() else { return };
    let header = std::fs::read_to_string(home().join("include/shunt_transfer.h")).expect("the header");
    let declared = |line: &str| {
        let before =
            ["int ", "uint32_t ", "const char *"].into_iter().find(|before| line.starts_with(before))?;
        Some(line[before.len()..].split_once('(')?.0.to_owned())
    };
    let declared: BTreeSet<String> = header.lines().filter_map(declared).collect();
    assert!(declared.len() > 20 && declared.contains("ste_open"), "{declared:?}");
    let listed = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(folder.join("libshunt_transfer.so.0"))
        .output()
        .expect("nm comes with the compiler");
    let text = said(&listed);
    let names = text.lines().filter_map(|line| line.rsplit(' ').next().map(str::to_owned));
    assert_eq!(names.filter(|name| name.starts_with("ste_")).collect::<BTreeSet<_>>(), declared);
}

/// Runs a program whose faults strike, and finds its words.
fn alone(program: &Path, words: &[&str], expected: &str) {
    let run = || {
        let _alone = RUN.lock().unwrap_or_else(PoisonError::into_inner);
        plain(program).args(words).output().expect("it starts")
    };
    let said = exercised(run);
    assert!(said.contains(expected), "{said}");
}

#[test]
fn two_ends_of_a_process_move_every_byte() {
    let Some(folder) = folder() else { return };
    alone(&program(folder, "ends"), &[], "every byte as it was sent");
}

#[test]
fn what_makes_no_sense_is_refused_and_posts_nothing() {
    let Some(folder) = folder() else { return };
    alone(&program(folder, "refusals"), &[], "refused, and nothing posted");
}

#[test]
fn every_call_refuses_nothing_where_something_must_be() {
    let Some(folder) = folder() else { return };
    alone(&program(folder, "nulls"), &[], "refused: ");
}

#[test]
fn ends_send_messages_scatter_and_meet() {
    let Some(folder) = folder() else { return };
    alone(&program(folder, "several"), &[], "every message and every share came");
}

#[test]
fn functions_are_called_at_ends_and_for_words() {
    let Some(folder) = folder() else { return };
    alone(&program(folder, "calls"), &[], "each function once, and every last value");
}

#[test]
fn ends_move_every_byte_over_libfabric_and_its_options_are_looked_at() {
    let Some(folder) = folder() else { return };
    let run = || {
        let _alone = RUN.lock().unwrap_or_else(PoisonError::into_inner);
        plain(&program(folder, "fabric")).env_remove("SHUNT_NIC").output().expect("it starts")
    };
    let first = run();
    if said(&first).contains("install libfabric1") {
        assert!(std::env::var_os("CI").is_none(), "CI is set, and libfabric is missing");
        return println!("SKIPPED: {}", said(&first));
    }
    let mut first = Some(first);
    let said = exercised(|| first.take().unwrap_or_else(run));
    assert!(said.contains("every byte over libfabric"), "{said}");
}

#[test]
fn nodes_connect_talk_take_memory_back_and_cut_each_other_off() {
    let Some(folder) = folder() else { return };
    let run = || {
        let _alone = RUN.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = Runtime::new();
        let mut command = plain(&program(folder, "nodes"));
        command.env("XDG_RUNTIME_DIR", &runtime.0).output().expect("it starts")
    };
    let said = exercised(run);
    assert!(said.contains("nothing landed behind a word that nothing lands"), "{said}");
}

#[test]
fn notifications_of_the_plugin_for_nixl_come_in_order_while_a_port_is_down() {
    let Some(folder) = folder() else { return };
    let source = home().join("tests/c/notes.cpp");
    alone(&compiled(folder, &source, CPLUSPLUS, "notes"), &[], "300 notifications each way, in order");
}

#[test]
fn memory_that_a_nic_does_not_let_go_of_is_not_given_back() {
    let Some(folder) = folder() else { return };
    alone(&program(folder, "ends"), &["gone"], "in use; call it again");
}

#[test]
fn the_pages_program_moves_pages_between_two_processes_while_a_port_is_down() {
    let Some(folder) = folder() else { return };
    let page = std::fs::read_to_string(home().join("../../docs/how-to/transfer.md")).expect("the page");
    let text = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program in C");
    let source = folder.join("pages.c");
    std::fs::write(&source, text).expect("it can be written");
    let program = compiled(folder, &source, C, "pages");
    for _ in 0..RUNS {
        let outputs = job(&program, &[], &[&[], &[]]);
        let [first, second] = [&outputs[0], &outputs[1]].map(said);
        assert_eq!([outputs[0].status.code(), outputs[1].status.code()], [Some(0); 2], "{first}{second}");
        assert!(second.contains("end 1: wrong bytes: 0"), "{first}{second}");
        let failovers = first.split("pages written, failovers: ").nth(1).expect("it says how many");
        if !failovers.starts_with('0') {
            return;
        }
    }
    panic!("expected a failover in one of {RUNS} runs, got none");
}

#[test]
fn a_peer_that_is_killed_is_lost_and_what_was_expected_of_it_is_missing() {
    let Some(folder) = folder() else { return };
    let own: &[(&str, &str)] = &[("SHUNT_GIVE_UP", "500ms")];
    let outputs = job(&program(folder, "job"), &["lost"], &[own, own]);
    let text = said(&outputs[0]) + &said(&outputs[1]);
    assert_eq!((outputs[0].status.code(), outputs[1].status.code()), (Some(0), None), "{text}");
    assert!(text.contains("end 0: peer 1: expected a rail that works within"), "{text}");
}

#[test]
fn a_peer_that_is_killed_while_it_is_only_waited_for_is_lost() {
    let Some(folder) = folder() else { return };
    let own: &[(&str, &str)] = &[("SHUNT_GIVE_UP", "500ms")];
    let outputs = job(&program(folder, "job"), &["waits"], &[own, own]);
    let text = said(&outputs[0]) + &said(&outputs[1]);
    assert_eq!((outputs[0].status.code(), outputs[1].status.code()), (Some(0), None), "{text}");
}

#[test]
fn a_job_that_cannot_start_says_so_in_time() {
    let Some(folder) = folder() else { return };
    let program = program(folder, "job");
    // The other end never comes.
    let alone = (Status::Timeout as i32).to_string();
    let outputs = job(&program, &["open", "2", &alone, "expected all ends within 2s"], &[&[]]);
    assert_eq!(outputs[0].status.code(), Some(0), "{}", said(&outputs[0]));
    // It has another secret, which end 1 is told. End 0 goes on waiting.
    let _alone = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    let [ours, theirs] = ["0123456789abcdef", "fedcba9876543210"].map(|secret| [("SHUNT_SECRET", secret)]);
    let refused = (Status::Nics as i32).to_string();
    let words = ["open", "50", &refused, "does not have the same secret"];
    let runtime = Runtime::new();
    let mut children = runtime.started(&program, &words, &[&ours, &theirs]);
    let last = children.pop().expect("two ends").wait_with_output().expect("its end");
    for mut waiting in children {
        waiting.kill().expect("it is ours");
        waiting.wait().expect("its end");
    }
    assert_eq!(last.status.code(), Some(0), "{}", said(&last));
}
