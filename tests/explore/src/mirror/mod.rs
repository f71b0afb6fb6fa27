//! Model M: the word that says where a switch stands, its mirror, and the agent that makes paths again.
//!
//! Two owners of one switch, of which the second takes over at any time and the first comes back at any time; a poster
//! that holds the post lock; an agent that takes paths out of use, looks at the mirror, and makes them again. The word,
//! its changes and `has_left` are the shipped ones ([`SwitchWord`]); one step is one access. An owner copies the
//! agent's row into the hot line of the path that it enters, in two stores. It may be gone between them, and does not
//! sleep there while another owner takes a step, as it does not between its look at the switch and its stores into a
//! ring.
//!
//! Promises, by their first word in a trace:
//!
//! * rule 17: no path is made again while the channel uses it, or while who rings it holds the post lock.
//! * handshake: a path that is entered is the one that was looked at.
//! * hot line: what a caller rings by is of one row, that of the path's incarnation.
//! * mirror: it never goes back, and at rest it is the word.
//! * bounded waits: at rest nobody is in the middle of a switch while a path is ready.

mod owner;
mod setup;
mod state;

pub use setup::{Break, Budget, Setup};
pub use state::System;

use crate::search::Model;
use shunt_layout::state::{Step, SwitchWord};
use state::{At, Line, NOBODY, Owner, PATHS, Path, Poster, Stage, Ticket};

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An owner's next access.
    Owner(usize),
    /// An owner is never resumed.
    Gone(usize),
    /// A waiter shows the agent a word that no switch will show.
    Remind,
    /// The channel's end, by an owner that waits for the post lock.
    Die(usize),
    /// A caller passes the lock of a dead channel, and notes it.
    Pass,
    /// The poster's next access.
    Post,
    /// The agent reads the mirror, too early. For a break alone.
    Peek(usize),
    /// The agent takes a path out of use.
    Fence(usize),
    /// The agent looks whether it was left.
    Look(usize),
    /// The agent makes it again.
    Make(usize),
}

impl Model for Setup {
    type State = System;
    type Action = Action;

    fn initial(&self) -> System {
        let path = Path { stage: Stage::Ready, incarnation: 1, early: false };
        let mut paths = [path; PATHS];
        if self.alone {
            paths[1].stage = Stage::Absent;
        }
        System {
            word: SwitchWord::START,
            mirror: SwitchWord::START,
            ticket: Ticket { slot: 0, closed: false, generation: 0 },
            owner: NOBODY,
            owners: [Owner::AT_REST; 2],
            poster: Poster::Rest,
            paths,
            lines: [Line { rest: 1, incarnation: 1 }; PATHS],
            budget: self.budget,
        }
    }

    fn actions(&self, s: &System, out: &mut Vec<Action>) {
        for number in [0, 1] {
            out.extend(self.owner_can_go(s, number).then_some(Action::Owner(number)));
            let works = !matches!(s.owners[number].at, At::Take | At::Gone);
            out.extend((works && s.budget.gone > 0).then_some(Action::Gone(number)));
            let waits = s.owners[number].at == At::Work && s.owners[number].word.step() == Step::Settle;
            let locked = s.poster != Poster::Rest;
            out.extend((waits && locked && s.budget.deaths > 0).then_some(Action::Die(number)));
        }
        let (step, told) = (s.word.step(), s.mirror == s.word);
        let over = matches!(step, Step::Idle | Step::Dead);
        out.extend((over && !told && !self.lacks(Break::NobodyReminds)).then_some(Action::Remind));
        let dead = step == Step::Dead && !s.word.lock_passed();
        out.extend((dead && s.poster == Poster::Rest).then_some(Action::Pass));
        out.extend((s.poster != Poster::Rest || s.budget.posts > 0).then_some(Action::Post));
        for (slot, path) in s.paths.iter().enumerate() {
            match path.stage {
                Stage::Ready if s.budget.fences > 0 => {
                    let early = self.lacks(Break::ReadEarly);
                    out.extend((early && !path.early).then_some(Action::Peek(slot)));
                    out.push(Action::Fence(slot));
                }
                Stage::Ready | Stage::Absent => {}
                Stage::Fenced => out.push(Action::Look(slot)),
                Stage::Left => out.push(Action::Make(slot)),
            }
        }
    }

