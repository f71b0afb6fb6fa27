//! What of the plan of faults this process carries out: at its NICs, at its PEs, and commands that make one.

use crate::cluster::Cluster;
use crate::job::board::Board;
use crate::job::entry::Entry;
use crate::job::{AgentCut, Job};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use shunt_soft_nic::fault::{Fault, Injection, PeFault};
use shunt_soft_nic::{FaultKind, RailAt};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A command that has not ended this long after the run is not waited for.
const GRACE_NS: u64 = 2_000_000_000;

/// Something to be done at a time.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The fault of this number begins.
    Begin(usize),
    /// The agents' link of a PE is joined again.
    Join(u32),
}

/// A command that was started.
struct Running {
    fault: usize,
    child: Child,
}

/// The faults of this process.
pub struct Faults<'r> {
    plan: &'r [Injection],
    cluster: &'r Cluster,
    job: &'r dyn Job,
    board: &'r Board,
    /// Faults that NICs carry out: their number there, and in the plan.
    at_nics: Vec<(usize, usize)>,
    /// What is to be done and when, the earliest last.
    steps: Vec<(u64, Step)>,
    running: Vec<Running>,
    /// Cuts that began, and the messages that had been lost before.
    cuts: Vec<(usize, u64)>,
    /// Of faults that no NIC counts.
    hits: Vec<u64>,
}

impl<'r> Faults<'r> {
    /// Hands the NICs what is theirs, and keeps the rest.
    pub fn plan(
        plan: &'r [Injection],
        cluster: &'r Cluster,
        job: &'r dyn Job,
        board: &'r Board,
        start_ns: u64,
    ) -> Self {
        let (mut at_nics, mut steps) = (Vec::new(), Vec::new());
        for (number, injection) in plan.iter().enumerate().filter(|(_, i)| cluster.has(i.pe)) {
            let at_ns = start_ns.saturating_add(injection.at_ns);
            match (&injection.fault, injection.rail) {
                (Fault::Nic(kind), Some(rail)) => {
                    match cluster.nics().inject(at_ns, RailAt { pe: injection.pe, rail }, *kind) {
                        Ok(there) => at_nics.push((there, number)),
                        // It has no hits, and the verdict says so.
                        Err(error) => shunt_host::complain!("--inject {injection}: {error}"),
                    }
                }
                _ => steps.push((at_ns, Step::Begin(number))),
            }
        }
        steps.sort_by_key(|(at_ns, _)| std::cmp::Reverse(*at_ns));
        let hits = vec![0; plan.len()];
        Self { plan, cluster, job, board, at_nics, steps, running: Vec::new(), cuts: Vec::new(), hits }
    }

    /// Does what is due.
    pub fn tick(&mut self, now_ns: u64) {
        while let Some((at_ns, step)) = self.steps.last().copied() {
            if at_ns > now_ns {
                break;
            }
            self.steps.pop();
            match step {
                Step::Begin(number) => self.begin(number, now_ns),
                Step::Join(pe) => self.job.cut_agent(pe, AgentCut::Joined),
            }
        }
        self.look_at_commands();
    }

    /// When the next thing is due.
    pub fn next_due(&self) -> Option<u64> {
        self.steps.last().map(|(at_ns, _)| *at_ns)
    }

    fn begin(&mut self, number: usize, now_ns: u64) {
        let injection = &self.plan[number];
        match &injection.fault {
            Fault::Nic(_) => unreachable!("what NICs do was handed to them"),
            Fault::Pe(fault) => self.hit_pe(*fault, injection.pe, number, now_ns),
            Fault::Exec(command) => self.start_command(number, command),
        }
    }

    fn hit_pe(&mut self, fault: PeFault, pe: u32, number: usize, now_ns: u64) {
        let unit = self.cluster.unit(pe);
        match fault {
            PeFault::PeerKilled => {
                self.hits[number] += 1;
                self.job.publish(&Entry::Hits { fault: number as u32, hits: 1 });
                if !self.job.die() {
                    self.take_away(pe);
                }
            }
            PeFault::AgentKilled => unit.gate().hold(u64::MAX),
            PeFault::AgentStalled { for_ns } => unit.gate().hold(now_ns.saturating_add(for_ns)),
            PeFault::AgentRestart => unit.gate().kill(now_ns),
            PeFault::AgentDead { for_ns } => unit.gate().kill(now_ns.saturating_add(for_ns)),
            PeFault::OobCut { for_ns } => self.cut(number, pe, AgentCut::BothWays, now_ns, for_ns),
            PeFault::OobCutTx { for_ns } => self.cut(number, pe, AgentCut::Says, now_ns, for_ns),
            PeFault::OobCutRx { for_ns } => self.cut(number, pe, AgentCut::Hears, now_ns, for_ns),
            PeFault::ClockJump { by_ns } => {
                self.hits[number] += 1;
                unit.clock().jump(by_ns);
            }
            PeFault::OobDup { .. }
            | PeFault::OobDelay { .. }
            | PeFault::OobReorder { .. }
            | PeFault::PeerStopped { .. } => unreachable!("refused before the run"),
        }
    }

