//! Memory of the program around us, copied so that a bad address is an error and not a crash.

use crate::abi::Plain;
use rustix::io::Errno;

/// Memory pages of the system.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Reads as many bytes as `into` holds; EFAULT if they are not all there.
pub fn read(address: u64, into: &mut [u8]) -> Result<(), Errno> {
    let ours = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: `ours` is a live buffer of that length. The kernel checks the other side, which is what this is for.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    whole(copied, into.len())
}

/// Writes bytes; EFAULT if not all of them can be.
pub fn write(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let ours = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: `ours` is only read from. The program gave the address to be written to, and the kernel checks it.
    let copied = unsafe { libc::process_vm_writev(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    whole(copied, bytes.len())
}

/// Reads a value.
pub fn read_value<T: Plain>(address: u64) -> Result<T, Errno> {
    let mut value = T::zeroed();
    read(address, value.bytes_mut())?;
    Ok(value)
}

fn whole(copied: isize, wanted: usize) -> Result<(), Errno> {
    match copied {
        n if n == wanted as isize => Ok(()),
        n if n >= 0 => Err(Errno::FAULT),
        _ => Err(last_error()),
    }
}

/// Makes sure that a range is mapped, and writable if it must be: EFAULT if not. Pages that are not there yet are
/// brought in, and those shared until written are made private, as pinning does.
pub fn populate(address: u64, bytes: u64, writable: bool) -> Result<(), Errno> {
    let page = page_bytes();
    let first = address & !(page - 1);
    let end =
        address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page)).ok_or(Errno::FAULT)?;
    if bytes == 0 || usize::try_from(end).is_err() || end > i64::MAX as u64 {
        return Err(if bytes == 0 { Errno::INVAL } else { Errno::FAULT });
    }
    let advice = if writable { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: bringing pages in changes nothing that a program sees.
    if unsafe { libc::madvise(first as *mut libc::c_void, (end - first) as usize, advice) } == 0 {
        return Ok(());
    }
    match last_error() {
        // An old kernel, or memory of a device, which cannot be brought in: it is enough that it is mapped.
        Errno::INVAL => mapped(first, end, writable),
        Errno::NOMEM | Errno::FAULT => Err(Errno::FAULT),
        error => Err(error),
    }
}

/// Looks a range up in the list of mappings.
fn mapped(first: u64, end: u64, writable: bool) -> Result<(), Errno> {
    let list = std::fs::read_to_string("/proc/self/maps").map_err(|_| Errno::FAULT)?;
    covered(&list, first, end, writable).then_some(()).ok_or(Errno::FAULT)
}

/// True if the mappings of the list, which are in order, hold the whole range.
fn covered(list: &str, first: u64, end: u64, writable: bool) -> bool {
    let mut at = first;
    for line in list.lines() {
        let Some((range, rights)) = line.split_once(' ') else { continue };
        let Some((from, to)) = range.split_once('-') else { continue };
        let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)) else {
            continue;
        };
        if to <= at {
            continue;
        }
        if from > at || !rights.starts_with('r') || writable && rights.as_bytes().get(1) != Some(&b'w') {
            return false;
        }
        at = to;
        if at >= end {
            return true;
        }
    }
    false
}

/// What the C library put into `errno`.
pub fn last_error() -> Errno {
    let raw = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Errno::from_raw_os_error(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_are_copied_and_bad_ones_refused() {
        let mut there = [1u8, 2, 3, 4];
        let mut here = [0; 4];
        read(there.as_ptr() as u64, &mut here).unwrap();
        assert_eq!(here, [1, 2, 3, 4]);
        write(there.as_mut_ptr() as u64, &[9, 8]).unwrap();
        // SAFETY: a live array; written behind the compiler's back just now.
        assert_eq!(unsafe { std::ptr::read_volatile(&there) }, [9, 8, 3, 4]);
        assert_eq!(read(0, &mut here), Err(Errno::FAULT));
        assert_eq!(read(8, &mut here), Err(Errno::FAULT));
        assert_eq!(write(u64::MAX - 1, &here), Err(Errno::FAULT));
        assert_eq!(read(0, &mut []), Ok(()));
        // Code cannot be written to.
        assert_eq!(write(page_bytes as *const () as u64, &[0]), Err(Errno::FAULT));
    }

    #[test]
    fn ranges_are_there_or_not() {
        let memory = vec![7u8; 3 * page_bytes() as usize];
        let address = memory.as_ptr() as u64;
        assert_eq!(populate(address, memory.len() as u64, true), Ok(()));
        assert_eq!(populate(address + 1, 1, false), Ok(()));
        assert_eq!(populate(0, 1, false), Err(Errno::FAULT));
        assert_eq!(populate(address, 1 << 46, false), Err(Errno::FAULT));
        assert_eq!(populate(u64::MAX - 5, 10, false), Err(Errno::FAULT));
        assert_eq!(populate(address, 0, false), Err(Errno::INVAL));
        assert_eq!(populate(page_bytes as *const () as u64, 8, true), Err(Errno::FAULT));
        assert_eq!(populate(page_bytes as *const () as u64, 8, false), Ok(()));
        assert!(memory.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn holes_in_the_list_of_mappings_are_seen() {
        let list = "1000-3000 r--p 0 0 0 x\n3000-5000 rw-p 0 0\n6000-7000 rw-s 0 0\n8000-9000 ---p 0 0\n";
        assert!(covered(list, 0x1000, 0x5000, false) && covered(list, 0x3000, 0x5000, true));
        assert!(covered(list, 0x6000, 0x7000, true));
        assert!(!covered(list, 0x1000, 0x5000, true) && !covered(list, 0x4000, 0x7000, false));
        assert!(!covered(list, 0x8000, 0x9000, false) && !covered(list, 0x6000, 0x8000, false));
        assert!(!covered(list, 0x0, 0x1000, false) && !covered("", 0, 1, false));
    }
}
