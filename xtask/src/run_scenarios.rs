//! Runs the scenarios of the main program: in one process, as processes under `shunt run`, and as two shells would.

use crate::netns::{self, Net};
use crate::scenarios::{How, Scenario, judge, remarks};
use crate::scenarios_list::{SCENARIOS, SOFT_RDMA, TWO_HOSTS};
use crate::{doors, facade, first_day, library, refusals};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use shunt_task::stages::Count;
use shunt_task::{ports, sh};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Everything for one run.
struct Place {
    /// The main program.
    program: PathBuf,
    /// What starts ranks.
    shunt: PathBuf,
    /// MoE layers under faults.
    moe: PathBuf,
    /// Where output goes.
    dir: PathBuf,
    /// The hosts of those that run on two.
    net: Option<Net>,
    /// What kind of device each NIC is.
    profile: Option<&'static str>,
}

impl Place {
    fn file(&self, scenario: &Scenario, end: &str) -> PathBuf {
        let profile = self.profile.map(|name| format!("{name}-")).unwrap_or_default();
        self.dir.join(format!("{profile}{}.{end}", scenario.name))
    }

    /// The main program on so many of the interposer's NICs.
    fn through_libibverbs(&self, shunt: &mut Command, nics: &str, scenario: &Scenario) {
        shunt.args(["soft-rdma", "run", "--nics", nics]).args(self.own_nics());
        shunt.args(["--", "shmem_put_bw", "--nic", "mlx5"]).args(scenario.words());
    }

    /// Of the program that makes the NICs: what kind of device they are.
    fn own_nics(&self) -> Vec<&'static str> {
        self.profile.map_or_else(Vec::new, |name| vec!["--profile", name])
    }
}

/// All of them that need nothing but this workspace.
pub fn all() -> Result<Count> {
    these(SCENARIOS, None)
}

/// Those through libibverbs and libmlx5, and what else is held against the interposer's NICs.
pub fn soft_rdma() -> Result<Count> {
    let mut count = these(SOFT_RDMA, None)?;
    count += facade::stage()?;
    count += library::stage()?;
    count += doors::interposed()?;
    count += refusals::stage()?;
    count += first_day::stage()?;
    Ok(count)
}

/// Those on two hosts, as far as this machine lets us make hosts.
pub fn two_hosts() -> Result<Count> {
    if let Err(said) = netns::permitted() {
        println!("  skipped: no network namespaces with veth here: {said}");
        return Ok(Count { skipped: TWO_HOSTS.len(), ..Count::default() });
    }
    these(TWO_HOSTS, Some(Net::make(&netns::ROUTED)?))
}

/// Those that have a device to be of another kind: all of the main program's, some of them through libibverbs.
pub fn on_profile(profile: &'static str, scenarios: &[Scenario]) -> Result<Count> {
    these_on(scenarios, None, Some(profile))
}

fn these(scenarios: &[Scenario], net: Option<Net>) -> Result<Count> {
    these_on(scenarios, net, None)
}

fn these_on(scenarios: &[Scenario], net: Option<Net>, profile: Option<&'static str>) -> Result<Count> {
    let release = |name: &str| sh::target_dir().join("release").join(name);
    let place = Place {
        program: release("shmem_put_bw"),
        shunt: release("shunt"),
        moe: release("moe_pressure"),
        dir: sh::target_dir().join("ci"),
        net,
        profile,
    };
    if let Some(missing) = [&place.program, &place.shunt, &place.moe].into_iter().find(|path| !path.is_file())
    {
        bail!("{} is not built", missing.display());
    }
    std::fs::create_dir_all(&place.dir)?;
    let mut count = Count::default();
    for scenario in scenarios {
        let start = Instant::now();
        let wrong = run(&place, scenario)?;
        let word = if wrong.is_empty() { "ok" } else { "FAILED" };
        println!("  {:36} {word:7} {:6.2} s", scenario.name, start.elapsed().as_secs_f64());
        if wrong.is_empty() {
            count.passed += 1;
            continue;
        }
        count.failed += 1;
        println!("    {}", scenario.command_line());
        for line in &wrong {
            println!("    {line}");
        }
        let text = std::fs::read_to_string(place.file(scenario, "out")).unwrap_or_default();
        println!("{}", sh::last_lines(&text, 40));
    }
    Ok(count)
}

fn run(place: &Place, scenario: &Scenario) -> Result<Vec<String>> {
    let json = place.file(scenario, "json");
    // A file of an earlier run must not speak for this one.
    if json.exists() {
        std::fs::remove_file(&json)?;
    }
    let out = File::create(place.file(scenario, "out"))?;
    let mut children = Vec::new();
    for mut command in commands(place, scenario)? {
        command.arg("--json").arg(&json).stdin(Stdio::null());
        command.stderr(out.try_clone()?).stdout(out.try_clone()?);
        children.push(command.spawn().context("cannot start the main program")?);
    }
    let until = Instant::now() + Duration::from_millis(scenario.limit_ms);
    let mut exits = Vec::new();
    for child in children {
        exits.push(wait(child, until)?);
    }
    let text = std::fs::read_to_string(&json).ok();
    let value: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
    for remark in value.iter().flat_map(|json| remarks(scenario, json)) {
        println!("    remark (wall time): {remark}");
    }
    // Every process that was started here ends with the job's status.
    let exit = exits.iter().find(|exit| **exit != Some(scenario.exit)).unwrap_or(&exits[0]);
    Ok(judge(scenario, *exit, value.as_ref()))
}

