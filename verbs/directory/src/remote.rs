//! How processes of several machines find each other's queue pairs, and talk: a store that is asked once for each
//! connection, and connections between the processes themselves. Nothing here waits.

use super::book::Book;
use super::lines::Lines;
use super::remarks::Remarks;
use super::store_words::End;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Pause between two questions for one queue pair.
const AGAIN: Duration = Duration::from_millis(50);

/// What was asked for a queue pair.
enum Asked {
    /// There is no answer yet, or it was that nobody has it: since when.
    At(Instant),
    /// The name of its process.
    Is(String),
}

/// The address of this machine from which another is reached.
///
/// # Errors
/// As the system answers.
pub fn own_address(to: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let probe = UdpSocket::bind(any)?;
    // Nothing is sent: the system only says from where it would be.
    probe.connect(to)?;
    Ok(probe.local_addr()?.ip())
}

/// This process between machines.
pub struct Remote {
    lines: Lines,
    book: Box<dyn Book>,
    asked: HashMap<End, Asked>,
    /// What was met that is not used.
    pub remarks: Remarks,
}

impl Remote {
    /// With connections of its own, and a place where queue pairs are found. One that is not there may come.
    pub fn new(lines: Lines, book: Box<dyn Book>) -> Self {
        Self { lines, book, asked: HashMap::new(), remarks: Remarks::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.lines.name()
    }

    /// Descriptors that become ready when something comes.
    pub fn fds(&self) -> Vec<RawFd> {
        self.lines.fds().chain(self.book.fds()).collect()
    }

    /// They do for all that is to be done next.
    pub fn tells(&self) -> bool {
        self.lines.tells() && self.book.tells()
    }

    /// A queue pair is this process's.
    pub fn put(&mut self, end: End) {
        self.book.put(end);
    }

    /// It is gone.
    pub fn remove(&mut self, end: End) {
        self.book.remove(end);
    }

    /// The name of a queue pair's process, once the store has said it.
    pub fn get(&mut self, end: End) -> Option<String> {
        match self.asked.get(&end) {
            Some(Asked::Is(name)) => return Some(name.clone()),
            Some(Asked::At(since)) if since.elapsed() < AGAIN => return None,
            _ => {}
        }
        if self.book.ask(end) {
            self.asked.insert(end, Asked::At(Instant::now()));
        }
        None
    }

    /// Sends to a process.
    ///
    /// # Errors
    /// `WouldBlock` if it is not taken now; any other: nobody is there.
    pub fn send(&mut self, to: &str, bytes: &[u8]) -> io::Result<()> {
        self.lines.send(to, bytes)
    }

    /// The next message: name of the sender, and bytes.
    pub fn receive(&mut self) -> Option<(String, Vec<u8>)> {
        let first = self.lines.take();
        if first.is_some() {
            return first;
        }
        self.carry_on();
        self.lines.take()
    }

    /// Whether the store is there; none while that is not known yet.
    pub fn is_open(&self) -> Option<bool> {
        self.book.is_open()
    }

    pub(crate) fn carry_on(&mut self) {
        self.lines.carry_on(&self.remarks);
        for (end, name) in self.book.carry_on(&self.remarks) {
            self.asked.insert(end, Asked::Is(name));
        }
    }
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
