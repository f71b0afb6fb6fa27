//! Output of the ranks, passed on line by line.

use super::event::Event;
use super::thread::in_thread;
use shunt_figures::stdout::note;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

/// A line longer than this is passed on in pieces.
const LINE_MAX: u64 = 64 << 10;

/// Which lines get a prefix.
#[derive(Clone, Copy)]
pub struct Style {
    /// All; else rank 0's standard output goes through as it is, so that tables stay readable.
    pub tag_all: bool,
}

/// Which stream of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// The launcher's own streams, one line at a time.
pub struct Output {
    style: Style,
    turn: Mutex<()>,
}

fn prefix(style: Style, rank: u32, stream: Stream) -> String {
    match !style.tag_all && rank == 0 && stream == Stream::Out {
        true => String::new(),
        false => format!("[rank {rank}] "),
    }
}

impl Output {
    /// For one job.
    pub fn new(style: Style) -> Self {
        Self { style, turn: Mutex::new(()) }
    }

    fn line(&self, stream: Stream, line: &[u8]) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader that left is no reason to stop the job: its ranks' output is read on, and lost. So is a full disk,
        // but that is told.
        match stream {
            Stream::Out => note(io::stdout().write_all(line).and_then(|()| io::stdout().flush())),
            Stream::Error => _ = io::stderr().write_all(line),
        }
    }

    fn copy(&self, rank: u32, stream: Stream, from: impl Read) {
        let mut from = BufReader::new(from);
        let prefix = prefix(self.style, rank, stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            line.extend_from_slice(prefix.as_bytes());
            match (&mut from).take(LINE_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if !line.ends_with(b"\n") => line.push(b'\n'),
                Ok(_) => {}
            }
            self.line(stream, &line);
        }
    }
}

/// Passes both streams of a process on, in threads of their own; the answer is how many there are.
///
/// # Errors
/// No thread can be made.
pub fn pass_on(
    output: &Arc<Output>,
    rank: u32,
    process: &mut Child,
    events: &Sender<Event>,
) -> io::Result<usize> {
    let copy = |stream, from: Box<dyn Read + Send>| {
        let (output, events) = (output.clone(), events.clone());
        in_thread("a rank's output", move || {
            output.copy(rank, stream, from);
            let _ = events.send(Event::Drained);
        })
    };
    let (out, error) = (process.stdout.take(), process.stderr.take());
    let streams = usize::from(out.is_some()) + usize::from(error.is_some());
    if let Some(out) = out {
        copy(Stream::Out, Box::new(out))?;
    }
    if let Some(error) = error {
        copy(Stream::Error, Box::new(error))?;
    }
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_0_speaks_plainly_unless_all_are_tagged() {
        let plain = Style { tag_all: false };
        assert_eq!(prefix(plain, 0, Stream::Out), "");
        assert_eq!(prefix(plain, 0, Stream::Error), "[rank 0] ");
        assert_eq!(prefix(plain, 1, Stream::Out), "[rank 1] ");
        assert_eq!(prefix(Style { tag_all: true }, 0, Stream::Out), "[rank 0] ");
    }
}
