//! The stage `verbs`: unmodified programs under `shunt verbs run`, both ends, with a port that fails and comes back.

use crate::case::{Runtime, Side, numbers, told};
use crate::manager;
use crate::mooncake;
use crate::mpi;
use crate::run::{listens, wait};
use crate::ucx;
use crate::verbs_cases::{BY_NIGHT, CASES, Case, Must};
use crate::verbs_stores::{self, Fate, Keeper};
use anyhow::{Context, Result, bail};
use shunt_task::stages::Count;
use shunt_task::{ports, sh};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const SUMMARY: &str = "unmodified verbs programs that outlive a port, on soft NICs";
pub const HELP: &str = "verbs [NAME]... [--dev]

Runs the cases of tools/soft-rdma/src/verbs_cases.rs, or those whose names begin with NAME, on what `cargo build
--release` made: both ends under `shunt verbs run`, and at the client's end a fault. A fault that hits nothing fails the
case, and so does an end that never moved. Cases of UCX and MPI are skipped where they are not installed. Those named
`mooncake-..` run by name only: they need a python3 in PATH with a wheel of Mooncake, and are skipped without. Output is
kept under <target>/ci/verbs.

  --dev  run what `cargo build` made instead";

/// Status of `shunt-verbs-count` where a request has failed.
const ERRORS: i32 = 3;
/// Far above any case's own time; only a hang reaches it.
const HANG: Duration = Duration::from_secs(120);
/// The same of one that moves gigabytes.
const LONG: Duration = Duration::from_secs(900);

pub fn run(args: &[String]) -> Result<()> {
    let (flags, names): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with('-'));
    let profile = match flags[..] {
        [] => "release",
        [dev] if dev == "--dev" => "debug",
        [flag, ..] => return sh::usage(format!("unknown argument '{flag}'")),
    };
    let is = |case: &&Case| names.iter().any(|name| case.name.starts_with(name.as_str()));
    let chosen: Vec<&Case> = match names[..] {
        [] => CASES.iter().collect(),
        _ => CASES.iter().chain(mooncake::CASES).filter(is).collect(),
    };
    if chosen.is_empty() {
        return sh::usage(format!("no case begins with {names:?}"));
    }
    let count = run_cases(&chosen, profile)?;
    println!("{} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped);
    if count.failed > 0 { bail!("{} failed", count.failed) } else { Ok(()) }
}

/// The stage of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    let here = |case: &&Case| !BY_NIGHT.contains(&case.name);
    run_cases(&CASES.iter().filter(here).collect::<Vec<_>>(), "release")
}

/// The cases that the stage leaves to the night.
///
/// # Errors
/// What failed.
pub fn night(_: &[String]) -> Result<()> {
    let by_night = |case: &&Case| BY_NIGHT.contains(&case.name);
    let count = run_cases(&CASES.iter().filter(by_night).collect::<Vec<_>>(), "release")?;
    if count.failed > 0 { bail!("{} failed", count.failed) } else { Ok(()) }
}

/// The part of the night with Mooncake's transfer engine.
///
/// # Errors
/// What failed; [`mooncake::Missing`].
pub fn mooncake_night(_: &[String]) -> Result<()> {
    if let Some(why) = mooncake::lacks(mooncake::PROGRAM) {
        return Err(mooncake::Missing(why).into());
    }
    let count = run_cases(&mooncake::CASES.iter().collect::<Vec<_>>(), "release")?;
    if count.failed > 0 { bail!("{} failed", count.failed) } else { Ok(()) }
}

fn run_cases(cases: &[&Case], profile: &str) -> Result<Count> {
    let built = sh::target_dir().join(profile);
    for file in ["shunt", "libshunt_soft_rdma.so", "libshunt_verbs.so", "shunt-verbs-count"] {
        if !built.join(file).is_file() {
            bail!("{} is not built: cargo build --release", built.join(file).display());
        }
    }
    let dir = sh::target_dir().join("ci/verbs");
    std::fs::create_dir_all(&dir)?;
    let mut count = Count::default();
    ucx::build(&dir)?;
    mpi::build(&dir)?;
    for case in cases {
        let program = case.program;
        let lacks = [
            ucx::lacks(&dir, program),
            mpi::lacks(&dir, program),
            manager::lacks(program),
            mooncake::lacks(program),
            verbs_stores::lacks(case.store),
        ];
        if let Some(why) = lacks.into_iter().flatten().next() {
            println!("  {:36} skipped: {why}", case.name);
            count.skipped += 1;
            continue;
        }
        let start = Instant::now();
        let mut place = Place::new(case, &built, &dir)?;
        let wrong = place.run(case)?;
        let outputs = ["server", "client", "status"].map(|side| (side, place.file(case, side)));
        count += told(case.name, start.elapsed(), &wrong, &outputs);
    }
    Ok(count)
}

