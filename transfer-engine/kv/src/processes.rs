//! All decoders and prefillers of this machine, each a process, and what is done to them.

use crate::options::{At, Options, Who};
use crate::verdict::{Done, Part, Told};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shunt_settings::complain;
use shunt_transfer::NoNode;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Processes that are ready before then are not waited for any longer.
const READY: Duration = Duration::from_secs(60);
/// Prefillers end of their own when the decoders have, within this time.
const END: Duration = Duration::from_secs(20);

/// Between two looks whether something has happened.
const LOOK: Duration = Duration::from_millis(50);

/// What a process says on standard error.
struct Line(Who, String);

/// A process.
struct Process {
    who: Who,
    child: Child,
    /// It was killed on purpose.
    killed: bool,
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended is waited for, one that has not is killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Signal(Signal),
    Start,
}

/// A run.
pub struct Processes<'a> {
    options: &'a Options,
    fabric: String,
    tell: Sender<Line>,
    lines: Receiver<Line>,
    all: Vec<Process>,
    decoders: Vec<String>,
    ends: u32,
    done: Done,
}

impl<'a> Processes<'a> {
    /// Starts the decoders, then the prefillers.
    ///
    /// # Errors
    /// A process cannot be started, or a decoder does not listen.
    pub fn start(options: &'a Options) -> Result<Self> {
        let (tell, lines) = channel();
        let fabric = format!("kv-{}", std::process::id());
        let ends = options.decode + options.prefill;
        let (all, decoders, done) = (Vec::new(), Vec::new(), Done::default());
        let mut run = Self { options, fabric, tell, lines, all, decoders, ends, done };
        for number in 0..options.decode {
            run.spawn(Who { is_prefill: false, number }, number)?;
        }
        let until = Instant::now() + READY;
        let mut at = vec![None; options.decode as usize];
        while at.iter().any(Option::is_none) {
            let soon = Instant::now() + LOOK;
            let Some(Line(who, line)) = run.next_line(soon)? else {
                run.all_listen_or_live(&at)?;
                ensure!(Instant::now() < until, "a decoder: expected its address, got none");
                continue;
            };
            if let Some((_, address)) = line.split_once(" listens at ") {
                at[who.number as usize] = Some(address.to_owned());
            }
        }
        run.decoders = at.into_iter().flatten().collect();
        for number in 0..options.prefill {
            run.spawn(Who { is_prefill: true, number }, options.decode + number)?;
        }
        Ok(run)
    }

    /// Fails if a decoder has ended that was to listen. What it refused is refused here.
    fn all_listen_or_live(&mut self, at: &[Option<String>]) -> Result<()> {
        for process in &mut self.all {
            let Some(status) =
                process.child.try_wait()?.filter(|_| at[process.who.number as usize].is_none())
            else {
                continue;
            };
            let why = format!("{}: expected its address, got {status}: its own error says why", process.who);
            ensure!(status.code() != Some(2), NoNode::Refused(why));
            bail!(why);
        }
        Ok(())
    }

    /// The soft fabric of the run.
    pub fn fabric(&self) -> &str {
        &self.fabric
    }

    fn arguments(&self, who: Who, end: u32) -> Vec<String> {
        let options = self.options;
        let requests = options.requests / options.decode
            + u32::from(who.number < options.requests % options.decode && !who.is_prefill);
        let mut all: Vec<String> = [
            ("--role", if who.is_prefill { "prefill" } else { "decode" }.to_owned()),
            ("--end", end.to_string()),
            ("--prefill", options.prefill.to_string()),
            ("--decode", options.decode.to_string()),
            ("--requests", requests.max(1).to_string()),
            ("--concurrent", options.concurrent.to_string()),
            ("--cancel", format!("{}%", options.cancel)),
            ("--layers", options.layers.to_string()),
            ("--pages", options.pages.to_string()),
            ("--page", options.page.to_string()),
            ("--context", options.context.to_string()),
            ("--layer-time", format!("{}ns", options.layer_time)),
            ("--seed", options.seed.to_string()),
            ("--within", format!("{}ns", options.within)),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        if who.is_prefill {
            all.extend(["--connect".to_owned(), self.decoders.join(",")]);
        } else {
            all.extend(["--listen", "127.0.0.1:0"].map(str::to_owned));
        }
        all.push("--part".to_owned());
        all.extend(options.nics.of_end(end));
        all
    }

    fn spawn(&mut self, who: Who, end: u32) -> Result<()> {
        let program = std::env::current_exe().context("this program's path")?;
        let mut child = Command::new(program)
            .args(self.arguments(who, end))
            .env("SHUNT_FABRIC", &self.fabric)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{who}"))?;
        let said = child.stderr.take().context("its standard error")?;
        let tell = self.tell.clone();
        std::thread::spawn(move || forward(who, said, &tell));
        self.all.push(Process { who, child, killed: false });
        Ok(())
    }

    /// The next line of any process, which is printed as well.
    fn next_line(&mut self, until: Instant) -> Result<Option<Line>> {
        let left = until.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                complain!("{}", line.1);
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("no process is there any more"),
        }
    }

