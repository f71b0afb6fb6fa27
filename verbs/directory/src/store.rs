//! The store: where processes of several machines find each other's queue pairs. Once two have, it is not asked any
//! more. It keeps nothing: an entry goes with the connection of the process that made it.

use super::secret;
use super::store_words::{End, Said, decode, encode};
use shunt_bootstrap::tcp::Secret;
use shunt_bootstrap::tcp::pipe::{Pipe, Realm};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;

/// Name of the store's connections.
pub const REALM: &str = "verbs store";

/// The store.
pub struct Store {
    listener: TcpListener,
    realm: Realm,
    next: u64,
    clients: HashMap<u64, Pipe>,
    /// Whose each is: the client that said so, and the name of its process.
    entries: HashMap<End, (u64, String)>,
}

impl Store {
    /// One that listens.
    ///
    /// # Errors
    /// As the system answers.
    pub fn new(listener: TcpListener, secret: &Secret) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (clients, entries) = (HashMap::new(), HashMap::new());
        Ok(Self { listener, realm: Realm::new(secret, REALM), next: 0, clients, entries })
    }

    /// Opens one, with the secret of this process's environment.
    ///
    /// # Errors
    /// The address is not free here; there is no secret.
    pub fn open(listen: SocketAddr) -> io::Result<Self> {
        let secret = secret::of(&listen.into())?;
        let taken = |error| {
            let text = format!("{listen}: expected an address of this machine that is free, got: {error}");
            io::Error::other(text)
        };
        Self::new(TcpListener::bind(listen).map_err(taken)?, &secret)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// As the system answers.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for something to do, so many milliseconds at most, and does it.
    pub fn carry_on(&mut self, milliseconds: i32) {
        let fds = self.clients.values().map(Pipe::fd).chain([self.listener.as_raw_fd()]);
        let mut all: Vec<libc::pollfd> =
            fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: so many entries, which are ours.
        unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, milliseconds) };
        while let Ok((stream, from)) = self.listener.accept() {
            if let Ok(pipe) = Pipe::accept(&self.realm, stream, from) {
                self.clients.insert(self.next, pipe);
                self.next += 1;
            }
        }
        for (number, pipe) in &mut self.clients {
            for bytes in pipe.carry_on() {
                if let Some(answer) = decode(&bytes).and_then(|said| hear(&mut self.entries, *number, said)) {
                    pipe.send(encode(&answer));
                }
            }
            pipe.carry_on();
        }
        let entries = &mut self.entries;
        self.clients.retain(|number, pipe| {
            let stays = pipe.over().is_none();
            if !stays {
                entries.retain(|_, (owner, _)| owner != number);
            }
            stays
        });
    }

    /// Queue pairs that are known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// A client says something; the answer.
fn hear(entries: &mut HashMap<End, (u64, String)>, from: u64, said: Said) -> Option<Said> {
    match said {
        Said::Put(end, name) => _ = entries.insert(end, (from, name)),
        Said::Remove(end) => {
            if entries.get(&end).is_some_and(|(owner, _)| *owner == from) {
                entries.remove(&end);
            }
        }
        Said::Get(end) => {
            let name = entries.get(&end).map(|(_, name)| name.clone()).unwrap_or_default();
            return Some(Said::Is(end, name));
        }
        Said::Hello | Said::Is(..) => {}
    }
    None
}
