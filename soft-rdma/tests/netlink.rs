//! Sockets of `NETLINK_RDMA` through the hooks, and other sockets beside them.

use shunt_soft_rdma::hooks;
use shunt_soft_rdma::netlink::{FAMILY, NLDEV, socket as state};
use std::mem::zeroed;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

const ADDRESS_BYTES: u32 = size_of::<libc::sockaddr_nl>() as u32;
/// List all devices.
const GET: u16 = NLDEV << 10 | 1;

/// The tests look at what is open in the whole process: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn open() -> i32 {
    let fd = hooks::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, FAMILY);
    assert!(fd >= 0);
    fd
}

fn address(family: i32, port: u32) -> libc::sockaddr_nl {
    // SAFETY: numbers, of which zero is one.
    let mut address: libc::sockaddr_nl = unsafe { zeroed() };
    (address.nl_family, address.nl_pid) = (family as u16, port);
    address
}

fn bind(fd: i32, family: i32, port: u32) -> i32 {
    let at = address(family, port);
    // SAFETY: an address of that length.
    unsafe { hooks::bind(fd, (&raw const at).cast(), ADDRESS_BYTES) }
}

fn port(fd: i32) -> u32 {
    let (mut name, mut bytes) = (address(0, 0), 100);
    // SAFETY: room for the address; its length says more, and no more is written than there is.
    assert_eq!(unsafe { hooks::getsockname(fd, (&raw mut name).cast(), &mut bytes) }, 0);
    assert_eq!((bytes, name.nl_family as i32), (ADDRESS_BYTES, libc::AF_NETLINK));
    name.nl_pid
}

fn list_devices(fd: i32) -> isize {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let (length, numbers) = (16u32.to_ne_bytes(), [5u32, 0].map(u32::to_ne_bytes).concat());
    let bytes = [&length[..], &GET.to_ne_bytes(), &flags.to_ne_bytes(), &numbers].concat();
    let to = address(libc::AF_NETLINK, 0);
    // SAFETY: the request's bytes and an address of that length.
    unsafe { hooks::sendto(fd, bytes.as_ptr().cast(), 16, 0, (&raw const to).cast(), ADDRESS_BYTES) }
}

/// What a receive tells: its result, the sender's address and its length, and flags.
fn receive(fd: i32, into: &mut [u8], flags: i32) -> (isize, libc::sockaddr_nl, u32, i32) {
    let mut from = address(0, 99);
    let mut piece = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: numbers and null pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_name, message.msg_namelen) = ((&raw mut from).cast(), ADDRESS_BYTES);
    (message.msg_iov, message.msg_iovlen) = (&mut piece, 1);
    // SAFETY: the message leads to the buffers above.
    let bytes = unsafe { hooks::recvmsg(fd, &mut message, flags) };
    (bytes, from, message.msg_namelen, message.msg_flags)
}

#[test]
fn a_list_of_devices_is_received() {
    let _alone = alone();
    let fd = open();
    assert_eq!(port(fd), 0, "it is not bound");
    assert_eq!(bind(fd, libc::AF_NETLINK, 0), 0);
    assert_eq!(port(fd), std::process::id());
    assert_eq!(list_devices(fd), 16);
    let (bytes, _, _, flags) = receive(fd, &mut [0; 4], libc::MSG_PEEK | libc::MSG_TRUNC);
    assert!(bytes > 16 && flags & libc::MSG_TRUNC != 0, "{bytes} bytes, flags {flags:#x}");
    let mut buffer = [0; 4096];
    let (received, from, length, flags) = receive(fd, &mut buffer, 0);
    assert_eq!((received, length, flags), (bytes, ADDRESS_BYTES, 0));
    assert_eq!((from.nl_family as i32, from.nl_pid), (libc::AF_NETLINK, 0));
    assert!(buffer.windows(7).any(|text| text == b"mlx5_0\0"));
    // The end of the list, by the other call.
    let (mut from, mut length) = (address(0, 99), ADDRESS_BYTES);
    // SAFETY: room for the bytes and the address.
    let bytes = unsafe {
        let at = (&raw mut from).cast();
        hooks::recvfrom(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0, at, &mut length)
    };
    assert_eq!((bytes, length, from.nl_family as i32, from.nl_pid), (20, ADDRESS_BYTES, libc::AF_NETLINK, 0));
    assert_eq!(receive(fd, &mut buffer, libc::MSG_DONTWAIT).0, -1);
    assert_eq!(errno(), libc::EAGAIN);
    assert_eq!(hooks::close(fd), 0);
    assert!(state::none());
}

#[test]
fn it_is_one_socket_until_its_last_descriptor_is_closed() {
    let _alone = alone();
    let fd = open();
    // SAFETY: numbers only.
    let other = unsafe { libc::dup(fd) };
    assert_eq!(hooks::close(fd), 0);
    assert!(!state::none());
    assert_eq!(list_devices(other), 16);
    assert!(receive(other, &mut [0; 4096], 0).0 > 16);
    let spare = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(hooks::dup3(spare.as_raw_fd(), other, libc::O_CLOEXEC), other);
    assert!(state::none(), "another file took its last descriptor");
    assert_eq!(hooks::close(other), 0);
}

