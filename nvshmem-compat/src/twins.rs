//! Another `libnvshmem_host.so` in this process, as some builds of PyTorch bring along: two libraries with the same
//! symbols would each see half of the calls.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The other library.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "another NVSHMEM library is loaded in this process: {}; this one is {}. Calls would be split between the two: \
     start the program without the other one",
    other.display(),
    own.display()
)]
pub struct Twin {
    /// Where it lies.
    pub other: PathBuf,
    /// Where this one lies.
    pub own: PathBuf,
}

/// One library of this process: its file and its first address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// File.
    pub path: PathBuf,
    /// First and last address of its segments.
    pub span: (u64, u64),
}

/// Whether a file is a host library of NVSHMEM, by its name.
fn is_host_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.strip_prefix(b"libnvshmem_host.so").is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
}

/// The first library that is one and does not hold `address`, which lies in this one.
pub fn twin(libraries: &[Loaded], address: u64) -> Option<Twin> {
    let holds = |library: &&Loaded| (library.span.0..=library.span.1).contains(&address);
    let own =
        libraries.iter().find(holds).map_or_else(|| PathBuf::from("the program"), |own| own.path.clone());
    let other = libraries.iter().find(|library| is_host_library(&library.path) && !holds(library))?;
    Some(Twin { other: other.path.clone(), own })
}

/// Refuses a process that has another one.
///
/// # Errors
/// There is one.
pub fn check() -> Result<(), Twin> {
    let here = check as fn() -> Result<(), Twin> as usize as u64;
    twin(&libraries(), here).map_or(Ok(()), Err)
}

/// All libraries of this process.
pub fn libraries() -> Vec<Loaded> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, to: *mut c_void) -> c_int {
        // SAFETY: the loader passes what it knows of one object, and `to` is the vector below.
        let (info, to) = unsafe { (&*info, &mut *to.cast::<Vec<Loaded>>()) };
        if info.dlpi_name.is_null() {
            return 0;
        }
        // SAFETY: a string of the loader's that lives while its object does; the loader is locked here.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        let mut span = (u64::MAX, 0);
        for at in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: the object has so many headers.
            let header = unsafe { &*info.dlpi_phdr.add(at) };
            if header.p_type == libc::PT_LOAD {
                let first = info.dlpi_addr + header.p_vaddr;
                span = (span.0.min(first), span.1.max(first + header.p_memsz.saturating_sub(1)));
            }
        }
        to.push(Loaded { path: PathBuf::from(OsStr::from_bytes(name.to_bytes())), span });
        0
    }
    let mut all: Vec<Loaded> = Vec::new();
    // SAFETY: the callback has the right shape, does not unwind, and the vector outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut all).cast()) };
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(path: &str, first: u64, last: u64) -> Loaded {
        Loaded { path: path.into(), span: (first, last) }
    }

    #[test]
    fn the_other_one_is_found_and_both_are_named() {
        let ours = loaded("/opt/shunt/lib/libnvshmem_host.so.3", 0x1000, 0x1fff);
        let usual = [loaded("", 0, 0xfff), ours.clone(), loaded("/lib/libc.so.6", 0x2000, 0x2fff)];
        assert_eq!(twin(&usual, 0x1800), None);
        let other = loaded("/venv/nvidia/nvshmem/lib/libnvshmem_host.so.3", 0x3000, 0x3fff);
        let met = twin(&[&usual[..], &[other]].concat(), 0x1800).unwrap().to_string();
        assert!(met.contains("/venv/nvidia/nvshmem/lib/libnvshmem_host.so.3;"), "{met}");
        assert!(met.contains("this one is /opt/shunt/lib/libnvshmem_host.so.3"), "{met}");
    }

    #[test]
    fn names() {
        for (path, yes) in [
            ("/x/libnvshmem_host.so", true),
            ("libnvshmem_host.so.3.8.0", true),
            ("/x/libnvshmem_host.so3", false),
            ("/libnvshmem_host.so.3/libc.so", false),
            ("/x/nvshmem_bootstrap_uid.so.3", false),
        ] {
            assert_eq!(is_host_library(Path::new(path)), yes, "{path}");
        }
    }

    #[test]
    fn this_process_has_libraries_and_no_twin() {
        let all = libraries();
        let here = this_process_has_libraries_and_no_twin as fn() as usize as u64;
        assert!(all.iter().any(|library| (library.span.0..=library.span.1).contains(&here)), "{all:?}");
        assert!(all.iter().any(|library| library.path.to_string_lossy().contains("libc")), "{all:?}");
        assert_eq!(check(), Ok(()));
    }
}
