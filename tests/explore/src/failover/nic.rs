//! Programs, rings, networks and NICs: everything but the switch.

use super::state::{Message, Part, Phase, Place, REUSED, RING, System};
use super::{Action, Break, Kind, Op, Setup, alive, name, place_all};

impl Setup {
    /// What the programs at both ends of `pe`'s channel may do.
    pub(super) fn program_actions(&self, s: &System, pe: usize, out: &mut Vec<Action>) {
        let (channel, memory) = (&s.channels[pe], &s.memory[1 - pe]);
        if self.next_signal(s, pe).is_some_and(|op| self.visible(memory.words[self.word(op)], pe, op)) {
            out.push(Action::Consume { pe });
        }
        for op in 0..self.ops[pe].len() {
            let done = usize::from(channel.done) > op;
            if self.op(pe, op) == Op::Get && done && channel.used & 1 << op == 0 {
                out.push(Action::UseFetched { pe, op });
            }
        }
        let more = usize::from(channel.next) < self.ops[pe].len();
        if channel.phase == Phase::Open && more && fits(s, pe, usize::from(channel.path)) {
            out.push(Action::Post { pe });
        }
    }

    /// The first signal of `pe` that its receiver has not seen.
    fn next_signal(&self, s: &System, pe: usize) -> Option<usize> {
        let seen = s.memory[1 - pe].consumed;
        (0..self.ops[pe].len()).find(|op| self.op(pe, *op) == Op::Signal && seen & 1 << op == 0)
    }

    /// True if a word that reads `word` shows signal `op` of `pe` to its receiver.
    fn visible(&self, word: u8, pe: usize, op: usize) -> bool {
        match self.kind {
            Kind::Cleared => word != 0,
            Kind::Monotone => word >= self.value(pe, op),
            // A caller that waits for a shared word waits for all writers.
            Kind::Shared => word >= self.value(pe, op) + if pe == 0 { self.other_adds } else { 0 },
        }
    }

    /// The receiver sees a signal: every put before it must be there. It clears, and writes its own values.
    pub(super) fn consume(&self, s: &mut System, pe: usize) -> Result<(), String> {
        let Some(signal) = self.next_signal(s, pe) else { return Ok(()) };
        let memory = &mut s.memory[1 - pe];
        for op in 0..signal {
            if self.op(pe, op) != Op::Put || memory.consumed & 1 << op != 0 {
                continue;
            }
            if memory.buffers[op] == 0 {
                let pe = name(pe);
                return Err(format!("order: signal {signal} of {pe} is visible, its put {op} is not"));
            }
            memory.buffers[op] = REUSED;
            memory.consumed |= 1 << op;
        }
        memory.consumed |= 1 << signal;
        if self.kind == Kind::Cleared {
            memory.words[signal] -= 1;
        }
        Ok(())
    }

    /// What the networks and NICs under `pe`'s channel may do.
    pub(super) fn network_actions(&self, s: &System, pe: usize, out: &mut Vec<Action>) {
        for path in 0..self.paths {
            let direction = &s.directions[pe][path];
            let accepts = alive(s, 1 - pe, path);
            // A NIC that can hold no more places first: an action of its own.
            let room = !s.queues[1 - pe][path].is_full();
            if accepts && room && !direction.gone && direction.executed < direction.sent {
                out.push(Action::Execute { pe, path });
            }
            if accepts && room && direction.executed < direction.ghost_count {
                out.push(Action::Ghost { pe, path });
            }
            let answered = direction.completed < direction.executed.min(direction.rung);
            if alive(s, pe, path) && answered && !direction.gone {
                out.push(Action::Complete { pe, path });
            }
        }
    }

    /// Posts one message; it leaves at once if the queue pair works.
    fn post(&self, s: &mut System, pe: usize, path: usize, message: Message) {
        let works = alive(s, pe, path);
        let direction = &mut s.directions[pe][path];
        direction.ring[usize::from(direction.rung)] = message;
        direction.rung += 1;
        if works {
            direction.sent = direction.rung;
        }
    }

    /// Posts an operation with its bracket.
    pub(super) fn post_op(&self, s: &mut System, pe: usize, path: usize, op: usize) {
        let bracketed = self.bracket && self.op(pe, op) == Op::Signal;
        if bracketed {
            self.post(s, pe, path, Message::new(op, Part::Before));
        }
        self.post(s, pe, path, Message::new(op, Part::Whole));
        if bracketed {
            self.post(s, pe, path, Message::new(op, Part::After));
        }
    }

