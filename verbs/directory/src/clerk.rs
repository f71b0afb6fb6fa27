//! Keeps a process's entries on a [`Shelf`], and reads those of others: a thread, since each call of a shelf may wait.
//! What the thread does is [`Clerk::step`], which is handed the time.

use super::book::{Book, not_there};
use super::entry;
use super::remarks::Remarks;
use super::shelf::Shelf;
use super::store_words::End;
use shunt_bootstrap::tcp::Secret;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Pause between two attempts to reach a place that is not there.
const REDIAL: Duration = Duration::from_secs(1);
/// How long the thread waits for something to do.
const IDLE: Duration = Duration::from_millis(200);

/// What the thread is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A queue pair is this process's.
    Put(End),
    /// It is gone.
    Remove(End),
    /// Whose is this one?
    Ask(End),
}

/// What the thread says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The place is there.
    Open,
    /// It is not, and why.
    Closed(String),
    /// A queue pair is that process's.
    Is(End, String),
    /// Something was met that is not used.
    Refused(String),
}

/// Entries of a process.
pub struct Clerk {
    shelf: Box<dyn Shelf>,
    secret: Secret,
    /// Name of the process.
    name: String,
    own: BTreeSet<End>,
    /// Gone, and perhaps still on the shelf.
    stale: BTreeSet<End>,
    /// It was reached, and has not failed since; when the entries were put last.
    open: Option<Instant>,
    tried: Option<Instant>,
}

impl Clerk {
    /// With no entry, and not connected.
    pub fn new(shelf: Box<dyn Shelf>, secret: &Secret, name: &str) -> Self {
        let (own, stale) = (BTreeSet::new(), BTreeSet::new());
        Self { shelf, secret: secret.clone(), name: name.to_owned(), own, stale, open: None, tried: None }
    }

    /// Does what it is told. What cannot be asked now is not answered: who asks asks again.
    pub fn step(&mut self, now: Instant, orders: Vec<Order>) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut fresh = Vec::new();
        // What was asked twice while the place was slow is looked up once.
        let mut asked = BTreeSet::new();
        for order in orders {
            match order {
                Order::Put(end) => {
                    self.stale.remove(&end);
                    self.own.insert(end);
                    fresh.push(end);
                }
                Order::Remove(end) => {
                    if self.own.remove(&end) {
                        self.stale.insert(end);
                    }
                }
                Order::Ask(end) => _ = asked.insert(end),
            }
        }
        if let Err(error) = self.carry_out(now, &fresh, &asked, &mut answers) {
            self.open = None;
            answers.push(Answer::Closed(not_there(&self.shelf.place(), &error)));
        }
        answers
    }

    fn carry_out(
        &mut self,
        now: Instant,
        fresh: &[End],
        asked: &BTreeSet<End>,
        answers: &mut Vec<Answer>,
    ) -> io::Result<()> {
        let mut puts: Vec<End> = fresh.iter().copied().filter(|end| self.own.contains(end)).collect();
        if self.open.is_none() {
            if self.tried.is_some_and(|tried| now < tried + REDIAL) {
                return Ok(());
            }
            self.tried = Some(now);
            self.shelf.connect()?;
            answers.push(Answer::Open);
        }
        if self.open.is_none_or(|since| now >= since + self.shelf.renewal()) {
            self.open = Some(now);
            puts = self.own.iter().copied().collect();
        }
        for end in puts {
            if let Some(entry) = entry::seal(&self.secret, &end, &self.name) {
                let (key, place) = (entry::key(&end), self.shelf.place());
                match self.shelf.put(&key, &entry) {
                    Err(error) if is_of_one(&error) => {
                        let got = "expected a name that this process may write, got";
                        answers.push(Answer::Refused(format!(
                            "{place}, {key}: {got}: {error}; it is not there"
                        )));
                    }
                    answer => answer?,
                }
            }
        }
        while let Some(end) = self.stale.first().copied() {
            self.take_off(&end)?;
            self.stale.remove(&end);
        }
        for end in asked {
            answers.extend(self.look_up(end)?);
        }
        Ok(())
    }

    /// Removes an entry, unless another process has it by now.
    fn take_off(&mut self, end: &End) -> io::Result<()> {
        let key = entry::key(end);
        let found = self.shelf.get(&key)?;
        let name = found.and_then(|found| entry::open(&self.secret, end, &found).ok());
        if name.as_ref() == Some(&self.name) { self.shelf.remove(&key) } else { Ok(()) }
    }

    fn look_up(&mut self, end: &End) -> io::Result<Option<Answer>> {
        let key = entry::key(end);
        let found = match self.shelf.get(&key) {
            // What this process may not read is no entry for it.
            Err(error) if is_of_one(&error) => Some(Vec::new()),
            found => found?,
        };
        let Some(found) = found else { return Ok(None) };
        Ok(Some(match entry::open(&self.secret, end, &found) {
            Ok(name) => Answer::Is(*end, name),
            Err(why) => Answer::Refused(format!("{}, {key}: {why}; it is not used", self.shelf.place())),
        }))
    }

    /// Carries on until nobody tells it anything any more. `bell`: has whoever sleeps take the answers.
    fn run(mut self, orders: &Receiver<Order>, answers: &Sender<Answer>, bell: &UnixDatagram) {
        loop {
            let mut taken = match orders.recv_timeout(IDLE) {
                Ok(order) => vec![order],
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            taken.extend(orders.try_iter());
            for answer in self.step(Instant::now(), taken) {
                if answers.send(answer).is_err() {
                    return;
                }
                // One that is full is ready.
                let _ = bell.send(&[0]);
            }
        }
    }
}

