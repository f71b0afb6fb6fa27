//! The uverbs file: descriptors and what closes them, children, and calls that are anything but well-formed.

use crate::support::Runtime;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::io::Errno;
use shunt_layout::mlx5::prm::cmd::{Opcode, output};
use shunt_soft_machine::machine::Machine;
use shunt_soft_rdma::hooks::attributes::{self, Links};
use shunt_soft_rdma::hooks::{self, cwd, readonly};
use shunt_soft_uverbs::ioctl::{Context, REQUEST};
use shunt_soft_uverbs::methods::run;
use shunt_soft_uverbs::verbs::firmware::short;
use std::ffi::CStr;

const DEVICE: &CStr = c"/dev/infiniband/uverbs0";
const INVOKE_WRITE: [u16; 2] = [0, 0];

/// A call in memory: object and method, then number, length and data of each attribute.
pub fn call([object, method]: [u16; 2], attributes: &[(u16, u16, u64)]) -> Vec<u64> {
    let length = (24 + 16 * attributes.len()) as u64;
    let head = length | (object as u64) << 16 | (method as u64) << 32 | (attributes.len() as u64) << 48;
    let mut words = vec![head, 0, 1];
    for (id, length, data) in attributes {
        words.extend([*id as u64 | (*length as u64) << 16 | 1 << 32, *data]);
    }
    words
}

