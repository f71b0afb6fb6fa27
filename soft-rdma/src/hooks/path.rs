//! Paths that lead to soft devices, and where they lead.
//!
//! Every path a program opens comes by here: looking at one allocates nothing and takes no lock.

use super::buffer::Buffer;
use super::directory;
use super::errno::guard;
use shunt_soft_machine::log::Level;
use shunt_soft_machine::machine::Machine;
use shunt_soft_machine::sysfs::is_ours;
use std::cell::Cell;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Once;

/// What the files of verbs begin with.
const UVERBS: &[u8] = b"/dev/infiniband/uverbs";
/// The file of connections.
const CONNECTIONS: &[u8] = b"/dev/infiniband/rdma_cm";

/// A device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Of the NIC of this index.
    Uverbs(u32),
    /// Of connections.
    Connections,
}

/// Where a path leads.
pub enum Place {
    /// Not to soft devices.
    Elsewhere,
    /// To a file or directory of the tree that stands for sysfs.
    Tree(Box<Buffer>),
    /// To a device file.
    Device(Node),
    /// Nowhere: it is a path of soft devices, and this process has none.
    Nowhere,
}

/// The path without empty components and those that are a dot. `None` if it cannot be ours: not absolute, not below
/// a directory that devices are in, or too long.
fn squeezed(path: &[u8]) -> Option<Buffer> {
    if path.first() != Some(&b'/') {
        return None;
    }
    let mut parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let first = parts.next().filter(|first| matches!(*first, b"sys" | b"dev"))?;
    let mut buffer = Buffer::new();
    for part in std::iter::once(first).chain(parts) {
        if !buffer.push(b"/") || !buffer.push(part) {
            return None;
        }
    }
    // A slash or a dot at the end asks for a directory, and follows the link before it.
    if (path.ends_with(b"/") || path.ends_with(b"/.")) && !buffer.push(b"/") {
        return None;
    }
    Some(buffer)
}

/// N of `/dev/infiniband/uverbsN`.
fn device(path: &[u8]) -> Option<u32> {
    let number = std::str::from_utf8(path.strip_prefix(UVERBS)?).ok()?;
    let plain =
        number.bytes().all(|byte| byte.is_ascii_digit()) && (number == "0" || !number.starts_with('0'));
    if plain { number.parse().ok() } else { None }
}

/// Where a path of the program leads.
///
/// # Safety
/// `path` is null or a string that ends with zero, as the C library demands it.
pub unsafe fn place(path: *const libc::c_char) -> Place {
    // SAFETY: the caller's promise.
    unsafe { place_at(libc::AT_FDCWD, path) }
}

