//! How processes of several machines find each other's queue pairs, and talk: a store that is asked once for each
//! connection, and connections between the processes themselves. Nothing here waits.

use super::remarks::Remarks;
use super::store::REALM;
use super::store_words::{End, Said, decode, encode};
use shunt_bootstrap::tcp::Secret;
use shunt_bootstrap::tcp::pipe::{Pipe, Realm};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Pause between two attempts to reach the store, and between two questions for one queue pair.
const AGAIN: Duration = Duration::from_millis(50);
/// Pause between two attempts to reach a store that is not there.
const REDIAL: Duration = Duration::from_secs(1);
/// Bytes that may wait for one process.
const PENDING: usize = 1 << 20;

/// What was asked for a queue pair.
enum Asked {
    /// There is no answer yet, or it was that nobody has it: since when.
    At(Instant),
    /// The name of its process.
    Is(String),
}

/// A connection to another process.
struct Line {
    pipe: Pipe,
    /// Whose it is: of one that was accepted, once that was said.
    name: Option<String>,
}

/// This process between machines.
pub struct Remote {
    /// Where it listens: its name.
    name: String,
    listener: TcpListener,
    lines_realm: Realm,
    store_realm: Realm,
    store_at: SocketAddr,
    store: Option<Pipe>,
    dialled: Option<Instant>,
    own: BTreeSet<End>,
    asked: HashMap<End, Asked>,
    /// By a number that is not used again.
    lines: HashMap<u64, Line>,
    next: u64,
    /// The line on which everything goes to a process, so that it stays in order.
    to: HashMap<String, u64>,
    arrived: VecDeque<(String, Vec<u8>)>,
    /// What was met that is not used.
    pub remarks: Remarks,
}

impl Remote {
    /// Opens this process's socket, on the address from which the store is reached, and begins to reach that.
    ///
    /// # Errors
    /// As the system answers. A store that is not there is no error: it may come.
    pub fn open(store_at: SocketAddr, secret: &Secret) -> io::Result<Self> {
        let any: SocketAddr = if store_at.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let probe = UdpSocket::bind(any)?;
        // Nothing is sent: the system only says from where it would be.
        probe.connect(store_at)?;
        let listener = TcpListener::bind((probe.local_addr()?.ip(), 0))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            name: listener.local_addr()?.to_string(),
            listener,
            lines_realm: Realm::new(secret, "verbs processes"),
            store_realm: Realm::new(secret, REALM),
            store_at,
            store: None,
            dialled: None,
            own: BTreeSet::new(),
            asked: HashMap::new(),
            lines: HashMap::new(),
            next: 0,
            to: HashMap::new(),
            arrived: VecDeque::new(),
            remarks: Remarks::default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Descriptors that become ready when something comes.
    pub fn fds(&self) -> Vec<RawFd> {
        let lines = self.lines.values().map(|line| line.pipe.fd());
        lines.chain(self.store.as_ref().map(Pipe::fd)).chain([self.listener.as_raw_fd()]).collect()
    }

    /// A queue pair is this process's.
    pub fn put(&mut self, end: End) {
        self.own.insert(end);
        self.tell_store(&Said::Put(end, self.name.clone()));
    }

    /// It is gone.
    pub fn remove(&mut self, end: End) {
        if self.own.remove(&end) {
            self.tell_store(&Said::Remove(end));
        }
    }

    /// The name of a queue pair's process, once the store has said it.
    pub fn get(&mut self, end: End) -> Option<String> {
        match self.asked.get(&end) {
            Some(Asked::Is(name)) => return Some(name.clone()),
            Some(Asked::At(since)) if since.elapsed() < AGAIN => return None,
            _ => {}
        }
        if self.store.is_some() {
            self.asked.insert(end, Asked::At(Instant::now()));
            self.tell_store(&Said::Get(end));
        }
        None
    }

    fn tell_store(&mut self, said: &Said) {
        if let Some(store) = &mut self.store {
            store.send(encode(said));
        }
    }

    /// Sends to a process.
    ///
    /// # Errors
    /// `WouldBlock` if it is not taken now; any other: nobody is there.
    pub fn send(&mut self, to: &str, bytes: &[u8]) -> io::Result<()> {
        let number = match self.to.get(to) {
            Some(number) => *number,
            None => self.dial(to)?,
        };
        let Some(line) = self.lines.get_mut(&number).filter(|line| line.pipe.over().is_none()) else {
            // The next message finds out whether somebody is there once more.
            self.to.remove(to);
            return Err(io::ErrorKind::ConnectionReset.into());
        };
        if line.pipe.pending() > PENDING {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        line.pipe.send(bytes.to_vec());
        self.carry_line(number);
        Ok(())
    }

    /// The line that leads to a process; one that it has dialled is as good.
    fn dial(&mut self, to: &str) -> io::Result<u64> {
        let is = |line: &Line| line.name.as_deref() == Some(to) && line.pipe.over().is_none();
        let known = self.lines.iter().find(|(_, line)| is(line)).map(|(number, _)| *number);
        let number = match known {
            Some(number) => number,
            None => {
                let address = to.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
                let mut pipe = Pipe::dial(&self.lines_realm, address)?;
                pipe.send(self.name.clone().into_bytes());
                self.add(Line { pipe, name: Some(to.to_owned()) })
            }
        };
        self.to.insert(to.to_owned(), number);
        Ok(number)
    }

    fn add(&mut self, line: Line) -> u64 {
        let number = self.next;
        self.next += 1;
        self.lines.insert(number, line);
        number
    }

    /// The next message: name of the sender, and bytes.
    pub fn receive(&mut self) -> Option<(String, Vec<u8>)> {
        if self.arrived.is_empty() {
            self.carry_on();
        }
        self.arrived.pop_front()
    }

    fn carry_on(&mut self) {
        while let Ok((stream, from)) = self.listener.accept() {
            if let Ok(pipe) = Pipe::accept(&self.lines_realm, stream, from) {
                self.add(Line { pipe, name: None });
            }
        }
        let numbers: Vec<u64> = self.lines.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.carry_line(number));
        let used: BTreeSet<u64> = self.to.values().copied().collect();
        // One that is sent on stays, so that who sends hears of its end.
        for line in self.lines.values() {
            // Who dials and ends is one thing, who has another secret is another.
            if let Some(why) = line.pipe.over().filter(|why| why.contains("secret")) {
                let name = line.name.as_deref().unwrap_or("a process");
                self.remarks.add(format!("{name}: {why}; it is not heard"));
            }
        }
        self.lines.retain(|number, line| line.pipe.over().is_none() || used.contains(number));
        self.carry_store();
    }

    fn carry_line(&mut self, number: u64) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        for bytes in line.pipe.carry_on() {
            match &line.name {
                Some(name) => self.arrived.push_back((name.clone(), bytes)),
                None => line.name = String::from_utf8(bytes).ok(),
            }
        }
    }

