//! `cargo xtask soak`: the main program and perftest side by side for an hour, random faults in both, and what their
//! processes hold of the machine over time.

use crate::faults::{self, Dice, RETRIED, SWITCHED};
use crate::jobs::{Job, Place, Watched};
use crate::leak::{self, Series};
use crate::plot;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use shunt_task::{ports, sh};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const SUMMARY: &str =
    "shmem_put_bw and perftest side by side under random faults: leaks, verdicts, a plot";
pub const HELP: &str = "soak [--minutes N | --seconds N] [--seed S] [--out FOLDER]

Starts on what `cargo build --release` made, each in a fabric of its own, side by side:
  shmem_put_bw --nic mlx5 --watch   two PEs as processes, two soft NICs each; every fault that another path is for
  ib_write_bw                       of the package perftest, two processes; every fault that retries outlive
  ib_read_bw, ib_send_bw, ib_atomic_bw, ib_write_bw
                                    one after the other, over and over, for what processes leave when they end
and puts a random fault in, at a random NIC of a random process, every 4 to 12 s. Each second it reads memory,
descriptors and threads of the processes that stay. At the end each must have ended with status 0, the main program's
verdict must be clean, no fabric's folder may hold what an ended process left, and no process may leak.

  --minutes N   so long (default 60)
  --seconds N   the same in seconds, at least 30
  --seed S      of the faults (default 1)
  --out FOLDER  for soak.csv, soak.svg, faults.txt and what programs print (default <target>/soak)";

/// What programs may take beyond their time, to start and to end.
const GRACE: Duration = Duration::from_secs(120);
/// A soak shorter than this sees nothing.
const SECONDS_MIN: u64 = 30;
const PUTS: &str = "soak-puts";
const PERFTEST: &str = "soak-perftest";
const ROUNDS: &str = "soak-rounds";
const ROUND_PROGRAMS: &[&str] = &["ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_write_bw"];
/// A line of progress so often.
const SAID: f64 = 60.0;

/// What a call asks for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    seconds: u64,
    seed: u64,
    out: Option<PathBuf>,
}

fn asked(args: &[String]) -> Result<Asked> {
    let mut asked = Asked { seconds: 3600, seed: 1, out: None };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if !["--minutes", "--seconds", "--seed", "--out"].contains(&arg.as_str()) {
            return sh::usage(format!("unknown argument '{arg}'"));
        }
        let Some(value) = args.next() else { return sh::usage(format!("{arg} needs a value")) };
        let number = || match value.parse::<u64>() {
            Ok(number) if number > 0 => Ok(number),
            _ => sh::usage(format!("'{value}' is no number above 0")),
        };
        match arg.as_str() {
            "--minutes" => asked.seconds = number()?.saturating_mul(60),
            "--seconds" => asked.seconds = number()?,
            "--seed" => asked.seed = number()?,
            _ => asked.out = Some(value.into()),
        }
    }
    if asked.seconds < SECONDS_MIN {
        return sh::usage(format!(
            "a soak of {} s sees nothing, {SECONDS_MIN} s is the least",
            asked.seconds
        ));
    }
    Ok(asked)
}

/// Runs the task.
pub fn run(args: &[String]) -> Result<()> {
    let asked = asked(args)?;
    let out = asked.out.clone().unwrap_or_else(|| sh::target_dir().join("soak"));
    let place = Place::new(sh::target_dir().join("release"), out)?;
    let mut soak = Soak::start(&place, &asked)?;
    let stepped = loop {
        match soak.step() {
            Ok(false) => std::thread::sleep(Duration::from_millis(20)),
            ended => break ended,
        }
    };
    if let Err(error) = &stepped {
        // What was seen until then is kept all the same.
        soak.wrong.push(format!("{error:#}"));
    }
    let (series, wrong) = soak.end()?;
    write(&place, &series, &asked)?;
    print!("{}", table(&series));
    wrong.iter().for_each(|line| println!("wrong: {line}"));
    println!("a leak is: {}", leak::RULE);
    println!("soak.csv, soak.svg, faults.txt and output of the programs: {}", place.out.display());
    match wrong.len() {
        0 => {
            println!("verdict: clean, {} s", asked.seconds);
            Ok(())
        }
        count => bail!("{count} things are wrong after {} s", asked.seconds),
    }
}

