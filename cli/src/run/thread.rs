//! Threads of the launcher.

use std::io;

/// Starts a thread that nobody waits for.
pub(super) fn in_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| {
        let want = "raise the limit of processes (ulimit -u), or start fewer ranks";
        io::Error::other(format!("no thread for {name} can be made: {error}; {want}"))
    })
}