/// True if an error is about one name, and not about the place.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{DirectoryNotEmpty, IsADirectory, PermissionDenied};
    matches!(error.kind(), DirectoryNotEmpty | IsADirectory | PermissionDenied)
}

/// The thread, as a process sees it.
pub struct Desk {
    orders: Sender<Order>,
    answers: Receiver<Answer>,
    /// Ready once there are answers.
    bell: UnixDatagram,
    open: Option<bool>,
}

impl Desk {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives none.
    pub fn open(clerk: Clerk) -> io::Result<Self> {
        let ((orders, taken), (given, answers)) = (channel(), channel());
        let (bell, rung_by) = UnixDatagram::pair()?;
        bell.set_nonblocking(true)?;
        rung_by.set_nonblocking(true)?;
        let thread = std::thread::Builder::new().name("shunt verbs store".into());
        thread.spawn(move || clerk.run(&taken, &given, &rung_by))?;
        Ok(Self { orders, answers, bell, open: None })
    }

    fn tell(&self, order: Order) {
        // A thread that has ended has nobody to tell.
        let _ = self.orders.send(order);
    }
}

impl Book for Desk {
    fn put(&mut self, end: End) {
        self.tell(Order::Put(end));
    }

    fn remove(&mut self, end: End) {
        self.tell(Order::Remove(end));
    }

    fn ask(&mut self, end: End) -> bool {
        self.tell(Order::Ask(end));
        true
    }

    fn carry_on(&mut self, remarks: &Remarks) -> Vec<(End, String)> {
        // Before the answers are taken: one that comes meanwhile rings again.
        while self.bell.recv(&mut [0]).is_ok() {}
        let mut found = Vec::new();
        for answer in self.answers.try_iter() {
            match answer {
                Answer::Open => self.open = Some(true),
                Answer::Closed(why) => {
                    self.open = Some(false);
                    remarks.add(why);
                }
                Answer::Is(end, name) => found.push((end, name)),
                Answer::Refused(what) => remarks.add(what),
            }
        }
        found
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.bell.as_raw_fd()]
    }

    fn tells(&self) -> bool {
        true
    }

    fn is_open(&self) -> Option<bool> {
        self.open
    }
}

#[cfg(test)]
#[path = "clerk_tests.rs"]
mod tests;
