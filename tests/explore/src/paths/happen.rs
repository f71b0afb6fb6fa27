//! What can happen around both machines, and what comes of it.

use super::letter::Letter;
use super::nic::{How, can_execute, lifetime_passes};
use super::promises::{self, name};
use super::setup::{Break, Setup};
use super::state::{Job, System};
use super::{drive, state::QpState};
use shunt_layout::state::PathState;
use shunt_recovery::fenced::Urgency;
use shunt_recovery::health::Health;
use shunt_recovery::path::{Polled, orders};

/// One thing that happens at once, at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // `at`, or `from`: the end
pub enum Action {
    /// A word arrives. `again`: it will once more.
    Hear { letter: Letter, again: bool },
    /// A word is lost.
    Lose { letter: Letter },
    /// A NIC goes on with a command.
    Command { at: usize, number: usize, how: How },
    /// A NIC destroys an old half.
    Destroy { at: usize, place: usize, how: How },
    /// The other end's NIC executes the next message.
    Execute { from: usize },
    /// The other half takes no probes: retries run out.
    ProbeFails { at: usize },
    /// The owner asks for the fence.
    Ask { at: usize },
    /// The owner has moved to another path.
    Leave { at: usize },
    /// The owner chooses the path, announces that, and looks at it again.
    Return { at: usize },
    /// The end looks at its path.
    Look { at: usize },
    /// A NIC has not answered for too long.
    Silent { at: usize },
    /// A NIC dies.
    Die { at: usize },
    /// A port goes down.
    Down { at: usize },
    /// It comes back.
    Up { at: usize },
    /// An operator takes the path out, or back.
    Order { at: usize },
    /// A packet lifetime passes; both ends see it, or one.
    Tick { seen: [bool; 2] },
}

impl Setup {
    pub(super) fn all_actions(&self, s: &System, out: &mut Vec<Action>) {
        for letter in s.wire.letters() {
            out.push(Action::Hear { letter, again: false });
            out.extend((s.budget.losses > 0).then_some(Action::Lose { letter }));
            out.extend((s.budget.doubles > 0).then_some(Action::Hear { letter, again: true }));
        }
        for at in [0, 1] {
            self.nic_actions(s, at, out);
            self.owner_actions(s, at, out);
            fault_actions(s, at, out);
        }
        if s.budget.ticks > 0 {
            out.push(Action::Tick { seen: [true; 2] });
            if s.budget.lags > 0 {
                out.extend([[true, false], [false, true]].map(|seen| Action::Tick { seen }));
            }
        }
        if !self.prompt {
            out.extend([0, 1].map(|at| Action::Look { at }));
        }
    }

    fn nic_actions(&self, s: &System, at: usize, out: &mut Vec<Action>) {
        let nic = &s.ends[at].nic;
        let fails = s.budget.fails > 0;
        if !nic.dead {
            for (number, job) in nic.jobs.iter().enumerate().filter(|(_, job)| job.is_some()) {
                let unflushed = matches!(job, Some(Job::Fence { begun: true, .. } | Job::Count(_)));
                out.push(Action::Command { at, number, how: How::Done });
                out.extend(fails.then_some(Action::Command { at, number, how: How::Fails }));
                out.extend((fails && unflushed).then_some(Action::Command {
                    at,
                    number,
                    how: How::Unflushed,
                }));
            }
            for (place, old) in nic.old.iter().enumerate() {
                let Some(old) = old else { continue };
                out.push(Action::Destroy { at, place, how: How::Done });
                out.extend((fails && !old.refused).then_some(Action::Destroy { at, place, how: How::Fails }));
            }
        }
        let flow = &s.flows[at];
        out.extend(can_execute(s, at).then_some(Action::Execute { from: at }));
        let other = &s.ends[1 - at].nic;
        let unanswered = s.ends[at].probes && flow.posted > flow.answered && !can_execute(s, at);
        let probing = s.ends[at].path.health() == Health::Probing;
        if probing && unanswered && !(other.is(flow.incarnation(), QpState::Works) && other.up && nic.up) {
            out.push(Action::ProbeFails { at });
        }
    }

