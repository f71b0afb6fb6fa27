//! The library takes libibverbs' name and its public versions, so that the loader gives it to whoever asks for that. It
//! needs the real one by a private name: what it does not define is found there.

use std::env::var;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name under which the real library lies beside this one.
const REAL: &str = "libibverbs-system.so.1";
/// Public versions that libibverbs has had, with the functions that are defined here.
const PUBLIC: [(u32, &[&str]); 19] = [
    (0, &[]),
    (
        1,
        &[
            "ibv_open_device",
            "ibv_close_device",
            "ibv_alloc_pd",
            "ibv_dealloc_pd",
            "ibv_reg_mr",
            "ibv_dereg_mr",
            "ibv_rereg_mr",
            "ibv_create_cq",
            "ibv_destroy_cq",
            "ibv_create_srq",
            "ibv_destroy_srq",
            "ibv_create_qp",
            "ibv_modify_qp",
            "ibv_query_qp",
            "ibv_destroy_qp",
            "ibv_get_async_event",
        ],
    ),
    (2, &[]),
    (3, &[]),
    (4, &[]),
    (5, &[]),
    (6, &[]),
    (7, &["ibv_reg_mr_iova"]),
    (8, &["ibv_reg_mr_iova2"]),
    (9, &[]),
    (10, &[]),
    (11, &[]),
    (12, &[]),
    (13, &[]),
    (14, &[]),
    (15, &[]),
    (16, &[]),
    (17, &[]),
    (18, &[]),
];
/// Private versions are those of a provider's interface: each provider asks for one, and finds what is in it in the
/// real library.
const PRIVATE: u32 = 99;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = var("OUT_DIR").expect("cargo says where output goes");
    let map = Path::new(&out).join("verbs.map");
    std::fs::write(&map, versions()).expect("the output folder can be written");
    let stub = Path::new(&out).join(REAL);
    // The linker wants to see the library that it writes down as needed.
    let made = Command::new(var("CC").unwrap_or_else(|_| "cc".into()))
        .args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-Wl,-soname", &format!("-Wl,{REAL}"), "-o"])
        .arg(&stub)
        .status();
    assert!(made.is_ok_and(|status| status.success()), "cc: expected an empty shared library; install gcc");
    let jumps = jumps(Path::new(&out));
    for argument in [
        jumps.display().to_string(),
        "-Wl,-soname,libibverbs.so.1".to_owned(),
        "-Wl,-Bsymbolic-functions".to_owned(),
        "-Wl,-rpath,$ORIGIN".to_owned(),
        "-Wl,--no-as-needed".to_owned(),
        stub.display().to_string(),
        // rustc hands the linker a list of symbols that has no version, and lld alone takes a second one beside it.
        format!("-Wl,--version-script={}", map.display()),
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}

/// A jump for each function that is defined here: rustc gives its own symbols no version, and an object's keep theirs.
fn jumps(out: &Path) -> PathBuf {
    let (source, object) = (out.join("jumps.s"), out.join("jumps.o"));
    let jump = |name: &&str| format!(".globl {name}\n.type {name},@function\n{name}: jmp shunt_{name}@PLT\n");
    let names = PUBLIC.iter().flat_map(|(_, names)| names.iter());
    let end = ".section .note.GNU-stack,\"\",@progbits\n";
    let text = format!(".text\n{}{end}", names.map(jump).collect::<String>());
    std::fs::write(&source, text).expect("the output folder can be written");
    let mut cc = Command::new(var("CC").unwrap_or_else(|_| "cc".into()));
    let made = cc.arg("-c").arg(&source).arg("-o").arg(&object).status();
    assert!(made.is_ok_and(|status| status.success()), "cc: expected an object; install gcc");
    object
}

fn versions() -> String {
    let node = |(minor, names): (u32, &[&str])| {
        let names: String = names.iter().map(|name| format!(" {name};")).collect();
        let global = if names.is_empty() { String::new() } else { format!(" global:{names}") };
        format!("IBVERBS_1.{minor} {{{global} }};\n")
    };
    let public = PUBLIC.map(node).concat();
    let private = (1..=PRIVATE).map(|number| format!("IBVERBS_PRIVATE_{number} {{ }};\n"));
    public + &private.collect::<String>()
}
