//! NICs anywhere: RoCE v2 over UDP, a socket for each NIC, bound to the IPv4 address in its GID.
//!
//! What the kernel puts on the wire is what a ConnectX would: IPv4 with DF and identification 0, UDP to port 4791
//! without a checksum, BTH and the rest from [`wire`](crate::frame). Ethernet is the kernel's business; frames carry
//! MACs of our own making, so that a capture has some.
//!
//! UDP loses. What an uplink owes is kept as far as it goes without the other end's help:
//!
//! * Frames arrive whole or not at all; in order where the network keeps order, as loopback and a cable do.
//! * A receiver that is slow is spared: there is a window of unacknowledged packets for each destination, sized after
//!   what a socket holds and halved by a loss, and a rate if one is given. It is not safe: a process that is not run
//!   for long enough loses what its socket does not hold. The receiver counts it, go-back-N sends it again.
//! * Anybody who reaches the port may send. A frame is believed that names a queue pair, the address of its peer, a
//!   PSN that is due, and a key.
//! * There are no ghosts: what lay in the socket for longer than the lifetime is dropped, by the time at which the
//!   kernel took it in.
//! * An interface that goes down, or whose cable does, is a port that goes down: the kernel says so (`RTMGRP_LINK`).

mod instant;
mod options;
mod pace;
mod system;

use super::{AddressId, Uplink, UplinkCounters, UplinkError};
use crate::frame::{Addresses, FRAME_MAX, Outer, UDP_OUTER_BYTES, mac_of, mapped};
use crate::packet::MTU_MAX;
use instant::Nanoseconds;
use pace::Bucket;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime, timerfd_create,
    timerfd_settime,
};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use system::{Arrival, BATCH};

pub use options::RoceOptions;

/// Kernel memory of one waiting datagram with the largest payload: its buffer is the next power of two.
const DATAGRAM_COST: usize = 8704;
/// Destinations that are expected to send to one socket at the same time.
const SENDERS: usize = 4;
/// Bounds of the window, in packets.
const WINDOWS: std::ops::RangeInclusive<usize> = 16..=1024;
/// Bytes that wait for one address before its senders are asked to pause.
const FULL: usize = 256 << 10;
/// Bytes that wait for one address at most.
const OVERFLOW: usize = 64 << 20;
/// Batches taken in one call.
const TAKEN: usize = 4;
/// Events taken in one look.
const EVENTS: usize = 32;
/// Buffers kept for the next frames.
const SPARE: usize = 512;
/// A blocked socket is tried again in this many flushes even if no event came.
const TRY_EVERY: u64 = 64;
/// In an event's data: the timer, and news of interfaces. The rest is the number of a port.
const TIMER: u64 = 1 << 63;
const NEWS: u64 = 1 << 62;
/// Bytes around a payload that an interface's MTU must hold: IPv4, UDP, BTH, RETH, ImmDt, ICRC.
const AROUND: u32 = 20 + 8 + 12 + 16 + 4 + 4;
/// The MTU of an interface that does not tell.
const ETHERNET_MTU: u32 = 1500;

/// A NIC's socket, and what waits to leave it.
struct Port {
    address: Ipv4Addr,
    mac: u64,
    socket: UdpSocket,
    /// Largest payload of a packet that the interface carries.
    mtu: u32,
    /// Kernel memory that the system granted.
    granted: usize,
    waiting: VecDeque<(u32, Vec<u8>)>,
    bucket: Bucket,
    /// The socket is full; an event tells when it no longer is.
    blocked: bool,
    /// The interface has its link, as far as was told.
    link: bool,
}

/// Another address, and how much waits for it.
struct Peer {
    /// Nothing for an address that no UDP packet gets to.
    address: Option<Ipv4Addr>,
    bytes: usize,
}

/// Room for a frame: longer by one, so that what is too long shows.
type Room = [u8; FRAME_MAX + 1];

/// An uplink to NICs anywhere.
pub struct RoceUplink {
    port: u16,
    pace_gbps: Option<f64>,
    window: Option<u32>,
    receive_buffer: usize,
    lifetime_ns: u64,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// The timer runs.
    armed: bool,
    /// Where the system says that interfaces changed.
    news: OwnedFd,
    /// Links of interfaces are to be looked at.
    stirred: bool,
    ports: Vec<Port>,
    peers: Vec<Peer>,
    numbers: HashMap<u128, AddressId>,
    /// Ports that may have something, by number.
    ready: VecDeque<u32>,
    room: Box<[Room; BATCH]>,
    arrivals: Box<[Arrival; BATCH]>,
    spare: Vec<Vec<u8>>,
    turns: u64,
    flushes: u64,
    counters: UplinkCounters,
}

