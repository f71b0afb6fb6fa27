//! NICs of one machine: a Unix datagram socket for each address, in a directory of the fabric.
//!
//! Unix datagrams keep their bounds and order and are never lost: a full receiver makes the sender wait, and that
//! waiting is passed on as a pause of the queue pairs that send there. The file system says who may send. Several
//! frames travel in one datagram, because a socket holds only `net.unix.max_dgram_qlen` of those (10 by default),
//! whatever their size.
//!
//! ```text
//! 8 monotonic clock of the machine, ns | 2 length | frame | 2 length | frame ...      all big-endian
//! ```
//!
//! A network forgets a packet after a while, and fences that cannot ask the other end count on it. A process that
//! was stopped must therefore not find old frames when it goes on: what is older than the lifetime is dropped.

use super::directory;
use super::{AddressId, Uplink, UplinkCounters, UplinkError};
use crate::frame::FRAME_MAX;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::sockopt;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, mem};

/// A datagram's bytes at most.
const DATAGRAM_MAX: usize = 60 << 10;
/// Bytes of a datagram's time.
const STAMP_BYTES: usize = 8;
/// Bytes of a frame's length.
const LENGTH_BYTES: usize = 2;
/// How long a frame may be under way: beyond what a busy machine keeps a process waiting, and half of what the agents
/// of a job give a silent peer before they go on without its word.
const LIFETIME: Duration = Duration::from_millis(250);
/// Bytes that wait for one address before its senders are asked to pause.
const FULL: usize = 256 << 10;
/// Bytes that wait for one address at most. Queue pairs that pause stay far below; what has no window is dropped.
const OVERFLOW: usize = 64 << 20;
/// Events taken in one look.
const EVENTS: usize = 32;
/// Datagrams taken in one call.
const TAKEN: usize = 24;
/// Kernel memory for what a socket has sent and nobody read.
const SEND_BUFFER: usize = 2 << 20;
/// A blocked address is tried again in this many flushes even if no event came: there is none for want of memory.
const TRY_EVERY: u64 = 64;
/// Longest path of a socket.
const PATH_MAX: usize = 107;
/// Buffers kept for the next datagram.
const SPARE: usize = 64;
/// In an event's data: a socket frames are sent from. The rest is its number.
const SENDING: u64 = 1 << 63;

/// A socket that frames for one of our addresses come to. The file goes with it.
struct Own {
    address: u128,
    socket: UnixDatagram,
    path: PathBuf,
    /// Device and inode: what another process made in its place is not ours to remove.
    file: (u64, u64),
}

impl Drop for Own {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            // If it stays, the next process takes it over as stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Another address, and what waits for it.
struct Peer {
    path: PathBuf,
    /// Connected while somebody is there.
    socket: Option<UnixDatagram>,
    /// Whole datagrams with their numbers of frames; the one being filled is not among them.
    waiting: VecDeque<(Vec<u8>, u32)>,
    filling: Vec<u8>,
    frames: u32,
    /// Bytes in `waiting` and `filling`.
    bytes: usize,
    /// The other side is full; an event tells when it no longer is.
    blocked: bool,
    /// In `dirty`.
    listed: bool,
}

/// An uplink to other processes of this user on this machine.
pub struct UnixUplink {
    fabric: String,
    directory: PathBuf,
    epoll: OwnedFd,
    own: Vec<Own>,
    peers: Vec<Peer>,
    numbers: HashMap<u128, AddressId>,
    /// Peers with something to send.
    dirty: Vec<u32>,
    /// Own sockets that may have something, by number.
    ready: VecDeque<u32>,
    buffer: Box<[u8]>,
    spare: Vec<Vec<u8>>,
    turns: u64,
    flushes: u64,
    lifetime_ns: u64,
    counters: UplinkCounters,
}

impl UnixUplink {
    /// Opens sockets for the addresses of this process in a fabric of this user.
    pub fn open(fabric: &str, gids: &[[u8; 16]]) -> Result<Self, UplinkError> {
        Self::open_in(&directory::runtime_directory(), fabric, gids)
    }

    /// The same, in a runtime directory of the caller's choice.
    pub fn open_in(runtime: &Path, fabric: &str, gids: &[[u8; 16]]) -> Result<Self, UplinkError> {
        let directory = directory::fabric_directory(runtime, fabric)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|errno| UplinkError::io("cannot make an epoll for", &directory)(errno.into()))?;
        let mut uplink = Self {
            fabric: fabric.into(),
            directory,
            epoll,
            own: Vec::new(),
            peers: Vec::new(),
            numbers: HashMap::new(),
            dirty: Vec::new(),
            ready: VecDeque::new(),
            buffer: vec![0; DATAGRAM_MAX + 1].into(),
            spare: Vec::new(),
            turns: 0,
            flushes: 0,
            lifetime_ns: LIFETIME.as_nanos() as u64,
            counters: UplinkCounters::default(),
        };
        gids.iter().try_for_each(|gid| uplink.own(u128::from_be_bytes(*gid), 0))?;
        Ok(uplink)
    }