/// As the C library returns it: 0, or what `errno` says.
fn ioctl(fd: i32, words: &mut [u64]) -> Result<(), i32> {
    // SAFETY: the call is well-formed, or its defects are what is tested: the other side checks every address.
    match unsafe { hooks::ioctl(fd, REQUEST, words.as_mut_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

fn open() -> i32 {
    // SAFETY: a path that ends with zero.
    let fd = unsafe { hooks::openat(libc::AT_FDCWD, DEVICE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    fd
}

/// The question by which libibverbs finds out how commands come: ENOSPC is the answer it wants.
fn probe(fd: i32) -> Result<(), i32> {
    ioctl(fd, &mut call(INVOKE_WRITE, &[(2, 4, 1)]))
}

/// ALLOC_PD: its handle, and its number in the firmware.
fn alloc_pd(fd: i32) -> (u32, u32) {
    let (response, mut handle, mut number) = (0u64, 0u32, 0u32);
    let out = [&raw mut handle as u64, &raw mut number as u64];
    let mut words = call(INVOKE_WRITE, &[(0, 8, response), (1, 4, out[0]), (2, 4, 3), (0x1001, 4, out[1])]);
    ioctl(fd, &mut words).unwrap();
    // SAFETY: written by the call, behind the compiler's back.
    unsafe { ((&raw const handle).read_volatile(), (&raw const number).read_volatile()) }
}

fn pd_is_there(number: u32) -> bool {
    let mut out = [0; 16];
    let nic = &Machine::get().unwrap().nics()[0];
    nic.command(&short(Opcode::DeallocPd, number), &mut out).unwrap();
    output::STATUS.get(&out) == 0
}

#[test]
fn a_file_lives_as_long_as_its_last_descriptor() {
    let (one, two) = (open(), open());
    // SAFETY: room for a status.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        assert_eq!(hooks::fstat(one, &mut status), 0);
        status
    };
    assert_eq!(status.st_mode & libc::S_IFMT, libc::S_IFCHR);
    assert_eq!((libc::major(status.st_rdev), libc::minor(status.st_rdev)), (231, 192));
    assert_eq!((probe(one), probe(two)), (Err(libc::ENOSPC), Err(libc::ENOSPC)));
    let ((first, pd), (second, other)) = (alloc_pd(one), alloc_pd(two));
    assert_eq!((first, second), (0, 0), "each file has its own handles");
    assert_ne!(pd, other);
    // SAFETY: plain numbers.
    let twin = unsafe { libc::dup(one) };
    assert_eq!(hooks::close(one), 0);
    assert_eq!(probe(twin), Err(libc::ENOSPC), "the twin is the file");
    assert_eq!(ioctl(twin, &mut call([1, 0], &[(0, 0, 7)])), Err(libc::ENOENT));
    a_child_does_no_harm(twin);
    assert_eq!(hooks::dup2(two, twin), twin, "which closes the last descriptor of the first");
    assert!(!pd_is_there(pd), "what was left of it is destroyed");
    assert_eq!(hooks::close(two), 0);
    assert_eq!(ioctl(twin, &mut call([1, 0], &[(0, 0, 0)])), Ok(()));
    assert_eq!(hooks::close(twin), 0);
    assert!(probe(twin).is_err_and(|error| error != libc::ENOSPC));
    assert!(!pd_is_there(other));
}

/// A child's calls on its parent's file fail, and its closing it is nothing to the parent.
fn a_child_does_no_harm(fd: i32) {
    // SAFETY: the child does nothing but the calls under test, and exits without running what the parent has to run.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let eio = probe(fd) == Err(libc::EIO);
        let closed = hooks::close(fd) == 0;
        // SAFETY: as above.
        unsafe { libc::_exit(if eio && closed { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a child of ours, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's calls");
    assert_eq!(probe(fd), Err(libc::ENOSPC));
}

#[test]
fn paths_lead_to_the_tree_and_back() {
    let open = |path: &CStr, flags| {
        // SAFETY: a path that ends with zero.
        unsafe { hooks::openat(libc::AT_FDCWD, path.as_ptr(), flags, 0) }
    };
    let directory = open(c"/sys//class/./infiniband_verbs/", libc::O_RDONLY | libc::O_DIRECTORY);
    assert!(directory >= 0);
    assert_eq!(hooks::close(directory), 0);
    for nowhere in [c"/dev/infiniband/uverbs99", c"/dev/infiniband/uverbs", c"/sys/class/infiniband/mlx5_99"]
    {
        assert_eq!(open(nowhere, libc::O_RDONLY), -1, "{nowhere:?}");
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOENT));
    }
    // SAFETY: a path that ends with zero; the result is the C library's memory until it is freed.
    let real = unsafe {
        let real = hooks::realpath(c"/sys/class/infiniband/mlx5_0/device".as_ptr(), std::ptr::null_mut());
        assert!(!real.is_null());
        let text = CStr::from_ptr(real).to_str().unwrap().to_owned();
        libc::free(real.cast());
        text
    };
    assert!(real.starts_with("/sys/devices/"), "{real}");
    // SAFETY: paths that end with zero, and no room for a status.
    unsafe {
        let device = DEVICE.as_ptr();
        assert_eq!(hooks::faccessat(libc::AT_FDCWD, device, libc::R_OK | libc::W_OK, 0), 0);
        assert_eq!(hooks::fstatat(libc::AT_FDCWD, device, std::ptr::null_mut(), 0), -1);
        assert_eq!(hooks::openat(libc::AT_FDCWD, std::ptr::null(), 0, 0), -1);
    }
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
}

fn failure() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

#[test]
fn the_working_directory_may_be_in_the_tree() {
    let shown = || {
        let mut room = [0u8; 256];
        // SAFETY: as much room as is said.
        assert!(!unsafe { cwd::getcwd(room.as_mut_ptr().cast(), room.len()) }.is_null());
        CStr::from_bytes_until_nul(&room).unwrap().to_str().unwrap().to_owned()
    };
    // SAFETY: paths that end with zero, and room for what is written; so for all below.
    let chdir = |path: &CStr| unsafe { cwd::chdir(path.as_ptr()) };
    let before = std::env::current_dir().unwrap();
    assert_eq!(chdir(c"/sys/class/infiniband"), 0);
    assert_eq!(shown(), "/sys/class/infiniband");
    let mut room = [0u8; 21];
    // SAFETY: as above.
    assert!(unsafe { cwd::getcwd(room.as_mut_ptr().cast(), room.len()) }.is_null(), "one byte too few");
    assert_eq!(failure(), Some(libc::ERANGE));
    // SAFETY: as above.
    unsafe {
        let name = c"mlx5_0/node_guid".as_ptr();
        assert_eq!(hooks::faccessat(libc::AT_FDCWD, name, libc::R_OK, 0), 0);
        assert_eq!(hooks::openat(libc::AT_FDCWD, name, libc::O_WRONLY, 0), -1);
        assert_eq!(failure(), Some(libc::EACCES));
    }
    assert_eq!(chdir(c".."), 0);
    assert_eq!(shown(), "/sys/class", "the machine's own");
    assert_eq!(chdir(c"/dev/infiniband"), 0);
    // SAFETY: as above.
    let fd = unsafe { hooks::openat(libc::AT_FDCWD, c"uverbs0".as_ptr(), libc::O_RDWR, 0) };
    assert_eq!(probe(fd), Err(libc::ENOSPC), "a device, by a relative path");
    assert_eq!(hooks::close(fd), 0);
    assert_eq!(chdir(DEVICE), -1);
    assert_eq!(failure(), Some(libc::ENOTDIR));
    assert_eq!(chdir(c"/sys/class/infiniband/none"), -1);
    assert_eq!(failure(), Some(libc::ENOENT));
    let before = std::ffi::CString::new(before.to_str().unwrap()).unwrap();
    assert_eq!(chdir(&before), 0);
    assert_eq!(shown().as_bytes(), before.as_bytes());
}

#[test]
fn nothing_in_the_tree_can_be_written() {
    // SAFETY: a path that ends with zero; so for all below.
    let open = |path: &CStr, flags| unsafe { hooks::openat(libc::AT_FDCWD, path.as_ptr(), flags, 0o600) };
    let (there, gone) = (c"/sys/class/infiniband/mlx5_0/fw_ver", c"/sys/class/infiniband/mlx5_0/none");
    let creates = libc::O_CREAT | libc::O_WRONLY;
    for (path, flags, error) in [
        (there, libc::O_WRONLY, libc::EACCES),
        (there, libc::O_RDWR, libc::EACCES),
        (there, creates | libc::O_TRUNC, libc::EACCES),
        (there, creates | libc::O_EXCL, libc::EEXIST),
        (gone, libc::O_WRONLY, libc::ENOENT),
        (gone, creates, libc::EACCES),
        (gone, libc::O_CREAT, libc::EACCES),
    ] {
        assert_eq!(open(path, flags), -1, "{path:?} {flags:#o}");
        assert_eq!(failure(), Some(error), "{path:?} {flags:#o}");
    }
    let fd = open(there, libc::O_RDONLY | libc::O_CREAT);
    assert!(fd >= 0, "nothing is made of what is there");
    assert_eq!(hooks::close(fd), 0);
    // SAFETY: as above.
    unsafe {
        let (path, at) = (there.as_ptr(), libc::AT_FDCWD);
        let device = DEVICE.as_ptr();
        let refused = |result| (result, failure()) == (-1, Some(libc::EACCES));
        assert!(refused(hooks::faccessat(at, path, libc::W_OK, 0)));
        assert!(hooks::fopen(path, c"r+".as_ptr()).is_null() && failure() == Some(libc::EACCES));
        assert!(refused(readonly::unlinkat(at, path, 0)) && refused(readonly::unlinkat(at, device, 0)));
        assert!(refused(readonly::mkdirat(at, gone.as_ptr(), 0o700)));
        assert!(refused(readonly::renameat2(at, c"/nowhere/x".as_ptr(), at, gone.as_ptr(), 0)));
        assert_eq!(hooks::faccessat(at, path, libc::R_OK, 0), 0, "it is still there");
    }
}

#[test]
fn what_ls_asks_has_answers() {
    let link = c"/sys/class/infiniband/mlx5_0";
    // SAFETY: paths that end with zero, and room for what is written.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let mut kind = |path: &CStr| {
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            assert_eq!(hooks::fstatat(libc::AT_FDCWD, path.as_ptr(), &mut status, flags), 0);
            status.st_mode & libc::S_IFMT
        };
        assert_eq!(kind(link), libc::S_IFLNK);
        assert_eq!(kind(c"/sys/class/infiniband/mlx5_0/."), libc::S_IFDIR);
        assert_eq!(kind(c"/sys/class/infiniband/mlx5_0/fw_ver"), libc::S_IFREG);
        for links in [Links::Followed, Links::Taken] {
            for path in [link, DEVICE] {
                let (name, to) = (c"user.none".as_ptr(), std::ptr::null_mut());
                assert_eq!(attributes::getxattr(links, path.as_ptr(), name, to, 0), -1);
                assert_ne!(failure(), Some(libc::ENOENT), "{path:?}");
            }
            assert_eq!(attributes::listxattr(links, DEVICE.as_ptr(), std::ptr::null_mut(), 0), 0);
            assert!(attributes::listxattr(links, link.as_ptr(), std::ptr::null_mut(), 0) >= 0);
        }
        let (mut system, mut portable) = (std::mem::zeroed(), std::mem::zeroed());
        for path in [link, DEVICE] {
            assert_eq!(attributes::statfs(path.as_ptr(), &mut system), 0);
            assert_eq!(attributes::statvfs(path.as_ptr(), &mut portable), 0);
            assert_eq!(system.f_bsize as u64, portable.f_bsize);
        }
    }
}

/// A call that may be anything. Addresses lead to `scratch`, to nothing, or to the kernel: nothing of this process
/// can be overwritten.
pub fn any_call(scratch: u64, bytes: u64) -> impl Strategy<Value = Vec<u64>> {
    let object = prop_oneof![4 => 0u16..18, 2 => 0x1000u16..0x100a, 1 => any::<u16>()];
    let method = prop_oneof![4 => 0u16..7, 2 => 0x1000u16..0x1005, 1 => any::<u16>()];
    let id = prop_oneof![6 => 0u16..15, 4 => 0x1000u16..0x1007, 1 => any::<u16>()];
    let length =
        prop_oneof![2 => Just(0u16), 4 => Just(4u16), 4 => Just(8u16), 6 => 9u16..400, 1 => 401u16..4096];
    let data = prop_oneof![
        4 => 0u64..64,
        6 => (0..bytes - 4096).prop_map(move |offset| scratch + offset),
        1 => 0u64..4096,
        1 => Just(u64::MAX - 7),
        1 => Just(1u64 << 63),
    ];
    let attribute = (id, length, data);
    (object, method, prop::collection::vec(attribute, 0..9))
        .prop_map(|(object, method, attributes)| call([object, method], &attributes))
}

#[test]
fn calls_that_are_anything_crash_nothing() {
    let runtime = Runtime::new();
    let nic = &runtime.start(1).nics()[0];
    let (context, _fd) = Context::open(nic, true).unwrap();
    let scratch = vec![0x2au64; 4096];
    let strategy = any_call(scratch.as_ptr() as u64, scratch.len() as u64 * 8);
    let mut runner = TestRunner::new(Config { cases: 4000, failure_persistence: None, ..Config::default() });
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let judge = |words: Vec<u64>| {
        // Channels that are made by chance are more than there may be descriptors.
        if descriptors() < before + 500 {
            let _ = run(&context, words.as_ptr() as u64);
        }
        Ok(())
    };
    runner.run(&strategy, judge).unwrap();
    // The header itself may be nothing, cut, or longer than it may be.
    assert_eq!(run(&context, 0), Err(Errno::FAULT));
    let short_of = call(INVOKE_WRITE, &[(2, 4, 1)]);
    for wrong in [0u64, 23, 24, 39, 41, 5000] {
        let mut words = short_of.clone();
        words[0] = words[0] & !0xffff | wrong;
        assert_eq!(run(&context, words.as_ptr() as u64), Err(Errno::INVAL), "{wrong} bytes");
    }
    let mut words = short_of.clone();
    words[1] = 1;
    assert_eq!(run(&context, words.as_ptr() as u64), Err(Errno::PROTONOSUPPORT));
    // It answers as before.
    assert_eq!(run(&context, short_of.as_ptr() as u64), Err(Errno::NOSPC));
    let unknown = call(INVOKE_WRITE, &[(2, 4, 1), (9, 0, 0)]);
    assert_eq!(run(&context, unknown.as_ptr() as u64), Err(Errno::PROTONOSUPPORT), "it is mandatory");
    let twice = call(INVOKE_WRITE, &[(2, 4, 1), (2, 4, 1)]);
    assert_eq!(run(&context, twice.as_ptr() as u64), Err(Errno::INVAL));
    assert_eq!(run(&context, call([77, 0], &[]).as_ptr() as u64), Err(Errno::PROTONOSUPPORT));
    context.close();
}