/// Where programs and their output are, and a runtime directory for one case alone.
struct Place {
    built: PathBuf,
    dir: PathBuf,
    runtime: Runtime,
    keeper: Option<Keeper>,
}

impl Place {
    fn new(case: &Case, built: &Path, dir: &Path) -> Result<Self> {
        let runtime = Runtime::make("shunt-verbs")?;
        let keeper = case.store.map(|store| Keeper::open(store, built, runtime.path())).transpose()?;
        Ok(Self { built: built.to_owned(), dir: dir.to_owned(), runtime, keeper })
    }

    fn file(&self, case: &Case, side: &str) -> PathBuf {
        self.dir.join(format!("{}.{side}", case.name))
    }

    fn shunt(&self) -> Command {
        let mut command = sh::command(&self.built.join("shunt").to_string_lossy());
        // Cases do not meet each other, nor anything else on the machine.
        command.env("XDG_RUNTIME_DIR", self.runtime.path());
        command
    }

    /// Starts a program. Its output goes to the file of a side.
    fn spawn(&self, case: &Case, mut command: Command, name: &str) -> Result<Side> {
        let out = File::create(self.file(case, name))?;
        command.env("XDG_RUNTIME_DIR", self.runtime.path());
        // A busy machine is slow to find a path, and that is not what is looked at.
        command.env("SHUNT_GIVE_UP", "30s");
        command.envs(self.keeper.iter().flat_map(Keeper::environment)).envs(case.environment.iter().copied());
        if name == "client" {
            command.envs(case.client_environment.iter().copied());
        }
        command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        Ok(Side(command.spawn().with_context(|| format!("cannot start {command:?}"))?))
    }

    fn start(&self, case: &Case, client: bool, port: u16) -> Result<Side> {
        let mut command = self.shunt();
        self.add_words(&mut command, case, client, port);
        self.spawn(case, command, if client { "client" } else { "server" })
    }

    /// Starts both ends by mpirun.
    fn start_job(&self, case: &Case, port: u16) -> Result<Side> {
        let mut command = mpi::launcher();
        for client in [false, true] {
            command.args([":"].iter().filter(|_| client)).args(["-np", "1"]).arg(self.built.join("shunt"));
            self.add_words(&mut command, case, client, port);
        }
        self.spawn(case, command, "client")
    }

    /// Arguments of `shunt` for one end.
    fn add_words(&self, command: &mut Command, case: &Case, client: bool, port: u16) {
        let (nics, fabric) = (case.nics.to_string(), format!("ci-{port}"));
        command.args(["soft-rdma", "run", "--nics", &nics, "--fabric", &fabric]);
        let fault = if client { case.fault } else { case.server_fault };
        if !fault.is_empty() {
            command.args(["--fault", fault]);
        }
        command.arg("--");
        if case.shim {
            command.arg(self.built.join("shunt")).args(["verbs", "run", "--mode", case.mode, "--"]);
        }
        if !case.inside.is_empty() {
            command.args(["env", case.inside]);
        }
        let ours = self.built.join(case.program);
        let script = mooncake::words(case.program);
        let is_ours = script.is_some() || ours.is_file();
        match script {
            Some(words) => _ = command.args(words),
            None if is_ours => _ = command.arg(ours),
            None => _ = command.arg(mpi::place(&self.dir, case.program)),
        }
        command.args(case.args.split_whitespace());
        match (is_ours, client) {
            _ if case.program == mpi::TAGS => {}
            (true, false) => _ = command.args(["--listen", &port.to_string()]),
            (true, true) => _ = command.args(["--connect", &format!("127.0.0.1:{port}")]),
            (false, client) => _ = command.args(manager::side(case.program, client, port)),
        }
    }

