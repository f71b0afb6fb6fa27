//! What is told of this process: a file of JSON in the folder of the directory, which stays when the process ends.

use crate::settings::settings;
use serde::{Deserialize, Serialize};
use shunt_verbs_directory as directory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::UNIX_EPOCH;

/// A queue pair that is protected, or was to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairReport {
    /// The number that the program knows.
    pub qpn: u32,
    /// The device that the program chose.
    pub device: String,
    /// `unprotected`, `connecting`, `protected`, `moving`, `lost` or `ended`.
    pub state: String,
    /// The device that it sends on.
    pub on: String,
    /// Devices that stand by, best first, with commas between them.
    pub backup: String,
    /// Times that it moved.
    pub switches: u32,
    /// Requests that were posted again.
    pub replayed: u64,
    /// Why it is not protected, or lost; what it waits for while it is connecting; why it ended.
    pub why: String,
    /// Since when it is in this state, nanoseconds since 1970; 0 where that is not known.
    #[serde(default)]
    pub since_unix_ns: u64,
}

impl PairReport {
    /// Nothing more comes of it: why, and in which state it was.
    fn end(&mut self, why: &str) {
        if ["protected", "connecting", "moving"].contains(&self.state.as_str()) {
            self.why = format!("{why}; it was {}", self.state);
            "ended".clone_into(&mut self.state);
        }
    }
}

fn unix_ns() -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Its number.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// What is done for it: `on` or `observe`.
    pub mode: String,
    /// Queue pairs.
    pub pairs: Vec<PairReport>,
    /// Calls of `ibv_post_send` that were seen, in mode `observe`.
    pub posts: u64,
    /// Calls of `ibv_poll_cq` that were seen, in mode `observe`.
    pub polls: u64,
}

/// What is counted in mode `observe`.
#[derive(Default)]
pub struct Counts {
    /// Calls of `ibv_post_send`.
    pub posts: AtomicU64,
    /// Calls of `ibv_poll_cq`.
    pub polls: AtomicU64,
}

/// The counts of this process.
pub static COUNTS: Counts = Counts { posts: AtomicU64::new(0), polls: AtomicU64::new(0) };

static PAIRS: Mutex<BTreeMap<u64, PairReport>> = Mutex::new(BTreeMap::new());

/// Changes what is told of a queue pair, by its number here. True if it is another than before.
pub fn tell(id: u64, mut report: PairReport) -> bool {
    let mut pairs = PAIRS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = pairs.get(&id);
    let same = before.filter(|before| before.state == report.state);
    report.since_unix_ns = same.map_or_else(unix_ns, |before| before.since_unix_ns);
    let changed = before != Some(&report);
    pairs.insert(id, report);
    changed
}

/// The program has destroyed a queue pair.
pub fn closed(id: u64) {
    if let Some(pair) = PAIRS.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&id) {
        pair.end("closed by the program");
    }
}

/// Device and reason of a queue pair that is not protected, by the number that the program knows: the newest of them.
pub fn unprotected(qpn: u32) -> Option<(String, String)> {
    let pairs = PAIRS.lock().unwrap_or_else(PoisonError::into_inner);
    let of = pairs.values().rev().find(|pair| pair.qpn == qpn && pair.state == "unprotected")?;
    Some((of.device.clone(), of.why.clone()))
}

fn now() -> Report {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let command = words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ");
    let pairs = PAIRS.lock().unwrap_or_else(PoisonError::into_inner);
    Report {
        pid: std::process::id(),
        command,
        mode: settings().mode.name().to_owned(),
        pairs: pairs.values().cloned().collect(),
        posts: COUNTS.posts.load(Ordering::Relaxed),
        polls: COUNTS.polls.load(Ordering::Relaxed),
    }
}

/// The file of a process.
fn file(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}.json"))
}

/// Held by the one who writes the file: for good by the last one, when the process ends.
static WRITING: Mutex<()> = Mutex::new(());

/// Writes the file of this process, once a program has opened a device in it. What cannot be written is not told: the
/// program goes on.
pub fn write() {
    if BEGAN.load(Ordering::Relaxed) == 0 {
        return;
    }
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    write_alone();
}

