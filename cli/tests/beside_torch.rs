//! The library in a process that has NVIDIA's NVSHMEM mapped as well, as PyTorch for CUDA has it: a stand-in for that
//! library, under its name and with the functions that would be called by mistake; one for PyTorch, which needs it by a
//! run path; and an extension as DeepEP's is, linked with ours.

use crate::nvshmem::{USUAL, done, install, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// NVIDIA's: says whether it is initialised as the environment has it, and is not called otherwise.
const THEIRS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int nvshmemx_init_status(void) { const char *up = getenv("THEIRS_UP"); return up ? atoi(up) : 0; }
#define NOT_MINE(name) void name(void) { fprintf(stderr, "theirs: %s\n", #name); _Exit(77); }
NOT_MINE(nvshmem_init) NOT_MINE(nvshmemi_init_thread) NOT_MINE(nvshmem_my_pe) NOT_MINE(nvshmem_n_pes)
NOT_MINE(nvshmem_malloc) NOT_MINE(nvshmem_free) NOT_MINE(nvshmem_putmem) NOT_MINE(nvshmem_barrier_all)
NOT_MINE(nvshmem_finalize) NOT_MINE(nvshmemi_finalize) NOT_MINE(nvshmem_quiet)
NOT_MINE(nvshmemid_init_status) NOT_MINE(nvshmemid_hostlib_init_attr) NOT_MINE(nvshmemid_hostlib_finalize)
NOT_MINE(nvshmemx_cumodule_init) NOT_MINE(nvshmemx_mc_ptr)
int nvshmem_selected_device_transport = 7;
"#;

/// It has a version at each of its symbols.
const VERSION: &str = "NVSHMEM { global: nvshmem*; local: *; };\n";

/// PyTorch: needs NVIDIA's.
const TORCH: &str =
    "int nvshmemx_init_status(void); int torch_status(void) { return nvshmemx_init_status(); }\n";

/// The part of it that is linked with NVIDIA's device library, which asks for these.
const TORCH_NVSHMEM: &str = r#"
extern int nvshmem_selected_device_transport;
int nvshmemid_init_status(void), nvshmemid_hostlib_init_attr(void), nvshmemx_cumodule_init(void);
void nvshmemid_hostlib_finalize(void), *nvshmemx_mc_ptr(void);
void *torch_needs[] = {nvshmemid_init_status, nvshmemid_hostlib_init_attr, nvshmemid_hostlib_finalize,
                       nvshmemx_cumodule_init, nvshmemx_mc_ptr};
int torch_transport(void) { return nvshmem_selected_device_transport; }
"#;

/// A program that is linked with that part.
const LINKED: &str = r#"
#include <stdio.h>
int torch_transport(void);
int main(void) { return printf("transport %d\n", torch_transport()) < 0; }
"#;

/// DeepEP's extension: the next PE gets this one's number.
const EXTENSION: &str = r#"
#include <nvshmem.h>
#include <stdio.h>
int extension_run(void) {
    nvshmem_init();
    int me = nvshmem_my_pe(), pes = nvshmem_n_pes();
    int *word = nvshmem_malloc(sizeof(int));
    *word = -1;
    nvshmem_barrier_all();
    nvshmem_putmem(word, &me, sizeof me, (me + 1) % pes);
    nvshmem_barrier_all();
    int got = *word;
    printf("PE %d of %d got %d\n", me, pes, got);
    nvshmem_free(word);
    nvshmem_finalize();
    return got == (me + pes - 1) % pes ? 0 : 5;
}
"#;

/// Opens what it is told in that order, as an interpreter opens its modules, and runs the extension.
const HOST: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    void *extension = 0;
    for (int at = 1; at < argc; at++) {
        void *handle = dlopen(argv[at], RTLD_NOW | RTLD_LOCAL);
        if (!handle) { fprintf(stderr, "%s\n", dlerror()); return 9; }
        if (strstr(argv[at], "extension")) extension = handle;
        int (*transport)(void) = (int (*)(void))dlsym(handle, "torch_transport");
        if (transport) printf("transport %d\n", transport());
    }
    if (!extension) return 0;
    int (*run)(void) = (int (*)(void))dlsym(extension, "extension_run");
    return run ? run() : 8;
}
"#;

fn shared(folder: &Path, source: &str, name: &str, more: &[String]) {
    let file = folder.join(name).with_extension("c");
    std::fs::write(&file, source).unwrap();
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC"]).arg(&file).arg("-o").arg(folder.join(name)).args(more);
    done(&mut command);
}

