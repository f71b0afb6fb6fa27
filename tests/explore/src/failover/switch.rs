//! The switch: triggers, pair fence, cut, replay, open, drain, revival. Decisions are those of the code that ships.

use shunt_device::cut::{self, Shape, Window};
use shunt_host::agent::health::{Action as Do, Health, Observation};
use shunt_host::agent::message::SideTruth;
use shunt_host::agent::verdict::{Sent, verdict};
use shunt_layout::state::AnswerStatus;

use super::state::{Channel, Direction, Error, Fence, GHOSTS, NONE, Part, Phase, System};
use super::{Action, Break, Kind, Op, Setup, alive, nic, place_all, stored};

impl Setup {
    /// Why `pe` may leave its path now.
    pub(super) fn trigger_actions(&self, s: &System, pe: usize, out: &mut Vec<Action>) {
        let Some(path) = in_use(&s.channels[pe]) else { return };
        if !alive(s, pe, path) {
            return out.push(Action::SeeError { pe });
        }
        if !alive(s, 1 - pe, path) {
            out.push(Action::NoAnswer { pe });
        }
        if s.budget.deadlines > 0 {
            out.push(Action::Deadline { pe });
        }
        if s.budget.faults > 0 {
            out.push(Action::Fail { pe });
        }
    }

    /// What the switch of `pe`'s channel may do next.
    pub(super) fn switch_actions(&self, s: &System, pe: usize, out: &mut Vec<Action>) {
        let channel = &s.channels[pe];
        match channel.phase {
            Phase::Fence if self.lacks(Break::NoFence) => out.push(Action::SkipFence { pe }),
            Phase::Fence => self.fence_actions(s, pe, out),
            Phase::Replay if channel.replaying == channel.next => out.push(Action::Open { pe }),
            Phase::Replay if nic::fits(s, pe, usize::from(channel.to)) => out.push(Action::Replay { pe }),
            Phase::Open => {
                let primary = alive(s, pe, 0) && alive(s, 1 - pe, 0);
                if channel.path != 0 && !channel.went_back && s.revived && primary {
                    out.push(Action::GoBack { pe });
                }
            }
            Phase::Drain => {
                let direction = &s.directions[pe][usize::from(channel.path)];
                if direction.completed == direction.rung || self.lacks(Break::NoDrain) {
                    out.push(Action::Drained { pe });
                }
            }
            Phase::Replay | Phase::Dead => {}
        }
    }

    fn fence_actions(&self, s: &System, pe: usize, out: &mut Vec<Action>) {
        let channel = &s.channels[pe];
        let (path, peer, fence) = (usize::from(channel.path), 1 - pe, channel.fence);
        let (mute_here, mute_there) = (s.halves[pe][path].mute, s.halves[peer][path].mute);
        let one_sided = self.lacks(Break::OneSided) && !fence.timed;
        let no_local = fence.local || mute_here || !s.agents[pe] || one_sided;
        if !no_local && !self.lacks(Break::DeadlineAsFence) {
            out.push(Action::FenceLocal { pe });
        }
        let early = self.lacks(Break::QueryBeforeError);
        if !fence.timed && s.agents[peer] && !mute_there {
            if !fence.remote && no_local && (!early || fence.queried) {
                out.push(Action::FenceRemote { pe });
            }
            if !fence.queried && (fence.remote || early) {
                out.push(Action::Query { pe });
            }
            if fence.queried && fence.remote && !fence.flushed {
                out.push(Action::Flush { pe });
            }
        }
        let nobody = !s.agents[peer] || !s.agents[pe] || mute_there || self.timed;
        if !fence.timed && nobody {
            out.push(Action::GoTimed { pe });
        }
        let proven = fence.timed && (!alive(s, pe, path) || self.lacks(Break::DeadlineAsFence));
        if !fence.waited && (proven || mute_here && fence.flushed) {
            out.push(Action::Lifetime { pe });
        }
        if self.answer(s, pe).is_some() {
            out.push(Action::Answer { pe });
        }
    }