fn write_alone() {
    let Ok(folder) = directory::folder() else { return };
    let Ok(text) = serde_json::to_string_pretty(&now()) else { return };
    let path = file(&folder, std::process::id());
    let fresh = path.with_extension("fresh");
    if std::fs::write(&fresh, text).is_ok() {
        let _ = std::fs::rename(&fresh, &path);
    }
}

/// The process that began. Its children have its threads' locks and not its threads.
static BEGAN: AtomicU32 = AtomicU32::new(0);

extern "C" fn at_end() {
    if BEGAN.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pairs = PAIRS.lock().unwrap_or_else(PoisonError::into_inner);
    pairs.values_mut().for_each(|pair| pair.end("the process ended"));
    drop(pairs);
    write_alone();
    // What the agent would write from here on may be cut short.
    std::mem::forget(writing);
}

/// Writes it once more when the process ends.
pub fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        BEGAN.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the function has no conditions, and this library is never closed.
        unsafe { libc::atexit(at_end) };
    });
}

/// Every report in the folder, by number of the process, and whether that is still there.
///
/// # Errors
/// The folder cannot be had.
pub fn all() -> std::io::Result<Vec<(Report, bool)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory::folder()?)? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let report = std::fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
        found.extend(report.map(|mut report: Report| {
            let alive = directory::is_alive(report.pid);
            if !alive {
                report.pairs.iter_mut().for_each(|pair| pair.end("the process was killed, or ended early"));
            }
            (report, alive)
        }));
    }
    found.sort_by_key(|(report, _)| report.pid);
    Ok(found)
}

/// Removes the reports of processes that are gone.
///
/// # Errors
/// The folder cannot be had.
pub fn forget_ended() -> std::io::Result<()> {
    let folder = directory::folder()?;
    for (report, _) in all()?.into_iter().filter(|(_, alive)| !alive) {
        let _ = std::fs::remove_file(file(&folder, report.pid));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(qpn: u32, state: &str, why: &str) -> PairReport {
        PairReport {
            qpn,
            device: "mlx5_0".into(),
            state: state.into(),
            why: why.into(),
            ..PairReport::default()
        }
    }

    fn kept(id: u64) -> PairReport {
        PAIRS.lock().unwrap()[&id].clone()
    }

    /// A state has the instant in which it began, and a queue pair that ended has a reason.
    #[test]
    fn states_say_since_when_and_ends_say_why() {
        const ID: u64 = u64::MAX;
        assert!(tell(ID, pair(7, "connecting", "waits")));
        let since = kept(ID).since_unix_ns;
        assert!(since > 0 && !tell(ID, pair(7, "connecting", "waits")), "nothing is another than before");
        assert!(tell(ID, pair(7, "connecting", "waits for something else")));
        assert_eq!(kept(ID).since_unix_ns, since, "the state is the same");
        assert!(tell(ID, pair(7, "protected", "")) && kept(ID).since_unix_ns >= since);
        closed(ID);
        let end = kept(ID);
        assert_eq!(
            (end.state.as_str(), end.why.as_str()),
            ("ended", "closed by the program; it was protected")
        );
        closed(ID);
        assert_eq!(kept(ID), end, "it ends once");
        for state in ["lost", "unprotected"] {
            let mut other = pair(8, state, "a reason");
            other.end("the process ended");
            assert_eq!(other, pair(8, state, "a reason"), "what it was, and why, stays");
        }
    }

    #[test]
    fn the_reason_of_an_unprotected_queue_pair_is_found_by_its_number() {
        tell(u64::MAX - 2, pair(0x00ff_ff01, "unprotected", "it is no reliable connection"));
        tell(u64::MAX - 1, pair(0x00ff_ff02, "protected", ""));
        let of = |qpn| unprotected(qpn).map(|(device, why)| device + ": " + &why);
        assert_eq!(of(0x00ff_ff01).as_deref(), Some("mlx5_0: it is no reliable connection"));
        assert_eq!(of(0x00ff_ff02), None);
    }
}
