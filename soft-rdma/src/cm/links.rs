//! Sockets between the connection managers of processes, in the directory of their fabric.
//!
//! A listener is a file `cm-ADDRESS-PORT.sock` for each address it listens at, so the file system is the table of
//! ports. A connection has a socket of its own, for as long as it lasts: its end is what tells that a process died.

use super::address::Name;
use super::connections::Refusal;
use super::core::{Action, Core};
use super::id::Link;
use super::message::{Message, PACKET_MAX};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, send, socket_with,
};
use shunt_soft_machine::log::Level;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Requests that wait in a socket; those that a program lets wait are counted by the core.
const SOCKET_BACKLOG: i32 = 128;
/// How often a listener that is full, or an address that is nobody's, is tried again.
const AGAIN_MS: u64 = 20;
/// How long a listener may be missing: programs close one and open the next, and the other end is quick. Two machines
/// with a network between them are not so quick as to notice.
const NO_LISTENER_MS: u64 = 1000;
/// How long the one that would answer may be missing.
const NO_PROCESS_MS: u64 = 4000;
const PREFIX: &str = "cm-";
const SUFFIX: &str = ".sock";

/// A socket that requests come to. Its file goes with it.
struct Listener {
    id: u32,
    socket: OwnedFd,
    path: PathBuf,
}

