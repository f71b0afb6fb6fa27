//! The wall between a place that keeps bytes under names, and who keeps entries there. Each call may wait, and has a
//! deadline of its own.

use std::io;
use std::time::Duration;

/// A place that keeps bytes under names.
pub trait Shelf: Send {
    /// Where it is, to be printed.
    fn place(&self) -> String;

    /// Reaches it, once more.
    ///
    /// # Errors
    /// Why it cannot be reached.
    fn connect(&mut self) -> io::Result<()>;

    /// Keeps bytes under a name, in place of what was there.
    ///
    /// # Errors
    /// It cannot be reached.
    fn put(&mut self, key: &str, value: &[u8]) -> io::Result<()>;

    /// What is kept under a name.
    ///
    /// # Errors
    /// It cannot be reached.
    fn get(&mut self, key: &str) -> io::Result<Option<Vec<u8>>>;

    /// Removes a name.
    ///
    /// # Errors
    /// It cannot be reached.
    fn remove(&mut self, key: &str) -> io::Result<()>;

    /// How often what is kept must be put again, lest it goes.
    fn renewal(&self) -> Duration;
}
