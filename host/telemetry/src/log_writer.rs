//! Where lines of the log go: a thread writes them, so that an agent never waits for a terminal or a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that wait at most.
const WAITING: usize = 8192;

enum Message {
    /// A line, and whether it goes to stderr whatever file there is.
    Line(String, bool),
    /// Everything before it is to be written.
    Flush(SyncSender<()>),
}

/// Hands lines to the thread.
pub(super) struct LogWriter {
    lines: SyncSender<Message>,
    /// Lines that found no room.
    lost: AtomicU64,
}

impl LogWriter {
    /// Lines go behind what `file` holds, else to stderr.
    ///
    /// # Errors
    /// The file cannot be opened, or there is no thread.
    pub(super) fn start(file: Option<PathBuf>) -> io::Result<Self> {
        let named = |path: PathBuf| {
            let opened = OpenOptions::new().create(true).append(true).open(&path);
            opened.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
        };
        let file = file.map(named).transpose()?;
        let (lines, take) = sync_channel(WAITING);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&take, file))?;
        Ok(Self { lines, lost: AtomicU64::new(0) })
    }

    /// A line, its end with it. `loud`: to stderr, too.
    pub(super) fn write(&self, line: String, loud: bool) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let line = match lost {
            0 => line,
            lost => format!(
                "shunt: {lost} lines of the log are lost: they came faster than they were written\n{line}"
            ),
        };
        if self.lines.try_send(Message::Line(line, loud)).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }

    /// Waits until what was handed over is written.
    pub(super) fn flush(&self, patience: Duration) {
        let (done, wait) = sync_channel(1);
        if self.lines.try_send(Message::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(patience);
        }
    }
}

fn write_all(lines: &Receiver<Message>, mut file: Option<File>) {
    while let Ok(message) = lines.recv() {
        match message {
            Message::Line(line, loud) => {
                // Nobody is left to tell of an error, and the job goes on.
                if let Some(file) = &mut file {
                    let _ = file.write_all(line.as_bytes());
                }
                if loud || file.is_none() {
                    let _ = io::stderr().write_all(line.as_bytes());
                }
            }
            Message::Flush(done) => _ = done.send(()),
        }
    }
}
