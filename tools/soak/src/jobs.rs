//! The programs of a soak: started, looked at in /proc, broken over their control sockets, ended.

use crate::leak::{Sample, Series};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use shunt_task::sh;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a control socket may take.
const ANSWER: Duration = Duration::from_secs(20);
/// How long a program that was asked to end may take.
const END: Duration = Duration::from_secs(5);

/// Where programs, their output and their sockets are.
pub struct Place {
    pub release: PathBuf,
    pub out: PathBuf,
    /// Short enough for the path of a socket.
    runtime: PathBuf,
}

impl Place {
    pub fn new(release: PathBuf, out: PathBuf) -> Result<Self> {
        for file in ["shunt", "shmem_put_bw", "libshunt_soft_rdma.so"] {
            if !release.join(file).is_file() {
                bail!("{} is not built: cargo build --release", release.join(file).display());
            }
        }
        if !sh::exists("ib_write_bw") {
            bail!("there is no ib_write_bw: it is in the package perftest (scripts/setup-debian.sh)");
        }
        fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
        let runtime = Path::new("/tmp").join(format!("shunt-soak-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&runtime).with_context(|| runtime.display().to_string())?;
        Ok(Self { release, out, runtime })
    }

    /// `shunt`, with output in a file.
    pub fn shunt(&self, output: &str) -> Result<Command> {
        let mut command = sh::command(&self.release.join("shunt").to_string_lossy());
        let out = File::create(self.out.join(output))?;
        command.env("XDG_RUNTIME_DIR", &self.runtime);
        command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        Ok(command)
    }

    fn fabric(&self, fabric: &str) -> PathBuf {
        self.runtime.join("shunt").join(format!("fabric-{fabric}"))
    }

    /// Processes that have soft devices of a fabric.
    pub fn processes(&self, fabric: &str) -> Vec<u32> {
        let number = |name: &str| name.strip_prefix("control-")?.strip_suffix(".sock")?.parse().ok();
        let mut found: Vec<u32> = self.names(fabric).iter().filter_map(|name| number(name)).collect();
        found.sort_unstable();
        found
    }

    /// What lies in a fabric's folder.
    fn names(&self, fabric: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.fabric(fabric)) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// What programs that have ended left in a fabric's folder.
    pub fn left_behind(&self, fabric: &str) -> Vec<String> {
        self.names(fabric).into_iter().filter(|name| name != "lock").collect()
    }

    /// Breaks something at a process's NIC.
    pub fn inject(&self, fabric: &str, pid: u32, nic: u64, fault: &str) -> Result<()> {
        self.ask(fabric, pid, &json!({"inject": {"nic": nic, "at_ns": 0, "fault": fault}})).map(drop)
    }

    /// How often the faults of a process changed anything, and how many of them never did.
    pub fn hits(&self, fabric: &str, pid: u32) -> Result<(u64, u64)> {
        let faults = self.ask(fabric, pid, &json!({"faults": {}}))?;
        let hits = faults.as_array().into_iter().flatten().filter_map(|fault| fault["hits"].as_u64());
        Ok(hits.fold((0, 0), |(sum, idle), hits| (sum + hits, idle + u64::from(hits == 0))))
    }

    fn ask(&self, fabric: &str, pid: u32, request: &Value) -> Result<Value> {
        let path = self.fabric(fabric).join(format!("control-{pid}.sock"));
        let mut socket = UnixStream::connect(&path).with_context(|| path.display().to_string())?;
        socket.set_read_timeout(Some(ANSWER))?;
        writeln!(socket, "{request}")?;
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line)?;
        let answer: Value =
            serde_json::from_str(&line).with_context(|| format!("process {pid}: '{line}'"))?;
        match answer.get("ok") {
            Some(ok) => Ok(ok.clone()),
            None => bail!("process {pid}: {answer}"),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.runtime);
    }
}

/// A program that was started. It ends with this.
pub struct Job {
    pub name: &'static str,
    child: Child,
    ended: Option<ExitStatus>,
}

impl Job {
    pub fn start(name: &'static str, mut command: Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start `{}`", sh::shown(&command)))?;
        Ok(Self { name, child, ended: None })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(Some(_))) {
            return;
        }
        // First as a user would: a launcher takes those that it started with it.
        let _ = sh::command("kill").arg(self.pid().to_string()).status();
        let until = Instant::now() + END;
        while Instant::now() < until && matches!(self.ended(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What was seen of all processes.
#[derive(Default)]
pub struct Watched(BTreeMap<u32, Series>);

impl Watched {
    /// Looks at a process; one that is gone is left as it was.
    pub fn look(&mut self, pid: u32, at: f64) {
        let Some((program, sample)) = sample(pid, at) else { return };
        let number = self.0.values().filter(|one| one.name.starts_with(&program)).count();
        let name = || format!("{program} {number}");
        let new = || Series { name: name(), pid, samples: Vec::new() };
        self.0.entry(pid).or_insert_with(new).samples.push(sample);
    }

    pub fn series(self) -> Vec<Series> {
        self.0.into_values().collect()
    }
}

fn sample(pid: u32, at: f64) -> Option<(String, Sample)> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let descriptors = fs::read_dir(folder.join("fd")).ok()?.count() as u64;
    let memory = field(&status, "RssAnon")? + field(&status, "RssShmem")?;
    let threads = field(&status, "Threads")?;
    let name = status.lines().next()?.strip_prefix("Name:")?.trim().to_owned();
    Some((name, Sample { at, memory, descriptors, threads }))
}

/// A number of /proc/PID/status.
fn field(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_from_proc() {
        let held = File::open("/dev/null").unwrap();
        let (name, sample) = sample(std::process::id(), 2.0).unwrap();
        drop(held);
        assert!(!name.is_empty() && sample.memory > 0 && sample.descriptors > 3 && sample.threads > 0);
        let mut watched = Watched::default();
        watched.look(std::process::id(), 0.0);
        watched.look(std::process::id(), 1.0);
        watched.look(u32::MAX, 1.0);
        let series = watched.series();
        assert!(series.len() == 1 && series[0].samples.len() == 2 && series[0].name.ends_with(" 0"));
    }

    #[test]
    fn a_job_ends_with_its_holder() {
        let mut sleeper = sh::command("sleep");
        sleeper.arg("60");
        let mut job = Job::start("sleep", sleeper).unwrap();
        let pid = job.pid();
        assert!(job.ended().unwrap().is_none());
        drop(job);
        assert!(sample(pid, 0.0).is_none());
    }
}
