//! The connections of a node, and the thread that drives them. It waits for sockets and orders, and for nothing else.

use super::book::{Book, Do, Line};
use super::link::{Broken, Link};
use super::order::{Order, Waker};
use super::words::{Hello, Id, Said, decode, encode};
use crate::asker::is_an_engines;
use crate::process::{ParentsOwn, Process};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::time::Timespec;
use shunt::host::connect::tcp::Secret;
use shunt::host::connect::tcp::pipe::{Pipe, Realm};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread looks around at least so often.
const LOOK: Duration = Duration::from_millis(500);
/// The same while a connection is being made, whose end no socket tells.
const SOON: Duration = Duration::from_millis(5);
/// A connection that is ended has so long to bring its last word across.
const LAST_WORD: Duration = Duration::from_secs(1);
const REALM: &str = "transfer nodes";

/// What the thread tells the node.
pub(crate) trait Host: Send {
    /// The engine takes a peer up: its number, or nothing if the engine has ended.
    fn join(&self, hello: Hello, leads: bool) -> Option<u32>;
    /// The engine cuts a peer off.
    fn leave(&self, number: u32);
    /// Another process cannot be a peer while it lives.
    fn refused(&self, from: SocketAddr, why: &str);
}

/// What a mesh is made of.
pub(crate) struct MeshParts {
    pub listener: TcpListener,
    pub secret: Secret,
    /// This node, as others are told.
    pub me: Hello,
    /// One without a connection for so long has left.
    pub give_up: Duration,
}