    fn carry_store(&mut self) {
        if let Some(why) = self.store.as_ref().and_then(Pipe::over) {
            self.remarks
                .add(format!("the store at {}: {why}; new connections are unprotected", self.store_at));
            self.store = None;
        }
        if self.store.is_none() && self.dialled.is_none_or(|at| at.elapsed() > REDIAL) {
            self.dialled = Some(Instant::now());
            self.store = Pipe::dial(&self.store_realm, self.store_at).ok();
            self.tell_store(&Said::Hello);
            for end in self.own.clone() {
                self.tell_store(&Said::Put(end, self.name.clone()));
            }
        }
        let Some(store) = &mut self.store else { return };
        for bytes in store.carry_on() {
            if let Some(Said::Is(end, name)) = decode(&bytes)
                && !name.is_empty()
            {
                self.asked.insert(end, Asked::Is(name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn secret() -> Secret {
        Secret::from_text("sixteen letters!").unwrap()
    }

    /// Carries the store and both processes on until `done`.
    fn until(
        store: &mut Option<Store>,
        both: &mut [Remote; 2],
        mut done: impl FnMut(&mut [Remote; 2]) -> bool,
    ) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if let Some(store) = store {
                store.carry_on(1);
            }
            both.iter_mut().for_each(Remote::carry_on);
            if done(both) {
                return true;
            }
        }
        false
    }

    #[test]
    fn processes_find_each_other_and_go_on_without_the_store() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut store = Some(Store::new(listener, &secret()).unwrap());
        let mut both = [0, 1].map(|_| Remote::open(at, &secret()).unwrap());
        let (end, name) = (([5; 16], 0x99), both[0].name().to_owned());
        both[0].put(end);
        assert!(until(&mut store, &mut both, |both| both[1].get(end).as_ref() == Some(&name)));
        assert_eq!(both[1].get(([5; 16], 0x98)), None);
        store = None;
        both[1].send(&name, b"one").unwrap();
        both[1].send(&name, b"two").unwrap();
        let (mut came, mut from) = (Vec::new(), String::new());
        assert!(until(&mut store, &mut both, |both| {
            while let Some((name, bytes)) = both[0].receive() {
                came.push(bytes);
                from = name;
            }
            came.len() == 2
        }));
        assert_eq!((came, &from[..]), (vec![b"one".to_vec(), b"two".to_vec()], both[1].name()));
        both[0].send(&from, b"back").unwrap();
        assert!(
            until(&mut store, &mut both, |both| both[1].receive() == Some((name.clone(), b"back".to_vec())))
        );
        // One that has ended is told of as soon as the system knows.
        both[0] = Remote::open(at, &secret()).unwrap();
        assert!(until(&mut store, &mut both, |both| {
            both[1].send(&name, b"gone").is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
        }));
    }

    #[test]
    fn an_entry_goes_with_its_process_and_another_secret_finds_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut store = Some(Store::new(listener, &secret()).unwrap());
        let other = Secret::from_text("seventeen letters").unwrap();
        let mut both = [Remote::open(at, &secret()).unwrap(), Remote::open(at, &other).unwrap()];
        both[0].put(([5; 16], 1));
        both[1].put(([6; 16], 1));
        assert!(until(&mut store, &mut both, |both| both[1].dialled.is_some() && both[1].store.is_none()));
        let told = both[1].remarks.take();
        let says = told.len() == 1 && told[0].starts_with(&format!("the store at {at}: "));
        assert!(says && told[0].ends_with("; new connections are unprotected"), "{told:?}");
        assert_eq!(both[0].remarks.take(), [""; 0]);
        let store_knows = |store: &Option<Store>| store.as_ref().map(Store::len);
        let mut known = None;
        let end = Instant::now() + Duration::from_secs(20);
        while known != Some(1) && Instant::now() < end {
            until(&mut store, &mut both, |_| true);
            known = store_knows(&store);
        }
        assert_eq!(known, Some(1), "only what has the secret");
        both[0] = Remote::open(at, &secret()).unwrap();
        while known != Some(0) && Instant::now() < end {
            until(&mut store, &mut both, |_| true);
            known = store_knows(&store);
        }
        assert_eq!(known, Some(0), "its process is gone");
    }
}
