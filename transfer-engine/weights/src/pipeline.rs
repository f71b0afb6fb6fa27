//! Fetch, transform, write and wait, each on a thread of its own, so that they go on side by side. The watermark of the
//! staging memory holds back the first of them, and so all.

use crate::schedule::Task;
use crate::staging::{Gauge, Slot, Staging};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ScopedJoinHandle;
use thiserror::Error;

/// The first stage: brings bytes of a parameter from where the trainer has them.
pub trait Fetch: Send {
    /// Appends the bytes.
    ///
    /// # Errors
    /// They cannot be had.
    fn fetch(&mut self, param: u32, bytes: Range<u64>, into: &mut Vec<u8>) -> Result<(), String>;
}

/// The second stage: makes of them what servers want.
pub trait Transform: Sync {
    /// How many bytes it makes of so many. It is linear, so it tells places in memory as well.
    fn bytes(&self, fetched: u64) -> u64;

    /// Puts what it makes into staging memory, one part behind the other.
    ///
    /// # Errors
    /// The memory takes none.
    fn transform(
        &self,
        fetched: &[u8],
        put: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String>;
}

/// The third stage: staging memory that NICs read, and writes from it.
pub trait Wire: Sync {
    /// Writes that were begun.
    type Pending: Pending;

    /// Copies bytes into staging memory.
    ///
    /// # Errors
    /// It takes none.
    fn stage(&self, at: u64, bytes: &[u8]) -> Result<(), String>;

    /// Begins to write the same bytes of staging memory for each of these tasks. They stay as they are until all writes
    /// have ended.
    ///
    /// # Errors
    /// One was refused. Nothing was posted.
    fn write(&self, tasks: &[Task], staged: Range<u64>) -> Result<Self::Pending, Failure>;
}

/// The fourth stage: writes, each of which ends once.
pub trait Pending: Send {
    /// Waits for the ends of all: of each task, whether all of it was written.
    fn wait(self) -> Vec<Result<(), Failure>>;
}

/// Why a pipeline stopped.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Failure {
    /// No rail to a server is left.
    #[error("{0}")]
    Lost(String),
    /// A write may have arrived or not.
    #[error("{0}")]
    Uncertain(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What a pipeline did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Writes that ended well, and those that did not.
    pub writes: u64,
    /// See [`Report::writes`].
    pub writes_failed: u64,
    /// Bytes of writes that ended well, as servers have them.
    pub bytes: u64,
    /// Most bytes that were fetched or staged at once.
    pub peak: u64,
    /// How often a fetch waited for room.
    pub waits: u64,
    /// The first thing that went wrong.
    pub failure: Option<Failure>,
}

/// A piece that was fetched: its writes, its bytes, and its room.
type Fetched<'a> = (&'a [Task], Vec<u8>, Slot);
/// A piece that was staged.
type Staged<'a> = (&'a [Task], Slot);
/// A piece whose writes were begun.
type Begun<P> = (P, Slot);

/// What all stages share.
struct Shared<'a, T, W> {
    transform: &'a T,
    wire: &'a W,
    staging: &'a Staging,
    gauge: &'a Gauge,
}