/// The largest path MTU whose packets an interface of this MTU carries; nothing below 256.
pub fn path_mtu(interface_mtu: u32) -> Option<u32> {
    [4096, 2048, 1024, 512, 256].into_iter().find(|mtu| mtu + AROUND <= interface_mtu)
}

/// The IPv4 address in a GID.
fn unmapped(address: u128) -> Option<Ipv4Addr> {
    Ipv6Addr::from_bits(address).to_ipv4_mapped()
}

impl RoceUplink {
    /// Opens sockets for the NICs of this process.
    pub fn open(options: RoceOptions) -> Result<Self, UplinkError> {
        if let Some(gbps) = options.pace_gbps.filter(|gbps| !(gbps.is_finite() && *gbps > 0.0)) {
            return Err(UplinkError::Rate(gbps));
        }
        let system = |what: &'static str| move |errno: rustix::io::Errno| UplinkError::System { what, errno };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system("an epoll"))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(system("a timer"))?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN).map_err(system("a watch"))?;
        let news = system::news_of_links().map_err(system("changes of interfaces"))?;
        epoll::add(&epoll, &news, EventData::new_u64(NEWS), EventFlags::IN).map_err(system("a watch"))?;
        let room: Vec<Room> = vec![[0; FRAME_MAX + 1]; BATCH];
        let mut uplink = Self {
            port: options.port,
            pace_gbps: options.pace_gbps,
            window: options.window,
            receive_buffer: options.receive_buffer,
            lifetime_ns: u64::try_from(options.lifetime.as_nanos()).unwrap_or(u64::MAX),
            epoll,
            timer,
            armed: false,
            news,
            stirred: true,
            ports: Vec::new(),
            peers: Vec::new(),
            numbers: HashMap::new(),
            ready: VecDeque::new(),
            room: room.try_into().expect("as many as were made"),
            arrivals: Box::new([Arrival::NONE; BATCH]),
            spare: Vec::new(),
            turns: 0,
            flushes: 0,
            counters: UplinkCounters::default(),
        };
        for address in options.addresses {
            uplink.bind(address)?;
        }
        Ok(uplink)
    }

    /// Kernel memory that the system granted each socket for what came and was not taken yet: asked for are
    /// [`RoceOptions::receive_buffer`] bytes, of which it gives the double, or what it allows.
    pub fn granted(&self) -> impl Iterator<Item = (Ipv4Addr, usize)> {
        self.ports.iter().map(|port| (port.address, port.granted))
    }

