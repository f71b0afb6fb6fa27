//! What the standard library does not ask the system for: datagrams in batches, with the time at which they came.

use super::instant::Nanoseconds;
use libc::{c_int, c_void, iovec, mmsghdr, sockaddr_in, socklen_t};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

/// Datagrams of one system call.
pub(super) const BATCH: usize = 32;
/// Room for the control message with a time.
const CONTROL_WORDS: usize = 8;
/// Words of `SO_MEMINFO`, and the one that counts drops.
const MEMINFO_WORDS: usize = 9;
const MEMINFO_DROPS: usize = 8;

/// A datagram that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) bytes: usize,
    pub(super) from: SocketAddrV4,
    /// It was longer than the room for it.
    pub(super) cut: bool,
    /// When the system took it in, on the clock of [`wall_ns`]; nothing if it does not say.
    pub(super) arrived_ns: Option<Nanoseconds>,
}

impl Arrival {
    pub(super) const NONE: Self =
        Self { bytes: 0, from: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), cut: false, arrived_ns: None };
}

/// The time of day, which the system stamps datagrams with.
pub(super) fn wall_ns() -> Nanoseconds {
    let now = clock_gettime(ClockId::Realtime);
    Nanoseconds(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn set_flag(socket: &UdpSocket, option: c_int) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: the descriptor is open, and the value is an int that lives through the call.
    let done = unsafe {
        let value = (&raw const on).cast::<c_void>();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, size_of::<c_int>() as socklen_t)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a socket fit for RoCE, and says how much the system lets it hold.
///
/// What is not fragmented has the identification zero while the socket is not connected, and the invariant checksum
/// counts on it. The UDP checksum is left out: RoCE has a better one.
pub(super) fn prepare(socket: &UdpSocket, receive_buffer: usize) -> io::Result<usize> {
    socket.set_nonblocking(true)?;
    sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)?;
    set_flag(socket, libc::SO_NO_CHECK)?;
    set_flag(socket, libc::SO_TIMESTAMPNS)?;
    // Beyond the system's limit with the right to it, up to the limit without.
    if sockopt::set_socket_recv_buffer_size_force(socket, receive_buffer).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, receive_buffer)?;
    }
    // Smaller is slower, not wrong.
    let _ = sockopt::set_socket_send_buffer_size(socket, receive_buffer.min(4 << 20));
    Ok(sockopt::socket_recv_buffer_size(socket)?)
}

/// Datagrams that the system dropped because the socket was full.
pub(super) fn drops(socket: &UdpSocket) -> u64 {
    let mut info = [0u32; MEMINFO_WORDS];
    let mut length = size_of_val(&info) as socklen_t;
    // SAFETY: the descriptor is open, and `length` is that of `info`.
    let done = unsafe {
        let into = info.as_mut_ptr().cast::<c_void>();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, into, &raw mut length)
    };
    if done == 0 { info[MEMINFO_DROPS] as u64 } else { 0 }
}

