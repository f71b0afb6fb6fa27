//! The part of all ranks but 0: they reach the root, join, and give through it.

use super::connection::{End, Role};
use super::{Driver, Part};
use crate::tcp::error::{JoinError, Refusal};
use crate::tcp::frame::Frame;
use crate::tcp::link::Trouble;
use crate::tcp::preamble::Purpose;
use crate::tcp::state::{Give, Phase};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Before the root is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// A rank and its way to the root.
pub struct Member {
    /// The root as it was named.
    root: String,
    /// Addresses it may have.
    targets: Vec<SocketAddr>,
    next: usize,
    token: Option<usize>,
    try_at: Instant,
    /// Where to listen for the mesh; else where the root is reached from.
    listen_at: Option<IpAddr>,
    /// Bound once the root is reached, listened at once the job is known.
    listener: Option<TcpListener>,
    mesh: Option<SocketAddr>,
    /// Whom the root waits for; `None` before it has let us in.
    missing: Option<Vec<u32>>,
    started: bool,
    over: bool,
}

impl Member {
    /// Not connected yet.
    pub fn new(root: String, targets: Vec<SocketAddr>, listen_at: Option<IpAddr>) -> Self {
        Self {
            root,
            targets,
            next: 0,
            token: None,
            try_at: Instant::now(),
            listen_at,
            listener: None,
            mesh: None,
            missing: None,
            started: false,
            over: false,
        }
    }

    /// Binds the mesh's socket at the address that the root is reached from.
    fn bind(&mut self, local: IpAddr) -> std::io::Result<SocketAddr> {
        if let Some(mesh) = self.mesh {
            return Ok(mesh);
        }
        let listener = TcpListener::bind((self.listen_at.unwrap_or(local), 0))?;
        let mesh = listener.local_addr()?;
        self.listener = Some(listener);
        self.mesh = Some(mesh);
        Ok(mesh)
    }
}

impl Driver {
    fn member(&mut self) -> Option<&mut Member> {
        match &mut self.part {
            Part::Member(member) => Some(member),
            Part::Root(_) => None,
        }
    }

    /// Connects to the root when it is time.
    pub(super) fn look_for_root(&mut self, now: Instant) {
        let Some(member) = self.member() else { return };
        if member.token.is_some() || member.over {
            return;
        }
        if now < member.try_at {
            let at = member.try_at;
            return self.due_at(at);
        }
        let target = member.targets[member.next % member.targets.len()];
        member.next += 1;
        match self.connect(target, Purpose::Join, Role::Root) {
            Ok(token) => {
                if let Some(member) = self.member() {
                    member.token = Some(token);
                }
            }
            Err(end) => self.root_lost(&end),
        }
    }

    /// The socket to the root is connected: the rest is the handshake.
    pub(super) fn root_reached(&mut self, token: usize) {
        let (rank, world) = (self.local.rank, self.local.world);
        let Some(connection) = self.connections.get(&token) else { return };
        let local = connection.stream.local_addr();
        let Some(member) = self.member() else { return };
        match local.and_then(|local| member.bind(local.ip())) {
            Ok(mesh) => self.send(token, &Frame::Hello { rank, world, mesh }),
            Err(error) => {
                let what = "a socket for the other ranks cannot be bound";
                self.give_up(JoinError::System { what, detail: error.to_string() });
            }
        }
    }

    fn give_up(&mut self, error: JoinError) {
        if let Some(member) = self.member() {
            member.over = true;
        }
        self.fail(error);
    }

    /// A message of the root.
    pub(super) fn heard_root(&mut self, token: usize, frame: Frame) -> Result<(), End> {
        let reached = self.connections.get(&token).map(|one| one.remote);
        let Some(member) = self.member() else { return Ok(()) };
        let admitted = member.missing.is_some();
        match frame {
            Frame::Refused(reason) => Err(End::Trouble(Trouble::There(reason))),
            Frame::Welcome { job } if !admitted => {
                member.missing = Some(Vec::new());
                let listener = member.listener.take();
                self.local.job = Some(job);
                if let Some(Err(error)) = listener.map(|listener| self.listen(listener)) {
                    let what = "the socket for the other ranks cannot be listened at";
                    self.give_up(JoinError::System { what, detail: error.to_string() });
                }
                Ok(())
            }
            Frame::Waiting { missing } if admitted && !member.started => {
                member.missing = Some(missing.clone());
                self.shared.update(|state| state.phase = Phase::Waiting(missing));
                Ok(())
            }
            Frame::Start { mut mesh } if admitted && !member.started => {
                member.started = true;
                if let (Some(first), Some(reached)) = (mesh.first_mut(), reached) {
                    *first = reached;
                }
                if mesh.len() != self.local.world as usize {
                    return Err(Refusal::Broken("a start with too few addresses").into());
                }
                self.start(mesh);
                Ok(())
            }
            Frame::Piece { round, rank, bytes } if member.started => {
                self.deliver(rank, round, bytes);
                Ok(())
            }
            Frame::Gone { rank, why } if member.started => {
                self.shared.update(|state| state.lose(rank, why));
                Ok(())
            }
            Frame::Ping => Ok(()),
            _ => Err(Refusal::Broken("a message out of place").into()),
        }
    }

    /// The way to the root is lost, or was not found.
    pub(super) fn root_lost(&mut self, end: &End) {
        let rank = self.local.rank;
        let leaving = self.linger.is_some();
        let Some(member) = self.member() else { return };
        member.token = None;
        if member.over || leaving {
            return;
        }
        let root = member.root.clone();
        if member.started {
            member.over = true;
            let why = end.text();
            self.shared.update(|state| state.lose(0, why));
            return;
        }
        match (end, member.missing.clone()) {
            // It may be busy: see the other end's `make_room`.
            (End::Trouble(Trouble::There(Refusal::Crowded | Refusal::Slow | Refusal::Left)), None) => {}
            (End::Trouble(Trouble::There(reason)), _) => {
                return self.give_up(JoinError::Refused { root, rank, reason: reason.clone() });
            }
            (End::Trouble(Trouble::Here(reason)), _) => {
                return self.give_up(JoinError::Root { root, reason: reason.clone() });
            }
            (_, Some(missing)) => return self.give_up(JoinError::RootLeft { missing, reason: end.text() }),
            (_, None) => {}
        }
        member.try_at = Instant::now() + RETRY;
        let at = member.try_at;
        self.due_at(at);
        self.shared.update(|state| state.phase = Phase::Connecting(end.text()));
    }

    /// Gives this rank's part of an all-gather to all, or its row of an exchange to one.
    pub(super) fn give(&mut self, Give { round, to, bytes }: Give) {
        match (&self.part, to) {
            (Part::Root(_), None) => self.pass_on(0, round, &bytes),
            (Part::Root(_), Some(to)) => self.hand_on(0, round, to, bytes),
            (Part::Member(member), to) => {
                if let Some(token) = member.token {
                    self.send(
                        token,
                        &match to {
                            None => Frame::Give { round, bytes },
                            Some(to) => Frame::Row { round, to, bytes },
                        },
                    );
                }
            }
        }
    }
}