    fn owner_actions(&self, s: &System, at: usize, out: &mut Vec<Action>) {
        let (owner, flow) = (&s.ends[at].owner, &s.flows[at]);
        let usable = matches!(owner.row, PathState::Ready | PathState::Leaving);
        if owner.uses == 0 || owner.looks_again {
            let chooses = owner.row == PathState::Ready && !owner.ended && s.budget.returns > 0;
            let goes_on = owner.chose || owner.looks_again;
            out.extend((chooses || goes_on).then_some(Action::Return { at }));
            return;
        }
        let goes_on = !owner.waits && !owner.answered;
        if goes_on && (!usable || s.budget.asks > 0) {
            out.push(Action::Ask { at });
        }
        // A drain ends with the last completion; who has nothing outstanding needs no answer.
        let drained = flow.executed == flow.posted && owner.row != PathState::Ready && !owner.waits;
        if owner.answered || drained {
            out.push(Action::Leave { at });
        }
    }

    /// What comes of `action`.
    pub(super) fn happens(&self, s: &mut System, action: Action) -> Result<(), String> {
        match action {
            Action::Hear { letter, again } => {
                s.budget.doubles -= u8::from(again);
                if !again {
                    s.wire.take(letter);
                }
                self.hear(s, letter)?;
            }
            Action::Lose { letter } => {
                s.budget.losses -= 1;
                s.wire.take(letter);
            }
            Action::Command { at, number, how } => {
                s.budget.fails -= u8::from(how != How::Done);
                s.failed |= how != How::Done;
                self.command(s, at, number, how)?;
            }
            Action::Destroy { at, place, how } => {
                s.budget.fails -= u8::from(how != How::Done);
                self.destroy(s, at, place, how)?;
            }
            Action::Execute { from } => {
                promises::executed(s, from)?;
                s.flows[from].executed += 1;
            }
            Action::ProbeFails { at } => {
                let polled = Polled { answered: 0, failed: Some("retries ran out".into()), has_room: false };
                self.with(s, at, |path, cx| path.look_probing(cx, &polled, false))?;
            }
            Action::Ask { .. } | Action::Leave { .. } | Action::Return { .. } => {
                self.owner_acts(s, action)?;
            }
            Action::Look { at } => self.look(s, at)?,
            Action::Silent { at } => {
                let nic = &mut s.ends[at].nic;
                s.budget.silences -= u8::from(!nic.dead);
                nic.silent = true;
                s.failed = true;
            }
            Action::Die { at } => {
                s.budget.deaths -= 1;
                s.ends[at].nic.dead = true;
                s.failed = true;
            }
            Action::Down { at } => {
                s.budget.downs -= 1;
                s.ends[at].nic.up = false;
                // The other end is told; where there is work on the path it is fenced.
                for at in [0, 1] {
                    if s.ends[at].path.health() == Health::Ready && s.ends[at].owner.uses != 0 {
                        self.with(s, at, |path, cx| path.fence_asked(cx, Urgency::Port))?;
                    }
                }
            }
            Action::Up { at } => s.ends[at].nic.up = true,
            Action::Order { at } => {
                s.budget.orders -= 1;
                match s.ends[at].path.standing().out {
                    false => self.with(s, at, |path, cx| orders::retire(path, cx, true))?,
                    true => self.with(s, at, orders::readmit)?,
                }
            }
            Action::Tick { seen } => self.tick(s, seen),
        }
        Ok(())
    }

    fn owner_acts(&self, s: &mut System, action: Action) -> Result<(), String> {
        match action {
            Action::Ask { at } => {
                let owner = &mut s.ends[at].owner;
                let usable = matches!(owner.row, PathState::Ready | PathState::Leaving);
                s.budget.asks -= u8::from(usable);
                owner.request += 1;
                owner.waits = true;
                let request = owner.request;
                self.with(s, at, |path, cx| path.ask(cx, request, false))?;
            }
            Action::Leave { at } => {
                let owner = &mut s.ends[at].owner;
                (owner.uses, owner.answered) = (0, false);
            }
            Action::Return { at } => return self.owner_returns(s, at),
            _ => {}
        }
        Ok(())
    }