    /// Makes the socket of an address, if it is not there.
    fn bind(&mut self, address: Ipv4Addr) -> Result<&mut Port, UplinkError> {
        if let Some(at) = self.ports.iter().position(|port| port.address == address) {
            return Ok(&mut self.ports[at]);
        }
        let at = SocketAddrV4::new(address, self.port);
        let socket = UdpSocket::bind(at).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => UplinkError::PortTaken(at),
            io::ErrorKind::AddrNotAvailable => UplinkError::NotLocal(address),
            _ => UplinkError::Socket { what: "bind", address: at, cause },
        })?;
        let granted = system::prepare(&socket, self.receive_buffer).map_err(|cause| UplinkError::Socket {
            what: "prepare",
            address: at,
            cause,
        })?;
        let interface = system::interface_of(address);
        let interface_mtu = interface.as_ref().map_or(ETHERNET_MTU, |interface| interface.mtu);
        let mtu = path_mtu(interface_mtu).ok_or_else(|| UplinkError::InterfaceMtu {
            interface: interface.map_or_else(String::new, |interface| interface.name),
            mtu: interface_mtu,
        })?;
        let data = EventData::new_u64(self.ports.len() as u64);
        epoll::add(&self.epoll, &socket, data, EventFlags::IN)
            .map_err(|errno| UplinkError::System { what: "a watch", errno })?;
        let bucket = Bucket::new(self.pace_gbps);
        let mac = mac_of(address).iter().fold(0, |mac, byte| mac << 8 | *byte as u64);
        let waiting = VecDeque::new();
        self.ports.push(Port {
            address,
            mac,
            socket,
            mtu,
            granted,
            waiting,
            bucket,
            blocked: false,
            link: true,
        });
        self.stirred = true;
        Ok(self.ports.last_mut().expect("pushed above"))
    }

    /// Takes in what sockets and timer have to say. Never waits.
    fn look(&mut self) {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, Some(&at_once)) else {
            return; // Interrupted: the next look sees it.
        };
        for event in events {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == TIMER {
                let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                self.armed = false;
                continue;
            }
            if data == NEWS {
                system::read_news(&self.news);
                self.stirred = true;
                continue;
            }
            if flags.contains(EventFlags::IN) {
                self.ready.push_back(data as u32);
            }
            if flags.contains(EventFlags::OUT)
                && let Some(port) = self.ports.get_mut(data as usize)
            {
                let _ = epoll::modify(&self.epoll, &port.socket, event.data, EventFlags::IN);
                port.blocked = false;
            }
        }
    }

    /// Takes a batch from a port. True if there may be more.
    fn take_batch(&mut self, at: usize, take: &mut dyn FnMut(&[u8])) -> bool {
        let Some(port) = self.ports.get(at) else { return false };
        let came = system::receive(&port.socket, &mut self.room, UDP_OUTER_BYTES, &mut self.arrivals);
        let now = system::wall_ns();
        for (room, arrival) in self.room.iter_mut().zip(&self.arrivals[..came]) {
            self.counters.datagrams_rx += 1;
            if arrival.cut {
                self.counters.malformed += 1;
                continue;
            }
            if arrival.arrived_ns.is_some_and(|at| now.0.saturating_sub(at.0) > self.lifetime_ns) {
                self.counters.expired += 1;
                continue;
            }
            // The headers that the system took off, as they must have been: the checksum covers them.
            let outer = Outer::Udp { source_port: arrival.from.port(), destination_port: self.port };
            let source_mac = mac_of(*arrival.from.ip()).iter().fold(0, |mac, byte| mac << 8 | *byte as u64);
            let addresses = Addresses {
                source: mapped(*arrival.from.ip()),
                destination: mapped(port.address),
                source_mac,
                destination_mac: port.mac,
            };
            let head = outer.write(&addresses, arrival.bytes);
            room[..UDP_OUTER_BYTES].copy_from_slice(&head[..UDP_OUTER_BYTES]);
            self.counters.frames_rx += 1;
            take(&room[..UDP_OUTER_BYTES + arrival.bytes]);
        }
        came == BATCH
    }

    /// Sends what waits at a port, as far as rate and socket allow.
    fn flush_port(&mut self, at: usize) {
        let port = &mut self.ports[at];
        while !port.waiting.is_empty() {
            let mut granted = 0;
            for (_, frame) in port.waiting.iter().take(BATCH) {
                if !port.bucket.take(frame.len()) {
                    break;
                }
                granted += 1;
            }
            if granted == 0 {
                break;
            }
            let datagrams = port.waiting.iter().take(granted).map(|(to, frame)| {
                let to = self.peers[*to as usize].address.unwrap_or(Ipv4Addr::UNSPECIFIED);
                (SocketAddrV4::new(to, self.port), &frame[UDP_OUTER_BYTES..])
            });
            let (gone, full) = match system::send(&port.socket, datagrams) {
                Ok(sent) => {
                    self.counters.frames_tx += sent as u64;
                    self.counters.datagrams_tx += sent as u64;
                    (sent, false)
                }
                Err(cause) if is_full(&cause) => (0, true),
                Err(_) => {
                    // No way to that address, or a packet that the way does not carry: as lost as on a wire.
                    self.counters.vanished += 1;
                    (1, false)
                }
            };
            for (_, frame) in port.waiting.iter().take(granted).skip(gone) {
                port.bucket.give(frame.len());
            }
            for (to, mut frame) in port.waiting.drain(..gone) {
                let peer = &mut self.peers[to as usize];
                self.turns += (peer.bytes > FULL && peer.bytes - frame.len() <= FULL) as u64;
                peer.bytes -= frame.len();
                if self.spare.len() < SPARE {
                    frame.clear();
                    self.spare.push(frame);
                }
            }
            if full {
                let (data, both) = (EventData::new_u64(at as u64), EventFlags::IN | EventFlags::OUT);
                port.blocked = epoll::modify(&self.epoll, &port.socket, data, both).is_ok();
                break;
            }
        }
    }

    /// Has the descriptor become readable when the rate allows more.
    fn arm(&mut self) {
        let held = self.ports.iter().filter(|port| !port.waiting.is_empty() && !port.blocked);
        let Some(wait_ns) = held.map(|port| port.bucket.wait_ns()).min() else { return };
        let (tv_sec, tv_nsec) = ((wait_ns / 1_000_000_000) as i64, (wait_ns % 1_000_000_000).max(1) as i64);
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Itimerspec { it_interval: none, it_value: Timespec { tv_sec, tv_nsec } };
        self.armed = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &at).is_ok();
    }
}

