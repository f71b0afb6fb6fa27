//! The link to other processes: datagrams between the sockets of the directory, which arrive in order while both live.

use shunt_bootstrap::Oob;
use shunt_verbs_directory::Directory;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where processes find each other's queue pairs, and talk: the directory, or a simulator's. As [`Directory`] has it.
pub trait MeetingPlace: Send + Sync {
    /// Whether new connections can be found there; none while it is not known yet.
    fn is_open(&self) -> Option<bool>;
    /// The name by which others reach this process.
    fn name(&self) -> &str;
    /// A queue pair is this process's.
    ///
    /// # Errors
    /// As the system answers.
    fn put(&self, gid: &[u8; 16], qpn: u32) -> io::Result<()>;
    /// It is gone.
    fn remove(&self, gid: &[u8; 16], qpn: u32);
    /// Name of a queue pair's process, if that is known by now.
    fn get(&self, gid: &[u8; 16], qpn: u32) -> Option<String>;
    /// Sends to a process by its name.
    ///
    /// # Errors
    /// `WouldBlock` if it is not taken now; any other: nobody is there.
    fn send(&self, to: &str, bytes: &[u8]) -> io::Result<()>;
    /// The next message: name of the sender, and bytes.
    fn receive(&self) -> Option<(String, Vec<u8>)>;
    /// What was met that is not used, and was not told yet.
    fn remarks(&self) -> Vec<String>;
    /// Whether [`MeetingPlace::wait`] ends by itself for all that is to be done here.
    fn tells(&self) -> bool;
    /// Waits until a message is there, or another descriptor is ready, so many milliseconds at most.
    fn wait(&self, others: Vec<RawFd>, milliseconds: i32);
}

impl MeetingPlace for Directory {
    fn is_open(&self) -> Option<bool> {
        self.is_open()
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn put(&self, gid: &[u8; 16], qpn: u32) -> io::Result<()> {
        self.put(gid, qpn)
    }

    fn remove(&self, gid: &[u8; 16], qpn: u32) {
        self.remove(gid, qpn);
    }

    fn get(&self, gid: &[u8; 16], qpn: u32) -> Option<String> {
        self.get(gid, qpn)
    }

    fn send(&self, to: &str, bytes: &[u8]) -> io::Result<()> {
        self.send(to, bytes)
    }

    fn receive(&self) -> Option<(String, Vec<u8>)> {
        self.receive()
    }

    fn remarks(&self) -> Vec<String> {
        self.remarks()
    }

    fn tells(&self) -> bool {
        self.tells()
    }

    fn wait(&self, others: Vec<RawFd>, milliseconds: i32) {
        self.wait(others.into_iter(), milliseconds);
    }
}

/// Messages that wait for a peer's full socket, and their bytes; a peer that lets so many wait is gone for us.
const WAITING_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 64 << 20;

/// A process that was met.
struct Peer {
    name: String,
    /// What its socket did not take yet.
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    gone: bool,
}

impl Peer {
    fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX && self.bytes < BYTES_MAX
    }
}

/// The sockets by the numbers that the engine has for processes. Number 0 is this one.
pub struct Post {
    /// This process.
    pub directory: Box<dyn MeetingPlace>,
    peers: Mutex<Vec<Peer>>,
}

impl Post {
    /// With nobody met.
    pub fn new(directory: Box<dyn MeetingPlace>) -> Self {
        let own = Peer { name: directory.name().to_owned(), waiting: VecDeque::new(), bytes: 0, gone: false };
        Self { directory, peers: Mutex::new(vec![own]) }
    }

    fn peers(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a socket's process, if it was met and is not gone. This one has another number as a peer of
    /// itself, once it was met.
    pub fn number(&self, name: &str) -> Option<u32> {
        let is = |peer: &Peer| peer.name == name && !peer.gone;
        let at = self.peers().iter().skip(1).position(is)? + 1;
        u32::try_from(at).ok()
    }

    /// A process is met: it has the next number.
    pub fn meet(&self, name: &str) {
        self.peers().push(Peer { name: name.to_owned(), waiting: VecDeque::new(), bytes: 0, gone: false });
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
                Ok(()) => {
                    peer.bytes -= bytes.len();
                    peer.waiting.pop_front();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && peer.has_room() => {
                    return;
                }
                Err(_) => {
                    peer.gone = true;
                    peer.waiting.clear();
                    peer.bytes = 0;
                }
            }
        }
    }

    /// Sends to a process.
    pub fn send(&self, number: u32, bytes: Vec<u8>) {
        if let Some(peer) = self.peers().get_mut(number as usize).filter(|peer| !peer.gone) {
            peer.bytes += bytes.len();
            peer.waiting.push_back(bytes);
            self.deliver(peer);
        }
    }

    /// True if a process that was met takes nothing more.
    pub fn is_gone(&self, number: u32) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_bootstrap::tcp::Secret;
    use shunt_verbs_directory::lines::Lines;
    use shunt_verbs_directory::served::Served;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    /// A place where nothing is taken.
    struct Full;

    impl MeetingPlace for Full {
        fn is_open(&self) -> Option<bool> {
            None
        }

        fn name(&self) -> &str {
            "own"
        }

        fn put(&self, _: &[u8; 16], _: u32) -> io::Result<()> {
            Ok(())
        }

        fn remove(&self, _: &[u8; 16], _: u32) {}

        fn get(&self, _: &[u8; 16], _: u32) -> Option<String> {
            None
        }

        fn send(&self, _: &str, _: &[u8]) -> io::Result<()> {
            Err(ErrorKind::WouldBlock.into())
        }

        fn receive(&self) -> Option<(String, Vec<u8>)> {
            None
        }

        fn remarks(&self) -> Vec<String> {
            Vec::new()
        }

        fn tells(&self) -> bool {
            true
        }

        fn wait(&self, _: Vec<RawFd>, _: i32) {}
    }

    /// Tables of keys for a peer that was stopped took gigabytes: messages were counted, and not their bytes.
    #[test]
    fn what_waits_for_a_peer_is_bounded_in_bytes() {
        let post = Post::new(Box::new(Full));
        post.meet("another");
        for _ in 0..BYTES_MAX >> 20 {
            assert!(!post.is_gone(1));
            post.send(1, vec![0; 1 << 20]);
        }
        assert!(post.is_gone(1) && post.carry_on(), "nothing waits any more");
    }

    #[test]
    fn a_process_that_meets_itself_has_a_number_like_others_and_hears_what_it_says() {
        let store = TcpListener::bind("127.0.0.1:0").unwrap();
        let secret = Secret::from_text("sixteen letters!").unwrap();
        let at = store.local_addr().unwrap();
        let lines = Lines::open(at.ip(), &secret).unwrap();
        let own = lines.name().to_owned();
        let served = Served::new(at, &secret, &own);
        let post = Post::new(Box::new(Directory::remote(lines, Box::new(served))));
        assert_eq!(post.number(&own), None, "number 0 is nobody's peer");
        post.meet("another");
        post.meet(&own);
        assert_eq!((post.number("another"), post.number(&own)), (Some(1), Some(2)));
        post.send(2, b"abc".to_vec());
        let until = Instant::now() + Duration::from_secs(20);
        let came = loop {
            post.carry_on();
            if let Some(came) = post.directory.receive() {
                break came;
            }
            assert!(Instant::now() < until, "nothing came");
        };
        assert_eq!(came, (own, b"abc".to_vec()));
    }
}
