//! Calls on sockets. Those of `NETLINK_RDMA` are answered here; every other goes on as it came.

use super::errno::{fails, guard, returned};
use super::raw;
use crate::netlink::{FAMILY, socket as ours};
use libc::{c_int, c_void, msghdr, size_t, sockaddr, sockaddr_nl, socklen_t, ssize_t};
use rustix::io::Errno;
use shunt_soft_uverbs::user;
use std::mem::zeroed;
use std::ptr;

/// Bytes of a request; no real one has so many.
const MOST_BYTES: usize = 64 << 10;
/// Pieces of a message that the kernel takes.
const MOST_PIECES: usize = 1024;
/// Bytes of an address.
const ADDRESS_BYTES: usize = size_of::<sockaddr_nl>();
/// Options of netlink sockets end here.
const OPTIONS: std::ops::RangeInclusive<c_int> = 1..=12;

/// `socket`.
pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == FAMILY {
        return returned(guard(|| ours::open(kind)));
    }
    raw::socket(domain, kind, protocol)
}

fn bytes_of(address: &sockaddr_nl) -> &[u8; ADDRESS_BYTES] {
    // SAFETY: numbers without gaps between them.
    unsafe { &*ptr::from_ref(address).cast() }
}

fn named(port: u32) -> sockaddr_nl {
    // SAFETY: numbers, of which zero is one.
    let mut address: sockaddr_nl = unsafe { zeroed() };
    (address.nl_family, address.nl_pid) = (libc::AF_NETLINK as u16, port);
    address
}

/// The program's address; EINVAL if it is not of netlink.
fn address(at: *const sockaddr, bytes: socklen_t) -> Result<sockaddr_nl, Errno> {
    if (bytes as usize) < ADDRESS_BYTES {
        return Err(Errno::INVAL);
    }
    let mut raw = [0; ADDRESS_BYTES];
    user::read(at as u64, &mut raw)?;
    // SAFETY: numbers, which any bytes are.
    let address: sockaddr_nl = unsafe { ptr::read_unaligned(raw.as_ptr().cast()) };
    if address.nl_family as c_int == libc::AF_NETLINK { Ok(address) } else { Err(Errno::INVAL) }
}

/// Requests go to the kernel and nobody else.
fn to_kernel(at: *const sockaddr, bytes: socklen_t) -> Result<(), Errno> {
    let to = address(at, bytes)?;
    if to.nl_pid == 0 && to.nl_groups == 0 { Ok(()) } else { Err(Errno::PERM) }
}

/// Tells the program an address: as much as it has room for, and its whole length.
fn tell(address: &sockaddr_nl, to: *mut sockaddr, length: *mut socklen_t) -> Result<(), Errno> {
    let mut room = [0; size_of::<socklen_t>()];
    user::read(length as u64, &mut room)?;
    let room = socklen_t::from_ne_bytes(room);
    if room > i32::MAX as u32 {
        return Err(Errno::INVAL);
    }
    user::write(to as u64, &bytes_of(address)[..ADDRESS_BYTES.min(room as usize)])?;
    user::write(length as u64, &(ADDRESS_BYTES as socklen_t).to_ne_bytes())
}

/// `bind`.
///
/// # Safety
/// As for the C library's function; so for all below.
pub unsafe fn bind(fd: c_int, at: *const sockaddr, bytes: socklen_t) -> c_int {
    match ours::slot_of(fd) {
        Some(slot) => returned(guard(|| ours::bind(slot, address(at, bytes)?.nl_pid)).map(|()| 0)),
        // SAFETY: the arguments are the caller's.
        None => unsafe { raw::bind(fd, at, bytes) },
    }
}

/// `connect`.
///
/// # Safety
/// As above.
pub unsafe fn connect(fd: c_int, at: *const sockaddr, bytes: socklen_t) -> c_int {
    match ours::slot_of(fd) {
        Some(slot) => returned(guard(|| to_kernel(at, bytes).and_then(|()| ours::bind(slot, 0))).map(|()| 0)),
        // SAFETY: as above.
        None => unsafe { raw::connect(fd, at, bytes) },
    }
}

/// `getsockname`.
///
/// # Safety
/// As above.
pub unsafe fn getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
    match ours::slot_of(fd) {
        Some(slot) => returned(guard(|| tell(&named(ours::port(slot)), to, length)).map(|()| 0)),
        // SAFETY: as above.
        None => unsafe { raw::getsockname(fd, to, length) },
    }
}

/// `setsockopt`.
///
/// # Safety
/// As above.
pub unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: socklen_t,
) -> c_int {
    if level == libc::SOL_NETLINK && ours::slot_of(fd).is_some() {
        // Acknowledgements are short and errors without words whatever is set; nothing is ever multicast.
        return if OPTIONS.contains(&name) { 0 } else { fails(libc::ENOPROTOOPT) };
    }
    // SAFETY: as above.
    unsafe { raw::setsockopt(fd, level, name, value, bytes) }
}

/// `getsockopt`.
///
/// # Safety
/// As above.
pub unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    bytes: *mut socklen_t,
) -> c_int {
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => Some(libc::AF_NETLINK),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => Some(FAMILY),
        (libc::SOL_NETLINK, _) => None,
        // SAFETY: as above.
        _ => return unsafe { raw::getsockopt(fd, level, name, value, bytes) },
    };
    if ours::slot_of(fd).is_none() {
        // SAFETY: as above.
        return unsafe { raw::getsockopt(fd, level, name, value, bytes) };
    }
    let Some(number) = number else { return fails(libc::ENOPROTOOPT) };
    returned(guard(|| {
        let mut room = [0; size_of::<socklen_t>()];
        user::read(bytes as u64, &mut room)?;
        let room = size_of::<c_int>().min(socklen_t::from_ne_bytes(room) as usize);
        user::write(value as u64, &number.to_ne_bytes()[..room])?;
        user::write(bytes as u64, &(room as socklen_t).to_ne_bytes())?;
        Ok(0)
    }))
}