/// A folder with all of it: ours, and theirs in a folder of its own.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("torch-{}", std::process::id()));
        let theirs = folder.join("nvidia");
        std::fs::create_dir_all(&theirs).unwrap();
        install(&folder);
        let name = "libnvshmem_host.so.3";
        let version = theirs.join("version");
        std::fs::write(&version, VERSION).unwrap();
        let version = format!("-Wl,--version-script={}", version.display());
        shared(&theirs, THEIRS, name, &[format!("-Wl,-soname,{name}"), version]);
        // At night it is NVIDIA's own.
        if let Some(real) = std::env::var_os("SHUNT_THEIRS") {
            std::fs::copy(real, theirs.join(name)).unwrap();
        }
        let near = |folder: &Path| {
            [
                "-L".into(),
                folder.display().to_string(),
                format!("-l:{name}"),
                format!("-Wl,-rpath,{}", folder.display()),
            ]
        };
        shared(&folder, TORCH, "libtorch_cuda.so", &near(&theirs));
        shared(&folder, TORCH_NVSHMEM, "libtorch_nvshmem.so", &near(&theirs));
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nvshmem-compat/include");
        let ours = [&near(&folder)[..], &["-I".into(), include.display().to_string()]].concat();
        shared(&folder, EXTENSION, "extension.so", &ours);
        std::fs::write(folder.join("host.c"), HOST).unwrap();
        done(Command::new("cc").arg(folder.join("host.c")).arg("-o").arg(folder.join("host")).arg("-ldl"));
        folder
    })
}

fn run(order: &[&str], theirs_up: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(["run", "-n", "2", "--"]).arg(folder().join("host"));
    command.args(order.iter().map(|name| folder().join(name))).envs(USUAL).env("THEIRS_UP", theirs_up);
    command.output().unwrap()
}

#[test]
fn whatever_comes_first_the_extension_calls_ours() {
    let (torch, more, extension) = ("libtorch_cuda.so", "libtorch_nvshmem.so", "extension.so");
    let orders = [
        &[extension][..],
        &[torch, extension],
        &[extension, torch],
        &[torch, extension, more],
        &[extension, more],
    ];
    for order in orders {
        let output = run(order, "0");
        let (said, out) = (text(&output.stderr), text(&output.stdout));
        assert_eq!(output.status.code(), Some(0), "{order:?}\n{out}{said}");
        assert!(out.contains("PE 0 of 2 got 1") && out.contains("PE 1 of 2 got 0"), "{order:?}\n{out}");
        // At night it is NVIDIA's own, which has another number there.
        let of_theirs = std::env::var_os("SHUNT_THEIRS").is_some() || out.contains("transport 7");
        assert!(!order.contains(&more) || of_theirs, "{order:?}\n{out}");
    }
}

#[test]
fn one_that_is_initialised_is_refused_with_both_names() {
    let output = run(&["libtorch_cuda.so", "extension.so"], "2");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let theirs = folder().join("nvidia/libnvshmem_host.so.3");
    assert!(said.contains("is initialised") && said.contains(theirs.to_str().unwrap()), "{said}");
    assert!(said.contains("libshunt_nvshmem.so.3"), "{said}");
}

/// PyTorch's part for NVSHMEM is linked with NVIDIA's device library: six of its symbols were not in this one, and none
/// had a version, which the loader says.
#[test]
fn what_was_linked_with_nvidias_loads_with_ours_in_its_place() {
    let (folder, program) = (folder(), folder().join("linked"));
    std::fs::write(folder.join("linked.c"), LINKED).unwrap();
    let mut command = Command::new("cc");
    command.arg(folder.join("linked.c")).arg("-L").arg(folder).arg("-l:libtorch_nvshmem.so");
    command.arg(format!("-Wl,-rpath,{0},-rpath-link,{0}/nvidia", folder.display()));
    done(command.arg("-o").arg(&program));
    let mut command = Command::new(program);
    let output = command.env("LD_LIBRARY_PATH", folder).env("LD_BIND_NOW", "1").output().unwrap();
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), out.as_str()), (Some(0), "transport 0\n"), "{said}");
    // Who opens a library later is told nothing; a program that starts is.
    assert!(!cfg!(target_arch = "x86_64") || said.is_empty(), "{said}");
}
