//! The file of connections through the hooks: as a descriptor, with commands that are none, and with an event.

use shunt_soft_rdma::hooks;
use std::os::fd::RawFd;

const CREATE_ID: u32 = 0;
const BIND: u32 = 20;
const RESOLVE_ADDR: u32 = 21;
const GET_EVENT: u32 = 12;
const SPACE_TCP: u16 = 0x0106;
const ADDR_RESOLVED: u32 = 0;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn open(flags: i32) -> RawFd {
    let path = c"/dev/infiniband/rdma_cm";
    // SAFETY: a path that ends with zero.
    let fd = unsafe { hooks::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_RDWR | flags, 0) };
    assert!(fd >= 0, "{}", errno());
    fd
}

/// Writes a command whose answer goes to `answer`; the address is in its body at `at`.
fn command(fd: RawFd, number: u32, mut body: Vec<u8>, at: Option<usize>, answer: &mut [u8]) -> isize {
    if let Some(at) = at {
        body[at..at + 8].copy_from_slice(&(answer.as_mut_ptr() as u64).to_ne_bytes());
    }
    let mut bytes = number.to_ne_bytes().to_vec();
    bytes.extend((body.len() as u16).to_ne_bytes());
    bytes.extend((answer.len() as u16).to_ne_bytes());
    bytes.extend(body);
    // SAFETY: the command's own bytes.
    unsafe { hooks::write(fd, bytes.as_ptr().cast(), bytes.len()) }
}

/// The number of a new identifier, if there is one.
fn create(fd: RawFd) -> Option<u32> {
    let mut body = vec![0; 24];
    body[..8].copy_from_slice(&7u64.to_ne_bytes());
    body[16..18].copy_from_slice(&SPACE_TCP.to_ne_bytes());
    let mut answer = [0; 4];
    (command(fd, CREATE_ID, body, Some(8), &mut answer) == 32).then(|| u32::from_ne_bytes(answer))
}

fn resolve_local(fd: RawFd, id: u32) -> isize {
    let mut body = vec![0; 272];
    body[..4].copy_from_slice(&id.to_ne_bytes());
    body[4..8].copy_from_slice(&5000u32.to_ne_bytes());
    body[10..12].copy_from_slice(&16u16.to_ne_bytes());
    body[144..146].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    body[146..148].copy_from_slice(&7174u16.to_be_bytes());
    body[148..152].copy_from_slice(&[127, 0, 0, 1]);
    command(fd, RESOLVE_ADDR, body, None, &mut [])
}

fn readable(fd: RawFd, timeout_ms: i32) -> bool {
    let mut look = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure.
    unsafe { libc::poll(&mut look, 1, timeout_ms) == 1 }
}

#[test]
fn a_file_of_connections_is_polled_read_and_closed() {
    let fd = open(libc::O_CLOEXEC | libc::O_NONBLOCK);
    // SAFETY: numbers, of which zero is one.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: room for a status.
    assert_eq!(unsafe { hooks::fstat(fd, &mut status) }, 0);
    assert_eq!(status.st_mode & libc::S_IFMT, libc::S_IFCHR);
    assert_eq!((libc::major(status.st_rdev), libc::minor(status.st_rdev)), (10, 252));

    let mut event = [0xff; 336];
    assert_eq!((command(fd, GET_EVENT, vec![0; 8], Some(0), &mut event), errno()), (-1, libc::EAGAIN));
    assert_eq!((command(fd, 99, vec![0; 8], Some(0), &mut event), errno()), (-1, libc::EINVAL));
    assert_eq!((command(fd, 13, vec![0; 8], Some(0), &mut event), errno()), (-1, libc::ENOSYS));
    assert_eq!((command(fd, BIND, vec![0; 136], None, &mut []), errno()), (-1, libc::EINVAL));
    // SAFETY: too few bytes, and bytes that are not there.
    let short = unsafe { hooks::write(fd, [0u8; 4].as_ptr().cast(), 4) };
    assert_eq!((short, errno()), (-1, libc::EINVAL));
    // SAFETY: an address where nothing is.
    let nowhere = unsafe { hooks::write(fd, std::ptr::without_provenance(8), 32) };
    assert_eq!((nowhere, errno()), (-1, libc::EFAULT));

    let id = create(fd).expect("an identifier");
    assert_eq!(resolve_local(fd, id), 280);
    assert!(readable(fd, 60_000), "no event came");
    // An event that has no place to go is not lost.
    let mut bad = GET_EVENT.to_ne_bytes().to_vec();
    bad.extend([8, 0, 80, 1]);
    bad.extend(8u64.to_ne_bytes());
    // SAFETY: the command's own bytes.
    let told = unsafe { hooks::write(fd, bad.as_ptr().cast(), bad.len()) };
    assert_eq!((told, errno()), (-1, libc::EFAULT));
    assert!(readable(fd, 0));
    assert_eq!(command(fd, GET_EVENT, vec![0; 8], Some(0), &mut event), 16);
    assert_eq!(event[..8], 7u64.to_ne_bytes());
    assert_eq!(event[12..16], ADDR_RESOLVED.to_ne_bytes());
    assert!(!readable(fd, 0), "there is no other event");

    assert_eq!(hooks::close(fd), 0);
}

#[test]
fn a_child_has_no_part_in_its_parents_connections() {
    let fd = open(libc::O_CLOEXEC);
    assert!(create(fd).is_some());
    // SAFETY: the child makes calls that need no lock of the parent's, and leaves at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = create(fd).is_none() && errno() == libc::EIO && hooks::close(fd) == 0;
        // SAFETY: leaves without the parent's handlers.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) }
    }
    let mut status = -1;
    // SAFETY: room for the status of a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's command was not refused");
    assert!(create(fd).is_some(), "the parent's file is as it was");
    hooks::close(fd);
}
