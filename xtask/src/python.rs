//! The stage `python`: the wheel made, installed into a fresh virtual environment, its README's examples and its tests
//! run there, and a job of processes on the interposer's soft NICs.

use anyhow::{Context, Result, bail};
use shunt_task::stages::Count;
use shunt_task::{ports, sh};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What makes wheels.
const MATURIN: &str = "maturin>=1.7,<2";
/// What holds types.
const MYPY: &str = "mypy>=1.11,<3";

fn pip(python: &Path, what: &[&str]) -> Result<()> {
    let mut command = sh::command(&python.to_string_lossy());
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(what);
    sh::capture(&mut command).context("a network with Python's package index is needed")?;
    Ok(())
}

/// A virtual environment; its interpreter.
fn environment(interpreter: &Path, home: &Path) -> Result<PathBuf> {
    let mut make = sh::command(&interpreter.to_string_lossy());
    sh::capture(make.args(["-m", "venv"]).arg(home)).context("python3 of 3.10 or later is needed")?;
    Ok(home.join("bin/python"))
}

/// A fresh virtual environment with a wheel and what it needs; its interpreter.
pub fn installed(interpreter: &Path, folder: &Path, wheel: &Path) -> Result<PathBuf> {
    emptied(folder)?;
    let python = environment(interpreter, folder)?;
    pip(&python, &[&wheel.to_string_lossy()])?;
    Ok(python)
}

/// An empty folder.
pub fn emptied(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Programs of Python's package index, kept in an environment of their own; its folder of programs.
pub fn tools(home: &Path, packages: &[&str]) -> Result<PathBuf> {
    let tools = home.join("tools");
    let python = tools.join("bin/python");
    if !python.is_file() {
        environment(Path::new("python3"), &tools)?;
    }
    pip(&python, packages)?;
    Ok(tools.join("bin"))
}

/// A wheel of the release build, alone in `out`.
pub fn build(home: &Path, out: &Path, how: impl FnOnce(&mut Command)) -> Result<PathBuf> {
    let tools = tools(home, &[MATURIN])?;
    emptied(out)?;
    let mut build = sh::command(&tools.join("maturin").to_string_lossy());
    build.args(["build", "--release", "--quiet", "-m", "python/Cargo.toml", "--out"]).arg(out);
    how(build.arg("--interpreter").arg(tools.join("python")));
    // Its linker is a module of that environment's Python, which is looked for on the path.
    let path = std::env::var_os("PATH").unwrap_or_default();
    build.env(
        "PATH",
        std::env::join_paths(std::iter::once(tools.clone()).chain(std::env::split_paths(&path)))?,
    );
    sh::capture(&mut build)?;
    let mut made = std::fs::read_dir(out)?.flatten().map(|entry| entry.path());
    made.next().with_context(|| format!("maturin made no wheel in {}", out.display()))
}

/// The wheel for this machine alone.
fn wheel(home: &Path) -> Result<PathBuf> {
    build(home, &home.join("wheels"), |_| {})
}

/// Programs in a page that stand between marks with this word.
fn programs<'page>(page: &'page str, word: &str) -> Vec<&'page str> {
    let mark = format!("```{word}\n");
    let inside = page.split(mark.as_str()).skip(1);
    inside.filter_map(|rest| rest.split_once("```").map(|(program, _)| program)).collect()
}

/// The one program of processes in a page that holds these words.
fn program<'page>(page: &'page str, words: &str) -> Result<&'page str> {
    let mut all = programs(page, "py").into_iter().filter(|program| program.contains(words));
    let program =
        all.next().with_context(|| format!("python/README.md: expected a program with {words}, got none"))?;
    if all.next().is_some() {
        bail!("python/README.md: expected one program with {words}, got several");
    }
    Ok(program)
}

/// Reads "Ran 12 tests in 3.4s" of unittest.
fn tests_run(said: &str) -> Option<usize> {
    said.lines().rev().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok())
}

/// Reads "OK (skipped=2)" of unittest: tests that were counted as run, and were not.
fn tests_skipped(said: &str) -> usize {
    let told = |line: &str| line.split_once("skipped=")?.1.split([',', ')']).next()?.parse().ok();
    said.lines().rev().filter(|line| line.starts_with("OK")).find_map(told).unwrap_or(0)
}

/// Runs what must end with 0; all that it said.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", sh::shown(command)))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    if !output.status.success() {
        bail!("`{}` ended with {}\n{}", sh::shown(command), output.status, sh::last_lines(&said, 60));
    }
    Ok(said)
}

/// What runs `python/tests/processes.py`.
pub struct Interpreter {
    pub program: PathBuf,
    /// What carries its processes' group.
    pub group: &'static str,
}

fn has_torch(python: &str) -> bool {
    let probe = "import sys, numpy, torch.distributed; assert sys.version_info >= (3, 10)";
    sh::stdout_of(sh::command(python).args(["-c", probe])).is_some()
}

