//! `cargo xtask pyverbs`: rdma-core's own tests, as Debian packages them, on a soft NIC.

use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::fs;
use std::path::{Path, PathBuf};

pub const SUMMARY: &str =
    "rdma-core's own tests of verbs (pyverbs) on a soft NIC, held against what is known to fail";
pub const HELP: &str = "pyverbs [MODULE]...

Unpacks the tests that the package rdma-core brings (/usr/share/doc/rdma-core/tests) into target/pyverbs, and runs each
module, or those named, under `shunt soft-rdma run` on what `cargo build --release` made: those of EFA on a soft EFA,
the others on a soft ConnectX. python3-pyverbs is needed.
Prints a table. What fails and is not listed in tools/soft-rdma/src/pyverbs.rs with its reason fails the task. Where the
packages are not there it says so, which is no failure.";

/// Where the package has them.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";
/// Debian's interpreter: another one does not have the package's modules.
const PYTHON: &str = "/usr/bin/python3";
/// Need other hardware: a GPU, a device given to user space.
const ELSEWHERE: &[&str] = &["cuda", "vfio"];
/// In the name of a module that is run on a soft EFA.
const EFA: &str = "efa";

/// Tests that fail, and why: what soft NICs do not have, told in docs/SOFT_RDMA.md.
const KNOWN: &[(&str, &str)] = &[
    (
        "test_mr_rereg_access",
        "a region registered again has new keys, as verbs allow; the test writes by the old",
    ),
    ("test_imported_rc_ex_rdma_write", "objects of another context cannot be imported"),
    ("test_timestamp_free_running_rc_traffic", "there is no clock page of the device"),
    (
        "test_devx_rc_qp_send_imm_traffic",
        "RST2INIT without pm_state, which the PRM asks for there, is refused; hardware seems to take CREATE_QP's",
    ),
    ("test_mkey_interleaved", "no keys over lists of memory (UMR)"),
    ("test_mkey_interleaved_new_api", "no keys over lists of memory (UMR)"),
    ("test_mkey_list", "no keys over lists of memory (UMR)"),
    ("test_mkey_list_bad_flow", "no keys over lists of memory (UMR)"),
    ("test_mkey_list_new_api", "no keys over lists of memory (UMR)"),
    ("test_mkey_remote_invalidate", "no keys over lists of memory (UMR)"),
];

/// What a module's run came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Came {
    ran: usize,
    skipped: usize,
    failed: Vec<String>,
}

pub fn run(args: &[String]) -> Result<()> {
    if let Some(flag) = args.iter().find(|arg| arg.starts_with('-')) {
        return sh::usage(format!("unknown argument '{flag}'"));
    }
    let has_pyverbs = sh::command(PYTHON).args(["-c", "import pyverbs.device"]).output();
    if !Path::new(TESTS).is_dir() || !has_pyverbs.is_ok_and(|output| output.status.success()) {
        println!("skipped: {TESTS} or {PYTHON}'s pyverbs is not there (packages rdma-core, python3-pyverbs)");
        return Ok(());
    }
    let shunt = sh::target_dir().join("release/shunt");
    if !shunt.is_file() {
        bail!("{} is not built: cargo build --release", shunt.display());
    }
    let folder = sh::target_dir().join("pyverbs");
    let modules = unpack(&folder)?;
    let (mut unexpected, mut rows) = (Vec::new(), Vec::new());
    for module in modules.iter().filter(|name| args.is_empty() || args.contains(name)) {
        let came = one(&shunt, &folder, module)?;
        let failed = came.failed.len();
        let row =
            format!("| {module} | {} | {} | {failed} |", came.ran - came.skipped - failed, came.skipped);
        println!("{row}");
        rows.push(row);
        unexpected.extend(came.failed.into_iter().filter(|name| known(name).is_none()));
    }
    if rows.is_empty() {
        return sh::usage("no module of that name; they are called test_mr, test_qp, ..");
    }
    println!("\n| module | passed | skipped | failed |\n| --- | ---: | ---: | ---: |\n{}", rows.join("\n"));
    match &unexpected[..] {
        [] => Ok(()),
        some => bail!("not known to fail: {}", some.join(" ")),
    }
}