impl Drop for Listener {
    fn drop(&mut self) {
        // If it stays, it is taken over by the next that listens there.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A way to another process.
struct Way {
    socket: OwnedFd,
    /// It came to this listener, and nothing came by it yet.
    listener: Option<u32>,
}

/// The connection manager with its sockets.
pub struct Links {
    /// The connection manager.
    pub core: Core,
    directory: PathBuf,
    ways: HashMap<Link, Way>,
    listeners: Vec<Listener>,
    /// Those that nobody took yet, each with the time it was asked for.
    dials: Vec<(Link, Message, u64)>,
    wake: OwnedFd,
    start: Instant,
}

/// What the thread waits for, without the lock.
pub struct Waits {
    fds: Vec<(Option<Link>, OwnedFd)>,
    timeout: Option<Timespec>,
}

impl Links {
    /// In the directory of a fabric.
    pub fn new(core: Core, directory: &Path) -> Result<Self, Errno> {
        remove_stale(directory);
        Ok(Self {
            core,
            directory: directory.to_owned(),
            ways: HashMap::new(),
            listeners: Vec::new(),
            dials: Vec::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            start: Instant::now(),
        })
    }

    /// Milliseconds since it was made.
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Has the thread look again at what to wait for.
    pub fn wake(&self) {
        // It is awake if there is no room for more.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Removes the files of listeners: the process ends.
    pub fn leave(&mut self) {
        self.listeners.clear();
    }

    /// Does what the core wants done, until it wants nothing.
    pub fn perform(&mut self) {
        loop {
            let actions = self.core.take_actions();
            if actions.is_empty() {
                return;
            }
            actions.into_iter().for_each(|action| self.act(action));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Look { id, name, nic } => {
                let found = self.look(name, nic);
                self.core.found(id, found);
            }
            Action::Listen { id, ips, port } => {
                for ip in ips {
                    let path = self.path(ip, port);
                    match listener(&path) {
                        Ok(socket) => self.listeners.push(Listener { id, socket, path }),
                        Err(error) => {
                            shunt_soft_machine::log!(Level::Warn, "cannot listen at {ip}:{port}: {error}");
                        }
                    }
                }
            }
            Action::Unlisten { id } => self.listeners.retain(|listener| listener.id != id),
            Action::Dial(link, message, since) => self.dial(link, message, since),
            Action::Send(link, message) => {
                let Some(way) = self.ways.get(&link) else { return };
                let sent = send(&way.socket, &message.write(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                if sent.is_err() {
                    // What it said before is still to be read; then comes its end.
                    shunt_soft_machine::log!(Level::Debug, "a connection's other end is gone");
                }
            }
            Action::Close(link) => {
                self.ways.remove(&link);
                self.dials.retain(|(known, ..)| *known != link);
            }
        }
    }

    fn path(&self, ip: Ipv4Addr, port: u16) -> PathBuf {
        self.directory.join(format!("{PREFIX}{ip}-{port}{SUFFIX}"))
    }

    /// The address of the NIC that an address leads to.
    fn look(&self, name: Name, nic: usize) -> Option<Ipv4Addr> {
        if !name.is_open() {
            return self.is_alive(name.ip).then_some(name.ip);
        }
        // The one that listens at this port on this machine.
        let own = self.core.nic(nic).ip;
        let mut ips = self.listening(name.port);
        ips.sort_by_key(|ip| (ip.octets()[..2] != own.octets()[..2], *ip));
        let answers = |ip: &Ipv4Addr| reach(&self.path(*ip, name.port)).is_ok();
        ips.into_iter().find(answers)
    }

    /// Addresses that a file says somebody listens at.
    fn listening(&self, port: u16) -> Vec<Ipv4Addr> {
        let end = format!("-{port}{SUFFIX}");
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return Vec::new() };
        let ip = |entry: std::fs::DirEntry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(&end)?.parse().ok()
        };
        entries.flatten().filter_map(ip).collect()
    }

    /// True if a live process has a NIC with this address: the socket that its packets come to is there.
    fn is_alive(&self, ip: Ipv4Addr) -> bool {
        let gid = u128::from(ip.to_ipv6_mapped());
        let Ok(address) = SocketAddrUnix::new(self.directory.join(format!("{gid:032x}.sock"))) else {
            return false;
        };
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        socket.is_ok_and(|socket| connect(&socket, &address).is_ok())
    }

    fn dial(&mut self, link: Link, message: Message, since: u64) {
        let (ip, port) = message.to;
        let waited = self.now().saturating_sub(since);
        match reach(&self.path(ip, port)) {
            Ok(socket) => {
                let packet = message.write();
                if send(&socket, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_err() {
                    return self.core.refused(link, Refusal::NoListener);
                }
                self.ways.insert(link, Way { socket, listener: None });
            }
            Err(_) if waited < NO_LISTENER_MS => self.dials.push((link, message, since)),
            // A full listener is one.
            Err(error) if error != Errno::AGAIN && self.is_alive(ip) => {
                self.core.refused(link, Refusal::NoListener);
            }
            Err(_) if waited < NO_PROCESS_MS => self.dials.push((link, message, since)),
            Err(_) => self.core.refused(link, Refusal::NoProcess),
        }
    }

    /// Does what is due, and says what to wait for.
    pub fn due(&mut self) -> Result<Waits, Errno> {
        let now = self.now();
        let next = self.core.tick(now);
        for (link, message, since) in std::mem::take(&mut self.dials) {
            self.dial(link, message, since);
        }
        self.perform();
        let again = (!self.dials.is_empty()).then_some(now + AGAIN_MS);
        let until = [next, again].into_iter().flatten().min();
        let left = |until: u64| {
            let ms = until.saturating_sub(now).max(1);
            Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as i64 }
        };
        // Copies: what the program closes meanwhile must not be another file here.
        let copy = rustix::io::dup;
        let mut fds = vec![(None, copy(&self.wake)?)];
        for listener in &self.listeners {
            fds.push((None, copy(&listener.socket)?));
        }
        for (link, way) in &self.ways {
            fds.push((Some(*link), copy(&way.socket)?));
        }
        Ok(Waits { fds, timeout: until.map(left) })
    }

    /// Takes all that came.
    pub fn take(&mut self, ready: &[Option<Link>]) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        self.accept();
        ready.iter().flatten().for_each(|link| self.read(*link));
        self.perform();
    }

    fn accept(&mut self) {
        for at in 0..self.listeners.len() {
            let id = self.listeners[at].id;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            while let Ok(socket) = accept_with(&self.listeners[at].socket, flags) {
                let link = self.core.new_link();
                self.ways.insert(link, Way { socket, listener: Some(id) });
                self.read(link);
            }
        }
    }

    /// Reads what came by a link.
    fn read(&mut self, link: Link) {
        loop {
            let Some(way) = self.ways.get_mut(&link) else { return };
            let mut packet = [0; PACKET_MAX + 1];
            match recv(&way.socket, &mut packet, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => return,
                // It closed with something unread. What it said before is still there.
                Err(Errno::CONNRESET) => {}
                Ok((0, _)) | Err(_) => {
                    self.ways.remove(&link);
                    self.core.lost(link);
                    return;
                }
                Ok((bytes, _)) => match (Message::read(&packet[..bytes]), way.listener.take()) {
                    (Some(message), Some(listener)) => self.core.arrived(listener, link, message),
                    (Some(message), None) => self.core.message(link, message),
                    (None, _) => {
                        self.ways.remove(&link);
                        self.core.lost(link);
                        return;
                    }
                },
            }
            self.perform();
        }
    }
}

impl Waits {
    /// Waits, and says which links something came by.
    pub fn wait(&self) -> Vec<Option<Link>> {
        let mut fds: Vec<PollFd<'_>> =
            self.fds.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)).collect();
        // An interrupted wait is one that nothing came of.
        let _ = poll(&mut fds, self.timeout.as_ref());
        let came = |fd: &PollFd<'_>| !fd.revents().is_empty();
        self.fds.iter().zip(&fds).filter(|(_, fd)| came(fd)).map(|((link, _), _)| *link).collect()
    }
}

fn packets() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A socket that listens, under its name only once it does.
fn listener(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = packets()?;
    let unnamed = path.with_extension(std::process::id().to_string());
    // Of a process with this number that died here, if it is there at all.
    let _ = std::fs::remove_file(&unnamed);
    bind(&socket, &SocketAddrUnix::new(&unnamed)?)?;
    listen(&socket, SOCKET_BACKLOG)?;
    let named = std::fs::rename(&unnamed, path);
    named.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(socket)
}

/// Removes the files of listeners that were killed.
fn remove_stale(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        let ours = name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        if ours && reach(&path).is_err_and(|error| error == Errno::CONNREFUSED) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A way to the one that listens there.
fn reach(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = packets()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
