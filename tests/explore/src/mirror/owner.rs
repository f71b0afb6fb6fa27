//! The owners of model M: take, read, show, look at the lease, one step of the switch.

use super::setup::{Break, Setup};
use super::state::{At, NOBODY, Owner, Path, Poster, Stage, System, Ticket};
use shunt_layout::state::{NO_SLOT, Step, SwitchWord};

impl Setup {
    pub(super) fn owner_can_go(&self, s: &System, number: usize) -> bool {
        if matches!(s.owners[1 - number].at, At::Adopt | At::Adopted) {
            return false;
        }
        if s.owners[number].at != At::Take {
            return s.owners[number].at != At::Gone;
        }
        let under_way = !matches!(s.word.step(), Step::Idle | Step::Dead) || s.ticket.closed;
        let reason = s.word.step() == Step::Idle && s.budget.triggers > 0;
        let gone = s.owners.get(s.owner).is_some_and(|owner| owner.at == At::Gone);
        let sleeps = s.owner != number && s.budget.takeovers > 0;
        let free = s.owner == NOBODY || gone || sleeps;
        free && (reason || under_way && s.word.step() != Step::Dead)
    }

    /// True if an owner that comes now would find nothing to do.
    pub(super) fn would_only_look(&self, s: &System, number: usize) -> bool {
        let (owner, step) = (&s.owners[number], s.word.step());
        let gone = s.owners.get(s.owner).is_some_and(|owner| owner.at == At::Gone);
        let settled = owner.at != At::Take || s.owner != NOBODY && !gone;
        let no_path = step == Step::Choose && !s.paths.iter().any(|path| path.stage == Stage::Ready);
        let locked = step == Step::Settle && s.poster != Poster::Rest;
        let shown = s.mirror == s.word || self.lacks(Break::NotShownByHeir);
        !settled && (no_path || locked) && shown
    }

    pub(super) fn step_owner(&self, s: &mut System, number: usize) -> Result<(), String> {
        let mut own = s.owners[number];
        match own.at {
            At::Take => {
                let sleeps = s.owners.get(s.owner).is_some_and(|owner| owner.at != At::Gone);
                s.budget.takeovers -= u8::from(sleeps);
                s.owner = number;
                own = Owner { at: At::Read, begins: true, ..Owner::AT_REST };
            }
            At::Read => {
                own.word = s.word;
                own.at = if own.begins && !self.lacks(Break::NotShownByHeir) { At::Show } else { At::Lease };
                own.begins = false;
            }
            At::Show => {
                s.show(self, own.word)?;
                own.at = At::Lease;
            }
            At::Lease => own.at = if s.owner == number { At::Work } else { At::LetGo },
            At::Work => self.work(s, &mut own)?,
            At::Told => {
                s.show(self, own.word)?;
                let announced = own.word.step() == Step::Choose && own.word.to() != NO_SLOT;
                own.at = match announced {
                    true if own.late => At::Adopt,
                    true if self.lacks(Break::LineCopiedEarly) => At::Adopt,
                    true => At::LookAgain,
                    false if own.word.step() == Step::Idle => At::LetGo,
                    false => At::Read,
                };
            }
            At::LookAgain => own.at = self.look_again(s, &mut own)?,
            At::Adopt | At::Adopted => own.at = self.copy(s, &mut own)?,
            At::StillThere => {
                let stands = s.word == own.word || self.lacks(Break::NotLookedAgain);
                own.at = if stands { At::Open } else { At::LetGo };
            }
            At::Open => {
                // A swap, too: of the generation that this owner saw closed.
                let ticket = &mut s.ticket;
                if ticket.closed && ticket.generation == own.closed {
                    let slot = own.word.to() as u8;
                    *ticket = Ticket { slot, closed: false, generation: own.closed + 1 };
                }
                own.at = At::Idle;
            }
            At::Idle => own.at = swapped(s, self, &mut own, |word| word.opened(word.to())),
            At::LetGo => {
                if s.owner == number {
                    s.owner = NOBODY;
                }
                own = Owner::AT_REST;
            }
            At::Gone => {}
        }
        s.owners[number] = own;
        Ok(())
    }