    /// Runs a case of which mpirun starts both ends; what is wrong.
    fn run_job(&self, case: &Case) -> Result<Vec<String>> {
        let port = ports::free(1)?;
        let until = Instant::now() + HANG;
        let mut job = self.start_job(case, port)?;
        let mut wrong = Vec::new();
        if !self.sees_hits(case.faults(), port, &mut job.0)? {
            wrong.push("not exercised: a planned fault hit nothing".to_owned());
        }
        let ended = wait(&mut job.0, until)?;
        let code = ended.and_then(|status| status.code());
        if code.is_none_or(|code| (code == 0) == (case.must == Must::Fail)) {
            wrong.push(format!("mpirun ended with {ended:?}"));
        }
        wrong.extend(self.look_at_status(case)?);
        Ok(wrong)
    }

    /// What is wrong with the status of both ends.
    fn look_at_status(&self, case: &Case) -> Result<Option<String>> {
        if !case.shim {
            return Ok(None);
        }
        // Status 1 says that a queue pair is lost.
        let said = self.shunt().args(["verbs", "status", "--json"]).output()?;
        std::fs::write(self.file(case, "status"), &said.stdout)?;
        Ok(judge(case, &String::from_utf8_lossy(&said.stdout)))
    }

    /// Runs a case; what is wrong.
    fn run(&mut self, case: &Case) -> Result<Vec<String>> {
        if case.program == mpi::TAGS {
            return self.run_job(case);
        }
        let port = ports::free(1)?;
        let until = Instant::now() + if case.program == mooncake::PROGRAM { LONG } else { HANG };
        let mut server = self.start(case, false, port)?;
        let there = match manager::connects(case.program, case.args) {
            true => manager::listens(&mut server.0, self.runtime.path(), port, until)?,
            false => listens(&mut server.0, port, until)?,
        };
        if !there {
            return Ok(vec!["the server does not listen".to_owned()]);
        }
        let mut client = self.start(case, true, port)?;
        let mut wrong: Vec<String> = self.change_the_store(port)?.into_iter().collect();
        let hit = case.faults() == 0 || self.sees_hits(case.faults(), port, &mut client.0)?;
        wrong.extend((!hit).then(|| "not exercised: a planned fault hit nothing".to_owned()));
        let ended = wait(&mut client.0, until)?;
        let code = ended.and_then(|status| status.code());
        let well = code == Some(0);
        let as_it_must = match case.must {
            Must::Fail => code.is_some_and(|code| code != 0),
            Must::OneError => code == Some(ERRORS),
            Must::Ghosts => matches!(code, Some(0 | 1)),
            Must::Move | Must::Return | Must::Once | Must::Stay | Must::Unseen | Must::Count => well,
            Must::FailThere => true,
        };
        if !as_it_must {
            wrong.push(format!("the client ended with {ended:?}"));
        }
        if case.must == Must::OneError {
            let said = std::fs::read_to_string(self.file(case, "client"))?;
            let one = numbers(&said, "errors").eq([1]) && said.contains("\"named\": \"add\"");
            let counted = numbers(&said, "wrong").eq([0]);
            if !(one && counted) {
                wrong.push("expected one error, of an add, and a word that counts each once".to_owned());
            }
        }
        let repeats = case.must == Must::Ghosts;
        let patience = if well || repeats || case.must == Must::OneError {
            until
        } else {
            Instant::now() + Duration::from_secs(5)
        };
        let ended = wait(&mut server.0, patience)?;
        if case.must == Must::FailThere && ended.is_none_or(|status| status.success()) {
            wrong.push(format!("expected a server that fails, got {ended:?}"));
        }
        if repeats {
            let (ghosts, others) = self.found_again(case)?;
            println!(
                "    {ghosts} WRITEs were executed twice, {others} messages lost, doubled or out of order"
            );
            if ghosts == 0 || others > 0 {
                wrong.push("expected WRITEs that were executed twice, and each message once".to_owned());
            }
        }
        if !matches!(case.must, Must::Fail | Must::FailThere | Must::OneError | Must::Ghosts)
            && !ended.is_some_and(|status| status.success())
        {
            wrong.push(format!("the server ended with {ended:?}"));
        }
        wrong.extend(self.told(case, well)?);
        wrong.extend(self.said(case)?);
        wrong.extend(self.reached(case)?);
        wrong.extend(self.look_at_status(case)?);
        Ok(wrong)
    }

