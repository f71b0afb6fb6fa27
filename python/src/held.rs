//! What a Python object holds for as long as nobody destroys it.

use crate::error::raised;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shunt_deep_ep_bridge::MoeError;
use std::sync::{Mutex, PoisonError};

/// A buffer; empty once it is destroyed.
pub struct Held<B>(Mutex<Option<B>>);

impl<B: Send> Held<B> {
    pub fn of(buffer: B) -> Self {
        Self(Mutex::new(Some(buffer)))
    }

    /// Works on the buffer with the interpreter let go: a kernel may wait for a rank that is another of its threads.
    pub fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut B) -> Result<T, MoeError> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.as_mut().map(work)
        });
        match done {
            Some(done) => done.map_err(|error| raised(py, &error)),
            None => Err(PyRuntimeError::new_err("the buffer is destroyed")),
        }
    }

    /// Lets go of the heap and, with the last of the job's, of everything.
    pub fn destroy(&self, py: Python<'_>) {
        let taken = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
        py.detach(|| drop(taken));
    }
}

/// Refuses a buffer that its part of the heap does not hold.
pub fn held(py: Python<'_>, needed: u64, room: u64) -> PyResult<()> {
    if needed <= room { Ok(()) } else { Err(raised(py, &MoeError::Room { needed, base: 0, met: room })) }
}

/// A number in a NumPy array.
pub trait Word: Sized {
    /// What NumPy calls its type (`numpy.dtype.str`).
    const TYPE: &str;
    /// Bytes of one.
    const SIZE: usize = size_of::<Self>();
    /// The number that these bytes are.
    fn of(bytes: &[u8]) -> Self;
}

macro_rules! words {
    ($($kind:ty: $name:literal),*) => {$(
        impl Word for $kind {
            const TYPE: &str = $name;

            fn of(bytes: &[u8]) -> Self {
                let mut word = [0; size_of::<Self>()];
                word.copy_from_slice(bytes);
                Self::from_le_bytes(word)
            }
        }
    )*};
}

words!(u8: "|u1", u16: "<u2", u32: "<u4", i64: "<i8", f32: "<f4");

/// A copy of a NumPy array, in C's order. Its memory is asked for by `tobytes`: the stable interface of Python 3.10 has
/// no buffers.
pub fn copied<T: Word>(what: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    let kind: String = what.getattr("dtype")?.getattr("str")?.extract()?;
    if kind != T::TYPE {
        return Err(PyTypeError::new_err(format!("an array: expected type {}, got {kind}", T::TYPE)));
    }
    let bytes = what.call_method0("tobytes")?;
    Ok(bytes.cast::<PyBytes>()?.as_bytes().chunks_exact(T::SIZE).map(T::of).collect())
}

/// Words of any size as bytes of this machine.
pub fn bytes<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    words: &[T],
    to: impl Fn(T) -> [u8; N],
) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &words.iter().flat_map(|word| to(*word)).collect::<Vec<u8>>())
}
