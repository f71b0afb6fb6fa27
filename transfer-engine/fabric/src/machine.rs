//! The life of a path: its endpoint is made, known to the peer, probed, used, closed at both ends, and made again as
//! the next incarnation. Pure.
//!
//! One of the two ends leads: it numbers incarnations, and offers. Words may be lost, doubled and late.

use crate::words::{Answers, Asks, Word};
use shunt_recovery::nanos::Nanos;

/// How long what takes.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// A lane with pieces under way and no completion for so long is suspected: what they take at the slowest besides.
    pub suspect: Nanos,
    /// The slowest that a lane carries, bytes a second: long pieces are no silence.
    pub slowest: u64,
    /// Until a word is said again that is not answered.
    pub resend: Nanos,
    /// How long a peer may owe the answer about a lane that is closed.
    pub peer: Nanos,
    /// How long an endpoint of a NIC may take to close. It is set aside then, and nothing is proved of its lane.
    pub close: Nanos,
    /// How long a packet may be on its way. No answer is awaited for less.
    pub lifetime: Nanos,
    /// How long the first operation of a new endpoint may take.
    pub probe: Nanos,
    /// Pause before a path is made again. It doubles while paths do not last.
    pub backoff: Nanos,
}

impl Patience {
    /// Between machines, or processes that share few cores.
    pub const DEFAULT: Self = Self {
        suspect: Nanos::millis(200),
        slowest: 50_000_000,
        resend: Nanos::millis(10),
        peer: Nanos::secs(1),
        close: Nanos::secs(10),
        lifetime: Nanos::millis(50),
        probe: Nanos::secs(1),
        backoff: Nanos::millis(2),
    };
}

/// A path that lasted for so long is a good one.
const LASTS: Nanos = Nanos::secs(1);
/// The pause doubles so often at most.
const DOUBLES: u32 = 8;

/// How the close of an incarnation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The peer's endpoint is closed, and this is what it had.
    Answered(Answers),
    /// The peer has no endpoint of it, and knows nothing.
    Gone,
    /// The peer says nothing.
    Silent,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Open an endpoint; [`Machine::made`] follows.
    Make,
    /// The peer's endpoint has this name.
    Insert(Vec<u8>),
    /// Post the first operation; [`Machine::probed`] follows, or [`Machine::fail`].
    Probe,
    /// Close the endpoint; [`Machine::shut`] follows.
    Shut,
    /// Leave the endpoint that does not close alone; [`Machine::shut`] follows.
    SetAside,
    /// Say a word about an incarnation.
    Say(u32, Word),
    /// Say that the endpoint is closed, and ask what arrived.
    Ask(u32),
    /// Answer what arrived of an incarnation.
    Answer(u32, Asks),
    /// The lane may be used.
    Opened,
    /// The incarnation is over.
    Ended(Ending),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// The name of the peer's endpoint, if it is known.
    Making(Option<Vec<u8>>),
    Offering(Vec<u8>),
    Accepted(Vec<u8>),
    /// The first operation of this end is executed, and that of the peer.
    Probing {
        mine: bool,
        theirs: bool,
    },
    Open,
    /// The endpoint is being closed.
    Shutting,
    /// It is closed, and the peer is asked.
    Closing,
}

/// The life of one path.
#[derive(Debug)]
pub(crate) struct Machine {
    leads: bool,
    patience: Patience,
    state: State,
    incarnation: u32,
    /// When the state ends by itself: a pause, a probe or a wait for an answer.
    until: Nanos,
    /// A peer that is closing its endpoint is waited for until then.
    latest: Nanos,
    /// When the last word was said that is said again.
    said: Nanos,
    opened: Option<Nanos>,
    /// Incarnations in a row that did not last.
    short: u32,
    /// This one did not work at this end.
    failed: bool,
    /// The rail may be used.
    up: bool,
}