/// An interpreter with the wheel of this build: beside torch, if one here has it.
pub fn of_processes() -> Result<Interpreter> {
    let home = sh::target_dir().join("python");
    let wheel = wheel(&home)?;
    let theirs = ["python3", "/usr/bin/python3"].into_iter().find(|python| has_torch(python));
    let folder = home.join(if theirs.is_some() { "beside-torch" } else { "processes" });
    emptied(&folder)?;
    let mut make = sh::command(theirs.unwrap_or("python3"));
    make.args(["-m", "venv", "--without-pip"]).args(theirs.map(|_| "--system-site-packages")).arg(&folder);
    sh::capture(&mut make)?;
    let program = folder.join("bin/python");
    let mut install = sh::command(&home.join("tools/bin/python").to_string_lossy());
    install.args(["-m", "pip", "--python"]).arg(&program).args(["install", "--quiet"]);
    install.args(theirs.map(|_| "--no-deps")).arg(&wheel);
    sh::capture(&mut install).context("a network with Python's package index is needed")?;
    let group = if theirs.is_some() {
        "torch.distributed with gloo"
    } else {
        "the script's own group, no torch here"
    };
    Ok(Interpreter { program, group })
}

/// What starts four ranks on this machine, besides `shunt run`.
fn launchers(python: &Path) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut all = Vec::new();
    if sh::exists("mpirun") {
        all.push(words("mpirun --allow-run-as-root --oversubscribe -n 4"));
    }
    let python = python.display();
    let torchrun =
        format!("{python} -m torch.distributed.run --standalone --no_python --nproc_per_node=4 -r 1 -t 1");
    all.extend(has_torch(&python.to_string()).then(|| words(&torchrun)));
    all
}

/// Four processes, a rank each, through libibverbs: layers of both modes while ports go down and come back. Each rank
/// ends with a line of what it met. Then the same with the kernels' queues in memory that stands for a GPU's, and
/// started by others.
fn processes(fresh: &Path, python: &Interpreter) -> Result<Count> {
    let programs = ["-p", "shunt-cli", "-p", "shunt-soft-rdma-preload"];
    sh::run(sh::cargo().args(["build", "--quiet", "--release"]).args(programs))?;
    let shunt = sh::target_dir().join("release/shunt").display().to_string();
    let own = [&shunt, "run", "-n", "4", "--"].map(str::to_owned).to_vec();
    let others = launchers(&python.program);
    let mut count = Count { skipped: 2 - others.len(), ..Count::default() };
    let own = [(own.clone(), "auto"), (own, "gpu")];
    for (launcher, queues) in own.into_iter().chain(others.into_iter().map(|launcher| (launcher, "auto"))) {
        let port = ports::free(1)?;
        let mut run = sh::command(&launcher[0]);
        run.current_dir(fresh).args(&launcher[1..]).arg(&shunt);
        run.args(["soft-rdma", "run", "--nics", "2", "--fabric", &format!("python-{port}"), "--"]);
        run.arg(&python.program).arg(sh::root().join("python/tests/processes.py"));
        run.args(["--meet", &format!("127.0.0.1:{port}")]).env_remove("SHUNT_NIC");
        run.env("SHUNT_QUEUES", queues);
        let said = said(&mut run)?;
        // mpirun may join the lines of two ranks.
        let ended = said.matches(" layers right, ").count();
        if ended != 4 {
            bail!("{launcher:?}: expected the end of each of 4 ranks, got {ended}\n{said}");
        }
        let started = launcher[..launcher.len().min(3)].join(" ");
        println!("  started by {started}, {}, SHUNT_QUEUES={queues}:", python.group);
        said.lines().filter(|line| line.contains(" layers right, ")).for_each(|line| println!("    {line}"));
        count += Count::ONE;
    }
    Ok(count)
}

/// The page's program of processes of a group, which need torch. Two of them, on soft NICs.
fn of_a_group(page: &str, fresh: &Path, python: &Path) -> Result<Count> {
    let program = program(page, "torch.distributed")?;
    if !has_torch(&python.display().to_string()) {
        return Ok(Count { skipped: 1, ..Count::default() });
    }
    let file = fresh.join("layer.py");
    std::fs::write(&file, program)?;
    let mut run = sh::command(&python.to_string_lossy());
    run.current_dir(fresh).env("SHUNT_NIC", "soft").args(["-m", "torch.distributed.run"]);
    let said = said(run.args(["--standalone", "--nproc-per-node", "2"]).arg(&file))?;
    let came_back = said.matches("the same data came back: True").count();
    if came_back != 2 {
        bail!(
            "layer.py of python/README.md: expected that on 2 ranks the same data came back, got {came_back}\n{said}"
        );
    }
    print!("  README, by torchrun: {said}");
    Ok(Count::ONE)
}