    /// Drops frames that were under way for longer; 250 ms unless told otherwise. A job whose fences wait for the
    /// packet lifetime instead of asking the other end sets no more than that lifetime here.
    pub fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime_ns = u64::try_from(lifetime.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Where the socket of an address lies.
    fn path_of(&self, address: u128) -> PathBuf {
        self.directory.join(format!("{address:032x}.sock"))
    }

    /// Makes the socket of an address, in the place of one whose process is gone.
    fn bind(&self, address: u128, path: &Path) -> Result<UnixDatagram, UplinkError> {
        let _lock = directory::lock(&self.directory)?;
        match UnixDatagram::bind(path) {
            Err(cause) if cause.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound.map_err(UplinkError::io("cannot make the socket", path)),
        }
        let probe = UnixDatagram::unbound().map_err(UplinkError::io("cannot make a socket to try", path))?;
        match probe.connect(path) {
            Ok(()) => return Err(UplinkError::Taken { address, fabric: self.fabric.clone() }),
            Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(cause) => return Err(UplinkError::io("cannot try the socket", path)(cause)),
        }
        fs::remove_file(path).map_err(UplinkError::io("cannot remove the stale socket", path))?;
        UnixDatagram::bind(path).map_err(UplinkError::io("cannot make the socket", path))
    }

    fn watch(&self, socket: &UnixDatagram, data: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(data), flags)?)
    }

    /// Takes in what the sockets have to say. Never waits.
    fn look(&mut self) {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, Some(&at_once)) else {
            return; // Interrupted: the next look sees it.
        };
        for event in events {
            let data = event.data.u64();
            if data & SENDING == 0 {
                self.ready.push_back(data as u32);
            } else if let Some(peer) = self.peers.get_mut((data & !SENDING) as usize) {
                peer.blocked = false;
            }
        }
    }

    /// Takes one datagram from an own socket. False if there is none.
    fn take_one(&mut self, at: usize, take: &mut dyn FnMut(&[u8])) -> bool {
        let Some(own) = self.own.get(at) else { return false };
        let Ok(bytes) = own.socket.recv(&mut self.buffer) else { return false };
        self.counters.datagrams_rx += 1;
        let Some((stamp, mut rest)) = self.buffer[..bytes].split_first_chunk::<STAMP_BYTES>() else {
            self.counters.malformed += 1;
            return true;
        };
        let fresh = now_ns().saturating_sub(u64::from_be_bytes(*stamp)) <= self.lifetime_ns;
        while let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() {
            let Some((frame, behind)) = behind.split_at_checked(u16::from_be_bytes(*length) as usize) else {
                break;
            };
            rest = behind;
            if fresh {
                self.counters.frames_rx += 1;
                take(frame);
            } else {
                self.counters.expired += 1;
            }
        }
        self.counters.malformed += !rest.is_empty() as u64;
        true
    }

    /// Hands over what waits for a peer. True if something still does.
    fn flush_one(&mut self, at: u32) -> bool {
        let peer = &mut self.peers[at as usize];
        if !peer.filling.is_empty() {
            let next = self.spare.pop().unwrap_or_default();
            let datagram = mem::replace(&mut peer.filling, next);
            peer.waiting.push_back((datagram, mem::take(&mut peer.frames)));
        }
        if self.peers[at as usize].socket.is_none() && !self.connect(at) {
            self.vanish(at);
            return false;
        }
        let peer = &mut self.peers[at as usize];
        let was_full = peer.bytes > FULL;
        let mut gone = false;
        while let (Some((datagram, frames)), Some(socket)) = (peer.waiting.front(), &peer.socket) {
            match socket.send(datagram) {
                Ok(_) => {
                    self.counters.datagrams_tx += 1;
                    self.counters.frames_tx += *frames as u64;
                    let Some((mut datagram, _)) = peer.waiting.pop_front() else { break };
                    peer.bytes -= datagram.len();
                    if self.spare.len() < SPARE {
                        datagram.clear();
                        self.spare.push(datagram);
                    }
                }
                Err(cause) if is_full(&cause) => {
                    let (data, room) = (SENDING | at as u64, EventFlags::OUT | EventFlags::ONESHOT);
                    peer.blocked = epoll::modify(&self.epoll, socket, EventData::new_u64(data), room).is_ok();
                    break;
                }
                Err(_) => {
                    gone = true;
                    break;
                }
            }
        }
        self.turns += (was_full && peer.bytes <= FULL) as u64;
        if gone {
            self.vanish(at);
        }
        !self.peers[at as usize].waiting.is_empty()
    }

    /// Looks for somebody at an address. False if nobody is there.
    fn connect(&mut self, at: u32) -> bool {
        let Ok(socket) = UnixDatagram::unbound() else { return false };
        let peer = &self.peers[at as usize];
        if socket.connect(&peer.path).is_err() || socket.set_nonblocking(true).is_err() {
            return false;
        }
        // Smaller is slower, not wrong.
        let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER);
        if self.watch(&socket, SENDING | at as u64, EventFlags::ONESHOT).is_err() {
            return false;
        }
        self.peers[at as usize].socket = Some(socket);
        true
    }

    /// Nobody is there: what was meant for them goes nowhere, as on a wire.
    fn vanish(&mut self, at: u32) {
        let peer = &mut self.peers[at as usize];
        let frames = peer.waiting.drain(..).map(|(_, frames)| frames as u64).sum::<u64>();
        self.counters.vanished += frames;
        self.turns += (peer.bytes > FULL) as u64;
        peer.bytes = 0;
        peer.socket = None;
        peer.blocked = false;
    }
}

