//! The machines are told what happens, and what they decide is carried out, as the engine does it.

use super::half::Half;
use super::letter::Letter;
use super::promises;
use super::setup::{Break, Setup, TICK};
use super::state::{End, Flow, Job, Old, QpState, System};
use shunt_layout::state::PathState;
use shunt_recovery::health::Health;
use shunt_recovery::nanos::Nanos;
use shunt_recovery::path::{
    self, Adopted, Command, Facts, Handle, Output, PathMachine, Polled, Step, Task, Word,
};
use shunt_recovery::slots::RailPair;
use shunt_recovery::verdict::Verdict;
use std::collections::VecDeque;

/// The clock reads this when an end begins: long ago is before it.
const LONG: Nanos = Nanos::secs(10_000);

/// What a machine may ask.
struct Seen {
    own_up: bool,
    ports_up: bool,
    silent: bool,
    old: [Option<Old>; super::state::QPS],
    has_left: bool,
    unused: bool,
    row: PathState,
    request: u64,
}

impl Facts for Seen {
    fn own_port_up(&self, _rail: u32) -> bool {
        self.own_up
    }
    fn ports_up(&self, _rails: RailPair) -> bool {
        self.ports_up
    }
    fn calm_from(&self, now: Nanos, _rails: RailPair) -> Nanos {
        now
    }
    fn rails_exist(&self, rails: RailPair) -> bool {
        rails == RailPair { local: 0, remote: 0 }
    }
    fn nic_silent(&self, _rail: u32) -> bool {
        self.silent
    }
    fn nic_has_room(&self, _rail: u32) -> bool {
        true
    }
    fn count_trusted(&self, _nic: u32, _rails: RailPair) -> bool {
        true
    }
    fn destroy_pending(&self, _rail: u32) -> bool {
        self.old.iter().any(Option::is_some)
    }
    fn destroy_refused(&self, _rail: u32) -> bool {
        self.old.iter().flatten().any(|old| old.refused)
    }
    fn completions_in_use(&self, variant: u32) -> bool {
        self.old.iter().flatten().any(|old| old.half.variant() == variant)
    }
    fn rail_being_left(&self, _rail: u32) -> bool {
        false
    }
    fn peer_lost(&self) -> bool {
        false
    }
    fn peer_reachable(&mut self, _now: Nanos) -> bool {
        true
    }
    fn peer_owes_since(&mut self, awake: Nanos) -> Nanos {
        awake
    }
    fn has_left(&self) -> bool {
        self.has_left
    }
    fn is_unused(&self) -> bool {
        self.unused
    }
    fn row_state(&self) -> PathState {
        self.row
    }
    fn change_row(&mut self, from: PathState, to: PathState) -> bool {
        let stands = self.row == from;
        if stands {
            self.row = to;
        }
        stands
    }
    fn newest_request(&self) -> u64 {
        self.request
    }
}

impl Setup {
    fn seen(&self, s: &System, at: usize) -> Seen {
        let End { nic, owner, .. } = &s.ends[at];
        let (flow, incarnation) = (&s.flows[at], s.ends[at].path.incarnation());
        let sent = flow.incarnation() == incarnation && flow.posted > 0;
        let says_so = self.has(Break::LeftTooSoon) && owner.row != PathState::Ready;
        Seen {
            own_up: nic.up,
            ports_up: s.ends.iter().all(|end| end.nic.up),
            silent: nic.silent,
            old: nic.old,
            has_left: owner.uses == 0 || says_so,
            unused: owner.uses == 0 && !sent || self.has(Break::UsedCountsAsUnused),
            row: owner.row,
            request: owner.request,
        }
    }

    /// Has the machine at an end `act`, and carries out what it decides.
    pub(super) fn with<R>(
        &self,
        s: &mut System,
        at: usize,
        act: impl FnOnce(&mut PathMachine<Half>, &mut Step<'_, Half>) -> R,
    ) -> Result<R, String> {
        let (mut seen, mut out, timing) = (self.seen(s, at), VecDeque::new(), self.timing());
        let age = TICK * u64::from(s.ends[at].clock);
        let before = s.ends[at].path;
        let mut step =
            Step { now: LONG + age, age, awake: age, timing: &timing, facts: &mut seen, out: &mut out };
        let result = act(&mut s.ends[at].path, &mut step);
        s.ends[at].owner.row = seen.row;
        promises::moved(s, at, &before)?;
        for output in out {
            self.carry_out(s, at, output)?;
        }
        Ok(result)
    }

    fn carry_out(&self, s: &mut System, at: usize, output: Output<Half>) -> Result<(), String> {
        let end = &mut s.ends[at];
        match output {
            Output::Tell(incarnation, word) => {
                s.wire.send(Letter::new(1 - at, incarnation, word), self.in_flight);
            }
            Output::Command(_, command) => give(end, command)?,
            Output::Count(_, number) => {
                let job = &mut end.nic.jobs[number as usize];
                if let Some(Job::Fence { half, begun: false }) = *job {
                    *job = Some(Job::Count(half));
                    end.path.given(Task::Count(number));
                }
            }
            Output::CancelConnect(_, number) => {
                let job = &mut end.nic.jobs[number as usize];
                if matches!(job, Some(Job::Connect(_))) {
                    *job = None;
                }
            }
            Output::CancelMake(_, number) => {
                if let Some(Job::Make { old, .. }) = end.nic.jobs[number as usize].take() {
                    end.path.given(Task::None);
                    old.into_iter().try_for_each(|old| keep(end, old))?;
                }
            }
            Output::Destroy(half) => keep(end, half)?,
            Output::Row(state) => end.owner.row = state,
            Output::Answer(incarnation, request, verdict) => answer(s, at, incarnation, request, verdict)?,
            Output::OpenProbes => end.probes = end.path.half().is_some(),
            Output::PostProbe => post(&mut s.flows[at], end),
            Output::CloseProbes | Output::HandOver(_) => end.probes = false,
            Output::NoSuchRails(_) | Output::OtherRail(..) => return Err("rails: there is one".into()),
            _ => {}
        }
        Ok(())
    }

    /// A word arrives.
    pub(super) fn hear(&self, s: &mut System, letter: Letter) -> Result<(), String> {
        let (at, incarnation, word) = (letter.to(), letter.incarnation(), letter.word());
        if matches!(word, Word::Fence | Word::Leave | Word::Truth(_) | Word::Left) {
            let adopted = self.with(s, at, |path, cx| path::hearing::adopt(path, cx, incarnation))?;
            if adopted != Adopted::Hear {
                return Ok(());
            }
        }
        let act = |path: &mut PathMachine<Half>, cx: &mut Step<'_, Half>| {
            path::hearing::hear(path, cx, incarnation, word, true)
        };
        if self.with(s, at, act)? {
            self.await_truth(s, at)?;
        }
        Ok(())
    }