    /// What the agent would answer now, by the rule that ships; `None` while it would wait.
    fn answer(&self, s: &System, pe: usize) -> Option<(AnswerStatus, u32)> {
        let channel = &s.channels[pe];
        let (path, peer, fence) = (usize::from(channel.path), 1 - pe, channel.fence);
        let executed = u32::from(stored(s.directions[pe][path].truth).unwrap_or(0));
        if self.lacks(Break::OneSided) && fence.flushed {
            return Some((AnswerStatus::Truth, executed));
        }
        if self.lacks(Break::DeadlineAsFence) {
            return fence.waited.then_some((AnswerStatus::FencedNoTruth, 0));
        }
        let silent = !s.agents[pe] && !fence.local;
        let (mine, sent) = match () {
            () if s.halves[pe][path].mute => (SideTruth::Dead, None),
            () if fence.local => (SideTruth::Fenced, Some(sent(&s.directions[pe][path]))),
            () if fence.timed && !alive(s, pe, path) => (SideTruth::Fenced, None),
            // Nobody can fence this half, and nothing shows it to be in ERR.
            () if fence.timed && silent => (SideTruth::Dead, None),
            () => return None,
        };
        let theirs = match () {
            () if fence.flushed => Some(SideTruth::Exact { executed, next_rcv_psn: executed }),
            () if s.halves[peer][path].mute => Some(SideTruth::Dead),
            () if fence.timed => None,
            () => return None,
        };
        verdict(mine, theirs, sent, fence.waited).map(|verdict| (verdict.status, verdict.executed))
    }

    /// One step of a switch.
    pub(super) fn switch(&self, s: &mut System, action: Action) -> Result<(), String> {
        match action {
            Action::SeeError { pe } => self.close(s, pe),
            Action::NoAnswer { pe } => self.fail(s, pe),
            Action::Fail { pe } => {
                s.budget.faults -= 1;
                self.fail(s, pe);
            }
            Action::Deadline { pe } => {
                s.budget.deadlines -= 1;
                self.close(s, pe);
            }
            Action::SkipFence { pe } => {
                let path = usize::from(s.channels[pe].path);
                let known = s.directions[pe][path].executed;
                let completions = self.lacks(Break::CutFromCompletions);
                let cut = if completions { None } else { self.cut(s, pe, u32::from(known)) };
                raise(&mut s.channels[pe], cut.unwrap_or(0));
                place_all(s, 1 - pe, path);
                self.choose(s, pe);
            }
            Action::FenceLocal { pe } => {
                let path = usize::from(s.channels[pe].path);
                error_half(s, pe, path)?;
                store(&mut s.directions[1 - pe][path]);
                s.channels[pe].fence.local = true;
            }
            Action::FenceRemote { pe } => {
                error_half(s, 1 - pe, usize::from(s.channels[pe].path))?;
                s.channels[pe].fence.remote = true;
                if self.moves_home(pe) {
                    s.other.home = NONE;
                }
            }
            Action::Query { pe } => {
                store(&mut s.directions[pe][usize::from(s.channels[pe].path)]);
                s.channels[pe].fence.queried = true;
            }
            Action::Flush { pe } => {
                if !self.lacks(Break::NoFlush) {
                    place_all(s, 1 - pe, usize::from(s.channels[pe].path));
                }
                s.channels[pe].fence.flushed = true;
            }
            Action::GoTimed { pe } => s.channels[pe].fence.timed = true,
            Action::Lifetime { pe } => {
                let path = usize::from(s.channels[pe].path);
                s.directions[pe][path].gone = !self.lacks(Break::NoLifetime);
                place_all(s, 1 - pe, path);
                s.channels[pe].fence.waited = true;
            }
            Action::Answer { pe } => self.take_answer(s, pe)?,
            Action::Replay { pe } => self.replay_one(s, pe),
            Action::Open { pe } => {
                let channel = &mut s.channels[pe];
                (channel.phase, channel.path) = (Phase::Open, channel.to);
                channel.tried &= !(1 << channel.to);
            }
            Action::GoBack { pe } => {
                (s.channels[pe].phase, s.channels[pe].went_back) = (Phase::Drain, true);
                if self.moves_home(pe) {
                    s.other.home = NONE;
                }
            }
            Action::Drained { pe } => self.drained(s, pe),
            other => return Err(format!("{other:?} is no step of a switch")),
        }
        Ok(())
    }

    /// The retries of `pe`'s queue pair ran out: it is in ERR by itself.
    fn fail(&self, s: &mut System, pe: usize) {
        if let Some(path) = in_use(&s.channels[pe]) {
            s.halves[pe][path].in_error = true;
        }
        self.close(s, pe);
    }