impl Machine {
    /// Of a path that was never made.
    pub const fn new(leads: bool, patience: Patience) -> Self {
        let (until, latest, said) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        Self {
            leads,
            patience,
            state: State::Waiting,
            incarnation: 0,
            until,
            latest,
            said,
            opened: None,
            short: 0,
            failed: false,
            up: true,
        }
    }

    /// Number of the newest incarnation.
    pub const fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// True while there is an endpoint.
    pub const fn is_made(&self) -> bool {
        !matches!(self.state, State::Waiting | State::Making(_) | State::Shutting | State::Closing)
    }

    /// Time passes.
    pub fn tick(&mut self, now: Nanos, acts: &mut Vec<Act>) {
        let again = now >= self.said + self.patience.resend;
        match &self.state {
            State::Waiting if self.leads && self.up && now >= self.until => {
                // Numbers are not used again: without one more the path stays down.
                if let Some(next) = self.incarnation.checked_add(1) {
                    self.incarnation = next;
                    self.state = State::Making(None);
                    acts.push(Act::Make);
                }
            }
            State::Offering(name) if again => {
                acts.push(Act::Say(self.incarnation, Word::Offer(name.clone())));
                self.said = now;
            }
            State::Accepted(name) if again => {
                acts.push(Act::Say(self.incarnation, Word::Accept(name.clone())));
                self.said = now;
            }
            State::Probing { .. } if now >= self.until => self.fail(now, acts),
            State::Probing { mine: true, .. } if again => {
                acts.push(Act::Say(self.incarnation, Word::Probed(true)));
                self.said = now;
            }
            State::Shutting if now >= self.until => acts.push(Act::SetAside),
            State::Closing if now >= self.until => self.end(now, Ending::Silent, acts),
            State::Closing if again => {
                acts.push(Act::Ask(self.incarnation));
                self.said = now;
            }
            _ => {}
        }
    }

    /// The endpoint is open and has this name, or cannot be opened.
    pub fn made(&mut self, now: Nanos, name: Option<Vec<u8>>, acts: &mut Vec<Act>) {
        let State::Making(peer) = std::mem::replace(&mut self.state, State::Waiting) else { return };
        let Some(name) = name else {
            if !self.leads {
                // The same offer comes again.
                self.incarnation = self.incarnation.saturating_sub(1);
            }
            return self.pause(now);
        };
        self.said = now;
        let (word, state) = match peer {
            None => (Word::Offer(name.clone()), State::Offering(name)),
            Some(peer) => {
                acts.push(Act::Insert(peer));
                (Word::Accept(name.clone()), State::Accepted(name))
            }
        };
        self.state = state;
        acts.push(Act::Say(self.incarnation, word));
    }

    /// The peer says something about an incarnation.
    pub fn hear(&mut self, now: Nanos, incarnation: u32, word: Word, acts: &mut Vec<Act>) {
        let is_this = incarnation == self.incarnation;
        match word {
            Word::Offer(name) if !self.leads && incarnation > self.incarnation => {
                self.offered(now, incarnation, name, acts);
            }
            Word::Accept(name) if self.leads && is_this => match self.state {
                State::Offering(_) => {
                    acts.extend([Act::Insert(name), Act::Say(incarnation, Word::Ready)]);
                    self.probe(now, acts);
                }
                State::Probing { .. } | State::Open => acts.push(Act::Say(incarnation, Word::Ready)),
                _ => {}
            },
            Word::Ready if !self.leads && is_this && matches!(self.state, State::Accepted(_)) => {
                self.probe(now, acts);
            }
            Word::Probed(waits) if is_this => match &mut self.state {
                State::Probing { theirs, .. } => {
                    *theirs = true;
                    self.open(now, acts);
                }
                // Lost, or the peer would be open.
                State::Open if waits => acts.push(Act::Say(incarnation, Word::Probed(false))),
                _ => {}
            },
            Word::Close(_) if incarnation > self.incarnation => {
                if self.state == State::Waiting {
                    // It is over before it was heard of.
                    self.incarnation = incarnation;
                }
                acts.push(Act::Say(incarnation, Word::Gone));
            }
            Word::Close(asks) => {
                if is_this && self.is_made() {
                    self.release(now, acts);
                }
                acts.push(Act::Answer(incarnation, asks));
            }
            Word::Closed(answers) if is_this && self.state == State::Closing => {
                self.end(now, Ending::Answered(answers), acts);
            }
            Word::Wait if is_this && self.state == State::Closing => {
                self.until = self.latest.min(now + self.patience.peer).max(self.until);
            }
            Word::Gone if is_this && self.state == State::Closing => self.end(now, Ending::Gone, acts),
            _ => {}
        }
    }

