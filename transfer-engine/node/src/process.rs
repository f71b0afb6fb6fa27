//! The process that made something. A child that it forks has the memory, and none of the threads.

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one.
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// Whether it is this one, whose threads are there.
    pub fn is_here(self) -> bool {
        self == Self::own()
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::own()
    }
}