    /// Posts a zero-length write in place of an operation.
    pub(super) fn post_placeholder(&self, s: &mut System, pe: usize, path: usize, op: usize) {
        self.post(s, pe, path, Message::new(op, Part::Placeholder));
    }

    /// The responder of `pe`'s message executes it: its NIC will place the effect later.
    pub(super) fn execute(&self, s: &mut System, pe: usize, path: usize, message: Message) {
        let (at, op) = (1 - pe, message.op());
        let effect = match message.part() {
            Part::Placeholder => return,
            Part::Before => Some(Place::LedgerBefore(op)),
            Part::After => Some(Place::LedgerAfter(op)),
            Part::Whole => {
                s.memory[at].applied |= 1 << op;
                self.effect(s, pe, path, op)
            }
        };
        if let Some(effect) = effect {
            s.queues[at][path].push(effect);
        }
    }

    fn effect(&self, s: &mut System, pe: usize, path: usize, op: usize) -> Option<Place> {
        let at = 1 - pe;
        match (self.op(pe, op), self.kind) {
            (Op::Put, _) => Some(Place::Buffer(op)),
            (Op::Get, _) => {
                // A READ does not pass earlier writes of its NIC.
                place_all(s, at, path);
                None
            }
            (Op::Signal, Kind::Monotone) => Some(Place::Word(0, self.value(pe, op))),
            (Op::Signal, Kind::Cleared | Kind::Shared) => {
                // An atomic reads and then writes, inside one NIC.
                place_all(s, at, path);
                let word = self.word(op);
                Some(Place::Word(word, (s.memory[at].words[word] + 1).min(7)))
            }
        }
    }

    /// `pe` gets the completion of its oldest message; a READ's data comes with it.
    pub(super) fn complete(&self, s: &mut System, pe: usize, path: usize) {
        let direction = &mut s.directions[pe][path];
        let message = direction.ring[usize::from(direction.completed)];
        direction.completed += 1;
        let (op, part) = (message.op(), message.part());
        if part == Part::Whole && self.op(pe, op) == Op::Get {
            s.memory[pe].fetched[op] = super::state::DATA;
        }
        let bracketed = self.bracket && self.op(pe, op) == Op::Signal;
        let last = match part {
            Part::Whole => !bracketed,
            Part::Before => false,
            Part::After | Part::Placeholder => true,
        };
        let channel = &mut s.channels[pe];
        let counts = match channel.phase {
            Phase::Open | Phase::Drain => usize::from(channel.path) == path,
            Phase::Replay => usize::from(channel.to) == path,
            Phase::Fence | Phase::Dead => false,
        };
        if counts && last {
            channel.done = channel.done.max(op as u8 + 1);
            channel.executed = channel.executed.max(op as u8 + 1);
        }
    }

    /// Everything that is not of one channel.
    pub(super) fn other_actions(&self, s: &System, out: &mut Vec<Action>) {
        for pe in [0, 1] {
            for path in 0..self.paths {
                if !s.queues[pe][path].is_empty() {
                    out.push(Action::Visible { pe, path });
                }
                if self.may_mute(s, pe, path) {
                    out.push(Action::Mute { pe, path });
                }
            }
        }
        let home = usize::from(s.other.home);
        if s.other.added < self.other_adds && home < self.paths {
            out.push(Action::OtherAdd);
        }
        if s.budget.agent_deaths > 0 && s.agents[1] {
            out.push(Action::KillAgent);
        }
        if s.budget.revivals > 0 && !alive(s, 0, 0) && !alive(s, 1, 0) && self.may_revive(s) {
            out.push(Action::Revive);
        }
    }

    /// Another PE's atomic add to B's shared word, through the word's home.
    pub(super) fn other_add(&self, s: &mut System) {
        let home = usize::from(s.other.home);
        place_all(s, 1, home);
        let value = s.memory[1].words[0] + 1;
        s.queues[1][home].push(Place::Word(0, value.min(7)));
        s.other.added += 1;
    }

    /// True if the other writer must leave a NIC before `pe`'s atomics use another.
    pub(super) fn moves_home(&self, pe: usize) -> bool {
        self.kind == Kind::Shared && pe == 0 && self.other_adds > 0 && !self.lacks(Break::NoAtomicHome)
    }
}

/// True if an operation with its bracket fits the ring of a path.
pub(super) fn fits(s: &System, pe: usize, path: usize) -> bool {
    usize::from(s.directions[pe][path].rung) + 3 <= RING
}