    /// What is to be done, by time.
    fn deeds(&self) -> Vec<(At, Deed)> {
        let options = self.options;
        let of = |all: &[At], deed| all.iter().map(move |at| (*at, deed)).collect::<Vec<_>>();
        let mut deeds = of(&options.kill, Deed::Signal(Signal::SIGKILL));
        deeds.extend(of(&options.stop, Deed::Signal(Signal::SIGSTOP)));
        deeds.extend(of(&options.cont, Deed::Signal(Signal::SIGCONT)));
        deeds.extend(of(&options.restarts(), Deed::Start));
        deeds.sort_by_key(|(at, _)| at.at_ns);
        deeds
    }

    fn act(&mut self, at: At, deed: Deed) -> Result<()> {
        self.done.any = true;
        match deed {
            Deed::Start => {
                let end = self.ends;
                self.ends += 1;
                complain!("kv_disagg: {} starts again, as end {end}", at.who);
                self.done.restarted.push(end);
                self.spawn(at.who, end)
            }
            Deed::Signal(signal) => {
                // The one that was started last under this name.
                let process = self.all.iter_mut().rev().find(|process| process.who == at.who);
                let process = process.with_context(|| format!("{}: expected a process", at.who))?;
                complain!("kv_disagg: {} gets {signal}", at.who);
                process.killed |= signal == Signal::SIGKILL;
                // One that has ended gets none, which is told of by what it did.
                let _ = kill(Pid::from_raw(process.child.id() as i32), signal);
                Ok(())
            }
        }
    }

    fn decoders_run(&mut self) -> Result<bool> {
        let decoders = self.all.iter_mut().filter(|process| !process.who.is_prefill && !process.killed);
        let mut any = false;
        for process in decoders {
            any |= process.child.try_wait()?.is_none();
        }
        Ok(any)
    }

    /// Does what is to be done until the decoders have ended, and answers with what they saw.
    ///
    /// # Errors
    /// A process cannot be watched.
    pub fn run(mut self) -> Result<(Vec<Part>, Done)> {
        let mut deeds = self.deeds().into_iter().peekable();
        let ready = Instant::now() + READY;
        let mut begun: Option<Instant> = None;
        let until = Instant::now() + READY + self.options.within() + END;
        while self.decoders_run()? {
            ensure!(
                Instant::now() < until,
                "the decoders: expected their end within {:?}",
                self.options.within()
            );
            let next = deeds.peek().zip(begun).map(|((at, _), begun)| begun + Duration::from_nanos(at.at_ns));
            let soon = Instant::now() + LOOK;
            let line = self.next_line(next.map_or(soon, |next| next.min(soon)))?;
            if line.is_some_and(|Line(who, line)| !who.is_prefill && line.contains(" begins, ")) {
                begun.get_or_insert_with(Instant::now);
            }
            ensure!(
                begun.is_some() || Instant::now() < ready,
                "the decoders: expected prefillers that serve"
            );
            while let Some((at, deed)) = deeds.next_if(|(at, _)| {
                begun.is_some_and(|begun| begun + Duration::from_nanos(at.at_ns) <= Instant::now())
            }) {
                self.act(at, deed)?;
            }
        }
        self.done.missed = deeds.map(|(at, deed)| format!("{deed:?} {}", at.who)).collect();
        self.finish()
    }

    fn finish(mut self) -> Result<(Vec<Part>, Done)> {
        let mut parts = Vec::new();
        for process in self.all.iter_mut().filter(|process| !process.who.is_prefill && !process.killed) {
            let mut text = String::new();
            let stdout = process.child.stdout.take().context("its standard output")?;
            BufReader::new(stdout).read_to_string(&mut text)?;
            match serde_json::from_str(&text) {
                Ok(Told { clock, part }) => {
                    self.done.clock = clock;
                    parts.push(part);
                }
                Err(error) => self.done.failed.push(format!("{}: {error}", process.who)),
            }
        }
        // Prefillers end of their own; a stopped one does not.
        let until = Instant::now() + END;
        for process in self.all.iter_mut().filter(|process| process.who.is_prefill && !process.killed) {
            while process.child.try_wait()?.is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            let mut text = String::new();
            let stdout = process.child.stdout.take().context("its standard output")?;
            if process.child.try_wait()?.is_some() {
                BufReader::new(stdout).read_to_string(&mut text)?;
            }
            match serde_json::from_str(&text) {
                Ok(faults) => parts.push(Part { faults, ..Part::default() }),
                Err(_) => self.done.failed.push(format!("{}: expected what its faults struck", process.who)),
            }
        }
        while let Ok(Line(_, line)) = self.lines.recv_timeout(Duration::from_millis(20)) {
            complain!("{line}");
        }
        let what = self.done.missed.iter().map(|what| format!("not done, the run was over: {what}"));
        what.chain(self.done.failed.iter().cloned()).for_each(|what| complain!("kv_disagg: {what}"));
        Ok((parts, std::mem::take(&mut self.done)))
    }
}

fn forward(who: Who, said: ChildStderr, tell: &Sender<Line>) {
    for line in BufReader::new(said).lines().map_while(Result::ok) {
        if tell.send(Line(who, line)).is_err() {
            return;
        }
    }
}