    /// The step that the word names, up to its swap.
    fn work(&self, s: &mut System, own: &mut Owner) -> Result<(), String> {
        own.at = match own.word.step() {
            Step::Idle if s.ticket.closed => swapped(s, self, own, |word| word.cleared(Step::Settle)),
            Step::Idle if s.budget.triggers > 0 && s.word == own.word => {
                s.budget.triggers -= 1;
                s.ticket.closed = true;
                At::Work
            }
            // Once through the post lock.
            Step::Settle if s.poster == Poster::Rest => {
                swapped(s, self, own, |word| word.at_step(Step::Fence))
            }
            Step::Fence => swapped(s, self, own, |word| word.at_step(Step::Choose)),
            Step::Choose => self.choose(s, own),
            Step::Replay => {
                own.closed = s.ticket.generation;
                if s.ticket.closed { At::StillThere } else { At::Idle }
            }
            _ => At::LetGo,
        };
        Ok(())
    }

    /// The first ready path that is not being left, or that one made again, is announced.
    fn choose(&self, s: &mut System, own: &mut Owner) -> At {
        let ready = |(_, path): &(usize, &Path)| path.stage == Stage::Ready;
        let Some((slot, path)) = s.paths.iter().enumerate().rev().find(ready) else { return At::LetGo };
        own.found = path.incarnation;
        let late = self.lacks(Break::StoredLate);
        match swapped(s, self, own, |word| word.announced(slot as u32)) {
            At::Told if late => At::LookAgain,
            at => at,
        }
    }

    fn look_again(&self, s: &mut System, own: &mut Owner) -> Result<At, String> {
        let path = s.paths[own.word.to() as usize];
        own.found = path.incarnation;
        if path.stage != Stage::Ready {
            own.late = false;
            return Ok(swapped(s, self, own, |word| word.announced(NO_SLOT)));
        }
        if self.lacks(Break::StoredLate) && !own.late {
            own.late = true;
            return Ok(At::Told);
        }
        // Behind the look that the switch still stands there.
        match self.lacks(Break::LineCopiedEarly) {
            true => self.enter(s, own),
            false if s.word != own.word => Ok(At::LetGo),
            false => Ok(At::Adopt),
        }
    }

    /// One store into the hot line, which is of another row.
    fn copy(&self, s: &mut System, own: &mut Owner) -> Result<At, String> {
        let to = own.word.to() as usize;
        let (row, line) = (own.found, &mut s.lines[to]);
        if s.paths[to].incarnation != row && !self.lacks(Break::LineCopiedEarly) {
            return Err(format!("hot line: of row {row} of path {to}, it is {}", s.paths[to].incarnation));
        }
        let second = own.at == At::Adopted;
        let through = !second && line.incarnation == row || self.lacks(Break::LineKept);
        if !through {
            let incarnation = second != self.lacks(Break::IncarnationFirst);
            *(if incarnation { &mut line.incarnation } else { &mut line.rest }) = row;
        }
        match through || second {
            false => Ok(At::Adopted),
            true if self.lacks(Break::LineCopiedEarly) => Ok(At::LookAgain),
            true => self.enter(s, own),
        }
    }

    fn enter(&self, s: &mut System, own: &mut Owner) -> Result<At, String> {
        own.late = false;
        let (to, found) = (own.word.to() as usize, own.found);
        let at = swapped(s, self, own, |word| word.at_step(Step::Replay));
        let now = s.paths[to].incarnation;
        if at == At::Told && now != found {
            return Err(format!("handshake: path {to} is entered as {found}, it is {now}"));
        }
        Ok(at)
    }

    /// The channel ends: somebody holds the post lock for too long.
    pub(super) fn die(&self, s: &mut System, number: usize) -> Result<(), String> {
        let mut own = s.owners[number];
        s.budget.deaths -= 1;
        own.at = swapped(s, self, &mut own, |word| word.at_step(Step::Dead));
        s.owners[number] = own;
        Ok(())
    }
}

/// Swaps the word from what the owner has; who fails lets go.
fn swapped(s: &mut System, setup: &Setup, own: &mut Owner, next: impl Fn(SwitchWord) -> SwitchWord) -> At {
    let next = next(own.word);
    if !s.change(setup, own.word, next) {
        return At::LetGo;
    }
    own.word = next;
    At::Told
}