/// How many bytes were taken, as the C library returns it.
fn length(result: Result<usize, Errno>) -> ssize_t {
    returned(result.map(|bytes| bytes as c_int)) as ssize_t
}

fn checked_flags(flags: c_int) -> Result<(), Errno> {
    if flags & libc::MSG_OOB == 0 { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}

/// `sendto`, and with no address `send`.
///
/// # Safety
/// As above.
pub unsafe fn sendto(
    fd: c_int,
    from: *const c_void,
    bytes: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_bytes: socklen_t,
) -> ssize_t {
    let Some(slot) = ours::slot_of(fd) else {
        // SAFETY: as above.
        return unsafe { raw::sendto(fd, from, bytes, flags, to, to_bytes) };
    };
    length(guard(|| {
        checked_flags(flags)?;
        if !to.is_null() {
            to_kernel(to, to_bytes)?;
        }
        let request = gathered(&[libc::iovec { iov_base: from.cast_mut(), iov_len: bytes }])?;
        ours::request(slot, fd, &request).map(|()| bytes)
    }))
}

/// The program's pieces as one.
fn gathered(pieces: &[libc::iovec]) -> Result<Vec<u8>, Errno> {
    let mut request = Vec::new();
    for piece in pieces {
        let start = request.len();
        if piece.iov_len > MOST_BYTES - start {
            return Err(Errno::MSGSIZE);
        }
        request.resize(start + piece.iov_len, 0);
        if piece.iov_len > 0 {
            user::read(piece.iov_base as u64, &mut request[start..])?;
        }
    }
    Ok(request)
}

/// A copy of the program's header of a message.
fn header(message: *const msghdr) -> Result<msghdr, Errno> {
    let mut raw = [0; size_of::<msghdr>()];
    user::read(message as u64, &mut raw)?;
    // SAFETY: numbers and raw pointers, which any bytes are.
    Ok(unsafe { ptr::read_unaligned(raw.as_ptr().cast()) })
}

/// The program's request, from all of its pieces.
fn message(at: *const msghdr) -> Result<Vec<u8>, Errno> {
    let header = header(at)?;
    if !header.msg_name.is_null() && header.msg_namelen != 0 {
        to_kernel(header.msg_name.cast(), header.msg_namelen)?;
    }
    if header.msg_iovlen > MOST_PIECES {
        return Err(Errno::MSGSIZE);
    }
    let mut raw = vec![0; header.msg_iovlen * size_of::<libc::iovec>()];
    if !raw.is_empty() {
        user::read(header.msg_iov as u64, &mut raw)?;
    }
    let piece = |bytes: &[u8]| {
        // SAFETY: a number and a raw pointer, which any bytes are; the chunk has their size.
        unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<libc::iovec>()) }
    };
    let pieces: Vec<libc::iovec> = raw.chunks_exact(size_of::<libc::iovec>()).map(piece).collect();
    gathered(&pieces)
}

/// `sendmsg`.
///
/// # Safety
/// As above.
pub unsafe fn sendmsg(fd: c_int, at: *const msghdr, flags: c_int) -> ssize_t {
    let Some(slot) = ours::slot_of(fd) else {
        // SAFETY: as above.
        return unsafe { raw::sendmsg(fd, at, flags) };
    };
    length(guard(|| {
        checked_flags(flags)?;
        let request = message(at)?;
        ours::request(slot, fd, &request).map(|()| request.len())
    }))
}

/// `recvmsg`: what is received comes from the kernel's port.
///
/// # Safety
/// As above.
pub unsafe fn recvmsg(fd: c_int, at: *mut msghdr, flags: c_int) -> ssize_t {
    if ours::slot_of(fd).is_none() {
        // SAFETY: as above.
        return unsafe { raw::recvmsg(fd, at, flags) };
    }
    length(guard(|| {
        let mut header = header(at)?;
        let (name, room) = (header.msg_name, header.msg_namelen as usize);
        (header.msg_name, header.msg_namelen) = (ptr::null_mut(), 0);
        // SAFETY: our copy of the header; the kernel checks the program's buffers in it.
        let bytes = unsafe { raw::recvmsg(fd, &mut header, flags) };
        if bytes < 0 {
            return Err(user::last_error());
        }
        (header.msg_name, header.msg_namelen) = (name, 0);
        if !name.is_null() {
            user::write(name as u64, &bytes_of(&named(0))[..ADDRESS_BYTES.min(room)])?;
            header.msg_namelen = ADDRESS_BYTES as socklen_t;
        }
        // SAFETY: it was read from there, by the rules of the function it may be written, too.
        unsafe { ptr::write_unaligned(at, header) };
        Ok(bytes as usize)
    }))
}

/// `recvfrom`.
///
/// # Safety
/// As above.
pub unsafe fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
) -> ssize_t {
    if from.is_null() || ours::slot_of(fd).is_none() {
        // SAFETY: as above.
        return unsafe { raw::recvfrom(fd, to, room, flags, from, from_bytes) };
    }
    length(guard(|| {
        // SAFETY: as above.
        let bytes = unsafe { raw::recvfrom(fd, to, room, flags, ptr::null_mut(), ptr::null_mut()) };
        if bytes < 0 {
            return Err(user::last_error());
        }
        tell(&named(0), from, from_bytes).map(|()| bytes as usize)
    }))
}
