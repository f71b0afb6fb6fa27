//! A runtime directory of a test's own, waiting, and other processes.

use shunt_soft_machine::machine::Machine;
use shunt_soft_machine::settings::Settings;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for any machine; a test that waits so long fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Removed when the test is over.
pub struct Runtime(pub PathBuf);

impl Runtime {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("shunt-rdma-{}-{n}", std::process::id())))
    }

    pub fn start(&self, nics: u32) -> &'static Machine {
        Machine::start(Settings { nics, ..Settings::default() }, &self.0).unwrap()
    }

    /// The directory of the fabric.
    pub fn fabric(&self) -> PathBuf {
        self.0.join("fabric-default")
    }

    /// Names in the directory of the fabric.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.fabric()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits for something that will happen.
pub fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A file's text without the end of its line.
pub fn read(root: &Path, file: &str) -> String {
    let path = root.join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.strip_suffix('\n').unwrap_or_else(|| panic!("{file} has no end of line")).to_owned()
}
