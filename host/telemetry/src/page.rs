//! Status pages in shared memory: made, written, read, swept. See [`shunt_layout::status`].
//!
//! The only file of the events with raw pointers. A page is words that are read and written atomically; its writer
//! holds a lock on the file for as long as it lives, so that the one that can take the lock knows that it is gone.

use rustix::fs::{FlockOperation, flock};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use shunt_layout::status::{
    STATUS_MAGIC, STATUS_PEERS, STATUS_RAILS, STATUS_VERSION, StatusPage, StatusSummary,
};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, SystemTime};
use thiserror::Error;

const BYTES: usize = size_of::<StatusPage>();
const WORDS: usize = BYTES / 8;
const SEQUENCE: usize = offset_of!(StatusPage, sequence) / 8;
const SUMMARY: usize = offset_of!(StatusPage, summary) / 8;
/// Reads of a page that is always being written before it counts as torn.
const TRIES: u32 = 1000;
/// A page that was begun and not finished is a leftover after this long.
const BEGUN: Duration = Duration::from_secs(60);

/// Why there is no page.
#[derive(Debug, Error)]
pub enum PageError {
    /// A system call.
    #[error("{}: {doing}: {error}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The folder is somebody else's.
    #[error(
        "{}: belongs to user {owner} with mode {mode:03o}; expected a folder of user {user} that no other may write",
        path.display()
    )]
    Folder {
        /// Folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
        /// This user.
        user: u32,
    },
    /// Not a page of this version.
    #[error("{}: no status page of this version: {what}: expected {want:#x}, got {met:#x}", path.display())]
    Bad {
        /// File.
        path: PathBuf,
        /// What was looked at.
        what: &'static str,
        /// What was met.
        met: u64,
        /// What would be right.
        want: u64,
    },
    /// Its writer stopped in the middle of it.
    #[error("{}: its writer stopped in the middle of a change", path.display())]
    Torn {
        /// File.
        path: PathBuf,
    },
}

fn failed<'a>(path: &'a Path, doing: &'static str) -> impl FnOnce(io::Error) -> PageError + 'a {
    move |error| PageError::Io { path: path.to_owned(), doing, error }
}

/// Where pages of a user lie.
pub fn folder_of(user: u32) -> PathBuf {
    PathBuf::from(format!("/dev/shm/shunt-{user}"))
}

/// A page of memory that is a file's.
struct Mapping(*mut AtomicU64);

// SAFETY: the memory is shared by nature and accessed atomically alone; the pointer is valid until the drop.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the system's choice; the file is at least as long, which both
        // callers made sure of.
        let address = unsafe { mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Self(address.cast()))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS, "a word of the page");
        // SAFETY: in bounds, aligned, mapped until the drop.
        unsafe { &*self.0.add(index) }
    }

    /// Copies `words` words from `first` on, if nobody changed them meanwhile.
    fn read(&self, first: usize, to: &mut [u64]) -> bool {
        for _ in 0..TRIES {
            let before = self.word(SEQUENCE).load(Ordering::Acquire);
            if before & 1 == 0 {
                for (index, word) in to.iter_mut().enumerate() {
                    *word = self.word(first + index).load(Ordering::Relaxed);
                }
                fence(Ordering::Acquire);
                if self.word(SEQUENCE).load(Ordering::Relaxed) == before {
                    return true;
                }
            }
            std::hint::spin_loop();
        }
        false
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody refers to it any more.
        let _ = unsafe { munmap(self.0.cast(), BYTES) };
    }
}

/// The page of a living agent. Dropping it removes the file.
pub struct PageWriter {
    map: Mapping,
    path: PathBuf,
    last: Box<StatusPage>,
    _locked: File,
}

