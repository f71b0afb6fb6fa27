//! A timeline in a file, one line an event (`SHUNT_EVENTS`). A thread of its own writes; the agent never waits for it.

use super::json::line;
use super::log::{Sink, Told};
use super::notice::say;
use super::table::Event;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Lines that wait for the file at most.
const WAITING: usize = 8192;
/// How long the end waits for the file.
const LAST: Duration = Duration::from_secs(1);
/// Bytes a process writes at most, if nobody says otherwise.
pub const BYTES_MAX: u64 = 256 << 20;

/// Hands lines to the thread that writes them.
pub struct FileSink {
    lines: Option<SyncSender<String>>,
    done: Receiver<()>,
    unix_ns: Option<u64>,
    lost: u64,
    /// The last event that was lost.
    last_lost: Option<Told>,
    /// A line for the end of the file.
    end: Arc<Mutex<Option<String>>>,
}

impl FileSink {
    /// Lines are put behind what `path` holds, `bytes_max` of them at most. `unix_ns`: what the wall clock is ahead of
    /// the PE's. Problems are said once, when they are met.
    pub fn new(path: PathBuf, unix_ns: Option<u64>, bytes_max: u64) -> Self {
        let (lines, take) = sync_channel::<String>(WAITING);
        let (ended, done) = channel();
        let end = Arc::new(Mutex::new(None));
        let at_end = end.clone();
        let body = move || {
            if let Err(error) = write_all(&path, &take, &at_end, bytes_max) {
                say(&format!("SHUNT_EVENTS: events are not written: {}: {error}", path.display()));
                drop(take);
            }
            let _ = ended.send(());
        };
        let started = std::thread::Builder::new().name("events".to_owned()).spawn(body);
        if let Err(error) = &started {
            say(&format!("events are not written: no thread: {error}"));
        }
        Self { lines: started.is_ok().then_some(lines), done, unix_ns, lost: 0, last_lost: None, end }
    }

    fn send(&mut self, text: String) -> bool {
        match self.lines.as_ref().map(|lines| lines.try_send(text)) {
            Some(Err(TrySendError::Full(_))) => false,
            Some(Err(TrySendError::Disconnected(_))) => {
                self.lines = None; // it has said why
                true
            }
            Some(Ok(())) | None => true,
        }
    }
}

impl FileSink {
    /// The line that tells of what was lost, under the number of the last of it: no other line has that one.
    fn lost_line(&self) -> Option<String> {
        let last = self.last_lost.as_ref()?;
        let event = Event::EventsLost { from: "file", count: self.lost };
        Some(line(&Told { event, ..last.clone() }, self.unix_ns) + "\n")
    }
}

impl Sink for FileSink {
    fn tell(&mut self, told: &Told) {
        if self.lines.is_none() {
            return;
        }
        if let Some(text) = self.lost_line()
            && self.send(text)
        {
            (self.lost, self.last_lost) = (0, None);
        }
        if self.lost > 0 || !self.send(line(told, self.unix_ns) + "\n") {
            self.lost += 1;
            self.last_lost = Some(told.clone());
        }
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = self.lost_line();
        // The thread ends with the last line; one that hangs in the file is left alone.
        if self.lines.take().is_some() {
            let _ = self.done.recv_timeout(LAST);
        }
    }
}

/// Whole lines, several at once where several wait: in one write, so that processes that share a file do not mix them.
fn write_all(
    path: &Path,
    lines: &Receiver<String>,
    end: &Mutex<Option<String>>,
    bytes_max: u64,
) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let mut written = 0;
    let at_end = || end.lock().unwrap_or_else(PoisonError::into_inner).take();
    while let Some(mut text) = lines.recv().ok().or_else(at_end) {
        while text.len() < 1 << 16
            && let Ok(more) = lines.try_recv()
        {
            text += &more;
        }
        written += text.len() as u64;
        if written > bytes_max {
            return Err(io::Error::other(format!("it would hold more than {bytes_max} bytes of this PE")));
        }
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}