/// Four ranks of `moe_pressure`, each a process with soft NICs of libibverbs.
fn moe_processes(place: &Place, scenario: &Scenario) -> Command {
    let mut command = sh::command(&place.shunt.to_string_lossy());
    command.args(["run", "-n", "4", "--"]).arg(&place.shunt).args(["soft-rdma", "run", "--nics", "2", "--"]);
    command.arg(&place.moe).args(["--nic", "auto"]).args(scenario.words());
    command
}

/// What is started; `--json` is still to be added.
fn commands(place: &Place, scenario: &Scenario) -> Result<Vec<Command>> {
    let program = || sh::command(&place.program.to_string_lossy());
    Ok(match scenario.how {
        How::Threads => {
            let mut command = program();
            command.args(place.own_nics()).args(scenario.words());
            vec![command]
        }
        How::Moe => {
            let mut command = sh::command(&place.moe.to_string_lossy());
            command.args(scenario.words());
            vec![command]
        }
        How::MoeSoftRdma => vec![moe_processes(place, scenario)],
        How::ShuntRun => {
            let mut command = sh::command(&place.shunt.to_string_lossy());
            command
                .args(["run", "-n", "2", "--", "shmem_put_bw"])
                .args(place.own_nics())
                .args(scenario.words());
            vec![command]
        }
        How::SoftRdma => {
            let mut command = sh::command(&place.shunt.to_string_lossy());
            command.args(["run", "-n", "2", "--"]).arg(&place.shunt);
            place.through_libibverbs(&mut command, "2", scenario);
            vec![command]
        }
        How::SoftRdmaThreads => {
            let mut command = sh::command(&place.shunt.to_string_lossy());
            place.through_libibverbs(&mut command, "4", scenario);
            vec![command]
        }
        How::TwoHosts { routed } => {
            let net = place.net.as_ref().context("no hosts were made")?;
            let secret = format!("{:032x}", rand_word()?);
            let args: Vec<String> = scenario.words().iter().map(|word| net.named(word)).collect();
            let rank = |rank: u32| {
                let mut command = net.on_host(rank, &place.shunt.to_string_lossy());
                command.args(["soft-rdma", "run", "--roce", &net.rails(rank, routed), "--", "shmem_put_bw"]);
                command.args([
                    "--nic",
                    "mlx5",
                    "--rank",
                    &rank.to_string(),
                    "--world",
                    "2",
                    "--root",
                    netns::ROOT,
                ]);
                command.args(&args).env("SHUNT_SECRET", &secret);
                command.arg("--plot").arg(place.file(scenario, "svg"));
                command
            };
            vec![rank(1), rank(0)]
        }
        How::TwoShells => {
            let port = ports::free(1)?;
            let rank = |rank: u32| {
                let mut command = program();
                command.args(["--rank", &rank.to_string(), "--world", "2"]);
                command.args(["--root", &format!("127.0.0.1:{port}"), "--fabric", &format!("ci-{port}")]);
                command.args(place.own_nics());
                command.args(scenario.words());
                command
            };
            vec![rank(1), rank(0)]
        }
    })
}

/// What nobody can guess.
fn rand_word() -> Result<u128> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).context("/dev/urandom")?;
    Ok(u128::from_le_bytes(bytes))
}

/// The exit status, or `None` for a program that had to be killed, by us or by a signal.
fn wait(mut child: Child, until: Instant) -> Result<Option<i32>> {
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_killed() {
        let after = |ms| Instant::now() + Duration::from_millis(ms);
        let sleeper = sh::command("sleep").arg("60").spawn().unwrap();
        assert_eq!(wait(sleeper, after(50)).unwrap(), None);
        let quick = sh::command("sh").args(["-c", "exit 3"]).spawn().unwrap();
        assert_eq!(wait(quick, after(30_000)).unwrap(), Some(3));
    }

    #[test]
    fn each_way_starts_as_many_processes_as_it_says() {
        let path = |name: &str| PathBuf::from("/x").join(name);
        let place = Place {
            program: path("shmem_put_bw"),
            shunt: path("shunt"),
            moe: path("moe_pressure"),
            dir: path("ci"),
            net: None,
            profile: None,
        };
        let alone = [How::Threads, How::Moe];
        let ways = [How::ShuntRun, How::SoftRdma, How::SoftRdmaThreads, How::MoeSoftRdma];
        for (how, processes) in alone.into_iter().chain(ways).map(|how| (how, 1)).chain([(How::TwoShells, 2)])
        {
            let scenario = Scenario { how, args: "-n 0", ..SCENARIOS[0] };
            let commands = commands(&place, &scenario).unwrap();
            assert_eq!(commands.len(), processes);
            assert!(commands.iter().all(|command| command.get_args().any(|arg| arg == "-n")));
        }
    }
}