impl PageWriter {
    /// Makes a page in `folder`, which is made if it is not there. Sweeps what killed processes left.
    ///
    /// # Errors
    /// [`PageError`] with what was met.
    pub fn create(folder: &Path, page: &StatusPage) -> Result<Self, PageError> {
        own_folder(folder)?;
        sweep(folder);
        let name = format!("{}-{}", page.pid, page.pe);
        let (begun, path) = (folder.join(format!(".{name}")), folder.join(name));
        let _ = std::fs::remove_file(&begun);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o644).custom_flags(nix::libc::O_NOFOLLOW);
        let file = options.open(&begun).map_err(failed(&begun, "cannot be made"))?;
        let rest = || {
            file.set_len(BYTES as u64)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            let map = Mapping::new(&file, ProtFlags::READ | ProtFlags::WRITE)?;
            for (index, word) in words_of(page).iter().enumerate().skip(1).take(SEQUENCE - 1) {
                map.word(index).store(*word, Ordering::Relaxed);
            }
            map.word(0).store(STATUS_MAGIC, Ordering::Release);
            std::fs::rename(&begun, &path)?;
            Ok(map)
        };
        let map = rest().map_err(|error| {
            let _ = std::fs::remove_file(&begun);
            failed(&path, "cannot be made")(error)
        })?;
        let mut writer = Self { map, path, last: Box::new(*page), _locked: file };
        writer.publish(page);
        Ok(writer)
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what changes. The generation goes on if anything but the time did.
    pub fn publish(&mut self, page: &StatusPage) {
        let same = |page: &StatusPage| {
            let summary = StatusSummary { updated_unix_ns: 0, generation: 0, ..page.summary };
            (summary, page.rail, page.peer, page.mask)
        };
        let changed = same(page) != same(&self.last);
        let generation = self.last.summary.generation + changed as u64;
        *self.last = *page;
        self.last.summary.generation = generation;
        let sequence = self.map.word(SEQUENCE).load(Ordering::Relaxed);
        self.map.word(SEQUENCE).store(sequence | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (index, word) in words_of(&self.last).iter().enumerate().skip(SUMMARY) {
            self.map.word(index).store(*word, Ordering::Relaxed);
        }
        self.map.word(SEQUENCE).store((sequence | 1) + 1, Ordering::Release);
    }
}

impl Drop for PageWriter {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A page of somebody, mapped read-only.
pub struct PageReader {
    map: Mapping,
    path: PathBuf,
    file: File,
}

impl PageReader {
    /// Opens a page.
    ///
    /// # Errors
    /// [`PageError`] with what was met and what would be right.
    pub fn open(path: &Path) -> Result<Self, PageError> {
        let mut options = OpenOptions::new();
        // A pipe of that name must not stop anybody.
        options.read(true).custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW);
        let file = options.open(path).map_err(failed(path, "cannot be opened"))?;
        let bytes = file.metadata().map_err(failed(path, "cannot be looked at"))?.len();
        let bad = |what, met, want| Err(PageError::Bad { path: path.to_owned(), what, met, want });
        if bytes != BYTES as u64 {
            return bad("its length", bytes, BYTES as u64);
        }
        let map = Mapping::new(&file, ProtFlags::READ).map_err(failed(path, "cannot be mapped"))?;
        let magic = map.word(0).load(Ordering::Acquire);
        if magic != STATUS_MAGIC {
            return bad("its first word", magic, STATUS_MAGIC);
        }
        let lengths = map.word(1).load(Ordering::Relaxed);
        let (version, bytes) = (lengths & u64::from(u32::MAX), lengths >> 32);
        if version != u64::from(STATUS_VERSION) {
            return bad("its version", version, u64::from(STATUS_VERSION));
        }
        if bytes != BYTES as u64 {
            return bad("the size it names", bytes, BYTES as u64);
        }
        Ok(Self { map, path: path.to_owned(), file })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn torn(&self) -> PageError {
        PageError::Torn { path: self.path.clone() }
    }

    /// What a framework looks at in passing: no system call, no lock, 25 words.
    ///
    /// # Errors
    /// [`PageError::Torn`].
    #[inline]
    pub fn summary(&self) -> Result<StatusSummary, PageError> {
        const SUMMARY_WORDS: usize = size_of::<StatusSummary>() / 8;
        let mut words = [0; SUMMARY_WORDS];
        if !self.map.read(SUMMARY, &mut words) {
            return Err(self.torn());
        }
        // SAFETY: equally long, and any bits are a summary: integers without padding.
        Ok(unsafe { std::mem::transmute::<[u64; SUMMARY_WORDS], StatusSummary>(words) })
    }

    /// All of it. What it says of rails and PEs is cut to what a page has room for.
    ///
    /// # Errors
    /// [`PageError::Torn`].
    pub fn page(&self) -> Result<Box<StatusPage>, PageError> {
        let mut words = Box::new([0u64; WORDS]);
        if !self.map.read(0, &mut words[..]) {
            return Err(self.torn());
        }
        let mut page = zeroed();
        // SAFETY: equally long, and any bits are a page: integers without padding.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr(), std::ptr::from_mut(&mut *page).cast(), WORDS)
        };
        page.rails = page.rails.min(STATUS_RAILS as u32);
        page.pe_count = page.pe_count.min(STATUS_PEERS as u32);
        Ok(page)
    }

    /// True while the process that writes it lives.
    pub fn is_alive(&self) -> bool {
        match flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = flock(&self.file, FlockOperation::Unlock);
                false
            }
            Err(_) => true,
        }
    }
}

/// A page of zeros.
pub fn zeroed() -> Box<StatusPage> {
    // SAFETY: zero is a value of every field: integers and arrays of them.
    Box::new(unsafe { std::mem::zeroed() })
}

fn words_of(page: &StatusPage) -> &[u64; WORDS] {
    // SAFETY: `repr(C)` of integers without padding (asserted in layout), aligned to 64, as long as the array.
    unsafe { &*std::ptr::from_ref(page).cast() }
}

/// Makes the folder, or makes sure that it is this user's alone to write.
fn own_folder(folder: &Path) -> Result<(), PageError> {
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(folder, "cannot be made")(error));
        }
        _ => {}
    }
    let met = std::fs::symlink_metadata(folder).map_err(failed(folder, "cannot be looked at"))?;
    let (owner, mode, user) = (met.uid(), met.mode() & 0o777, nix::unistd::geteuid().as_raw());
    if !met.is_dir() || owner != user || mode & 0o022 != 0 {
        return Err(PageError::Folder { path: folder.to_owned(), owner, mode, user });
    }
    Ok(())
}

/// Pages in a folder, by name; none if there is no folder.
pub fn pages_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let name =
        |path: &PathBuf| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let mut pages: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(name).collect();
    pages.sort();
    pages
}

/// Removes what killed processes left in a folder of this user; answers with how many.
pub fn sweep(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    super::control::sweep(folder);
    let stale = |path: &PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let age = |file: &File| SystemTime::now().duration_since(file.metadata().ok()?.modified().ok()?).ok();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW);
        let Ok(file) = options.open(path) else { return false };
        if !file.metadata().is_ok_and(|met| met.is_file())
            || hidden && age(&file).is_none_or(|age| age < BEGUN)
        {
            return false;
        }
        // The one that writes it holds the lock until it ends, however it ends.
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(stale);
    paths.filter(|path| std::fs::remove_file(path).is_ok()).count()
}