impl Uplink for RoceUplink {
    fn own(&mut self, address: u128, mac: u64) -> Result<(), UplinkError> {
        let ip = unmapped(address).ok_or(UplinkError::NotIpv4(address))?;
        self.bind(ip)?.mac = mac;
        Ok(())
    }

    fn address(&mut self, address: u128) -> AddressId {
        if let Some(known) = self.numbers.get(&address) {
            return *known;
        }
        let id = AddressId(self.peers.len() as u32);
        self.numbers.insert(address, id);
        self.peers.push(Peer { address: unmapped(address), bytes: 0 });
        id
    }

    fn outer(&self) -> Outer {
        Outer::Udp { source_port: self.port, destination_port: self.port }
    }

    fn mtu(&self, address: u128) -> u32 {
        let ip = unmapped(address);
        let port = self.ports.iter().find(|port| Some(port.address) == ip);
        port.map_or(MTU_MAX as u32, |port| port.mtu)
    }

    fn window(&self) -> Option<u32> {
        let granted = self.ports.iter().map(|port| port.granted).min().unwrap_or(0);
        let packets = (granted / DATAGRAM_COST / SENDERS).clamp(*WINDOWS.start(), *WINDOWS.end());
        Some(self.window.unwrap_or(packets as u32).max(1))
    }

    fn send(&mut self, to: AddressId, write: &mut dyn FnMut(&mut Vec<u8>)) {
        let Some(peer) = self.peers.get_mut(to.0 as usize) else { return };
        if peer.bytes > OVERFLOW {
            self.counters.overflowed += 1;
            return;
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        write(&mut frame);
        let source = Ipv4Addr::new(frame[26], frame[27], frame[28], frame[29]);
        let port = self.ports.iter_mut().find(|port| port.address == source);
        let (Some(port), Some(_)) = (port, peer.address) else {
            self.counters.vanished += 1;
            return;
        };
        self.turns += (peer.bytes <= FULL && peer.bytes + frame.len() > FULL) as u64;
        peer.bytes += frame.len();
        port.waiting.push_back((to.0, frame));
    }

    fn flush(&mut self) {
        self.flushes += 1;
        if self.ports.iter().all(|port| port.waiting.is_empty()) {
            return;
        }
        let again = self.flushes.is_multiple_of(TRY_EVERY);
        let now = monotonic();
        for at in 0..self.ports.len() {
            let port = &mut self.ports[at];
            port.bucket.fill(now);
            if !port.waiting.is_empty() && (!port.blocked || again) {
                self.flush_port(at);
            }
        }
        if !self.armed {
            self.arm();
        }
    }

    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> bool {
        if self.ready.is_empty() {
            self.look();
        }
        let before = self.counters.datagrams_rx;
        for _ in 0..TAKEN {
            let Some(at) = self.ready.pop_front() else { break };
            if self.take_batch(at as usize, take) {
                self.ready.push_back(at);
            }
        }
        self.counters.datagrams_rx != before
    }

    fn link_changes(&mut self, tell: &mut dyn FnMut(u128, bool)) {
        if !std::mem::take(&mut self.stirred) {
            return;
        }
        for port in &mut self.ports {
            let link = system::interface_of(port.address).is_some_and(|interface| interface.running);
            if link != port.link {
                port.link = link;
                tell(mapped(port.address), link);
            }
        }
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
        let lost = self.ports.iter().map(|port| system::drops(&port.socket)).sum();
        UplinkCounters { lost, ..self.counters }
    }
}

/// The clock that the rate is kept by.
fn monotonic() -> Nanoseconds {
    let now = clock_gettime(ClockId::Monotonic);
    Nanoseconds(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// True if a send failed for want of room, not of a way.
fn is_full(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::OutOfMemory
    ) || cause.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}