fn known(test: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(name, _)| *name == test).map(|(_, why)| *why)
}

/// The package's files, unpacked; names of modules with tests that could run here.
fn unpack(folder: &Path) -> Result<Vec<String>> {
    let tests = folder.join("tests");
    let _ = fs::remove_dir_all(&tests);
    fs::create_dir_all(&tests).with_context(|| tests.display().to_string())?;
    let files: Vec<PathBuf> = fs::read_dir(TESTS)?.flatten().map(|entry| entry.path()).collect();
    sh::run(sh::command("cp").args(&files).arg(&tests))?;
    let packed = |path: &PathBuf| path.extension().is_some_and(|end| end == "gz");
    let mut modules = Vec::new();
    for entry in fs::read_dir(&tests)?.flatten() {
        let path = entry.path();
        if packed(&path) {
            sh::run(sh::command("gunzip").arg(&path))?;
        }
        let name = entry.file_name().to_string_lossy().split('.').next().unwrap_or_default().to_owned();
        if name.starts_with("test_") && !ELSEWHERE.iter().any(|word| name.contains(word)) {
            modules.push(name);
        }
    }
    modules.sort_unstable();
    Ok(modules)
}

fn one(shunt: &Path, folder: &Path, module: &str) -> Result<Came> {
    let mut command = sh::command("timeout");
    command.arg("300").arg(shunt).args(["soft-rdma", "run", "--fabric", "pyverbs"]);
    let device = if module.contains(EFA) { "efa_0" } else { "mlx5_0" };
    command.args(["--nic", &device[..device.len() - 2], "--", PYTHON]);
    command.arg(folder.join("tests/run_tests.py")).args(["--dev", device, "-v", &format!("tests.{module}")]);
    let output = command.output().context("cannot start timeout")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    fs::write(folder.join(format!("{module}.txt")), &text)?;
    let came = read(&text);
    match came {
        Some(came) if output.status.success() == came.failed.is_empty() => Ok(came),
        _ => bail!("{module} ended with {}:\n{}", output.status, sh::last_lines(&text, 30)),
    }
}

/// What unittest says: "Ran 27 tests in 0.9s", "FAILED (errors=1, skipped=22)", "ERROR: test_x (...)".
fn read(text: &str) -> Option<Came> {
    let line = |start: &str| text.lines().rev().find_map(|line| line.strip_prefix(start));
    let ran = line("Ran ")?.split(' ').next()?.parse().ok()?;
    let result = line("OK").or_else(|| line("FAILED"))?;
    let skipped = result.split_once("skipped=").map_or("0", |(_, rest)| rest);
    let skipped = skipped.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    let named = |line: &str| {
        let rest = line.strip_prefix("ERROR: ").or_else(|| line.strip_prefix("FAIL: "))?;
        rest.split(' ').next().map(str::to_owned)
    };
    Some(Came { ran, skipped, failed: text.lines().filter_map(named).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_unittest_is_read() {
        let text = "test_a ... ok\nERROR: test_b (tests.test_mr.MRTest.test_b)\nFAIL: test_c (x)\n\
                    Ran 27 tests in 0.918s\n\nFAILED (errors=1, failures=1, skipped=22)\n";
        let failed = ["test_b", "test_c"].map(str::to_owned).to_vec();
        assert_eq!(read(text), Some(Came { ran: 27, skipped: 22, failed }));
        let all = Some(Came { ran: 3, skipped: 0, failed: vec![] });
        assert_eq!(read("Ran 3 tests in 0.083s\n\nOK\n"), all);
        assert_eq!(read("Traceback"), None);
    }

    #[test]
    fn what_is_known_to_fail_has_a_reason() {
        assert!(KNOWN.iter().all(|(name, why)| name.starts_with("test_") && !why.is_empty()));
        assert!(known("test_mkey_list").is_some() && known("test_mkey").is_none());
    }
}
