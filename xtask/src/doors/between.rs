//! The programs between two machines, half of the ranks on each: RoCE v2 over UDP through the kernel, libibverbs and
//! libmlx5 as they are. The primary's cable is pulled and put back until the program ends.

use super::jobs::{Hand, Job, Ready};
use super::machines::{A, Machines};
use anyhow::{Context, Result};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

/// Longest time of a program; then it has failed.
const LIMIT: Duration = Duration::from_secs(150);
/// From the moment that all ranks are under way, then how long the cable is out.
const FIRST: Duration = Duration::from_millis(300);
const OUT: Duration = Duration::from_millis(500);

pub fn all(ready: &Ready, jobs: &[Job]) -> Result<Count> {
    let mut machines = Machines::boot()?;
    let mut count = Count::default();
    for job in jobs {
        let started = Instant::now();
        let (said, wrong) = run(&machines, ready, job)?;
        let group = ready.python.as_ref().filter(|_| job.name == "python");
        let with = group.map_or_else(String::new, |python| format!(", {}", python.group));
        let name = format!("two-machines-{}, {:.1} s{with}", job.name, started.elapsed().as_secs_f64());
        count += Count::told(&name, &wrong);
        if wrong.is_empty() {
            said.lines()
                .filter(|line| line.contains("switch-backs"))
                .take(1)
                .for_each(|line| println!("    {line}"));
        } else {
            println!("{}", sh::last_lines(&said, 60));
            // What was not through with it would be in the next one's way.
            drop(machines);
            machines = Machines::boot()?;
        }
    }
    Ok(count)
}

/// Ranks of one job.
struct Ranks {
    children: Vec<Child>,
    files: Vec<PathBuf>,
}

impl Ranks {
    fn start(machines: &Machines, ready: &Ready, job: &Job) -> Result<Self> {
        let folder = sh::target_dir().join("ci/two-machines");
        std::fs::create_dir_all(&folder)?;
        let secret = secret()?;
        let mut ranks = Self { children: Vec::new(), files: Vec::new() };
        let locals = job.ranks / 2;
        for rank in 0..job.ranks {
            let (machine, local) = (rank / locals, rank % locals);
            let host = 1 + machine + 10 * local;
            let mut command = machines.on(machine, &ready.shunt.to_string_lossy());
            command.args(["soft-rdma", "run", "--roce", &format!("10.0.1.{host},10.0.2.{host}"), "--"]);
            command.args(job.words(ready, Hand::Links, &format!("{A}:7800"), rank));
            command.envs(job.environment(Hand::Links)).env("GLOO_SOCKET_IFNAME", "eth0");
            command.env("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "eth0");
            command.env("SHUNT_RANK", rank.to_string()).env("SHUNT_WORLD", job.ranks.to_string());
            command.env("SHUNT_LOCAL_RANK", local.to_string()).env("SHUNT_ROOT", format!("{A}:7700"));
            command.env("SHUNT_SECRET", &secret);
            let path = folder.join(format!("{}-{rank}.out", job.name));
            let out = File::create(&path)?;
            let child = command.stdout(out.try_clone()?).stderr(out).spawn();
            ranks.children.push(child.context("cannot start nsenter")?);
            ranks.files.push(path);
        }
        Ok(ranks)
    }

    fn said(&self) -> Vec<String> {
        self.files.iter().map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
    }

    /// Whether all have ended.
    fn ended(&mut self) -> Result<bool> {
        let mut all = true;
        for child in &mut self.children {
            all &= child.try_wait()?.is_some();
        }
        Ok(all)
    }
}

/// What all ranks said, and what is wrong with that.
fn run(machines: &Machines, ready: &Ready, job: &Job) -> Result<(String, Vec<String>)> {
    machines.whole()?;
    let mut ranks = Ranks::start(machines, ready, job)?;
    let until = Instant::now() + LIMIT;
    // When the cable is touched next, and whether it is in then.
    let mut next: Option<(Instant, bool)> = None;
    let mut pulled = false;
    while !ranks.ended()? && Instant::now() < until {
        let now = Instant::now();
        match next {
            None if !pulled && job.is_under_way(&ranks.said()) => {
                (pulled, next) = (true, Some((now + FIRST, false)));
            }
            Some((at, up)) if now >= at => {
                machines.plug(up)?;
                next = (!up).then_some((now + OUT, true));
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    machines.plug(true)?;
    let mut wrong = Vec::new();
    for (rank, child) in ranks.children.iter_mut().enumerate() {
        match child.try_wait()? {
            Some(status) if status.success() => {}
            Some(status) => wrong.push(format!("rank {rank}: expected exit status 0, got {status}")),
            None => {
                wrong.push(format!("rank {rank}: expected its end within {} s", LIMIT.as_secs()));
                child.kill()?;
                child.wait()?;
            }
        }
    }
    let said = ranks.said().concat();
    wrong.extend(job.wrong(&said, Hand::Links));
    Ok((said, wrong))
}

/// What nobody can guess.
fn secret() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).context("/dev/urandom")?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}