impl<T: Transform, W: Wire> Shared<'_, T, W> {
    fn fetch<'a>(
        &self,
        tasks: &'a [Task],
        fetch: &mut dyn Fetch,
        next: &Sender<Fetched<'a>>,
    ) -> Result<(), Failure> {
        let same = |one: &Task, other: &Task| one.param == other.param && one.bytes == other.bytes;
        for piece in tasks.chunk_by(same) {
            let (task, len) = (&piece[0], piece[0].len());
            // Something behind has failed, and says so.
            let Some(slot) = self.staging.take(len, self.transform.bytes(len)) else { return Ok(()) };
            let mut bytes = Vec::with_capacity(len as usize);
            self.gauge.add(len);
            fetch.fetch(task.param, task.bytes.clone(), &mut bytes).map_err(Failure::Other)?;
            if bytes.len() as u64 != len {
                let said =
                    format!("fetch of parameter {}: expected {len} bytes, got {}", task.param, bytes.len());
                return Err(Failure::Other(said));
            }
            if next.send((piece, bytes, slot)).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn transform<'a>(&self, ready: Receiver<Fetched<'a>>, next: &Sender<Staged<'a>>) -> Result<(), Failure> {
        for (piece, bytes, slot) in ready {
            let mut at = slot.at;
            self.gauge.add(slot.bytes);
            let mut put = |part: &[u8]| {
                if at + part.len() as u64 > slot.at + slot.bytes {
                    return Err(format!("transform: expected {} bytes at most, got more", slot.bytes));
                }
                self.wire.stage(at, part)?;
                at += part.len() as u64;
                Ok(())
            };
            self.transform.transform(&bytes, &mut put).map_err(Failure::Other)?;
            let len = bytes.len() as u64;
            drop(bytes);
            self.gauge.sub(len);
            self.staging.staged(len);
            if next.send((piece, slot)).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, ready: Receiver<Staged<'_>>, next: &Sender<Begun<W::Pending>>) -> Result<(), Failure> {
        for (piece, slot) in ready {
            let begun = self.wire.write(piece, slot.at..slot.at + slot.bytes)?;
            if next.send((begun, slot)).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn wait(&self, ready: Receiver<Begun<W::Pending>>) -> Report {
        let mut report = Report::default();
        for (begun, slot) in ready {
            for end in begun.wait() {
                match end {
                    Ok(()) => {
                        report.writes += 1;
                        report.bytes += slot.bytes;
                    }
                    Err(failure) => {
                        report.writes_failed += 1;
                        report.failure.get_or_insert(failure);
                        self.staging.close();
                    }
                }
            }
            // Memory of a write that failed is not used again.
            if report.failure.is_none() {
                self.gauge.sub(slot.bytes);
                self.staging.give(slot);
            }
        }
        report
    }
}

/// Runs the tasks in order. Returns when every write that was begun has ended.
pub fn run(
    tasks: &[Task],
    fetch: &mut dyn Fetch,
    transform: &impl Transform,
    wire: &impl Wire,
    watermark: u64,
) -> Report {
    let most = tasks.iter().map(|task| task.len() + transform.bytes(task.len())).max().unwrap_or(0);
    if most > watermark {
        let refused = format!(
            "watermark: expected at least {most} bytes, what the largest piece needs, got {watermark}"
        );
        return Report { failure: Some(Failure::Other(refused)), ..Report::default() };
    }
    let (staging, gauge) = (Staging::new(watermark), Gauge::default());
    let shared = &Shared { transform, wire, staging: &staging, gauge: &gauge };
    let (fetched, to_transform) = channel();
    let (staged, to_write) = channel();
    let (begun, to_wait) = channel();
    let mut report = std::thread::scope(|scope| {
        // Each thread owns its sender: the next one ends after it. One that fails holds back the first.
        let closing = |result: Result<(), Failure>| result.inspect_err(|_| staging.close());
        let stages = [
            scope.spawn(move || shared.fetch(tasks, fetch, &fetched)),
            scope.spawn(move || closing(shared.transform(to_transform, &staged))),
            scope.spawn(move || closing(shared.write(to_write, &begun))),
        ];
        let report = shared.wait(to_wait);
        let ended = stages.into_iter().filter_map(failed).next();
        Report { failure: report.failure.or(ended), ..report }
    });
    (report.peak, report.waits) = (gauge.peak(), staging.waits());
    report
}

fn failed(stage: ScopedJoinHandle<'_, Result<(), Failure>>) -> Option<Failure> {
    stage.join().unwrap_or_else(|_| Err(Failure::Other("a stage panicked".to_owned()))).err()
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