    /// Ends the case's store once both ends are protected, or makes one that comes late; what is wrong.
    fn change_the_store(&mut self, port: u16) -> Result<Option<String>> {
        match self.keeper.as_ref().map(|keeper| keeper.fate) {
            Some(Fate::Goes) => {
                let until = Instant::now() + HANG;
                while self.states()?.matches("\"state\": \"protected\"").count() < 2 {
                    if Instant::now() > until {
                        return Ok(Some("expected two queue pairs that are protected, got none".to_owned()));
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                self.keeper.iter_mut().for_each(Keeper::end);
                let early = self.hits(port)? > 0;
                Ok(early.then(|| "not exercised: the fault came before the store was gone".to_owned()))
            }
            Some(Fate::Late) => {
                std::thread::sleep(Duration::from_secs(2));
                self.keeper.iter_mut().try_for_each(Keeper::start)?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn states(&self) -> Result<String> {
        let said = self.shunt().args(["verbs", "status", "--json"]).output()?;
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    }

    /// A text that the client must say once.
    fn said(&self, case: &Case) -> Result<Option<String>> {
        let said = std::fs::read_to_string(self.file(case, "client"))?;
        let count = said.matches(case.says).count();
        let well = case.says.is_empty() || count == 1;
        Ok((!well).then(|| format!("expected a client that says once {:?}, got {count} times", case.says)))
    }

    /// Where each end must have gone on over its last NIC.
    fn reached(&self, case: &Case) -> Result<Vec<String>> {
        let last = format!("goes on over mlx5_{}", case.nics - 1);
        let mut wrong = Vec::new();
        for side in ["server", "client"].iter().filter(|_| case.must == Must::Return) {
            if !std::fs::read_to_string(self.file(case, side))?.contains(&last) {
                wrong.push(format!("not exercised: the {side} does not say that it {last}"));
            }
        }
        Ok(wrong)
    }

    /// What protected programs were told of that ended well: our own of a failure, by an event; Mooncake by its log.
    fn told(&self, case: &Case, well: bool) -> Result<Vec<String>> {
        let [server, client] = ["server", "client"].map(|side| self.file(case, side));
        if !case.shim || !well {
            return Ok(Vec::new());
        }
        Ok(match case.program {
            mooncake::PROGRAM => mooncake::logged(&[&server, &client]),
            "shunt-verbs-count" => {
                let said = std::fs::read_to_string(server)? + &std::fs::read_to_string(client)?;
                let events: Vec<u64> = numbers(&said, "events").collect();
                let told = format!("events of failures: expected 0 for each end, got {events:?}");
                // A process may have both ends of its queue pairs.
                let none = events.len() >= 2 && events.iter().all(|count| *count == 0);
                (!none).then_some(told).into_iter().collect()
            }
            _ => Vec::new(),
        })
    }

    /// What both ends found: WRITEs that came again, and messages that were lost, doubled or out of order.
    fn found_again(&self, case: &Case) -> Result<(u64, u64)> {
        let mut found = (0, 0);
        for side in ["server", "client"] {
            let said = std::fs::read_to_string(self.file(case, side))?;
            found.0 += numbers(&said, "ghost").sum::<u64>();
            found.1 += ["lost", "doubled", "order"].iter().flat_map(|name| numbers(&said, name)).sum::<u64>();
        }
        Ok(found)
    }

    /// Watches the faults of a case's fabric until so many have hit, or the client ends.
    fn sees_hits(&self, faults: usize, port: u16, client: &mut Child) -> Result<bool> {
        while client.try_wait()?.is_none() {
            if self.hits(port)? >= faults {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(false)
    }

    /// Faults of a fabric that have hit.
    fn hits(&self, port: u16) -> Result<usize> {
        let fabric = format!("ci-{port}");
        // A program that just ends does not answer.
        let said = self.shunt().args(["soft-rdma", "list", "--json", "--fabric", &fabric]).output()?;
        Ok(numbers(&String::from_utf8_lossy(&said.stdout), "hits").filter(|hits| *hits > 0).count())
    }
}

/// What is wrong with the status of two processes.
fn judge(case: &Case, status: &str) -> Option<String> {
    let must = case.must;
    let switches: Vec<u64> = numbers(status, "switches").collect();
    let moved = switches.iter().filter(|count| **count > 0).count();
    let well = match must {
        Must::Move => moved == 2 * case.pairs && switches.len() == 2 * (case.pairs + case.beside),
        Must::Return => moved == 2 && chain(status, case.nics),
        Must::Once => switches == [1, 1],
        Must::Unseen => switches.is_empty(),
        Must::Stay => switches.len() == 2 && switches.iter().all(|count| *count == 0),
        Must::Count => numbers(status, "posts").filter(|posts| *posts > 0).count() == 2,
        Must::Fail | Must::FailThere | Must::OneError | Must::Ghosts => true,
    };
    let want = match must {
        Must::Move => "a switch at each end",
        Must::Return => "a switch at each end, all backups in order, and the first NIC at the end",
        Must::Once => "one switch at each end",
        Must::Unseen => "nothing of these programs",
        Must::Stay => "two queue pairs that did not move",
        Must::Count => "posts of two processes",
        Must::Fail | Must::FailThere | Must::OneError | Must::Ghosts => "",
    };
    (!well).then(|| format!("status: expected {want}, got switches {switches:?}"))
}

/// True if each of two queue pairs has all other NICs as backups, and is on the first.
fn chain(status: &str, nics: u32) -> bool {
    let backups: Vec<String> = (1..nics).map(|nic| format!("mlx5_{nic}")).collect();
    let backups = format!("\"backup\": \"{}\"", backups.join(","));
    [backups.as_str(), "\"on\": \"mlx5_0\""].iter().all(|text| status.matches(text).count() == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_an_end_that_stayed_is_not_taken_for_one_that_moved() {
        let text = "[{\"pairs\": [{\"switches\": 2, \"replayed\": 7}], \"posts\":0}, {\"switches\":0}]";
        assert_eq!(numbers(text, "switches").collect::<Vec<_>>(), [2, 0]);
        let judge = |must, pairs, beside, text: &str| judge(&Case { must, pairs, beside, ..CASES[0] }, text);
        assert!(judge(Must::Move, 1, 0, text).is_some_and(|wrong| wrong.contains("[2, 0]")));
        assert!(judge(Must::Once, 1, 0, text).is_some_and(|wrong| wrong.contains("[2, 0]")));
        assert!(judge(Must::Stay, 1, 0, text).is_some());
        assert_eq!(judge(Must::Move, 1, 0, &text.replace(":0}", ": 1}")), None);
        assert!(judge(Must::Move, 1, 0, "[]").is_some(), "nothing at all is not well");
        assert!(judge(Must::Move, 2, 0, &text.replace(":0}", ": 1}")).is_some(), "two of four");
        let beside = format!("{}, {}", text.replace(":0}", ": 1}"), "{\"switches\":0}, {\"switches\":0}");
        assert_eq!(judge(Must::Move, 1, 1, &beside), None);
        assert!(judge(Must::Move, 1, 0, &beside).is_some(), "more than there should be");
        assert!(judge(Must::Count, 1, 0, text).is_some());
        assert!(judge(Must::Unseen, 1, 0, text).is_some() && judge(Must::Unseen, 1, 0, "[]").is_none());
    }

    #[test]
    fn who_is_not_back_or_lacks_a_backup_has_not_returned() {
        let end = |on: &str, backup: &str| {
            format!("{{\"on\": \"{on}\", \"backup\": \"{backup}\", \"switches\": 3}},")
        };
        let case = Case { must: Must::Return, nics: 3, ..CASES[0] };
        let back = end("mlx5_0", "mlx5_1,mlx5_2");
        assert_eq!(judge(&case, &back.repeat(2)), None);
        for other in [end("mlx5_2", "mlx5_1,mlx5_2"), end("mlx5_0", "mlx5_1")] {
            assert!(judge(&case, &(back.clone() + &other)).is_some(), "{other}");
        }
    }

    #[test]
    fn a_case_that_must_move_has_a_fault() {
        let quiet = |must| matches!(must, Must::Stay | Must::Unseen | Must::Count);
        // What is refused needs none.
        let refused = |case: &Case| case.must == Must::Fail && case.store.is_some();
        for case in CASES {
            assert_eq!(case.faults() == 0, quiet(case.must) || refused(case), "{}", case.name);
        }
    }
}