/// The way to the thread.
pub(crate) struct Mesh {
    orders: Sender<Order>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

/// A mesh before its thread runs.
pub(crate) struct Idle {
    orders: Receiver<Order>,
    came: Sender<(u32, Vec<u8>)>,
    broken: Broken,
    fd: Arc<OwnedFd>,
}

impl Mesh {
    /// The way to the thread, the engine's end of it, and what the thread is started with.
    ///
    /// # Errors
    /// As the system answers.
    pub fn prepare() -> std::io::Result<(Self, Link, Idle)> {
        let fd = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let ((orders, ordered), (tell, came)) = (channel(), channel());
        let (waker, broken) = (Waker(fd.clone()), Broken::default());
        let link = Link { orders: orders.clone(), waker: waker.clone(), came, broken: broken.clone() };
        Ok((
            Self { orders, waker, thread: None, process: Process::own() },
            link,
            Idle { orders: ordered, came: tell, broken, fd },
        ))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// As the system answers.
    pub fn start(&mut self, idle: Idle, parts: MeshParts, host: Box<dyn Host>) -> std::io::Result<()> {
        parts.listener.set_nonblocking(true)?;
        let MeshParts { listener, secret, me, give_up } = parts;
        let driver = Driver {
            book: Book::new(me.id, me.address.rails(), give_up),
            realm: Realm::new(&secret, REALM),
            listener: ParentsOwn::new(listener.as_raw_fd(), listener),
            me,
            idle,
            host,
            pipes: BTreeMap::new(),
            ending: Vec::new(),
            wishes: BTreeMap::new(),
            wished: 0,
            stopped: None,
        };
        let thread = std::thread::Builder::new().name("transfer mesh".to_owned());
        self.thread = Some(thread.spawn(move || driver.run())?);
        Ok(())
    }

    /// A number that no other process has.
    pub fn draw() -> Id {
        fresh()
    }

    /// Asks for something.
    pub fn order(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            self.waker.wake();
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // A child has no such thread, and its counter is the parent's.
            return std::mem::forget(self.thread.take());
        }
        self.order(Order::Stop);
        // In a callback nobody waits: it may ask the engine for something.
        if let Some(thread) = self.thread.take().filter(|_| !is_an_engines()) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

struct Driver {
    book: Book,
    realm: Realm,
    listener: ParentsOwn<TcpListener>,
    me: Hello,
    idle: Idle,
    host: Box<dyn Host>,
    pipes: BTreeMap<Line, (ParentsOwn<Pipe>, SocketAddr)>,
    /// Connections that bring their last word across, and until when.
    ending: Vec<(ParentsOwn<Pipe>, Instant)>,
    /// By number: who is told.
    wishes: BTreeMap<u64, Sender<Result<u32, String>>>,
    /// How many there have been.
    wished: u64,
    /// Until when it goes on for last words.
    stopped: Option<Instant>,
}

impl Driver {
    fn run(mut self) {
        loop {
            self.take_orders();
            self.accept();
            self.carry_on();
            self.book.tick(Instant::now());
            self.act();
            self.ending.retain_mut(|(pipe, until)| {
                pipe.carry_on();
                pipe.over().is_none() && pipe.pending() > 0 && *until > Instant::now()
            });
            *self.idle.broken.lock().unwrap_or_else(PoisonError::into_inner) = self.book.broken().collect();
            if self.stopped.is_some() && self.ending.is_empty() {
                return;
            }
            self.wait();
        }
    }

    fn take_orders(&mut self) {
        let mut bytes = [0; 8];
        // The counter is read before the orders: one that comes later wakes again.
        let _ = rustix::io::read(&*self.idle.fd, &mut bytes);
        while let Ok(order) = self.idle.orders.try_recv() {
            match order {
                Order::Say(number, bytes) => {
                    let line = self.book.line_to(number);
                    let pipe = line.and_then(|line| self.pipes.get_mut(&line));
                    pipe.into_iter().for_each(|(pipe, _)| pipe.send(encode(&Said::Agent(bytes.clone()))));
                }
                Order::Connect(to, until, tell) => {
                    self.wished += 1;
                    self.wishes.insert(self.wished, tell);
                    self.book.want(Instant::now(), self.wished, to, until);
                }
                Order::Cut(number) => self.book.cut(number),
                Order::Reached(number) => self.book.waited(number, true),
                Order::GaveUp(number, tell) => {
                    self.book.waited(number, false);
                    self.act();
                    // Who asked may wait no more.
                    let _ = tell.send(());
                }
                Order::Refuse => self.book.refuse_all(),
                Order::Stop => {
                    self.book.leave();
                    self.stopped = Some(Instant::now() + LAST_WORD);
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, from)) = self.listener.accept() {
            if self.stopped.is_some() {
                continue;
            }
            if let Ok(pipe) = Pipe::accept(&self.realm, stream, from) {
                let line = self.book.accepted();
                self.pipes.insert(line, (ParentsOwn::new(pipe.fd(), pipe), from));
            }
        }
    }

    /// Reads and writes every connection.
    fn carry_on(&mut self) {
        let lines: Vec<Line> = self.pipes.keys().copied().collect();
        for line in lines {
            let Some((pipe, from)) = self.pipes.get_mut(&line) else { continue };
            let (messages, from) = (pipe.carry_on(), *from);
            let over = pipe.over().map(|why| (why.to_owned(), pipe.is_refused()));
            for message in messages {
                self.hear(line, from, &message);
                // What is to be done comes before what follows: the next message may be for it.
                self.act();
            }
            if let Some((why, for_good)) = over {
                self.pipes.remove(&line);
                if for_good {
                    self.host.refused(from, &why);
                }
                self.book.over(Instant::now(), line, (&why, for_good));
            }
        }
    }

    fn hear(&mut self, line: Line, from: SocketAddr, message: &[u8]) {
        match decode(message) {
            Ok(Said::Hello(hello)) => self.book.hello(Instant::now(), (line, from), *hello, fresh()),
            Ok(Said::Agent(bytes)) => {
                let from = self.book.speaker(line);
                from.into_iter().for_each(|from| _ = self.idle.came.send((from, bytes.clone())));
            }
            Ok(Said::Bye) => self.book.bye(line),
            Err(why) => {
                self.pipes.remove(&line);
                self.book.over(Instant::now(), line, (&why, true));
            }
        }
    }

    /// Does what the book says, until it says nothing more.
    fn act(&mut self) {
        loop {
            let all = self.book.take();
            if all.is_empty() {
                return;
            }
            all.into_iter().for_each(|one| self.act_on(one));
        }
    }

    fn act_on(&mut self, one: Do) {
        match one {
            Do::Dial(line, to) => match Pipe::dial(&self.realm, to) {
                Ok(mut pipe) => {
                    // The first message of who dials is a short one.
                    pipe.send(encode(&Said::Agent(Vec::new())));
                    self.pipes.insert(line, (ParentsOwn::new(pipe.fd(), pipe), to));
                }
                Err(error) => self.book.over(Instant::now(), line, (&error.to_string(), false)),
            },
            Do::Hello(line, relation, meant) => {
                let said = Said::Hello(Box::new(Hello { relation, meant, ..self.me.clone() }));
                self.pipes.get_mut(&line).into_iter().for_each(|(pipe, _)| pipe.send(encode(&said)));
            }
            Do::Drop(line, tell) => {
                if let Some((mut pipe, _)) = self.pipes.remove(&line).filter(|_| tell) {
                    pipe.send(encode(&Said::Bye));
                    self.ending.push((pipe, Instant::now() + LAST_WORD));
                }
            }
            Do::Join(id, hello, leads) => {
                if let Some(number) = self.host.join(*hello, leads) {
                    self.book.joined(&id, number);
                }
            }
            Do::Leave(number) => self.host.leave(number),
            Do::Answered(wish, result) => {
                let is_told = self.wishes.remove(&wish).is_some_and(|tell| tell.send(result.clone()).is_ok());
                if let Some(number) = result.ok().filter(|_| !is_told) {
                    // Who asked waits no more.
                    self.book.waited(number, false);
                }
            }
        }
    }

    fn wait(&self) {
        let now = Instant::now();
        let is_young = |line: &Line| self.book.speaker(*line).is_none();
        let most = if self.pipes.keys().any(is_young) || !self.ending.is_empty() { SOON } else { LOOK };
        let due = self.book.next_time().map_or(most, |due| due.saturating_duration_since(now).min(most));
        let mut fds =
            vec![PollFd::new(&*self.idle.fd, PollFlags::IN), PollFd::new(&*self.listener, PollFlags::IN)];
        for (pipe, _) in self.pipes.values() {
            // SAFETY: the pipe owns its socket, and lives and stays as it is while this function runs.
            let fd = unsafe { BorrowedFd::borrow_raw(pipe.fd()) };
            let flags = if pipe.pending() > 0 { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        let most = Timespec { tv_sec: due.as_secs() as i64, tv_nsec: due.subsec_nanos().into() };
        // An interruption is a look around.
        let _ = poll(&mut fds, Some(&most));
    }
}

/// A number that was not used before.
fn fresh() -> Id {
    let mut id = Id::default();
    // Of the system's generator, which does not fail once it is seeded.
    let _ = rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty());
    id
}