    fn close(&self, s: &mut System, pe: usize) {
        let channel = &mut s.channels[pe];
        let Some(path) = in_use(channel) else { return };
        (channel.phase, channel.path, channel.fence) = (Phase::Fence, path as u8, Fence::default());
        if self.lacks(Break::ForgetExecuted) {
            channel.executed = channel.done;
        }
        channel.tried |= 1 << path;
    }

    /// The first operation that `executed` messages on the old path leave out, by the rule that ships.
    fn cut(&self, s: &System, pe: usize, executed: u32) -> Option<u8> {
        let direction = &s.directions[pe][usize::from(s.channels[pe].path)];
        let (done, rung) = (u64::from(direction.completed), u64::from(direction.rung));
        let window = Window { done, rung, messages: done };
        let block = cut::from_truth(window, executed, |_| Shape { blocks: 1, counts: true })?;
        let first_left = direction.ring[..usize::from(direction.rung)].get(block as usize);
        Some(match (first_left, direction.rung) {
            (Some(message), _) if message.part() == Part::After => message.op() as u8 + 1,
            (Some(message), _) => message.op() as u8,
            (None, 0) => 0,
            (None, rung) => direction.ring[usize::from(rung) - 1].op() as u8 + 1,
        })
    }

    fn take_answer(&self, s: &mut System, pe: usize) -> Result<(), String> {
        let Some((status, executed)) = self.answer(s, pe) else { return Ok(()) };
        let (path, fence) = (usize::from(s.channels[pe].path), s.channels[pe].fence);
        if fence.local && fence.flushed {
            for at in [0, 1] {
                s.halves[at][path].health = s.halves[at][path].health.observe(Observation::PairFenced).0;
            }
        }
        let error = match status {
            AnswerStatus::Truth if self.lacks(Break::CutFromCompletions) => Error::None,
            AnswerStatus::Truth => match self.cut(s, pe, executed) {
                Some(cut) => {
                    raise(&mut s.channels[pe], cut);
                    Error::None
                }
                None => return Err(format!("fail closed: {executed} executed is no truth of path {path}")),
            },
            AnswerStatus::FencedNoTruth => self.read_ledger(s, pe),
            AnswerStatus::Unprovable => Error::Unproven,
        };
        if error == Error::None {
            self.choose(s, pe);
        } else {
            (s.channels[pe].phase, s.channels[pe].error) = (Phase::Dead, error);
        }
        Ok(())
    }

    /// Without truth: what the receiver's memory says, or that it says nothing.
    fn read_ledger(&self, s: &mut System, pe: usize) -> Error {
        let memory = &s.memory[1 - pe];
        let channel = &mut s.channels[pe];
        let open = usize::from(channel.done.max(channel.executed))..usize::from(channel.next);
        let mut signals = open.filter(|op| self.op(pe, *op) == Op::Signal);
        match self.kind {
            Kind::Monotone => {
                let applied = |op: &usize| {
                    cut::signal_applied(u64::from(memory.words[0]), u64::from(self.value(pe, *op)))
                };
                let cut = signals.rfind(applied).map_or(0, |op| op as u8 + 1);
                raise(channel, cut);
            }
            Kind::Cleared if self.bracket && memory.ledger_before > memory.ledger_after => {
                return Error::Uncertain;
            }
            Kind::Cleared if self.bracket => raise(channel, memory.ledger_after),
            Kind::Cleared | Kind::Shared if signals.next().is_some() => return Error::Uncertain,
            Kind::Cleared | Kind::Shared => raise(channel, 0),
        }
        Error::None
    }

    /// Chooses the next path; without one the peer is lost. What was executed is done, up to the first get.
    fn choose(&self, s: &mut System, pe: usize) {
        let old = usize::from(s.channels[pe].path);
        let tried = s.channels[pe].tried;
        let usable = |path: &usize| *path != old && alive(s, pe, *path) && tried & 1 << path == 0;
        // NICs that did not answer for the fence of the path that is left.
        let mute = |path: &usize| {
            let met = |end: usize| s.halves[end][old].mute && self.nic(end, old) == self.nic(end, *path);
            (met(0) || met(1)) && !self.lacks(Break::MuteEntered)
        };
        let others = (1..=self.paths).map(|step| (old + step) % self.paths);
        let to = others.filter(usable).min_by_key(mute);
        let channel = &mut s.channels[pe];
        let Some(to) = to else {
            (channel.phase, channel.error) = (Phase::Dead, Error::PeerLost);
            return;
        };
        while channel.done < channel.executed && self.op(pe, usize::from(channel.done)) != Op::Get {
            channel.done += 1;
        }
        (channel.phase, channel.to, channel.replaying) = (Phase::Replay, to as u8, channel.done);
        if self.moves_home(pe) {
            s.other.home = to as u8;
        }
    }