fn raw_address(address: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// Sends some of the datagrams, the first ones, and says how many. An error is the first one's.
pub(super) fn send<'a>(
    socket: &UdpSocket,
    datagrams: impl Iterator<Item = (SocketAddrV4, &'a [u8])>,
) -> io::Result<usize> {
    // SAFETY: zeros are values of both: no pointers, no lengths.
    let (mut messages, mut vectors): ([mmsghdr; BATCH], [iovec; BATCH]) = unsafe { (zeroed(), zeroed()) };
    let mut addresses = [raw_address(Arrival::NONE.from); BATCH];
    let mut count = 0;
    for (to, bytes) in datagrams.take(BATCH) {
        addresses[count] = raw_address(to);
        vectors[count] = iovec { iov_base: bytes.as_ptr() as *mut c_void, iov_len: bytes.len() };
        let header = &mut messages[count].msg_hdr;
        header.msg_name = (&raw mut addresses[count]).cast();
        header.msg_namelen = size_of::<sockaddr_in>() as socklen_t;
        header.msg_iov = &raw mut vectors[count];
        header.msg_iovlen = 1;
        count += 1;
    }
    // SAFETY: the first `count` messages point at addresses and vectors above, and those at bytes that are borrowed
    // for longer than the call, which only reads them.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Receives datagrams, each into its own part of `room` from `offset` on, and says how many. None is no error.
pub(super) fn receive<const N: usize>(
    socket: &UdpSocket,
    room: &mut [[u8; N]; BATCH],
    offset: usize,
    arrivals: &mut [Arrival; BATCH],
) -> usize {
    // SAFETY: zeros are values of both: no pointers, no lengths.
    let (mut messages, mut vectors): ([mmsghdr; BATCH], [iovec; BATCH]) = unsafe { (zeroed(), zeroed()) };
    let mut addresses = [raw_address(Arrival::NONE.from); BATCH];
    let mut control = [const { MaybeUninit::<[u64; CONTROL_WORDS]>::uninit() }; BATCH];
    for (at, room) in room.iter_mut().enumerate() {
        let room = &mut room[offset..];
        vectors[at] = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let header = &mut messages[at].msg_hdr;
        header.msg_name = (&raw mut addresses[at]).cast();
        header.msg_namelen = size_of::<sockaddr_in>() as socklen_t;
        header.msg_iov = &raw mut vectors[at];
        header.msg_iovlen = 1;
        header.msg_control = control[at].as_mut_ptr().cast();
        header.msg_controllen = size_of::<[u64; CONTROL_WORDS]>();
    }
    // SAFETY: each message points at an address, a vector and control words above, and each vector at its own part of
    // `room`; all are borrowed mutably for longer than the call.
    let came = unsafe {
        let (messages, none) = (messages.as_mut_ptr(), std::ptr::null_mut());
        libc::recvmmsg(socket.as_raw_fd(), messages, BATCH as u32, libc::MSG_DONTWAIT, none)
    };
    let came = usize::try_from(came).unwrap_or(0);
    for at in 0..came {
        let (message, from) = (&messages[at], addresses[at]);
        arrivals[at] = Arrival {
            bytes: message.msg_len as usize,
            from: SocketAddrV4::new(
                Ipv4Addr::from(from.sin_addr.s_addr.to_ne_bytes()),
                u16::from_be(from.sin_port),
            ),
            cut: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            // SAFETY: the system filled in this message, control words included.
            arrived_ns: unsafe { stamp(&message.msg_hdr) },
        };
    }
    came
}

/// The time in a message's control words.
///
/// # Safety
/// The message was filled in by the system, and its control words are still there.
unsafe fn stamp(message: &libc::msghdr) -> Option<Nanoseconds> {
    // SAFETY: the caller's promise; the macros keep inside `msg_controllen`.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = at.as_ref() {
            if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_TIMESTAMPNS {
                let time = libc::CMSG_DATA(at).cast::<libc::timespec>().read_unaligned();
                return Some(Nanoseconds(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64));
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
    None
}

/// A socket on which the system says that an interface has changed.
pub(super) fn news_of_links() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // No protocol is `NETLINK_ROUTE`: its number is 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, libc::RTMGRP_LINK as u32))?;
    Ok(socket)
}

/// Takes all that lies in that socket. What it says is asked for again, so nothing is lost where it overflows.
pub(super) fn read_news(news: &OwnedFd) {
    let mut room = [0; 8192];
    // `ENOBUFS` says that some was dropped, and is said once. Any other error would be said for ever.
    while matches!(rustix::io::read(news, &mut room), Ok(1..) | Err(Errno::NOBUFS | Errno::INTR)) {}
}

/// An interface of this machine that has an address.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) mtu: u32,
    /// It is up, and so is what it is connected to.
    pub(super) running: bool,
}

/// The interface that owns an address; on the loopback interface, all of its network are owned.
pub(super) fn interface_of(address: Ipv4Addr) -> Option<Interface> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the pointer is written to, and what it then points at is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return None;
    }
    let (mut at, mut found) = (list, None);
    // SAFETY: the list is the system's until it is freed: entries, names and addresses are whole, or null.
    unsafe {
        while let Some(entry) = at.as_ref() {
            at = entry.ifa_next;
            let (own, mask) = (ipv4(entry.ifa_addr), ipv4(entry.ifa_netmask));
            let Some(own) = own else { continue };
            let loopback = entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0;
            let mask = if loopback { mask.unwrap_or(u32::MAX) } else { u32::MAX };
            if own & mask == address.to_bits() & mask {
                let name = std::ffi::CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned();
                let running = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
                found = Some((name, entry.ifa_flags & running == running));
                break;
            }
        }
        libc::freeifaddrs(list);
    }
    let (name, running) = found?;
    let mtu = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?.trim().parse().ok()?;
    Some(Interface { name, mtu, running })
}

/// An IPv4 address behind a pointer.
///
/// # Safety
/// It is null, or points at a whole socket address.
unsafe fn ipv4(address: *const libc::sockaddr) -> Option<u32> {
    // SAFETY: the caller's promise; the family says that it is an IPv4 one.
    unsafe {
        let address = address.as_ref()?;
        if address.sa_family != libc::AF_INET as libc::sa_family_t {
            return None;
        }
        let raw = (&raw const *address).cast::<sockaddr_in>().read_unaligned();
        Some(u32::from_be(raw.sin_addr.s_addr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_owns_its_network() {
        let found = interface_of(Ipv4Addr::new(127, 3, 2, 1)).expect("a loopback interface");
        assert!(found.mtu >= 1280 && found.running, "{found:?}");
        assert!(interface_of(Ipv4Addr::new(192, 0, 2, 77)).is_none(), "an address for documentation");
    }

    #[test]
    fn batches_keep_bounds_order_and_sources() {
        let [a, b] = [2, 3].map(|last| UdpSocket::bind((Ipv4Addr::new(127, 9, 0, last), 0)).unwrap());
        for socket in [&a, &b] {
            assert!(prepare(socket, 1 << 20).unwrap() >= 2048);
        }
        let (from, to) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        let std::net::SocketAddr::V4(to) = to else { panic!("IPv4") };
        let long = [7; 300];
        let sent = send(&a, [1usize, 0, 300].iter().map(|bytes| (to, &long[..*bytes]))).unwrap();
        assert_eq!(sent, 3);
        let (mut room, mut arrivals) = ([[0u8; 110]; BATCH], [Arrival::NONE; BATCH]);
        assert_eq!(receive(&b, &mut room, 10, &mut arrivals), 3);
        let got: Vec<_> = arrivals[..3].iter().map(|one| (one.bytes, one.cut)).collect();
        assert_eq!(got, [(1, false), (0, false), (100, true)]);
        assert!(arrivals[..3].iter().all(|one| std::net::SocketAddr::V4(one.from) == from));
        assert!(arrivals[0].arrived_ns.is_some_and(|at| at <= wall_ns()));
        assert_eq!((room[0][9], room[0][10], room[0][11]), (0, 7, 0));
        assert_eq!(receive(&b, &mut room, 10, &mut arrivals), 0);
    }
}