    fn cut(&mut self, number: usize, pe: u32, cut: AgentCut, now_ns: u64, for_ns: Option<u64>) {
        self.cuts.push((number, self.job.lost_by_cuts()));
        self.job.cut_agent(pe, cut);
        if let Some(for_ns) = for_ns {
            self.later(now_ns.saturating_add(for_ns), Step::Join(pe));
        }
    }

    fn later(&mut self, at_ns: u64, step: Step) {
        let place = self.steps.partition_point(|(other, _)| *other > at_ns);
        self.steps.insert(place, (at_ns, step));
    }

    /// What is left of a PE whose process is gone, where the process has others: nothing that anybody could meet.
    fn take_away(&mut self, pe: u32) {
        self.board.kill(pe);
        self.cluster.unit(pe).gate().hold(u64::MAX);
        self.job.close_agent(pe);
        for rail in 0..self.cluster.unit(pe).rails() {
            // What fails here leaves the PE with a NIC that nobody uses any more.
            if let Err(error) =
                self.cluster.nics().inject(0, RailAt { pe, rail }, FaultKind::NicGone { for_ns: None })
            {
                shunt_host::complain!("{pe}:peer-killed: {error}");
            }
        }
    }

    fn start_command(&mut self, number: usize, command: &str) {
        let place = self.place(number);
        let started = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        match started {
            Ok(mut child) => {
                log_lines(child.stdout.take(), place.clone());
                log_lines(child.stderr.take(), place);
                self.running.push(Running { fault: number, child });
            }
            Err(error) => shunt_host::complain!("exec {place}: sh cannot be started: {error}"),
        }
    }

    fn place(&self, number: usize) -> String {
        let injection = &self.plan[number];
        format!("{}.{}", injection.pe, injection.rail.unwrap_or(0))
    }

    fn look_at_commands(&mut self) {
        let mut still = Vec::new();
        for mut running in std::mem::take(&mut self.running) {
            let place = self.place(running.fault);
            match running.child.try_wait() {
                Ok(None) => still.push(running),
                Ok(Some(status)) if status.success() => self.hits[running.fault] += 1,
                Ok(Some(status)) => shunt_host::complain!("exec {place}: ended with {status}: no hit"),
                Err(error) => shunt_host::complain!("exec {place}: lost: {error}"),
            }
        }
        self.running = still;
    }

    /// The run is over: what still runs is waited for a little, then ended.
    pub fn finish(&mut self) {
        let end = self.cluster.clock().now_ns() + GRACE_NS;
        self.look_at_commands();
        while !self.running.is_empty() && self.cluster.clock().now_ns() < end {
            std::thread::sleep(std::time::Duration::from_millis(5));
            self.look_at_commands();
        }
        for mut running in std::mem::take(&mut self.running) {
            shunt_host::complain!(
                "exec {}: still running after the run; ended: no hit",
                self.place(running.fault)
            );
            // It may have ended by itself meanwhile.
            let _ = killpg(Pid::from_raw(running.child.id() as i32), Signal::SIGKILL);
            let _ = running.child.wait();
        }
    }

    /// How often each fault of this process has struck so far, by its number in the plan.
    pub fn hits(&self) -> Vec<(usize, u64)> {
        let own = self.plan.iter().enumerate().filter(|(_, injection)| self.cluster.has(injection.pe));
        let mut hits: Vec<(usize, u64)> = own.map(|(number, _)| (number, self.hits[number])).collect();
        let at_nics = if self.at_nics.is_empty() { Vec::new() } else { self.cluster.nics().hits() };
        for (there, number) in &self.at_nics {
            let known = at_nics.get(*there).copied().unwrap_or(0);
            hits.iter_mut().filter(|(own, _)| own == number).for_each(|(_, hits)| *hits = known);
        }
        let lost = self.job.lost_by_cuts();
        for (number, before) in &self.cuts {
            hits.iter_mut().filter(|(own, _)| own == number).for_each(|(_, hits)| *hits = lost - before);
        }
        for (number, hits) in &mut hits {
            let injection = &self.plan[*number];
            let gate = self.cluster.unit(injection.pe).gate();
            match injection.fault {
                Fault::Pe(PeFault::AgentKilled | PeFault::AgentStalled { .. }) => *hits = gate.held() as u64,
                Fault::Pe(PeFault::AgentRestart | PeFault::AgentDead { .. }) => *hits = gate.deaths(),
                _ => {}
            }
        }
        hits
    }
}

/// Passes a command's lines on until it closes them, which may be after it ended: nobody waits for that.
fn log_lines(pipe: Option<impl Read + Send + 'static>, place: String) {
    let Some(pipe) = pipe else { return };
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            shunt_host::complain!("exec {place}: {line}");
        }
    });
}