    fn await_truth(&self, s: &mut System, at: usize) -> Result<(), String> {
        self.with(s, at, |path, cx| path.look_asking(cx))?;
        if self.with(s, at, |path, cx| path.look_own_half(cx))? {
            self.with(s, at, |path, cx| path.look_both_halves(cx))?;
        }
        Ok(())
    }

    /// An end looks at its path.
    pub(super) fn look(&self, s: &mut System, at: usize) -> Result<(), String> {
        match s.ends[at].path.health() {
            Health::Ready => {
                self.with(s, at, |path, cx| path::orders::look_leaving(path, cx, true))?;
            }
            Health::Retired => {}
            Health::Fencing => {
                self.await_truth(s, at)?;
                self.with(s, at, |path, cx| path.say_in_hand(cx))?;
            }
            Health::Fenced => {
                self.with(s, at, |path, cx| path.look_fenced(cx))?;
            }
            Health::Released => {
                self.with(s, at, |path, cx| path.look_released(cx))?;
            }
            Health::Connecting => {
                self.with(s, at, |path, cx| path.look_connecting(cx))?;
            }
            Health::Probing => {
                let polled = self.poll(s, at);
                self.with(s, at, |path, cx| path.look_probing(cx, &polled, false))?;
            }
        }
        Ok(())
    }

    /// What became of the probes.
    fn poll(&self, s: &mut System, at: usize) -> Polled {
        let (end, flow) = (&mut s.ends[at], &mut s.flows[at]);
        if !end.probes {
            return Polled::default();
        }
        let seen = if self.has(Break::LyingProbes) { flow.posted } else { flow.executed };
        let answered = u32::from(seen - flow.answered);
        flow.answered = seen;
        if flow.executed > 0 {
            end.proved = flow.incarnation();
        }
        Polled { answered, failed: None, has_room: true }
    }
}

/// One message more, if the half works.
pub(super) fn post(flow: &mut Flow, end: &End) {
    let from = flow.incarnation();
    flow.posted += u8::from(end.nic.is(from, QpState::Works));
}

/// Gives a command to the NIC.
fn give(end: &mut End, command: Command<Half>) -> Result<(), String> {
    let (job, task): (Job, fn(u64) -> Task) = match command {
        Command::Fence(half) => (Job::Fence { half, begun: false }, Task::Fence),
        Command::Stop(half) => (Job::Stop(half), Task::Stop),
        Command::Look(half) => (Job::Look(half), Task::Look),
        Command::Connect(half, _) => (Job::Connect(half), Task::Connect),
        Command::Make { old, incarnation, psn, remote, .. } => {
            let new = Half { incarnation, psn };
            (Job::Make { old, new, connect: remote.is_some() }, Task::Make)
        }
    };
    let number = end.nic.jobs.iter().position(Option::is_none).ok_or("a NIC has too many commands")?;
    end.nic.jobs[number] = Some(job);
    end.path.given(task(number as u64));
    Ok(())
}

/// Keeps an old half until it is gone.
pub(super) fn keep(end: &mut End, half: Half) -> Result<(), String> {
    let place = end.nic.old.iter_mut().find(|old| old.is_none()).ok_or("too many old halves")?;
    *place = Some(Old { half, refused: false });
    Ok(())
}

/// The owner is answered.
fn answer(s: &mut System, at: usize, incarnation: u32, request: u64, verdict: Verdict) -> Result<(), String> {
    promises::answered(s, at, incarnation, verdict)?;
    let owner = &mut s.ends[at].owner;
    if owner.request == request {
        (owner.waits, owner.answered) = (false, true);
        owner.ended |= verdict.status == shunt_layout::state::AnswerStatus::Unprovable;
    }
    Ok(())
}
