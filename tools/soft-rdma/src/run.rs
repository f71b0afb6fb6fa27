//! The stage `soft-rdma`: unmodified programs on soft NICs, and ours that look at every byte.

use crate::case::{Runtime, Side, told};
use crate::cases::{CASES, Case, Ends, Sides};
use crate::{efa, manager, ucx};
use anyhow::{Context, Result, bail};
use shunt_task::stages::Count;
use shunt_task::{ports, sh};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub const SUMMARY: &str = "unmodified RDMA programs on soft NICs";
pub const HELP: &str = "soft-rdma [NAME]... [--list]

Runs the cases of tools/soft-rdma/src/cases.rs, or those whose names begin with NAME, on what
`cargo build --release` made. Output is kept under <target>/ci/soft-rdma.

  --list  print the cases' command lines
  --dev   run what `cargo build` made instead";

/// Far above any case's own time; only a hang reaches it.
const HANG: Duration = Duration::from_secs(90);
/// Runs of a case at most, where the last one says nothing of what is tried.
const TRIES: u32 = 5;

pub fn run(args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--list") {
        for case in all() {
            let [server, client] = ["", " HOST"].map(|host| line(case, host));
            println!("{:28} {}", case.name, if case.sides == Sides::One { server } else { client });
        }
        return Ok(());
    }
    let (flags, names): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with('-'));
    let profile = match flags[..] {
        [] => "release",
        [dev] if dev == "--dev" => "debug",
        [flag, ..] => return sh::usage(format!("unknown argument '{flag}'")),
    };
    let chosen: Vec<&Case> = match &names[..] {
        [] => all().collect(),
        names => all().filter(|case| names.iter().any(|name| case.name.starts_with(name.as_str()))).collect(),
    };
    if chosen.is_empty() {
        return sh::usage(format!("no case begins with {names:?}"));
    }
    let count = run_cases(&chosen, profile)?;
    println!("{} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped);
    if count.failed > 0 { bail!("{} failed", count.failed) } else { Ok(()) }
}

/// Cases of every kind of device.
fn all() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(efa::CASES)
}

fn line(case: &Case, host: &str) -> String {
    let words =
        ["shunt soft-rdma run", case.nics, case.client_nics, "--", case.program, case.usual(), case.args];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(" ") + host
}

/// The stage of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    run_cases(&all().collect::<Vec<_>>(), "release")
}

fn run_cases(cases: &[&Case], profile: &str) -> Result<Count> {
    let release = sh::target_dir().join(profile);
    let ours = cases.iter().map(|case| case.program).filter(|program| is_ours(program));
    for file in ["shunt", "libshunt_soft_rdma.so"].into_iter().chain(ours) {
        if !release.join(file).is_file() {
            bail!("{} is not built: cargo build --release", release.join(file).display());
        }
    }
    let place = Place::new(release)?;
    let mut count = Count::default();
    for case in cases {
        if let Some(why) = ucx::lacks(&place.dir, case.program)
            .or_else(|| manager::lacks(case.program))
            .or_else(|| efa::lacks(case.program))
        {
            println!("  {:36} skipped: {why}", case.name);
            count.skipped += 1;
            continue;
        }
        let start = Instant::now();
        let mut wrong = place.run(case)?;
        for _ in 1..TRIES {
            // Either end may be the one that waits: the server sends the last message, the client the last but one.
            let waits = ["server", "client"].iter().any(|side| {
                let output = std::fs::read_to_string(place.file(case, side)).unwrap_or_default();
                efa::lost_the_last_answer(case, &output)
            });
            if wrong.is_empty() || !waits {
                break;
            }
            wrong = place.run(case)?;
        }
        if !wrong.is_empty() {
            wrong.insert(0, line(case, ""));
        }
        let outputs = ["server", "client"].map(|side| (side, place.file(case, side)));
        count += told(case.name, start.elapsed(), &wrong, &outputs);
    }
    Ok(count)
}

fn is_ours(program: &str) -> bool {
    program.starts_with("shunt-") || program == "transfer_bw"
}

/// Where programs and their output are.
struct Place {
    release: PathBuf,
    dir: PathBuf,
    /// Of all cases.
    runtime: Runtime,
}

impl Place {
    fn new(release: PathBuf) -> Result<Self> {
        let dir = sh::target_dir().join("ci/soft-rdma");
        std::fs::create_dir_all(&dir)?;
        let runtime = Runtime::make("shunt-ci")?;
        Ok(Self { release, dir, runtime })
    }

    fn file(&self, case: &Case, side: &str) -> PathBuf {
        self.dir.join(format!("{}.{side}", case.name))
    }

    /// Runs a case; what is wrong.
    fn run(&self, case: &Case) -> Result<Vec<String>> {
        for side in ["server", "client"] {
            let file = self.file(case, side);
            if file.exists() {
                std::fs::remove_file(file)?;
            }
        }
        let port = ports::free(1)?;
        let until = Instant::now() + HANG;
        let mut sides = Vec::new();
        if case.sides != Sides::One {
            let mut server = self.start(case, "server", port)?;
            let there = match case.sides {
                Sides::Manager => manager::listens(&mut server.0, self.runtime.path(), port, until)?,
                _ => listens(&mut server.0, port, until)?,
            };
            if !there {
                return Ok(vec!["the server does not listen".to_owned()]);
            }
            sides.push((server, "server"));
        }
        sides.push((self.start(case, "client", port)?, "client"));
        let mut wrong = Vec::new();
        // The client first: a server may wait for ever for one that failed.
        for (mut side, name) in sides.into_iter().rev() {
            let until = if wrong.is_empty() { until } else { Instant::now() + Duration::from_secs(5) };
            let status = wait(&mut side.0, until)?;
            wrong.extend(judge(case, name, status));
        }
        let output = std::fs::read_to_string(self.file(case, "client")).context("no output of the client")?;
        wrong.extend(case.wrong(&output));
        Ok(wrong)
    }

