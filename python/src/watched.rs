//! A word that others write, which an engine's thread looks at. Changes wait here for a thread of Python's: the
//! engine's own never needs the interpreter.

use crate::ended::waited;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use shunt_transfer::{CallError, Node};
use shunt_transfer_engine::ids::WatcherId;
use shunt_transfer_engine::watch::Goes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// 8 bytes of memory that `owner` keeps.
pub struct Word {
    address: usize,
    _owner: Py<PyAny>,
}

impl Word {
    /// The word at an address.
    ///
    /// # Errors
    /// No word lies there: it is no multiple of 8.
    ///
    /// # Safety
    /// `owner` keeps 8 bytes at this address until it is dropped, and they are written in one piece alone.
    pub unsafe fn of(address: u64, owner: Py<PyAny>) -> PyResult<Self> {
        if address == 0 || !address.is_multiple_of(align_of::<AtomicU64>() as u64) {
            let text = format!("word: expected an address that is a multiple of 8, got {address:#x}");
            return Err(PyValueError::new_err(text));
        }
        Ok(Self { address: address as usize, _owner: owner })
    }

    fn read(&self) -> u64 {
        let word = std::ptr::with_exposed_provenance_mut::<u64>(self.address);
        // SAFETY: who made this vouches that the owner, which this keeps, keeps the word; it is aligned, and is
        // written in one piece alone.
        unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
    }
}

/// Changes that nobody has taken: all of them are one.
#[derive(Debug, Default)]
struct Untold {
    change: Option<(u64, u64)>,
    is_over: bool,
}

impl Untold {
    fn add(&mut self, before: u64, now: u64) {
        self.change = match self.change {
            // One that came back to what it was is none.
            Some((first, _)) if first == now => None,
            Some((first, _)) => Some((first, now)),
            None => Some((before, now)),
        };
    }
}

#[derive(Debug, Default)]
struct Changes {
    untold: Mutex<Untold>,
    changed: Condvar,
}

impl Changes {
    fn untold(&self) -> MutexGuard<'_, Untold> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `look` finds, as soon as there is a change or none comes any more; `None`: neither in time.
    fn wait<T>(&self, patience: Duration, look: impl Fn(&mut Untold) -> T) -> Option<T> {
        let until = Instant::now().checked_add(patience);
        let mut untold = self.untold();
        loop {
            if untold.change.is_some() || untold.is_over {
                return Some(look(&mut untold));
            }
            let left = until.map_or(patience, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            untold = self.changed.wait_timeout(untold, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What the engine's thread has of them. It drops this with its watcher.
struct Told(Arc<Changes>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.untold().is_over = true;
        self.0.changed.notify_all();
    }
}

/// A word that is watched.
#[pyclass(frozen, name = "Watcher", module = "shunt_ep._native")]
pub struct PyWatcher {
    id: WatcherId,
    changes: Arc<Changes>,
}

impl PyWatcher {
    /// Has a node's engine watch a word.
    ///
    /// # Errors
    /// The engine is closed.
    pub fn begin(node: &Node, word: Word) -> Result<Self, CallError> {
        let changes = Arc::new(Changes::default());
        let told = Told(changes.clone());
        let each = move |before, now| {
            told.0.untold().add(before, now);
            told.0.changed.notify_one();
            Goes::On
        };
        let id = node.watch(Box::new(move || word.read()), Box::new(each))?;
        Ok(Self { id, changes })
    }

    /// Its number at its node.
    pub fn id(&self) -> WatcherId {
        self.id
    }
}

#[pymethods]
impl PyWatcher {
    /// Takes the value before and the value now, of changes that were not told; `None`: none in time.
    fn wait(&self, py: Python<'_>, patience_ns: u64) -> PyResult<Option<(u64, u64)>> {
        let take = |untold: &mut Untold| untold.change.take();
        match waited(py, patience_ns, |patience| Ok(self.changes.wait(patience, take)))? {
            Some(None) => Err(PyRuntimeError::new_err("the watcher has ended")),
            came => Ok(came.flatten()),
        }
    }

    /// Whether there is a change, which is left; false: none comes any more. `None`: neither in time.
    fn ready(&self, py: Python<'_>, patience_ns: u64) -> PyResult<Option<bool>> {
        let is_there = |untold: &mut Untold| untold.change.is_some();
        waited(py, patience_ns, |patience| Ok(self.changes.wait(patience, is_there)))
    }
}
