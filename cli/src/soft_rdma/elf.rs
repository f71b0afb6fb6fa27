//! Whether the loader will put a library into a program: it does so for dynamic programs of its own kind alone.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Scripts that name scripts that name scripts.
const DEPTH: u32 = 4;
/// Program headers looked at; real programs have a dozen.
const HEADERS_MAX: u64 = 256;
/// Bytes of a script's first line that the kernel reads.
const FIRST_LINE: usize = 256;
const PT_INTERP: u32 = 3;
/// The type of a library, and of most programs.
const ET_DYN: u16 = 3;

/// Why a program would run without devices.
#[derive(Debug, Error)]
pub enum NoPreload {
    /// It has no loader.
    #[error(
        "{0:?} is a static program: no library can be preloaded into it; expected a dynamically linked program"
    )]
    Static(PathBuf),
    /// The loader ignores LD_PRELOAD.
    #[error(
        "{0:?}: expected a program with this user's rights, got setuid or setgid: the loader puts no library into it; \
         take a copy"
    )]
    OtherRights(PathBuf),
    /// The library is for another machine.
    #[error("{0:?}: expected a program for this processor, got one for another")]
    OtherMachine(PathBuf),
    /// Neither a program nor a script.
    #[error("{0:?}: expected an ELF program or a script, got neither")]
    NoProgram(PathBuf),
    /// Not what the loader puts into programs.
    #[error("{0:?}: expected libshunt_soft_rdma.so, got no shared library for this machine")]
    NoLibrary(PathBuf),
    /// It cannot be read.
    #[error("{path:?} cannot be read: {cause}")]
    Io {
        /// The program.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

/// Makes sure that a program will have the library: it itself, or for a script the program that reads it.
pub fn check(program: &Path) -> Result<(), NoPreload> {
    check_deep(program, DEPTH)
}

fn check_deep(program: &Path, depth: u32) -> Result<(), NoPreload> {
    let failed = |cause| NoPreload::Io { path: program.into(), cause };
    let file = File::open(program).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let (user, group) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let mut start = Vec::new();
    (&file).take(FIRST_LINE as u64).read_to_end(&mut start).map_err(failed)?;
    if let Some(interpreter) = interpreter(&start) {
        // The kernel ignores the rights of a script.
        let next = depth.checked_sub(1).ok_or_else(|| NoPreload::NoProgram(program.into()))?;
        return check_deep(&interpreter, next);
    }
    if changes_rights(about.mode(), (about.uid(), user), (about.gid(), group)) {
        return Err(NoPreload::OtherRights(program.into()));
    }
    match kind(&start, |at, bytes| file.read_exact_at(bytes, at)).map_err(failed)? {
        Kind::Dynamic => Ok(()),
        Kind::Static => Err(NoPreload::Static(program.into())),
        Kind::OtherMachine => Err(NoPreload::OtherMachine(program.into())),
        Kind::NoElf => Err(NoPreload::NoProgram(program.into())),
    }
}

/// Makes sure that the loader takes a file as a library. It would leave it out with no more than a warning.
pub fn check_library(path: &Path) -> Result<(), NoPreload> {
    let failed = |cause| NoPreload::Io { path: path.into(), cause };
    // Before it is opened: a pipe would not be.
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(NoPreload::NoLibrary(path.into()));
    }
    let file = File::open(path).map_err(failed)?;
    let mut start = Vec::new();
    (&file).take(FIRST_LINE as u64).read_to_end(&mut start).map_err(failed)?;
    match kind(&start, |at, bytes| file.read_exact_at(bytes, at)).map_err(failed)? {
        Kind::Dynamic | Kind::Static if start[16..18] == ET_DYN.to_ne_bytes() => Ok(()),
        _ => Err(NoPreload::NoLibrary(path.into())),
    }
}

/// The program that reads a script.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(word)))
}

/// True if the kernel would start it with other rights than the caller's; owner and caller, group and caller's group.
fn changes_rights(mode: u32, user: (u32, u32), group: (u32, u32)) -> bool {
    let setgid = mode & 0o2010 == 0o2010; // without the right to execute it means something else
    mode & 0o4000 != 0 && user.0 != user.1 || setgid && group.0 != group.1
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Dynamic,
    Static,
    OtherMachine,
    NoElf,
}