    fn start(&self, case: &Case, name: &'static str, port: u16) -> Result<Side> {
        let out = File::create(self.file(case, name))?;
        let mut command = self.command(case, name == "client", port);
        command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        let child = command.spawn().with_context(|| format!("cannot start {}", self.release.display()))?;
        Ok(Side(child))
    }

    fn command(&self, case: &Case, client: bool, port: u16) -> Command {
        let mut command = sh::command(&self.release.join("shunt").to_string_lossy());
        // Cases do not meet each other, nor anything else on the machine.
        command.env("XDG_RUNTIME_DIR", self.runtime.path()).envs(case.environment.iter().copied());
        // Programs that start ours find them.
        let path = [self.release.clone().into_os_string(), std::env::var_os("PATH").unwrap_or_default()];
        command.env("PATH", path.join(std::ffi::OsStr::new(":")));
        command.args(["soft-rdma", "run", "--fabric", &format!("ci-{port}")]);
        command.args(case.nics.split_whitespace());
        let of_side = if client { case.client_nics } else { case.server_nics };
        command.args(of_side.split_whitespace());
        let program = manager::program(case.program, client);
        let ours = self.release.join(program);
        command.arg("--").arg(if ours.is_file() { ours.as_path() } else { Path::new(program) });
        command.args(case.args.split_whitespace()).args(case.usual().split_whitespace());
        match (case.sides, client) {
            (Sides::One, _) => {}
            (Sides::Manager, client) => _ = command.args(manager::side(case.program, client, port)),
            (Sides::Bootstrap, false) => _ = command.args(["-p", &port.to_string()]),
            (Sides::Bootstrap, true) => _ = command.args(["-p", &port.to_string(), "127.0.0.1"]),
            (Sides::Fabric, false) => _ = command.args(["-B", &port.to_string()]),
            (Sides::Fabric, true) => _ = command.args(["-P", &port.to_string(), "127.0.0.1"]),
            (Sides::Listen, false) => _ = command.args(["--listen", &port.to_string()]),
            (Sides::Listen, true) => _ = command.args(["--connect", &format!("127.0.0.1:{port}")]),
        }
        command
    }
}

/// What is wrong with an exit.
fn judge(case: &Case, side: &str, status: Option<ExitStatus>) -> Option<String> {
    let Some(status) = status else { return Some(format!("the {side} hangs")) };
    match case.ends {
        Ends::Well => (!status.success()).then(|| format!("the {side} ended with {status}")),
        // A signal would be a crash, not an answer.
        Ends::Badly if side == "client" => {
            status.code().is_none_or(|code| code == 0).then(|| format!("the {side} ended with {status}"))
        }
        Ends::Badly => None,
    }
}

/// Waits until a process listens at a port, without a connection that it would take for its client.
pub(crate) fn listens(child: &mut Child, port: u16, until: Instant) -> Result<bool> {
    while Instant::now() < until && child.try_wait()?.is_none() {
        if listens_at(port) {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(false)
}

/// True if somebody listens at a port of this machine.
pub fn listens_at(port: u16) -> bool {
    let listed = |file: &str| std::fs::read_to_string(file).is_ok_and(|table| has_listener(&table, port));
    listed("/proc/net/tcp") || listed("/proc/net/tcp6")
}

/// True if the kernel's table has a socket that listens (state 0A) at this port.
fn has_listener(table: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&end)) && words.nth(1) == Some("0A")
    })
}

/// The exit status, or `None` for a program that had to be killed.
pub fn wait(child: &mut Child, until: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F90 00000000:0000 0A 00000000\n   \
                     1: 0100007F:1F91 0100007F:1F90 01 00000000\n";
        assert!(has_listener(table, 0x1f90));
        assert!(!has_listener(table, 0x1f91), "a connection is no listener");
        assert!(!has_listener(table, 0xf90));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(has_listener(&std::fs::read_to_string("/proc/net/tcp").unwrap(), port));
    }

    #[test]
    fn no_two_cases_share_a_name() {
        let names: Vec<&str> = all().map(|case| case.name).collect();
        let unique: std::collections::BTreeSet<&&str> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        assert!(efa::CASES.iter().all(|case| case.name.starts_with("efa-") && !case.says.is_empty()));
    }

    #[test]
    fn a_case_must_end_as_it_says() {
        let exit = |code: &str| Some(sh::command("sh").args(["-c", code]).status().unwrap());
        let well = all().find(|case| case.ends == Ends::Well).unwrap();
        let badly = all().find(|case| case.ends == Ends::Badly).unwrap();
        assert_eq!(judge(well, "client", exit("exit 0")), None);
        assert!(judge(well, "server", exit("exit 1")).is_some());
        assert!(judge(badly, "client", exit("exit 0")).is_some());
        assert_eq!(judge(badly, "client", exit("exit 1")), None);
        assert!(judge(badly, "client", exit("kill -9 $$")).is_some());
        assert_eq!(judge(badly, "server", exit("exit 0")), None);
        assert!(judge(well, "client", None).is_some());
    }
}