/// A job that gets faults.
struct Target {
    fabric: &'static str,
    nics: u64,
    faults: &'static [&'static [&'static str]],
    /// Seconds from the start of the next one.
    next: f64,
    given: u64,
    /// Of each process, as last asked: what faults changed in all, and how many changed nothing yet.
    hits: BTreeMap<u32, (u64, u64)>,
}

/// A run that is going on.
struct Soak<'p> {
    place: &'p Place,
    seconds: u64,
    start: Instant,
    dice: Dice,
    jobs: Vec<Job>,
    round: Vec<Job>,
    rounds: usize,
    targets: [Target; 2],
    watched: Watched,
    /// When the next sample is taken, and the next line said.
    due: (f64, f64),
    log: String,
    wrong: Vec<String>,
}

impl<'p> Soak<'p> {
    fn start(place: &'p Place, asked: &Asked) -> Result<Self> {
        let seconds = asked.seconds;
        let target = |fabric, nics, faults, next| Target {
            fabric,
            nics,
            faults,
            next,
            given: 0,
            hits: BTreeMap::new(),
        };
        let mut soak = Self {
            place,
            seconds,
            start: Instant::now(),
            dice: Dice(asked.seed),
            jobs: vec![Job::start("shmem_put_bw", puts(place, seconds)?)?],
            round: Vec::new(),
            rounds: 0,
            targets: [target(PUTS, 2, &[RETRIED, SWITCHED], 5.0), target(PERFTEST, 1, &[RETRIED], 7.0)],
            watched: Watched::default(),
            due: (0.0, SAID),
            log: String::new(),
            wrong: Vec::new(),
        };
        soak.await_processes(PUTS)?;
        let duration = ["-s", "65536", "-D", &seconds.to_string()];
        soak.jobs.extend(pair(place, PERFTEST, "ib_write_bw", &duration, "perftest")?);
        soak.await_processes(PERFTEST)?;
        Ok(soak)
    }