/// The same of a path that is relative to a directory. One relative to another directory than the working directory
/// is nothing of ours: its descriptor leads into the tree already.
///
/// # Safety
/// As above.
pub unsafe fn place_at(directory: libc::c_int, path: *const libc::c_char) -> Place {
    if path.is_null() {
        return Place::Elsewhere;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    match path.first() {
        Some(b'/') => absolute(path),
        Some(_) if directory == libc::AT_FDCWD => {
            directory::joined(path).map_or(Place::Elsewhere, |path| absolute(path.as_bytes()))
        }
        _ => Place::Elsewhere,
    }
}

fn absolute(path: &[u8]) -> Place {
    match squeezed(path) {
        Some(squeezed) if is_ours(squeezed.as_bytes()) => ours(squeezed.as_bytes()),
        _ => Place::Elsewhere,
    }
}

thread_local! {
    /// This thread makes the machine. Paths it opens for that are not soft devices', even if the working directory is.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

#[cold]
fn ours(path: &[u8]) -> Place {
    if MAKING.replace(true) {
        return Place::Elsewhere;
    }
    // A tree of the program before this one may go now, with the working directory in it.
    let directory = if Machine::made().is_none() { directory::current() } else { None };
    let machine = guard(|| Ok(Machine::get()));
    MAKING.set(false);
    if let (Some(directory), Ok(Ok(machine))) = (directory, &machine) {
        directory::settle(machine.sysfs_root().as_os_str().as_bytes(), &directory);
    }
    let Ok(Ok(machine)) = machine else { return Place::Nowhere };
    if let Some(index) = device(path) {
        return if (index as usize) < machine.nics().len() {
            Place::Device(Node::Uverbs(index))
        } else {
            Place::Nowhere
        };
    }
    if path == CONNECTIONS {
        return connections(machine);
    }
    machine.looked_at(path);
    let mut buffer = Box::new(Buffer::new());
    match buffer.push(machine.sysfs_root().as_os_str().as_bytes()) && buffer.push(path) {
        true => Place::Tree(buffer),
        false => Place::Nowhere,
    }
}

/// The device file of connections: there is none where processes have no folder in common.
fn connections(machine: &Machine) -> Place {
    static SAID: Once = Once::new();
    if machine.connects() {
        return Place::Device(Node::Connections);
    }
    SAID.call_once(|| {
        shunt_soft_machine::log!(
            Level::Warn,
            "no rdma_cm with --roce: connections of librdmacm work between processes of one fabric only"
        );
    });
    Place::Nowhere
}

/// Takes the tree's own place off the front of a path that was found in it. Says how long the path is then; it stays
/// as it is if it does not lie in the tree.
pub fn mapped_back(path: &mut [u8]) -> usize {
    let whole = path.len();
    let Some(machine) = Machine::made() else { return whole };
    let root = machine.sysfs_root().as_os_str().as_bytes();
    strip(path, root)
}

fn strip(path: &mut [u8], root: &[u8]) -> usize {
    let whole = path.len();
    match path.strip_prefix(root) {
        Some(rest) if rest.first() == Some(&b'/') => {
            path.copy_within(root.len().., 0);
            whole - root.len()
        }
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer::MAX_BYTES;
    use super::*;
    use proptest::prelude::*;

    fn squeeze(path: &str) -> Option<String> {
        squeezed(path.as_bytes()).map(|buffer| String::from_utf8(buffer.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn odd_spellings_are_the_same_path() {
        assert_eq!(squeeze("/sys/class/infiniband").unwrap(), "/sys/class/infiniband");
        assert_eq!(squeeze("//sys/./class///infiniband/").unwrap(), "/sys/class/infiniband/");
        assert_eq!(squeeze("/sys/class/infiniband/.").unwrap(), "/sys/class/infiniband/");
        assert_eq!(squeeze("/dev/infiniband/./uverbs0").unwrap(), "/dev/infiniband/uverbs0");
        for elsewhere in
            ["", "sys/class/infiniband", "/", "/proc/self/fd", "/system/class/infiniband", "./sys"]
        {
            assert_eq!(squeeze(elsewhere), None, "{elsewhere}");
        }
        assert_eq!(squeeze(&format!("/sys/{}", "x".repeat(MAX_BYTES))), None);
    }

    #[test]
    fn device_files() {
        assert_eq!(device(b"/dev/infiniband/uverbs0"), Some(0));
        assert_eq!(device(b"/dev/infiniband/uverbs17"), Some(17));
        for other in ["", "01", "+1", "1/", "x", "99999999999"] {
            assert_eq!(device(format!("/dev/infiniband/uverbs{other}").as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn results_are_mapped_back() {
        let mut path = *b"/run/tree/sys/class/infiniband";
        let length = strip(&mut path, b"/run/tree");
        assert_eq!(&path[..length], b"/sys/class/infiniband");
        let mut path = *b"/run/treehouse/x";
        assert_eq!(strip(&mut path, b"/run/tree"), path.len());
        assert_eq!(&path, b"/run/treehouse/x");
    }

    proptest! {
        #[test]
        fn squeezing_twice_is_squeezing_once(path in "[/.a-z]{0,40}") {
            let path = format!("/sys/{path}");
            let once = squeeze(&path).unwrap();
            prop_assert_eq!(squeeze(&once).unwrap(), once.clone());
            prop_assert!(!once.contains("//") && !once.contains("/./"));
        }
    }
}