impl Uplink for UnixUplink {
    fn own(&mut self, address: u128, _mac: u64) -> Result<(), UplinkError> {
        if self.own.iter().any(|own| own.address == address) {
            return Ok(());
        }
        let path = self.path_of(address);
        if path.as_os_str().len() > PATH_MAX {
            return Err(UplinkError::PathTooLong(path));
        }
        let socket = self.bind(address, &path)?;
        let found = fs::symlink_metadata(&path).map_err(UplinkError::io("cannot look at", &path))?;
        let own = Own { address, socket, file: (found.dev(), found.ino()), path };
        let watched = own
            .socket
            .set_nonblocking(true)
            .and_then(|()| self.watch(&own.socket, self.own.len() as u64, EventFlags::IN));
        watched.map_err(UplinkError::io("cannot watch", &own.path))?;
        self.own.push(own);
        if self.own.len() == 1 {
            directory::sweep(&self.directory);
        }
        Ok(())
    }

    fn address(&mut self, address: u128) -> AddressId {
        if let Some(known) = self.numbers.get(&address) {
            return *known;
        }
        let id = AddressId(self.peers.len() as u32);
        self.numbers.insert(address, id);
        self.peers.push(Peer {
            path: self.path_of(address),
            socket: None,
            waiting: VecDeque::new(),
            filling: Vec::new(),
            frames: 0,
            bytes: 0,
            blocked: false,
            listed: false,
        });
        id
    }

    fn send(&mut self, to: AddressId, write: &mut dyn FnMut(&mut Vec<u8>)) {
        let Some(peer) = self.peers.get_mut(to.0 as usize) else { return };
        if peer.bytes > OVERFLOW {
            self.counters.overflowed += 1;
            return;
        }
        if peer.filling.len() + LENGTH_BYTES + FRAME_MAX > DATAGRAM_MAX {
            let next = self.spare.pop().unwrap_or_default();
            let datagram = mem::replace(&mut peer.filling, next);
            peer.waiting.push_back((datagram, mem::take(&mut peer.frames)));
        }
        if peer.filling.is_empty() {
            peer.filling.extend_from_slice(&now_ns().to_be_bytes());
            peer.bytes += STAMP_BYTES;
        }
        let start = peer.filling.len();
        peer.filling.extend_from_slice(&[0; LENGTH_BYTES]);
        write(&mut peer.filling);
        let length = peer.filling.len() - start - LENGTH_BYTES;
        peer.filling[start..start + LENGTH_BYTES].copy_from_slice(&(length as u16).to_be_bytes());
        peer.frames += 1;
        self.turns += (peer.bytes <= FULL && peer.bytes + length + LENGTH_BYTES > FULL) as u64;
        peer.bytes += length + LENGTH_BYTES;
        if !peer.listed {
            peer.listed = true;
            self.dirty.push(to.0);
        }
    }

    fn flush(&mut self) {
        self.flushes += 1;
        let again = self.flushes.is_multiple_of(TRY_EVERY);
        let mut dirty = mem::take(&mut self.dirty);
        dirty.retain(|&at| {
            let waits = (self.peers[at as usize].blocked && !again) || self.flush_one(at);
            self.peers[at as usize].listed = waits;
            waits
        });
        self.dirty = dirty;
    }

    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> bool {
        if self.ready.is_empty() {
            self.look();
        }
        let mut any = false;
        for _ in 0..TAKEN {
            let Some(at) = self.ready.pop_front() else { break };
            if self.take_one(at as usize, take) {
                any = true;
                self.ready.push_back(at);
            }
        }
        any
    }

    fn is_full(&self, to: AddressId) -> bool {
        self.peers.get(to.0 as usize).is_some_and(|peer| peer.bytes > FULL)
    }

    fn turns(&self) -> u64 {
        self.turns
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn counters(&self) -> UplinkCounters {
        self.counters
    }
}

/// The clock that all processes of a machine share.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// True if a send failed for want of room, not of somebody to send to.
fn is_full(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::OutOfMemory
    ) || cause.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}
