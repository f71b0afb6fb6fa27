//! Nodes that connect to each other one by one, at any time.
//!
//! Each listens at an address of its own. A process with the same secret that dials it becomes a peer, and both get a
//! number for each other. A process that ends, or that another one cuts off, has left. When it starts again it is
//! another peer.

use crate::asker::{Asker, refused};
use crate::connect::{give_up, open};
use crate::cuts::{Cuts, Why};
use crate::error::{CallError, NoNode};
use crate::mesh::{Hello, Id, Mesh, MeshHost, MeshParts, Order};
use crate::node::{Change, Known, Node, NodeId, Others};
use crate::place::Place;
use crate::thread::{Ready, begin};
use shunt::host::connect::tcp::{RootAddress, Secret};
use shunt::host::job::{JobError, secret_source};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use std::net::{SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// The resolver is given so long.
const RESOLVER: Duration = Duration::from_secs(5);
/// Pause between two looks at lanes that are being opened.
const LOOK: Duration = Duration::from_millis(1);
/// Pause before a peer that has left without a lane is dialled again.
const AGAIN: Duration = Duration::from_millis(50);
/// The mesh's thread takes a peer out of what calls find within so long.
const ABANDONED: Duration = Duration::from_secs(1);
/// Longer than any process lives: clocks have an end.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

/// What came of the wait for lanes to a peer.
enum Came {
    Lanes,
    /// The peer has left.
    Left,
    /// No lane over any of so many rails.
    None {
        rails: u32,
    },
}

/// The engine, as connections know it.
struct Host {
    asker: Asker,
    known: Arc<Known>,
    cuts: Cuts,
}

impl MeshHost for Host {
    fn join(&self, hello: Hello, leads: bool) -> Option<u32> {
        let joined = self.asker.ask(move |engine, _| engine.domain.join(hello.address, leads)).ok()??;
        self.known.there.lock().unwrap_or_else(PoisonError::into_inner).insert(joined.0);
        self.known.changes.put(Change::Joined(joined.0));
        Some(joined.0)
    }

    fn refused(&self, from: SocketAddr, why: &str) {
        let text = format!("{}: {why}", from.ip());
        *self.known.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    fn leave(&self, number: u32) {
        let was_there = self.known.there.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        let known = self.known.clone();
        let done = move || {
            if was_there {
                known.changes.put(Change::Left(number));
            }
        };
        let cuts = self.cuts.clone();
        self.asker.tell(move |engine, now| {
            if engine.leave(now, PeerId(number), Box::new(done)) {
                cuts.tell(number, Why::Left);
            }
        });
    }
}

fn listen(at: &SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(at)?;
    let own = listener.local_addr()?;
    Ok((listener, own))
}

impl Node {
    /// Opens a node that knows nobody, on the NICs of an end of this process. It listens at `at`, `HOST:PORT` (port 0:
    /// a free one), for others with the same secret: that of `SHUNT_SECRET` or `SHUNT_SECRET_FILE`; where neither is
    /// set and `at` is this machine's alone, that of this user.
    ///
    /// # Errors
    /// There are not as many rails, a NIC refuses, the address cannot be used, or there is no secret.
    pub fn open(place: &Arc<Place>, end: u32, rails: u32, at: &str) -> Result<Self, NoNode> {
        let root: RootAddress = at.parse().map_err(JobError::Root)?;
        let lookup = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let secret =
            secret_source(&root, &lookup)?.load().map_err(|error| NoNode::Refused(error.to_string()))?;
        Self::open_with(place, end, rails, at, secret)
    }

    /// As [`Node::open`], with this secret: that of all others.
    ///
    /// # Errors
    /// A NIC refuses, or the address cannot be used.
    pub fn open_with(
        place: &Arc<Place>,
        end: u32,
        rails: u32,
        at: &str,
        secret: Secret,
    ) -> Result<Self, NoNode> {
        let root: RootAddress = at.parse().map_err(JobError::Root)?;
        let refused = |error: std::io::Error| NoNode::Refused(format!("{at}: {error}"));
        let found = root.resolve(RESOLVER)?;
        let (listener, listens_at) = listen(&found[0]).map_err(refused)?;
        let (mut mesh, link, idle) = Mesh::prepare().map_err(refused)?;
        let (id, draw): (Id, Id) = (Mesh::draw(), Mesh::draw());
        let nics = place.nics.clone();
        let begun = begin(end, move || open((&nics, end), rails, draw, Box::new(link)));
        let Ready { told: address, asker, inbox, cuts, thread } = begun.ready()?;
        let known = Arc::new(Known::default());
        let host = Host { asker: asker.clone(), known: known.clone(), cuts: cuts.clone() };
        let me = Hello { id, relation: None, meant: None, at: listens_at, address };
        let give_up = Duration::from_nanos(give_up(&place.nics).get());
        mesh.start(idle, MeshParts { listener, secret, me, give_up }, Box::new(host)).map_err(refused)?;
        let others = Others::Connected { mesh, known, listens_at };
        let (id, thread, place) = (NodeId::new(), Some(thread), place.clone());
        Ok(Self { id, asker, nics_of: end, others, thread, inbox, cuts, place })
    }

    fn mesh(&self) -> Result<(&Mesh, &Known, SocketAddr), CallError> {
        match &self.others {
            Others::Connected { mesh, known, listens_at } => Ok((mesh, known, *listens_at)),
            Others::Job { .. } => {
                let (what, want) = ("a node", "one that connects to others one by one");
                Err(TransferError::Refused { what, want, met: "an end of a job".to_owned() }.into())
            }
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// It is an end of a job.
    pub fn listens_at(&self) -> Result<SocketAddr, CallError> {
        Ok(self.mesh()?.2)
    }

    /// Meets the node that listens at `to`, `HOST:PORT`, and waits for lanes to it: all rails, or those that are open
    /// when the time is over. Answers with its number. A peer that is connected already has one. One that leaves before
    /// a lane is open, as it does where its own call gives up, is dialled again until the time is over.
    ///
    /// # Errors
    /// It does not answer in time, or no lane opens. At once: it has another secret, another version or another number
    /// of rails, it is this node itself, or this node has cut it off meanwhile. A peer that joined during this call has
    /// left again then, unless another call waits for it or had a lane.
    pub fn connect(&self, to: &str, patience: Duration) -> Result<u32, CallError> {
        let (mesh, _, _) = self.mesh()?;
        if self.asker.is_here() {
            return Err(refused());
        }
        if !self.asker.process().is_here() {
            return Err(CallError::Closed);
        }
        let patience = patience.min(LONGEST);
        let until = Instant::now() + patience;
        let failed = |why: String| CallError::NotConnected { at: to.to_owned(), why };
        let root = RootAddress::from_str(to).map_err(|error| failed(error.to_string()))?;
        let found = root.resolve(patience).map_err(|error| failed(error.to_string()))?;
        loop {
            let (tell, told) = channel();
            mesh.order(Order::Connect(found[0], until, tell));
            // The thread answers by then.
            let late = until.saturating_duration_since(Instant::now()) + RESOLVER;
            let number = match told.recv_timeout(late) {
                Ok(answer) => answer.map_err(failed)?,
                Err(RecvTimeoutError::Timeout) => return Err(failed("no answer in time".to_owned())),
                Err(RecvTimeoutError::Disconnected) => return Err(CallError::Closed),
            };
            match self.await_lanes(number, until)? {
                Came::Lanes => {
                    mesh.order(Order::Reached(number));
                    return Ok(number);
                }
                Came::Left if self.cuts.proof(number).is_some() => {
                    return Err(failed("this node has cut it off before a lane to it was open".to_owned()));
                }
                Came::Left if Instant::now() + AGAIN >= until => {
                    return Err(failed("it has left before a lane to it was open".to_owned()));
                }
                Came::Left => std::thread::sleep(AGAIN),
                Came::None { rails } => {
                    let (tell, told) = channel();
                    mesh.order(Order::GaveUp(number, tell));
                    // An error: the thread has ended and all peers have left, or it takes longer.
                    let _ = told.recv_timeout(ABANDONED);
                    let why = format!("expected a lane over {rails} rails within {patience:?}, got none");
                    return Err(failed(why));
                }
            }
        }
    }

    /// Waits for all lanes to a peer, or until the time is over: one is enough then.
    fn await_lanes(&self, number: u32, until: Instant) -> Result<Came, CallError> {
        loop {
            let Ok(peer) = self.peer(number) else { return Ok(Came::Left) };
            let (open, rails) =
                self.asker.ask(move |engine, _| (engine.rails_to(peer).len(), engine.policy().rails))?;
            let late = Instant::now() >= until;
            if open >= rails as usize || late && open > 0 {
                return Ok(Came::Lanes);
            }
            if late {
                return Ok(Came::None { rails });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// What has become of the others since the last call: the oldest change; `None` if there is none within this time.
    ///
    /// # Errors
    /// It is an end of a job.
    pub fn next_change(&self, patience: Duration) -> Result<Option<Change>, CallError> {
        self.mesh()?.1.changes.take(patience)
    }

    /// The last one that cannot be a peer while it lives, by its host, and why: it has another secret or version, or is
    /// no node.
    ///
    /// # Errors
    /// It is an end of a job.
    pub fn last_refused(&self) -> Result<Option<String>, CallError> {
        Ok(self.mesh()?.1.refused.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Peers that are there.
    ///
    /// # Errors
    /// It is an end of a job.
    pub fn peers(&self) -> Result<Vec<u32>, CallError> {
        let there = self.mesh()?.1.there.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(there.iter().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_a_peer_has_left_is_told_once_the_engine_has_cut_it_off_and_not_before() {
        let ((asker, _told), known) = (Asker::new(), Arc::new(Known::default()));
        known.there.lock().expect("no panic").insert(3);
        let host = Host { asker, known: known.clone(), cuts: Cuts::default() };
        host.leave(3);
        assert!(known.there.lock().expect("no panic").is_empty(), "no call finds it any more");
        let change = known.changes.take(Duration::ZERO).expect("open");
        assert_eq!(change, None, "its writes may still land");
    }
}
