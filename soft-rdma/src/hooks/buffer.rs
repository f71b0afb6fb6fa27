//! Paths without an allocation.

/// Longest path, with the zero at its end.
pub(super) const MAX_BYTES: usize = libc::PATH_MAX as usize;
/// A path in a place of its own, zero at the end.
pub struct Buffer {
    bytes: [u8; MAX_BYTES],
    used: usize,
}

impl Buffer {
    /// An empty one.
    pub fn new() -> Self {
        Self { bytes: [0; MAX_BYTES], used: 0 }
    }

    /// Appends, if there is room.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let room = MAX_BYTES - 1 - self.used;
        if bytes.len() > room {
            return false;
        }
        self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
        true
    }

    /// Has a call write a path, with the zero, into the room there is, and say how long it is without that.
    pub fn fill(&mut self, call: impl FnOnce(*mut libc::c_char, usize) -> Option<usize>) -> bool {
        let used = call(self.bytes.as_mut_ptr().cast(), MAX_BYTES);
        self.used = used.unwrap_or(0);
        used.is_some()
    }

    /// The path, without the zero.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// The path, for the C library.
    pub fn as_ptr(&self) -> *const libc::c_char {
        self.bytes.as_ptr().cast()
    }
}