/// What the header of a file says, with a function that reads more of it.
fn kind(start: &[u8], read: impl Fn(u64, &mut [u8]) -> io::Result<()>) -> io::Result<Kind> {
    if start.len() < 20 || !start.starts_with(b"\x7fELF") {
        return Ok(Kind::NoElf);
    }
    // 64 bits, and this byte order; the processor at 18.
    let machine = u16::from_ne_bytes([start[18], start[19]]);
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if start[4] != 2 || start[5] != order || Some(machine) != this_machine() {
        return Ok(Kind::OtherMachine);
    }
    if start.len() < 64 {
        return Ok(Kind::NoElf);
    }
    let number = |at: usize| u16::from_ne_bytes([start[at], start[at + 1]]) as u64;
    let (size, count) = (number(54), number(56).min(HEADERS_MAX));
    let table = u64::from_ne_bytes(start[32..40].try_into().unwrap_or_default());
    for n in 0..count {
        let mut tag = [0; 4];
        match read(table.saturating_add(n * size), &mut tag) {
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => return Ok(Kind::NoElf),
            done => done?,
        }
        if u32::from_ne_bytes(tag) == PT_INTERP {
            return Ok(Kind::Dynamic);
        }
    }
    Ok(Kind::Static)
}

/// The processor as ELF numbers it.
fn this_machine() -> Option<u16> {
    match std::env::consts::ARCH {
        "x86_64" => Some(62),
        "aarch64" => Some(183),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(tags: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        file[18..20].copy_from_slice(&this_machine().unwrap().to_ne_bytes());
        file[32..40].copy_from_slice(&64u64.to_ne_bytes());
        file[54..56].copy_from_slice(&56u16.to_ne_bytes());
        file[56..58].copy_from_slice(&(tags.len() as u16).to_ne_bytes());
        for tag in tags {
            file.extend(tag.to_ne_bytes());
            file.extend([0; 52]);
        }
        file
    }

    fn kind_of(file: &[u8]) -> Kind {
        kind(&file[..file.len().min(FIRST_LINE)], |at, bytes| {
            let found = usize::try_from(at).ok().and_then(|at| file.get(at..at.checked_add(bytes.len())?));
            bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
        .unwrap()
    }

    #[test]
    fn a_loader_makes_a_program_dynamic() {
        assert_eq!(kind_of(&elf(&[6, PT_INTERP, 1])), Kind::Dynamic);
        assert_eq!(kind_of(&elf(&[1, 1, 2])), Kind::Static);
        assert_eq!(kind_of(&elf(&[])), Kind::Static);
    }

    #[test]
    fn files_that_are_something_else() {
        assert_eq!(kind_of(b"hello"), Kind::NoElf);
        assert_eq!(kind_of(&elf(&[1])[..40]), Kind::NoElf);
        let mut cut = elf(&[1, 1]);
        cut.truncate(70);
        assert_eq!(kind_of(&cut), Kind::NoElf);
        let mut other = elf(&[PT_INTERP]);
        other[18] = 8;
        assert_eq!(kind_of(&other), Kind::OtherMachine);
        let mut lost = elf(&[1]);
        lost[32..40].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(kind_of(&lost), Kind::NoElf);
    }

    #[test]
    fn scripts_name_their_reader() {
        assert_eq!(interpreter(b"#! /usr/bin/env python3\nrest"), Some("/usr/bin/env".into()));
        assert_eq!(interpreter(b"#!/bin/sh"), Some("/bin/sh".into()));
        assert_eq!(interpreter(b"#!\n/bin/sh"), None);
        assert_eq!(interpreter(b"\x7fELF"), None);
    }

    #[test]
    fn rights_that_change() {
        assert!(changes_rights(0o104755, (0, 1000), (0, 1000)));
        assert!(changes_rights(0o102755, (1000, 1000), (5, 1000)));
        assert!(!changes_rights(0o104755, (0, 0), (0, 0)), "root's own rights");
        assert!(!changes_rights(0o102644, (0, 1000), (5, 1000)), "mandatory locks, once");
        assert!(!changes_rights(0o100755, (0, 1000), (0, 1000)));
    }

    #[test]
    fn programs_of_this_machine() {
        check(Path::new("/bin/sh")).unwrap();
        let missing = check(Path::new("/nonexistent/x")).unwrap_err();
        assert!(matches!(missing, NoPreload::Io { .. }), "{missing}");
        let text = check(Path::new("/etc/passwd")).unwrap_err();
        assert!(text.to_string().contains("expected an ELF program or a script, got neither"), "{text}");
    }
}