    fn offered(&mut self, now: Nanos, incarnation: u32, name: Vec<u8>, acts: &mut Vec<Act>) {
        match self.state {
            State::Waiting if self.up && now >= self.until => {
                self.incarnation = incarnation;
                self.state = State::Making(Some(name));
                acts.push(Act::Make);
            }
            // The peer has closed the old one. It offers again.
            _ if self.is_made() => self.release(now, acts),
            _ => {}
        }
    }

    fn probe(&mut self, now: Nanos, acts: &mut Vec<Act>) {
        (self.state, self.until) = (State::Probing { mine: false, theirs: false }, now + self.patience.probe);
        acts.push(Act::Probe);
    }

    /// The first operation is executed. The path opens once that of the peer is too: an end whose owner does something
    /// else from then on would not answer it.
    pub fn probed(&mut self, now: Nanos, acts: &mut Vec<Act>) {
        if let State::Probing { mine, .. } = &mut self.state {
            *mine = true;
            self.said = now;
            acts.push(Act::Say(self.incarnation, Word::Probed(true)));
            self.open(now, acts);
        }
    }

    fn open(&mut self, now: Nanos, acts: &mut Vec<Act>) {
        if self.state == (State::Probing { mine: true, theirs: true }) {
            (self.state, self.opened) = (State::Open, Some(now));
            acts.push(Act::Opened);
        }
    }

    /// The endpoint is to be closed, at both ends: it does not work.
    pub fn fail(&mut self, now: Nanos, acts: &mut Vec<Act>) {
        self.failed |= self.is_made();
        self.release(now, acts);
    }

    /// The same, for what its owner wants, or because the peer closes its own.
    pub fn release(&mut self, now: Nanos, acts: &mut Vec<Act>) {
        if self.is_made() {
            (self.state, self.until) = (State::Shutting, now + self.patience.close);
            acts.push(Act::Shut);
        }
    }

    /// The endpoint is closed, or set aside.
    pub fn shut(&mut self, now: Nanos, acts: &mut Vec<Act>) {
        if self.state == State::Shutting {
            (self.state, self.said) = (State::Closing, now);
            self.until = now + self.patience.peer.max(self.patience.lifetime);
            self.latest = self.until + self.patience.close;
            acts.push(Act::Ask(self.incarnation));
        }
    }

    /// The rail may be used from now on, or not.
    pub fn allow(&mut self, now: Nanos, up: bool, acts: &mut Vec<Act>) -> bool {
        let changes = self.up != up;
        self.up = up;
        if !up {
            self.release(now, acts);
        }
        changes
    }

    fn end(&mut self, now: Nanos, ending: Ending, acts: &mut Vec<Act>) {
        acts.push(Act::Ended(ending));
        self.pause(now);
    }

    fn pause(&mut self, now: Nanos) {
        let (opened, failed) = (self.opened.take(), std::mem::take(&mut self.failed));
        self.short = match opened {
            Some(opened) if now >= opened + LASTS => 0,
            // It would have lasted.
            Some(_) if !failed => self.short,
            _ => (self.short + 1).min(DOUBLES),
        };
        self.state = State::Waiting;
        self.until = now + self.patience.backoff.doubled(self.short);
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
