//! Lines on stdout. A run is not given up for one that cannot be printed; what went wrong is told at the end.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

/// The first line that could not be printed, and why.
static LOST_LINE: OnceLock<String> = OnceLock::new();

/// Prints a line to stdout. A run is not given up for that; [`stdout_error`](crate::stdout::stdout_error) tells at the
/// end.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        $crate::stdout::note(writeln!(std::io::stdout(), $($text)*));
    }};
}

/// Keeps the first error. A reader that went away is none: the exit status still tells it.
pub fn note(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = LOST_LINE.set(error.to_string());
    }
}

/// What went wrong on stdout, once everything is said.
pub fn stdout_error() -> Option<&'static str> {
    note(std::io::stdout().flush());
    LOST_LINE.get().map(String::as_str)
}