#[test]
fn ports_are_kept_apart() {
    let _alone = alone();
    let sockets = [open(), open(), open()];
    for fd in &sockets[..2] {
        assert_eq!(bind(*fd, libc::AF_NETLINK, 0), 0);
    }
    assert_ne!(port(sockets[0]), port(sockets[1]));
    assert_eq!((bind(sockets[2], libc::AF_NETLINK, port(sockets[0])), errno()), (-1, libc::EADDRINUSE));
    assert_eq!(bind(sockets[2], libc::AF_NETLINK, 12345), 0);
    assert_eq!(port(sockets[2]), 12345);
    assert_eq!((bind(sockets[2], libc::AF_NETLINK, 12346), errno()), (-1, libc::EINVAL));
    assert_eq!(bind(sockets[2], libc::AF_NETLINK, 0), 0);
    sockets.iter().for_each(|fd| assert_eq!(hooks::close(*fd), 0));
    assert!(state::none());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let _alone = alone();
    assert_eq!(hooks::socket(libc::AF_NETLINK, libc::SOCK_STREAM, FAMILY), -1);
    assert_eq!(errno(), libc::ESOCKTNOSUPPORT);
    let fd = open();
    assert_eq!((bind(fd, libc::AF_INET, 0), errno()), (-1, libc::EINVAL));
    let somebody = address(libc::AF_NETLINK, 1);
    let to = (&raw const somebody).cast();
    // SAFETY: bad addresses are what is tested: they are looked at with checks.
    unsafe {
        assert_eq!((hooks::bind(fd, ptr::null(), ADDRESS_BYTES), errno()), (-1, libc::EFAULT));
        assert_eq!((hooks::sendto(fd, ptr::null(), 16, 0, ptr::null(), 0), errno()), (-1, libc::EFAULT));
        assert_eq!((hooks::sendmsg(fd, ptr::null(), 0), errno()), (-1, libc::EFAULT));
        assert_eq!((hooks::recvmsg(fd, ptr::null_mut(), 0), errno()), (-1, libc::EFAULT));
        assert_eq!((hooks::connect(fd, to, ADDRESS_BYTES), errno()), (-1, libc::EPERM));
        let too_much = 1 << 40;
        assert_eq!(
            (hooks::sendto(fd, to.cast(), too_much, 0, ptr::null(), 0), errno()),
            (-1, libc::EMSGSIZE)
        );
        let option = |name| hooks::setsockopt(fd, libc::SOL_NETLINK, name, ptr::from_ref(&FAMILY).cast(), 4);
        assert_eq!(option(libc::NETLINK_CAP_ACK), 0);
        assert_eq!((option(99), errno()), (-1, libc::ENOPROTOOPT));
        let (mut value, mut bytes) = (0i32, 4);
        let at = (&raw mut value).cast();
        assert_eq!(hooks::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL, at, &mut bytes), 0);
        assert_eq!((value, bytes), (FAMILY, 4));
    }
    assert_eq!(hooks::close(fd), 0);
}

#[test]
fn other_sockets_are_the_kernels() {
    let _alone = alone();
    let netlink = open();
    let (one, two) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    // SAFETY: numbers, of which zero is one.
    let mut to: libc::sockaddr_in = unsafe { zeroed() };
    let mut length = size_of::<libc::sockaddr_in>() as u32;
    let mut from = to;
    // SAFETY: addresses and buffers of the lengths that stand beside them, and some that are none.
    unsafe {
        assert_eq!(hooks::getsockname(two.as_raw_fd(), (&raw mut to).cast(), &mut length), 0);
        assert_eq!(u16::from_be(to.sin_port), two.local_addr().unwrap().port());
        let sent =
            hooks::sendto(one.as_raw_fd(), c"hello".as_ptr().cast(), 5, 0, (&raw const to).cast(), length);
        assert_eq!(sent, 5);
        let (mut buffer, flags) = ([0u8; 2], libc::MSG_PEEK | libc::MSG_TRUNC);
        let at = buffer.as_mut_ptr().cast();
        let seen = hooks::recvfrom(two.as_raw_fd(), at, 2, flags, (&raw mut from).cast(), &mut length);
        assert_eq!((seen, &buffer), (5, b"he"));
        assert_eq!(u16::from_be(from.sin_port), one.local_addr().unwrap().port());
        assert_eq!(hooks::recvfrom(two.as_raw_fd(), at, 2, 0, ptr::null_mut(), ptr::null_mut()), 2);
        assert_eq!((hooks::recvmsg(two.as_raw_fd(), ptr::null_mut(), 0), errno()), (-1, libc::EFAULT));
        assert_eq!((hooks::sendto(-1, at, 2, 0, ptr::null(), 0), errno()), (-1, libc::EBADF));
        assert_eq!((hooks::bind(0x7fff_ffff, ptr::null(), 0), errno()), (-1, libc::EBADF));
    }
    let route = hooks::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE);
    assert_eq!(bind(route, libc::AF_NETLINK, 0), 0);
    assert_ne!(port(route), 0);
    for fd in [route, netlink] {
        assert_eq!(hooks::close(fd), 0);
    }
    assert!(state::none());
}
