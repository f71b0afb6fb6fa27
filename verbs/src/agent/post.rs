//! The link to other processes: datagrams between the sockets of the directory, which arrive in order while both live.

use crate::directory::Directory;
use shunt_bootstrap::Oob;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Messages that wait for a peer's full socket; a peer that lets so many wait is gone for us.
const WAITING_MAX: usize = 1 << 16;

/// A process that was met.
struct Peer {
    name: String,
    /// What its socket did not take yet.
    waiting: VecDeque<Vec<u8>>,
    gone: bool,
}

/// The sockets by the numbers that the engine has for processes. Number 0 is this one.
pub struct Post {
    /// This process.
    pub directory: Directory,
    peers: Mutex<Vec<Peer>>,
}

impl Post {
    /// With nobody met.
    pub fn new(directory: Directory) -> Self {
        let own = Peer { name: directory.name().to_owned(), waiting: VecDeque::new(), gone: false };
        Self { directory, peers: Mutex::new(vec![own]) }
    }

    fn peers(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a socket's process, if it was met and is not gone.
    pub fn number(&self, name: &str) -> Option<u32> {
        let at = self.peers().iter().position(|peer| peer.name == name && !peer.gone)?;
        u32::try_from(at).ok()
    }

    /// Names of all that were met, gone or not, by number.
    pub fn name(&self, number: u32) -> Option<String> {
        self.peers().get(number as usize).map(|peer| peer.name.clone())
    }

    /// A process is met: it has the next number.
    pub fn meet(&self, name: &str) {
        self.peers().push(Peer { name: name.to_owned(), waiting: VecDeque::new(), gone: false });
    }

    /// Sends what waits. True if nothing does any more.
    pub fn carry_on(&self) -> bool {
        let mut peers = self.peers();
        peers.iter_mut().for_each(|peer| self.deliver(peer));
        peers.iter().all(|peer| peer.waiting.is_empty())
    }

    fn deliver(&self, peer: &mut Peer) {
        while let Some(bytes) = peer.waiting.front() {
            match self.directory.send(&peer.name, bytes) {
                Ok(()) => _ = peer.waiting.pop_front(),
                Err(error) if error.kind() == ErrorKind::WouldBlock && peer.waiting.len() < WAITING_MAX => {
                    return;
                }
                Err(_) => {
                    peer.gone = true;
                    peer.waiting.clear();
                }
            }
        }
    }

    /// Sends to a process.
    pub fn send(&self, number: u32, bytes: Vec<u8>) {
        if let Some(peer) = self.peers().get_mut(number as usize).filter(|peer| !peer.gone) {
            peer.waiting.push_back(bytes);
            self.deliver(peer);
        }
    }

    fn is_gone(&self, number: u32) -> bool {
        self.peers().get(number as usize).is_none_or(|peer| peer.gone)
    }
}

/// The engine's end of it. The agent itself takes what arrives.
pub struct Link(pub Arc<Post>);

impl Oob for Link {
    fn send(&self, to_pe: u32, bytes: Vec<u8>) {
        self.0.send(to_pe, bytes);
    }

    fn try_recv(&self) -> Option<(u32, Vec<u8>)> {
        None
    }

    fn reachable(&self, pe: u32) -> bool {
        !self.0.is_gone(pe)
    }
}