    fn replay_one(&self, s: &mut System, pe: usize) {
        let channel = s.channels[pe];
        let (op, to) = (usize::from(channel.replaying), usize::from(channel.to));
        let again = self.op(pe, op) == Op::Get && !self.lacks(Break::NoReget);
        if channel.replaying < channel.executed && !again {
            self.post_placeholder(s, pe, to, op);
        } else {
            self.post_op(s, pe, to, op);
        }
        s.channels[pe].replaying += 1;
    }

    fn drained(&self, s: &mut System, pe: usize) {
        if !self.lacks(Break::NoDrainFlush) {
            place_all(s, 1 - pe, usize::from(s.channels[pe].path));
        }
        let channel = &mut s.channels[pe];
        (channel.phase, channel.path) = (Phase::Open, 0);
        channel.tried &= !1;
        if self.moves_home(pe) {
            s.other.home = 0;
        }
    }

    /// True if both directions have left path 0 and both agents can recreate it.
    pub(super) fn may_revive(&self, s: &System) -> bool {
        let uses = |pe: usize| match s.channels[pe].phase {
            _ if self.ops[pe].is_empty() => false,
            Phase::Replay => s.channels[pe].to == 0,
            Phase::Dead => false,
            Phase::Open | Phase::Fence | Phase::Drain => s.channels[pe].path == 0,
        };
        let free = !uses(0) && !uses(1) || self.lacks(Break::ReviveAlone);
        free && s.agents == [true; 2] && !s.halves[0][0].mute && !s.halves[1][0].mute
    }

    /// Path 0 is fenced at both ends, rests, is recreated and probed: the life of a pair as it ships.
    pub(super) fn revive(&self, s: &mut System) -> Result<(), String> {
        s.budget.revivals -= 1;
        s.revived = true;
        for pe in [0, 1] {
            let half = &mut s.halves[pe][0];
            half.health = recreated(half.health)?;
            half.in_error = false;
            place_all(s, pe, 0);
            let direction = &mut s.directions[pe][0];
            let old = *direction;
            *direction = Direction::NEW;
            if self.lacks(Break::ReusePsn) {
                let count = usize::from(old.sent).min(GHOSTS);
                direction.ghosts[..count].copy_from_slice(&old.ring[..count]);
                direction.ghost_count = count as u8;
            }
            s.channels[pe].tried &= !1;
        }
        Ok(())
    }
}

/// The path that `channel` posts on.
fn in_use(channel: &Channel) -> Option<usize> {
    match channel.phase {
        Phase::Open | Phase::Drain => Some(usize::from(channel.path)),
        Phase::Replay => Some(usize::from(channel.to)),
        Phase::Fence | Phase::Dead => None,
    }
}

/// What the requester had sent, counted in messages.
fn sent(direction: &Direction) -> Sent {
    Sent { oldest: u32::from(direction.completed), next: u32::from(direction.sent) }
}

/// The responder's agent stores its count; the first reading stays.
fn store(direction: &mut Direction) {
    if direction.truth == NONE {
        direction.truth = direction.executed;
    }
}

/// X never shrinks (rule 12).
fn raise(channel: &mut Channel, cut: u8) {
    channel.executed = channel.executed.max(channel.done).max(cut);
}

/// An agent moves its half to ERR.
fn error_half(s: &mut System, pe: usize, path: usize) -> Result<(), String> {
    let half = &mut s.halves[pe][path];
    let (health, action) = half.health.observe(Observation::FenceAsked);
    if half.health == Health::Ready && action != Do::Fence {
        return Err(format!("the table of health does not fence a path that is ready, but {action:?}"));
    }
    (half.health, half.in_error) = (health, true);
    Ok(())
}

/// The state of a half that was fenced, left, recreated and proved good.
fn recreated(mut health: Health) -> Result<Health, String> {
    use Observation as Seen;
    let life = [Seen::FenceAsked, Seen::PairFenced, Seen::BothLeft, Seen::Due, Seen::Connected, Seen::Proved];
    for seen in life {
        health = health.observe(seen).0;
    }
    if health == Health::Ready { Ok(health) } else { Err(format!("a recreated path is {health:?}")) }
}