/// The page's program of transfers: two processes, on NICs of their own and on the interposer's, a port down in the
/// middle.
fn transfers(page: &str, fresh: &Path, python: &Path) -> Result<Count> {
    let file = fresh.join("pages.py");
    std::fs::write(&file, program(page, "shunt_transfer")?)?;
    let shunt = sh::target_dir().join("release/shunt").display().to_string();
    let interposed = [&shunt, "soft-rdma", "run", "--nics", "2", "--"];
    let mut count = Count::default();
    for (nics, before) in [("soft", &[][..]), ("mlx5", &interposed)] {
        let mut run = sh::command(&shunt);
        run.current_dir(fresh).env("SHUNT_NIC", nics).args(["run", "-n", "2", "--"]).args(before);
        let said = said(run.arg(python).arg(&file))?;
        let left =
            said.split_once("pages written, failovers: ").is_some_and(|(_, rest)| !rest.starts_with('0'));
        if !left || !said.contains("every page as it was sent: True") {
            bail!("pages.py of python/README.md, {nics}: expected a failover and every page, got\n{said}");
        }
        print!("  README, transfers, {nics}: {said}");
        count += Count::ONE;
    }
    Ok(count)
}

/// Runs `python/tests` in a folder outside of the workspace: what is imported is what was installed.
pub fn unit_tests(python: &Path, folder: &Path) -> Result<Count> {
    let mut run = sh::command(&python.to_string_lossy());
    run.current_dir(folder).args(["-m", "unittest", "discover", "--start-directory"]);
    let said = said(run.arg(sh::root().join("python/tests")))?;
    let skipped = tests_skipped(&said);
    let run = tests_run(&said).and_then(|tests| tests.checked_sub(skipped)).filter(|tests| *tests > 0);
    Ok(Count { skipped, ..Count::of(run.context("no test was run")?, 0) })
}

/// A user's program as `mypy --strict` sees it with the installed package, run as well. With a size that is text it
/// must fail.
fn typed(home: &Path, python: &Path) -> Result<Count> {
    let mypy = tools(home, &[MYPY])?.join("mypy");
    let program = std::fs::read_to_string(sh::root().join("python/tests/typed.py"))?;
    let wrong = program.replace("num_rdma_bytes=size", "num_rdma_bytes=str(size)");
    for (text, exit) in [(&program, 0), (&wrong, 1)] {
        let file = home.join("typed.py");
        std::fs::write(&file, text)?;
        let mut check = sh::command(&mypy.to_string_lossy());
        check.args(["--strict", "--cache-dir"]).arg(home.join("mypy"));
        let output = check.arg("--python-executable").arg(python).arg(&file).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if output.status.code() != Some(exit) || (exit == 1) != said.contains("[arg-type]") {
            bail!("mypy --strict: expected status {exit}, got {}\n{said}", output.status);
        }
    }
    said(sh::command(&python.to_string_lossy()).arg(sh::root().join("python/tests/typed.py")))?;
    println!("  mypy --strict: a user's program passes, runs, and fails with a size that is text");
    Ok(Count::of(3, 0))
}

pub fn stage() -> Result<Count> {
    let home = sh::target_dir().join("python");
    let wheel = wheel(&home)?;
    println!("  {}", wheel.file_name().unwrap_or_default().to_string_lossy());
    let fresh = home.join("fresh");
    let python = installed(Path::new("python3"), &fresh, &wheel)?;
    let page = std::fs::read_to_string(sh::root().join("python/README.md"))?;
    let examples = programs(&page, "python");
    if examples.is_empty() {
        bail!("python/README.md has no example");
    }
    // Not in the workspace: what is imported is what was installed.
    for example in &examples {
        let file = fresh.join("example.py");
        std::fs::write(&file, example)?;
        let mut run = sh::command(&python.to_string_lossy());
        print!("  README: {}", said(run.current_dir(&fresh).arg(&file))?);
    }
    let mut count = unit_tests(&python, &fresh)?;
    println!("  {} tests, {} skipped", count.passed, count.skipped);
    count += Count::of(examples.len(), 0);
    count += typed(&home, &python)?;
    let beside = of_processes()?;
    count += of_a_group(&page, &fresh, &beside.program)?;
    count += processes(&fresh, &beside)?;
    count += transfers(&page, &fresh, &python)?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_and_counts_are_read() {
        let page = "a\n```\nno\n```\n```python\nx = 1\n```\nb\n```python\ny = 2\n```\n";
        assert_eq!(programs(page, "python"), ["x = 1\n", "y = 2\n"]);
        assert_eq!(programs("```python\nnever ends", "python"), Vec::<&str>::new());
        assert_eq!(tests_run("....\nRan 12 tests in 3.400s\n\nOK\n"), Some(12));
        assert_eq!(tests_run("OK"), None);
        let some = "Ran 3 tests in 1.0s\n\nOK (skipped=2, expected failures=1)\n";
        assert_eq!((tests_skipped(some), tests_skipped("OK\n"), tests_skipped("OK (skipped=1)")), (2, 0, 1));
    }
}
