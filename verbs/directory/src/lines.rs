//! Connections between processes, by the addresses at which they listen. Nothing here waits.

use super::remarks::Remarks;
use shunt_bootstrap::tcp::Secret;
use shunt_bootstrap::tcp::pipe::{Pipe, Realm};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};

/// Bytes that may wait for one process.
const PENDING: usize = 1 << 20;

/// A connection to another process.
struct Line {
    pipe: Pipe,
    /// Whose it is: of one that was accepted, once that was said.
    name: Option<String>,
}

/// All of a process.
pub struct Lines {
    /// Where it listens: its name.
    name: String,
    listener: TcpListener,
    realm: Realm,
    /// By a number that is not used again.
    lines: HashMap<u64, Line>,
    next: u64,
    /// The line on which everything goes to a process, so that it stays in order.
    to: HashMap<String, u64>,
    arrived: VecDeque<(String, Vec<u8>)>,
}

impl Lines {
    /// Listens at an address of this machine.
    ///
    /// # Errors
    /// As the system answers.
    pub fn open(ip: IpAddr, secret: &Secret) -> io::Result<Self> {
        let listener = TcpListener::bind((ip, 0))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            name: listener.local_addr()?.to_string(),
            listener,
            realm: Realm::new(secret, "verbs processes"),
            lines: HashMap::new(),
            next: 0,
            to: HashMap::new(),
            arrived: VecDeque::new(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Descriptors that become ready when something comes. One whose other end has closed is ready for ever.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        let open = self.lines.values().filter(|line| line.pipe.over().is_none());
        open.map(|line| line.pipe.fd()).chain([self.listener.as_raw_fd()])
    }

    /// They do for all that is to be done next.
    pub fn tells(&self) -> bool {
        self.lines.values().all(|line| line.pipe.tells()) && self.arrived.is_empty()
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
                let mut pipe = Pipe::dial(&self.realm, address)?;
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

    /// The next message that has come: name of the sender, and bytes.
    pub fn take(&mut self) -> Option<(String, Vec<u8>)> {
        self.arrived.pop_front()
    }

    /// Takes what has come.
    pub fn carry_on(&mut self, remarks: &Remarks) {
        while let Ok((stream, from)) = self.listener.accept() {
            if let Ok(pipe) = Pipe::accept(&self.realm, stream, from) {
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
                remarks.add(format!("{name}: {why}; it is not heard"));
            }
        }
        self.lines.retain(|number, line| line.pipe.over().is_none() || used.contains(number));
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
}