    fn apply(&self, before: &System, action: Action) -> Result<System, String> {
        let mut s = *before;
        match action {
            Action::Owner(number) => self.step_owner(&mut s, number)?,
            Action::Gone(number) => {
                s.budget.gone -= 1;
                s.owners[number].at = At::Gone;
            }
            Action::Remind => s.show(self, before.word)?,
            Action::Die(number) => self.die(&mut s, number)?,
            Action::Pass => {
                let (at, passed) = (s.word, s.word.passed());
                s.change(self, at, passed);
                s.show(self, passed)?;
            }
            Action::Post => self.post(&mut s)?,
            Action::Peek(slot) => s.paths[slot].early = s.mirror.has_left(slot as u32),
            Action::Fence(slot) => {
                s.budget.fences -= 1;
                s.paths[slot].stage = Stage::Fenced;
            }
            Action::Look(slot) => {
                let path = s.paths[slot];
                let dead = self.lacks(Break::DeadHasLeft) && s.mirror.step() == Step::Dead;
                if s.mirror.has_left(slot as u32) || path.early || dead {
                    s.paths[slot].stage = Stage::Left;
                }
            }
            Action::Make(slot) => {
                if s.uses(slot) {
                    return Err(format!("rule 17: path {slot} is made again, and the channel is on it"));
                }
                let incarnation = s.paths[slot].incarnation + 1;
                s.paths[slot] = Path { stage: Stage::Ready, incarnation, early: false };
            }
        }
        Ok(s)
    }

    fn check(&self, s: &System) -> Result<(), String> {
        match s.mirror.version() > s.word.version() && !self.lacks(Break::WordByStore) {
            true => Err("mirror: it shows what is not yet so".into()),
            false => Ok(()),
        }
    }

    fn check_at_rest(&self, s: &System) -> Result<(), String> {
        let between = !matches!(s.word.step(), Step::Idle | Step::Dead);
        if between && s.paths.iter().any(|path| path.stage == Stage::Ready) {
            return Err(format!("bounded waits: the switch stays at {:?}", s.word.step()));
        }
        if s.mirror != s.word {
            return Err(format!("mirror: it shows {:?}, the word is {:?}", s.mirror.step(), s.word.step()));
        }
        Ok(())
    }

    fn is_idle(&self, s: &System, action: Action) -> bool {
        match action {
            Action::Look(_) => self.apply(s, action).is_ok_and(|after| after == *s),
            Action::Owner(number) => self.would_only_look(s, number),
            _ => false,
        }
    }

    fn describe(&self, s: &System, action: Action) -> String {
        let word = |word: SwitchWord| {
            format!("{:?} slot {} to {} v{}", word.step(), word.slot(), word.to() as i32, word.version())
        };
        let what = match action {
            Action::Owner(number) => format!("owner {number} at {:?}", s.owners[number].at),
            other => format!("{other:?}"),
        };
        format!("{what:32} word {}, mirror {}", word(s.word), word(s.mirror))
    }
}

impl Setup {
    /// Take the lock, look at the ticket word, ring.
    fn post(&self, s: &mut System) -> Result<(), String> {
        s.poster = match s.poster {
            Poster::Rest => {
                s.budget.posts -= 1;
                Poster::Locked
            }
            Poster::Locked if s.ticket.closed => Poster::Rest,
            Poster::Locked => {
                let slot = s.ticket.slot;
                let (line, path) = (s.lines[usize::from(slot)], s.paths[usize::from(slot)]);
                if line != (Line { rest: path.incarnation, incarnation: path.incarnation }) {
                    return Err(format!("hot line: {line:?} of path {slot}, it is {}", path.incarnation));
                }
                Poster::Rings(slot, path.incarnation)
            }
            Poster::Rings(slot, incarnation) => {
                let now = s.paths[usize::from(slot)].incarnation;
                if now != incarnation {
                    return Err(format!("rule 17: path {slot} is rung as {incarnation}, it is {now}"));
                }
                Poster::Rest
            }
        };
        Ok(())
    }
}
