//! The place that `shunt store serve` keeps, over one connection.

use super::book::{Book, not_there};
use super::remarks::Remarks;
use super::store::REALM;
use super::store_words::{End, Said, decode, encode};
use shunt_bootstrap::tcp::Secret;
use shunt_bootstrap::tcp::pipe::{Pipe, Realm};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Pause between two attempts to reach a store that is not there.
const REDIAL: Duration = Duration::from_secs(1);

/// The connection.
pub struct Served {
    /// Name of this process.
    name: String,
    realm: Realm,
    at: SocketAddr,
    store: Option<Pipe>,
    dialled: Option<Instant>,
    own: BTreeSet<End>,
    /// It has answered, or failed, since it was dialled last.
    known: Option<bool>,
}

impl Served {
    /// One that is not dialled yet.
    pub fn new(at: SocketAddr, secret: &Secret, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            realm: Realm::new(secret, REALM),
            at,
            store: None,
            dialled: None,
            own: BTreeSet::new(),
            known: None,
        }
    }

    fn tell(&mut self, said: &Said) {
        if let Some(store) = &mut self.store {
            store.send(encode(said));
        }
    }

    fn dial(&mut self) {
        self.dialled = Some(Instant::now());
        self.store = Pipe::dial(&self.realm, self.at).ok();
        self.tell(&Said::Hello);
        for end in self.own.clone() {
            self.tell(&Said::Put(end, self.name.clone()));
        }
        // The answer, whatever it is, says that the store is there and has this secret.
        self.tell(&Said::Get(([0; 16], 0)));
    }
}

impl Book for Served {
    fn put(&mut self, end: End) {
        self.own.insert(end);
        self.tell(&Said::Put(end, self.name.clone()));
    }

    fn remove(&mut self, end: End) {
        if self.own.remove(&end) {
            self.tell(&Said::Remove(end));
        }
    }

    fn ask(&mut self, end: End) -> bool {
        self.tell(&Said::Get(end));
        self.store.is_some()
    }

    fn carry_on(&mut self, remarks: &Remarks) -> Vec<(End, String)> {
        if let Some(why) = self.store.as_ref().and_then(Pipe::over) {
            remarks.add(not_there(&self.at, &why));
            self.store = None;
            self.known = Some(false);
        }
        if self.store.is_none() && self.dialled.is_none_or(|at| at.elapsed() > REDIAL) {
            self.dial();
        }
        let messages = self.store.as_mut().map(Pipe::carry_on).unwrap_or_default();
        let mut found = Vec::new();
        for message in messages {
            if let Some(Said::Is(end, name)) = decode(&message) {
                self.known = Some(true);
                found.extend((!name.is_empty()).then_some((end, name)));
            }
        }
        found
    }

    fn fds(&self) -> Vec<RawFd> {
        self.store.as_ref().map(Pipe::fd).into_iter().collect()
    }

    /// One that is not there is dialled again at the next look.
    fn tells(&self) -> bool {
        self.store.as_ref().is_none_or(Pipe::tells)
    }

    fn is_open(&self) -> Option<bool> {
        self.known
    }
}