    /// Waits until both processes of a fabric have their devices.
    fn await_processes(&mut self, fabric: &str) -> Result<()> {
        let until = Instant::now() + GRACE;
        while self.place.processes(fabric).len() != 2 {
            for job in &mut self.jobs {
                if let Some(status) = job.ended()? {
                    bail!("{} ended at once with {status}", job.name);
                }
            }
            if Instant::now() > until {
                bail!("{fabric} has not two processes with devices after {} s", GRACE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn at(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Does what is due; true at the end.
    fn step(&mut self) -> Result<bool> {
        let at = self.at();
        let over = at >= self.seconds as f64;
        let mut running = 0;
        for job in &mut self.jobs {
            match job.ended()? {
                None => running += 1,
                Some(status) if !over => bail!("{} ended after {at:.0} s with {status}", job.name),
                Some(_) => {}
            }
        }
        if !over {
            self.sample(at);
            self.inject(at)?;
        }
        self.round(over)?;
        if at >= self.due.1 {
            self.due.1 = at + SAID;
            let [puts, perftest] = [0, 1].map(|n: usize| self.targets[n].given);
            println!("{at:5.0} s: {puts} and {perftest} faults, {} rounds of perftest", self.rounds);
        }
        if at > self.seconds as f64 + GRACE.as_secs_f64() {
            self.jobs
                .iter_mut()
                .filter_map(|job| matches!(job.ended(), Ok(None)).then_some(job.name))
                .for_each(|name| self.wrong.push(format!("{name} did not end")));
            return Ok(true);
        }
        Ok(running == 0 && self.round.is_empty())
    }

    /// Looks at all processes that stay, once a second.
    fn sample(&mut self, at: f64) {
        if at < self.due.0 {
            return;
        }
        self.due.0 = at.floor() + 1.0;
        let mut pids = vec![self.jobs[0].pid()];
        for target in &self.targets {
            pids.extend(self.place.processes(target.fabric));
        }
        pids.into_iter().for_each(|pid| self.watched.look(pid, at));
    }

    /// Puts in the faults that are due.
    fn inject(&mut self, at: f64) -> Result<()> {
        for target in &mut self.targets {
            // Nothing is in flight at the end: what was broken has its time to mend.
            if at < target.next || at + 5.0 > self.seconds as f64 {
                continue;
            }
            let pids = self.place.processes(target.fabric);
            if pids.len() != 2 {
                bail!("{} processes in fabric {} after {at:.0} s, not 2", pids.len(), target.fabric);
            }
            let (pid, nic) = (*self.dice.of(&pids), self.dice.within(0, target.nics - 1));
            let fault = faults::draw(&mut self.dice, target.faults);
            let _ = writeln!(self.log, "{at:9.3} {} {pid} mlx5_{nic} {fault}", target.fabric);
            target.hits.insert(pid, self.place.hits(target.fabric, pid)?);
            self.place.inject(target.fabric, pid, nic, &fault)?;
            target.given += 1;
            target.next = at + faults::pause(&mut self.dice) as f64 / 1000.0;
        }
        Ok(())
    }

    /// Starts the next short run of perftest when the one before has ended.
    fn round(&mut self, over: bool) -> Result<()> {
        let mut statuses = Vec::new();
        for job in &mut self.round {
            match job.ended()? {
                Some(status) => statuses.push((job.name, status)),
                None => return Ok(()),
            }
        }
        for (name, status) in statuses.into_iter().filter(|(_, status)| !status.success()) {
            self.wrong.push(format!("round {}: {name} ended with {status}", self.rounds));
        }
        self.round.clear();
        if let [left, ..] = &self.place.left_behind(ROUNDS)[..] {
            self.wrong.push(format!("round {} left {left} behind", self.rounds));
        }
        if !over {
            let program = ROUND_PROGRAMS[self.rounds % ROUND_PROGRAMS.len()];
            self.rounds += 1;
            self.round = pair(self.place, ROUNDS, program, &["-n", "500"], "round")?;
        }
        Ok(())
    }

    /// What was seen, and what is wrong.
    fn end(mut self) -> Result<(Vec<Series>, Vec<String>)> {
        for job in &mut self.jobs {
            if let Some(status) = job.ended()?.filter(|status| !status.success()) {
                self.wrong.push(format!("{} ended with {status}", job.name));
            }
        }
        let json = fs::read_to_string(self.place.out.join("puts.json")).unwrap_or_default();
        let verdict = verdict(&json);
        if verdict != "clean" {
            self.wrong.push(format!("the verdict of shmem_put_bw is '{verdict}', not 'clean'"));
        }
        for fabric in [PUTS, PERFTEST] {
            self.wrong
                .extend(self.place.left_behind(fabric).iter().map(|name| format!("{name} was left behind")));
        }
        let series = self.watched.series();
        if series.len() != 5 {
            self.wrong.push(format!("{} processes were seen, not 5", series.len()));
        }
        self.wrong.extend(series.iter().flat_map(Series::wrong));
        for target in &self.targets {
            let sum = |of: fn(&(u64, u64)) -> u64| target.hits.values().map(of).sum::<u64>();
            let (hits, idle) = (sum(|counted| counted.0), sum(|counted| counted.1));
            println!(
                "{}: {} faults, {hits} hits before the last of each process, {idle} that changed nothing",
                target.fabric, target.given
            );
            if hits == 0 {
                self.wrong.push(format!("no fault changed anything in {}", target.fabric));
            }
        }
        println!("{} rounds of perftest", self.rounds);
        fs::write(self.place.out.join("faults.txt"), &self.log)?;
        Ok((series, self.wrong))
    }
}

/// The word of the main program's report.
fn verdict(json: &str) -> String {
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    value["verdict"].as_str().unwrap_or("none").to_owned()
}

/// The main program, a process each PE.
fn puts(place: &Place, seconds: u64) -> Result<std::process::Command> {
    let report = place.out.join("puts.json");
    // A report of an earlier run must not speak for this one.
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let mut command = place.shunt("puts.out")?;
    command.args(["run", "-n", "2", "--"]).arg(place.release.join("shunt"));
    command.args(["soft-rdma", "run", "--fabric", PUTS, "--nics", "2", "--"]);
    command.arg(place.release.join("shmem_put_bw")).args(["--nic", "mlx5", "--watch", "-n", "0", "-c", "2"]);
    // A machine that is shared for an hour lets threads wait for longer than a fault takes to be noticed elsewhere.
    command.args(["--suspect", "400ms", "--give-up", "30s"]);
    command.arg("--duration").arg(format!("{seconds}s")).arg("--json").arg(report);
    Ok(command)
}

/// Two processes of perftest.
fn pair(place: &Place, fabric: &str, program: &'static str, args: &[&str], output: &str) -> Result<Vec<Job>> {
    let port = ports::free(1)?;
    let mut jobs = Vec::new();
    for (side, host) in [("server", None), ("client", Some("127.0.0.1"))] {
        let mut command = place.shunt(&format!("{output}.{side}"))?;
        command.args(["soft-rdma", "run", "--fabric", fabric, "--", program]);
        // Retries of 8 s in all: faults are shorter, and cores are shared.
        command
            .args(["-d", "mlx5_0", "-x", "0", "-F", "-u", "18", "-p", &port.to_string()])
            .args(args)
            .args(host);
        jobs.push(Job::start(program, command)?);
        let until = Instant::now() + Duration::from_secs(30);
        while host.is_none() && !shunt_soft_rdma_tool::listens_at(port) {
            if Instant::now() > until {
                bail!("{program} does not listen");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(jobs)
}

fn write(place: &Place, series: &[Series], asked: &Asked) -> Result<()> {
    let mut csv = "seconds,program,pid,memory_kib,descriptors,threads\n".to_owned();
    for one in series {
        for sample in &one.samples {
            let leak::Sample { at, memory, descriptors, threads } = sample;
            let _ = writeln!(csv, "{at:.1},{},{},{memory},{descriptors},{threads}", one.name, one.pid);
        }
    }
    let title = format!("cargo xtask soak --seconds {} --seed {}, soft NICs", asked.seconds, asked.seed);
    for (name, text) in [("soak.csv", csv), ("soak.svg", plot::svg(series, &title))] {
        fs::write(place.out.join(name), text).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// First, most and last of each process.
fn table(series: &[Series]) -> String {
    let mut text =
        "| process | samples | memory, KiB: at half time, most, last | grown in the second half, KiB \
                    | descriptors: at half time, most, last | threads: the same |\n\
                    | --- | ---: | --- | ---: | --- | --- |\n"
            .to_owned();
    for one in series {
        let of = |what: fn(&leak::Sample) -> u64| {
            let at = |n: usize| one.samples.get(n).map_or(0, what);
            let most = one.samples.iter().map(what).max().unwrap_or(0);
            format!("{}, {most}, {}", at(one.samples.len() / 2), at(one.samples.len().saturating_sub(1)))
        };
        let [memory, descriptors, threads] =
            [of(|sample| sample.memory), of(|sample| sample.descriptors), of(|sample| sample.threads)];
        let (name, count, growth) = (&one.name, one.samples.len(), one.growth());
        let _ = writeln!(text, "| {name} | {count} | {memory} | {growth:.0} | {descriptors} | {threads} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_or_refused() {
        let of = |args: &[&str]| asked(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            of(&["--minutes", "2", "--seed", "9"]).unwrap(),
            Asked { seconds: 120, seed: 9, out: None }
        );
        for wrong in [&["--seconds", "29"][..], &["--minutes", "0"], &["--seed"], &["--hours", "1"]] {
            assert_eq!(sh::status_of(&of(wrong).unwrap_err()), 2, "{wrong:?}");
        }
    }

    #[test]
    fn a_report_that_is_missing_or_cut_is_not_clean() {
        assert_eq!(verdict(r#"{"verdict":"clean"}"#), "clean");
        assert_eq!(verdict(r#"{"verdict":"broken"}"#), "broken");
        assert_eq!(verdict("{\"verdict\":\"cle"), "none");
        assert_eq!(verdict(""), "none");
    }
}
