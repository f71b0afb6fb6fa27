//! Another `libnvshmem_host.so` in this process, as builds of PyTorch for CUDA bring along. That it is mapped matters
//! to nobody: this library has a name of its own, and who was linked against it is bound to it. Two that are both
//! initialised would each see half of a job.

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The other library.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "another NVSHMEM library of this process is initialised: {}; this one is {}. A job is of one of the two: do not \
     use the other one (in PyTorch: symmetric memory over NVSHMEM)",
    other.display(),
    own.display()
)]
pub struct DuplicateLibrary {
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
    let names: [&[u8]; 2] = [b"libnvshmem_host.so", b"libshunt_nvshmem.so"];
    let rest = names.iter().find_map(|own| name.strip_prefix(*own));
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
}

/// True if a library of this process says that it is initialised, or bootstrapped (`nvshmemx_init_status`). One that
/// does not know the question is no NVSHMEM.
fn is_initialised(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the name of an object that is loaded: nothing is loaded or run, its count goes up and down again.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: a handle of the loader's; it is closed below, once.
    let symbol = unsafe { libc::dlsym(handle, c"nvshmemx_init_status".as_ptr()) };
    // SAFETY: NVSHMEM 2.0 to 3.8 declare it as `int (void)`. It may be called before any init.
    let status = (!symbol.is_null())
        .then(|| unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(symbol)() });
    // SAFETY: the handle from above.
    unsafe { libc::dlclose(handle) };
    status.is_some_and(|status| status > 0)
}

/// The first library that is one, does not hold `address`, which lies in this one, and is `initialised`.
pub fn find(
    libraries: &[Loaded],
    address: u64,
    initialised: impl Fn(&Path) -> bool,
) -> Option<DuplicateLibrary> {
    let holds = |library: &&Loaded| (library.span.0..=library.span.1).contains(&address);
    let own =
        libraries.iter().find(holds).map_or_else(|| PathBuf::from("the program"), |own| own.path.clone());
    let other = libraries
        .iter()
        .find(|library| is_host_library(&library.path) && !holds(library) && initialised(&library.path))?;
    Some(DuplicateLibrary { other: other.path.clone(), own })
}

/// Refuses a process in which another one is initialised.
///
/// # Errors
/// There is one.
pub fn check() -> Result<(), DuplicateLibrary> {
    let here = check as fn() -> Result<(), DuplicateLibrary> as usize as u64;
    find(&libraries(), here, is_initialised).map_or(Ok(()), Err)
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
        let ours = loaded("/opt/shunt/lib/libshunt_nvshmem.so.3", 0x1000, 0x1fff);
        let usual = [loaded("", 0, 0xfff), ours.clone(), loaded("/lib/libc.so.6", 0x2000, 0x2fff)];
        assert_eq!(find(&usual, 0x1800, |_| true), None);
        let other = loaded("/venv/nvidia/nvshmem/lib/libnvshmem_host.so.3", 0x3000, 0x3fff);
        let both = [&usual[..], &[other]].concat();
        assert_eq!(find(&both, 0x1800, |_| false), None, "no library uses it");
        let met = find(&both, 0x1800, |_| true).unwrap().to_string();
        assert!(met.contains("/venv/nvidia/nvshmem/lib/libnvshmem_host.so.3;"), "{met}");
        assert!(met.contains("this one is /opt/shunt/lib/libshunt_nvshmem.so.3"), "{met}");
    }

    #[test]
    fn names() {
        for (path, yes) in [
            ("/x/libnvshmem_host.so", true),
            ("libnvshmem_host.so.3.8.0", true),
            ("/x/libnvshmem_host.so3", false),
            ("/libnvshmem_host.so.3/libc.so", false),
            ("/opt/shunt/lib/libshunt_nvshmem.so.3", true),
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
