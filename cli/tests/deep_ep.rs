//! DeepEP's normal kernels between nodes: ours in its roles (`deep-ep-bridge/cuda/internode.cu`), through the header
//! that stands in the place of its own, compiled for the processor. Its words are added to and cleared between rounds,
//! and its waits look at nothing but a clock.

use crate::device_functions::{compile, folder, job};
use std::path::Path;

const SOURCE: &str = "../deep-ep-bridge/cuda/internode.cu";

/// Compiled with these definitions, as a program of this name.
fn make(name: &str, definitions: &[&str]) {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = format!("-I{}", crate_folder.join("../deep-ep-bridge/include").display());
    let flags: Vec<&str> = definitions.iter().copied().chain([include.as_str()]).collect();
    compile(folder(), &crate_folder.join(SOURCE), name, &flags);
}

/// A job of it, and whether all its PEs say that nothing was wrong; with the failovers.
fn rounds(pes: u32, program: &str, environment: &[(&str, &str)]) -> (bool, u64, String) {
    let (status, out, said) = job(pes, environment, program);
    let all = format!("{program}, {pes} PEs {environment:?}\n{out}{said}");
    let right = out.matches("launch 0, no error, 0 wrong").count() as u32 == pes;
    assert_eq!(right, status == Some(0), "{all}");
    assert!(!said.contains("are left"), "{all}");
    let failovers = out
        .lines()
        .filter_map(|line| line.split(" failovers").next()?.rsplit(' ').next()?.parse::<u64>().ok());
    (right, failovers.sum(), all)
}

const DOWN: (&str, &str) = ("PROGRAM_FAULTS", "down");
const LATE: (&str, &str) = ("PROGRAM_FAULTS", "delay=20ms");
/// Waits that nothing ends.
const SHORT: (&str, &str) = ("PROGRAM_PATIENCE", "5");

#[test]
fn rounds_of_dispatch_and_combine_with_and_without_ports_that_go_down() {
    make("internode", &[]);
    for pes in [1, 2, 3] {
        let (right, failovers, all) = rounds(pes, "internode", &[]);
        assert!(right && failovers == 0, "{all}");
    }
    for pes in [2, 3] {
        let (right, failovers, all) = rounds(pes, "internode", &[DOWN]);
        assert!(right && failovers > 0, "{all}");
    }
    let (right, _, all) = rounds(2, "internode", &[LATE]);
    assert!(right, "{all}");
    // Heads share their queue pairs with chunks.
    let (right, failovers, all) = rounds(2, "internode", &[DOWN, ("NVSHMEM_IBGDA_NUM_RC_PER_PE", "2")]);
    assert!(right && failovers > 0, "{all}");
    let (right, failovers, all) = rounds(2, "internode", &[("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0")]);
    assert!(right && failovers == 0, "{all}");
}

/// What the rounds above rest on, taken away: the look of the clock, the quiet before words are cleared, an add that is
/// made once, the queue pair that chunk and tail share.
#[test]
fn rounds_notice_what_is_broken() {
    let notices = |name: &str, definition: &str, environment: &[(&str, &str)]| {
        make(name, &[definition]);
        let (right, _, all) = rounds(2, name, environment);
        assert!(!right, "not noticed: {all}");
    };
    let short_call = ("SHUNT_CALL_DEADLINE", "20s");
    notices("blind", "-DSHUNT_DEEP_EP_CLOCK_LOOKS=0", &[DOWN, SHORT, short_call]);
    notices("unquiet", "-DBREAK=BREAK_NO_QUIET", &[LATE, SHORT]);
    notices("twice", "-DBREAK=BREAK_ADD_TWICE", &[SHORT]);
    notices("elsewhere", "-DBREAK=BREAK_TAIL_ELSEWHERE", &[LATE, SHORT]);
}

/// Versions of DeepEP behind V1 have one of the three headers that the header looked for, and it then took none.
#[test]
fn each_header_that_a_version_of_deep_ep_has_is_taken() {
    for (name, others) in
        [("later", &["utils"][..]), ("v1", &["configs", "exception", "utils"]), ("none", &[])]
    {
        let theirs = folder().join(format!("deep-ep-{name}"));
        std::fs::create_dir_all(&theirs).unwrap();
        let mut source = String::from("#include \"ibgda_device.cuh\"\n");
        for other in ["configs", "exception", "utils"] {
            if others.contains(&other) {
                std::fs::write(theirs.join(format!("{other}.cuh")), format!("#define THEIR_{other}\n"))
                    .unwrap();
            }
            let missing = if others.contains(&other) { "ndef" } else { "def" };
            source += &format!("#if{missing} THEIR_{other}\n#error \"{other}\"\n#endif\n");
        }
        source += "int main() { return 0; }\n";
        std::fs::write(theirs.join("kernels.cu"), source).unwrap();
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deep-ep-bridge/include");
        let include = [format!("-I{}", ours.display()), format!("-I{}", theirs.display())];
        let flags = [include[0].as_str(), include[1].as_str(), "-Wno-unused-function"];
        compile(folder(), &theirs.join("kernels.cu"), &format!("deep-ep-{name}-kernels"), &flags);
    }
}
