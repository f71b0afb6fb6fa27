//! NVSHMEM's device functions: the programs of the families, which are for GPUs, with their kernels compiled for the
//! processor (`nvshmem-compat/native`). Headers, tables in the heap and the functions of `kernels/src/library.rs` are
//! those of a GPU; a warp has one lane.

use crate::nvshmem::{USUAL, done, install, library, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub const FAMILIES: [&str; 9] =
    ["rma", "amo", "signal", "wait", "order", "collective", "qp", "teams", "stream"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../nvshmem-compat")
}

fn compiler() -> Command {
    let mut command = Command::new("c++");
    let crate_folder = sources();
    command.args(["-x", "c++", "-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-c"]);
    for include in ["native/include", "include", "../kernels/include"] {
        command.arg("-I").arg(crate_folder.join(include));
    }
    command
}

/// Compiles and links a program.
pub fn compile(folder: &Path, source: &Path, name: &str, flags: &[&str]) {
    let object = folder.join(format!("{name}.o"));
    done(compiler().arg("-D__CUDACC__").args(flags).arg(source).arg("-o").arg(&object));
    let mut command = Command::new("c++");
    command.arg(folder.join("host.o")).arg(&object).arg("-L").arg(folder);
    command.args(["-l:libnvshmem_host.so.3", "-l:libshunt_nvshmem_native.so", "-pthread"]);
    done(command.arg(format!("-Wl,-rpath,{}", folder.display())).arg("-o").arg(folder.join(name)));
}

/// A folder with the libraries and all programs.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("device-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        install(&folder);
        let native = "libshunt_nvshmem_native.so";
        std::fs::copy(library("shunt_nvshmem_native"), folder.join(native)).unwrap();
        done(compiler().arg(sources().join("native/host.cc")).arg("-o").arg(folder.join("host.o")));
        let families = FAMILIES.map(|name| (sources().join(format!("programs/{name}.cu")), name));
        let odd = (sources().join("native/odd.cu"), "odd");
        std::thread::scope(|scope| {
            for (source, name) in families.into_iter().chain([odd]) {
                let folder = &folder;
                scope.spawn(move || compile(folder, &source, name, &[]));
            }
        });
        folder
    })
}

/// Processes of a job, each of them started by the shell.
pub fn run(pes: u32, environment: &[(&str, &str)], program: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(["run", "-n", &pes.to_string(), "--", "sh", "-c", program]).current_dir(folder());
    // A handle each for the queue pairs that `qp` makes, beside the default one.
    command.envs(USUAL).env("NVSHMEM_IBGDA_NUM_RC_PER_PE", "4");
    command.envs(environment.iter().copied()).output().unwrap()
}

/// The status of a job of one of these programs, its lines and its messages.
pub fn job(pes: u32, environment: &[(&str, &str)], program: &str) -> (Option<i32>, String, String) {
    let output = run(pes, environment, &format!("./{program}"));
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The failovers of a job whose kernels found nothing wrong.
pub fn right(pes: u32, environment: &[(&str, &str)], family: &str) -> u64 {
    let output = run(pes, environment, &format!("./{family}"));
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    let all = format!("{family}, {pes} PEs {environment:?}\n{out}{said}");
    assert_eq!(output.status.code(), Some(0), "{all}");
    assert_eq!(out.matches("launch 0, no error, 0 wrong").count() as u32, pes, "{all}");
    assert!(!said.contains("are left") && !said.contains("could not do"), "{all}");
    let failovers = out
        .lines()
        .filter_map(|line| line.split(" failovers").next()?.rsplit(' ').next()?.parse::<u64>().ok());
    failovers.sum()
}

#[test]
fn every_family_on_one_to_four_pes() {
    for family in FAMILIES {
        for pes in 1..=4 {
            right(pes, &[], family);
        }
    }
}

#[test]
fn every_family_while_ports_go_down() {
    for family in FAMILIES {
        for pes in [2, 3] {
            let failovers = right(pes, &[("PROGRAM_FAULTS", "down")], family);
            assert!(failovers > 0, "{family}, {pes} PEs: no channel left its path");
        }
    }
}

/// The queues of kernels in memory that stands for a GPU's, those of host calls in the host's.
#[test]
fn every_family_with_queues_in_memory_of_their_own() {
    const ASKED: (&str, &str) = ("SHUNT_QUEUES", "gpu");
    for family in FAMILIES {
        assert_eq!(right(2, &[ASKED], family), 0, "{family}");
        assert!(right(2, &[ASKED, ("PROGRAM_FAULTS", "down")], family) > 0, "{family}");
    }
    let (status, _, said) = job(2, &[ASKED], "rma");
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(said.matches("shunt: queues: memory that stands for a GPU's").count(), 1, "{said}");
}

/// Nobody but the kernel that waits looks after what it sent: the agent leaves these channels to kernels.
#[test]
fn a_wait_for_a_word_finds_a_silent_path() {
    let silent =
        [("PROGRAM_FAULTS", "blackhole-tx"), ("SHUNT_SUSPECT", "100ms"), ("SHUNT_SUSPECT_FLOOR", "100ms")];
    for pes in [2, 3] {
        assert!(right(pes, &[&silent[..], &[("SHUNT_CALL_DEADLINE", "25s")]].concat(), "wait") > 0);
    }
}

#[test]
fn every_family_without_fault_tolerance() {
    for family in FAMILIES {
        assert_eq!(right(2, &[("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0")], family), 0);
    }
}

/// A kernel's call has no status: the fault is kept, for the kernel to ask and for the end of the job to tell.
#[test]
fn what_kernels_could_not_do_is_told_at_the_end() {
    let output = run(2, &[], "./odd");
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{said}");
    for pe in 0..2 {
        let told = format!(
            "PE {pe}: 1 calls of kernels could not do what they were asked for; the first was a call to PE {}, with \
             fault 4",
            1 - pe
        );
        assert!(said.contains(&told), "{told}\n{out}{said}");
    }
}

/// Nothing is taken from kernels that run on: the end is told as a call that waited for too long, or to the program.
#[test]
fn kernels_that_do_not_end_are_named_at_the_end() {
    let words = "nvshmem_finalize: waited ";
    let named = " ms for kernels that still run on GPUs [0, 2]";
    let output = run(2, &[], "./odd runs");
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(4), "{out}{said}");
    assert!(said.contains(words) && said.contains(named), "{out}{said}");
    let output = run(2, &[], "./odd told");
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{said}");
    assert_eq!(
        out.lines().filter(|line| line.contains("told: ") && line.contains(named)).count(),
        2,
        "{out}{said}"
    );
}

/// Offsets in the heap and channels would not be the same.
#[test]
fn a_pe_without_device_functions_among_others_with_them_is_named() {
    let host = crate::nvshmem::folder().join("suite");
    let program = format!("if [ $SHUNT_RANK = 1 ]; then exec {} heap; else exec ./order; fi", host.display());
    let output = run(2, &[], &program);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let want =
        "PE 1 was started with no libnvshmem_device.a, PE 0 with libnvshmem_device.a; all PEs must agree";
    assert!(said.contains(want), "{said}");
}

/// Bindings of other languages ask the loader for these functions in the host library; they stood in
/// libnvshmem_device.a alone.
#[test]
fn modules_come_to_the_device_library_by_way_of_the_host_library() {
    let output = Command::new(folder().join("odd")).arg("modules").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