    /// Who announced first and finds the path ready then uses it; the machine looks in the other order.
    fn owner_returns(&self, s: &mut System, at: usize) -> Result<(), String> {
        let incarnation = s.ends[at].path.incarnation();
        let end = &mut s.ends[at];
        let owner = &mut end.owner;
        if owner.looks_again {
            owner.looks_again = false;
            if owner.row != PathState::Ready {
                owner.uses = 0;
            } else if owner.uses != incarnation {
                let (uses, who) = (owner.uses, name(at));
                return Err(format!(
                    "rule 17: the owner at {who} goes to {uses}, which became {incarnation}"
                ));
            } else {
                (0..self.posts).for_each(|_| drive::post(&mut s.flows[at], end));
            }
        } else if owner.chose {
            (owner.chose, owner.looks_again, owner.uses) = (false, true, incarnation);
        } else {
            owner.chose = true;
            s.budget.returns -= 1;
        }
        Ok(())
    }

    fn tick(&self, s: &mut System, seen: [bool; 2]) {
        s.budget.ticks = s.budget.ticks.saturating_sub(1);
        s.budget.lags -= u8::from(seen != [true; 2]);
        if !self.has(Break::FastClock) {
            lifetime_passes(s);
        }
        for (end, seen) in s.ends.iter_mut().zip(seen) {
            end.clock += u8::from(seen);
        }
    }
}

fn fault_actions(s: &System, at: usize, out: &mut Vec<Action>) {
    let (nic, budget) = (&s.ends[at].nic, &s.budget);
    if nic.owes() && !nic.silent && (nic.dead || budget.silences > 0) {
        out.push(Action::Silent { at });
    }
    out.extend((!nic.dead && budget.deaths > 0).then_some(Action::Die { at }));
    match nic.up {
        true => out.extend((budget.downs > 0).then_some(Action::Down { at })),
        false => out.push(Action::Up { at }),
    }
    out.extend((budget.orders > 0).then_some(Action::Order { at }));
}

/// `action` in words.
pub(super) fn words(s: &System, action: Action) -> String {
    match action {
        Action::Hear { letter, again } => {
            let more = if again { " (and will again)" } else { "" };
            format!("{} hears {}{more}", name(letter.to()), letter.in_words())
        }
        Action::Lose { letter } => format!("lost: {} to {}", letter.in_words(), name(letter.to())),
        Action::Command { at, number, how } => {
            let job = s.ends[at].nic.jobs[number].map(|job| format!("{job:?}")).unwrap_or_default();
            format!("NIC of {}: {job}: {how:?}", name(at))
        }
        Action::Destroy { at, place, how } => {
            let old = s.ends[at].nic.old[place].map_or(0, |old| old.half.incarnation);
            format!("NIC of {}: destroys its half {old}: {how:?}", name(at))
        }
        Action::Execute { from } => format!("NIC of {} executes a message of {}", name(1 - from), name(from)),
        Action::ProbeFails { at } => format!("{}: retries of a probe run out", name(at)),
        Action::Ask { at } => format!("owner at {} asks for the fence", name(at)),
        Action::Leave { at } => format!("owner at {} leaves", name(at)),
        Action::Return { at } => {
            let owner = &s.ends[at].owner;
            let does = match (owner.chose, owner.looks_again) {
                (_, true) => "looks at it again",
                (true, _) => "announces that it goes there",
                _ => "chooses the path",
            };
            format!("owner at {} {does}", name(at))
        }
        Action::Look { at } => format!("{} looks", name(at)),
        Action::Silent { at } => format!("NIC of {} has not answered for too long", name(at)),
        Action::Die { at } => format!("NIC of {} dies", name(at)),
        Action::Down { at } => format!("port of {} goes down", name(at)),
        Action::Up { at } => format!("port of {} comes back", name(at)),
        Action::Order { at } => format!("operator at {} orders", name(at)),
        Action::Tick { seen: [true, true] } => "a packet lifetime passes".into(),
        Action::Tick { seen: [a, _] } => {
            format!("a packet lifetime passes, {} alone sees it", name(usize::from(!a)))
        }
    }
}
