//! `shunt run`: starts the ranks of a job on this machine, passes their output on, and tells how each ended.

mod child;
mod event;
mod leftovers;
pub(crate) mod lookup;
mod outcome;
mod output;
mod thread;

use child::{Child, Place};
use clap::Args;
use event::Event;
use nix::sys::signal::Signal;
use outcome::{Ending, summary};
use output::{Output, Style};
use shunt_figures::stdout::stdout_error;
use shunt_figures::units::whole;
use shunt_host::config::parse_duration;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use thread::in_thread;

/// Between the request to end and the end by force.
const MERCY: Duration = Duration::from_secs(5);
/// What a rank ends with that was called in a wrong way: the others would wait for it in vain.
const BAD_USAGE: u8 = 2;
/// How long output is awaited after the last rank ended: a grandchild may hold the pipe.
const DRAIN: Duration = Duration::from_secs(1);

/// Starts N processes of a job on this machine.
#[derive(Args)]
#[command(after_help = "\
The program is looked up next to this one, then in PATH. Each process gets SHUNT_RANK, SHUNT_WORLD, SHUNT_ROOT, \
SHUNT_SECRET (fresh) and SHUNT_FABRIC; rank 0 inherits the listening socket. Standard input is empty.
Exit status: the largest of the ranks that ended by themselves, if one is not 0; else 128 + signal of the first \
that was killed; else 0. 2: bad usage. 1: a process could not be started.
A rank that exits with 2 was called in a wrong way: the others are ended at once.")]
pub struct Arguments {
    /// Processes
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = whole(1..=1024))]
    #[arg(allow_negative_numbers = true)]
    ranks: u32,
    /// Soft fabric that the processes share [default: a fresh one]
    #[arg(long, value_name = "NAME", value_parser = fabric_name)]
    fabric: Option<String>,
    /// Prefix every line with its rank, those of rank 0 too
    #[arg(long)]
    tag: bool,
    /// End the others at once when one ends abnormally
    #[arg(long)]
    kill_others: bool,
    /// How long the others may go on after one ended abnormally
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    #[arg(allow_hyphen_values = true)]
    grace: Duration,
    /// Set a variable in every process; repeatable
    #[arg(short = 'x', long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROG ARGS")]
    command: Vec<OsString>,
}

pub(crate) fn fabric_name(text: &str) -> Result<String, String> {
    shunt_host::job::check_fabric_name(text).map(str::to_owned).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("expected 0, or a number with ns, us, ms or s, such as 500ms, got {text:?}"))
}

/// What the launcher sets itself cannot be set by hand: it would start another job than the one it looks after.
const OURS: &[&str] = &[
    "SHUNT_RANK",
    "SHUNT_LOCAL_RANK",
    "SHUNT_WORLD",
    "SHUNT_ROOT",
    "SHUNT_ROOT_FD",
    "SHUNT_SECRET",
    "SHUNT_SECRET_FILE",
    "SHUNT_FABRIC",
];

fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("expected NAME=VALUE, got {text:?}"))?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(format!("expected a name without blanks before the =, got {text:?}"));
    }
    if OURS.contains(&name) {
        return Err(format!("{name} is set by `shunt run` for every process; leave it out"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs the job; the answer is the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let program = match lookup::find(&arguments.command[0]) {
        Ok(program) => program,
        Err(error) => {
            shunt_host::complain!("error: {error}");
            return 2;
        }
    };
    leftovers::remove();
    match start(arguments, &program) {
        Ok(mut job) => {
            let status = job.attend(arguments);
            job.tidy_up();
            match stdout_error() {
                Some(lost) => {
                    shunt_host::complain!("shunt run: stdout: {lost}");
                    status.max(1)
                }
                None => status,
            }
        }
        Err(error) => {
            shunt_host::complain!("error: {error}");
            1
        }
    }
}

fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn listen_for_signals(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    in_thread("signals", move || {
        for signal in &mut signals {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })
}

fn start(arguments: &Arguments, program: &std::path::Path) -> io::Result<Job> {
    let (sender, events) = channel();
    // Before the first process: a signal between the two would leave it behind.
    listen_for_signals(sender.clone())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let secret = random_hex()?;
    let fabric = match &arguments.fabric {
        Some(name) => name.clone(),
        None => leftovers::fabric(&random_hex()?),
    };
    let place = Place {
        world: arguments.ranks,
        listener: &listener,
        secret: &secret,
        fabric: &fabric,
        set: &arguments.set,
    };
    let output = Arc::new(Output::new(Style { tag_all: arguments.tag }));
    let mut job =
        Job { children: Vec::new(), events, streams: 0, ending: None, order: Vec::new(), fabric: None };
    for rank in 0..arguments.ranks {
        // On an error the children that were started are killed as they are dropped.
        let mut child = child::start(program, &arguments.command[1..], rank, &place).map_err(|error| {
            io::Error::other(format!("rank {rank}: {} cannot be started: {error}", program.display()))
        })?;
        let watched = output::pass_on(&output, rank, &mut child.process, &sender)
            .and_then(|streams| child.report_end(sender.clone()).map(|()| streams));
        job.streams += watched.map_err(|error| io::Error::other(format!("rank {rank}: {error}")))?;
        job.children.push(child);
    }
    job.fabric = arguments.fabric.is_none().then_some(fabric);
    Ok(job)
}

/// How far the end of the job has come.
#[derive(Clone, Copy)]
enum End {
    /// One ended abnormally; at this time the others are asked to end.
    Grace(Instant),
    /// All were asked; at this time they are killed.
    Mercy(Instant),
    /// All were killed.
    Forced,
}

struct Job {
    children: Vec<Child>,
    events: Receiver<Event>,
    /// Streams that have not come to their end.
    streams: usize,
    ending: Option<End>,
    /// How ranks ended, in the order in which they did.
    order: Vec<Ending>,
    /// The fabric whose name was made up for this job.
    fabric: Option<String>,
}

impl Job {
    /// Removes what killed ranks left of a fabric that nobody else knows of.
    fn tidy_up(&self) {
        if let Some(fabric) = &self.fabric
            && let Err(error) = shunt_soft_nic::uplink::remove_fabric(fabric)
        {
            shunt_host::complain!("shunt run: fabric {fabric}: {error}");
        }
    }

    fn alive(&self) -> usize {
        self.children.iter().filter(|child| child.ended.is_none()).count()
    }

    fn kill(&self, signal: Signal) {
        for child in self.children.iter().filter(|child| child.ended.is_none()) {
            child.signal(signal);
        }
    }

    fn attend(&mut self, arguments: &Arguments) -> u8 {
        while self.alive() > 0 {
            let due = match self.ending {
                Some(End::Grace(at) | End::Mercy(at)) => at.saturating_duration_since(Instant::now()),
                _ => Duration::from_secs(3600),
            };
            match self.events.recv_timeout(due) {
                Ok(Event::Ended(rank)) => self.reap(rank, arguments),
                Ok(Event::Drained) => self.streams -= 1,
                Ok(Event::Signal(signal)) => self.forward(signal),
                Err(RecvTimeoutError::Timeout) => self.overdue(arguments),
                // The sender of signals lives as long as this.
                Err(RecvTimeoutError::Disconnected) => return 1,
            }
        }
        self.drain();
        let endings: Vec<Ending> = self.children.iter().filter_map(|child| child.ended).collect();
        shunt_host::complain!("shunt run: {}", summary(&endings));
        outcome::status(&self.order)
    }

    fn reap(&mut self, rank: u32, arguments: &Arguments) {
        let child = &mut self.children[rank as usize];
        let ending = child.reap();
        self.order.push(ending);
        if ending.is_clean() || self.ending.is_some() || self.alive() == 0 {
            return;
        }
        if arguments.kill_others || ending == Ending::Exited(BAD_USAGE) {
            shunt_host::complain!("shunt run: rank {rank} {ending}; ending the others");
            self.ask(Signal::SIGTERM);
        } else {
            shunt_host::complain!(
                "shunt run: rank {rank} {ending}; the others have {:?} to end",
                arguments.grace
            );
            self.ending = Some(End::Grace(Instant::now() + arguments.grace));
        }
    }

    fn ask(&mut self, signal: Signal) {
        self.kill(signal);
        self.ending = Some(End::Mercy(Instant::now() + MERCY));
    }

    fn forward(&mut self, signal: i32) {
        let signal = Signal::try_from(signal).unwrap_or(Signal::SIGTERM);
        shunt_host::complain!("shunt run: {signal} is passed on to {} rank(s)", self.alive());
        // A user who asks twice is in earnest.
        match self.ending {
            Some(End::Mercy(_) | End::Forced) => self.force(),
            _ => self.ask(signal),
        }
    }

    fn force(&mut self) {
        self.kill(Signal::SIGKILL);
        self.ending = Some(End::Forced);
    }

    fn overdue(&mut self, arguments: &Arguments) {
        match self.ending {
            Some(End::Grace(_)) => {
                shunt_host::complain!(
                    "shunt run: ending {} rank(s) after {:?} of grace",
                    self.alive(),
                    arguments.grace
                );
                self.ask(Signal::SIGTERM);
            }
            Some(End::Mercy(_)) => {
                shunt_host::complain!(
                    "shunt run: killing {} rank(s) that did not end in {MERCY:?}",
                    self.alive()
                );
                self.force();
            }
            _ => {}
        }
    }

    fn drain(&mut self) {
        let until = Instant::now() + DRAIN;
        while self.streams > 0 {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Drained) => self.streams -= 1,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}
