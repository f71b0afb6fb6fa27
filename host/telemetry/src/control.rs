//! An operator's word to a running agent: a datagram socket beside its status page, for the same user alone.
//!
//! One line each way. Nothing here waits but the operator's side, which has a deadline.

use std::fmt;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Longest order and longest answer.
const LINE_MAX: usize = 512;

/// What is to be done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Take it out.
    Retire,
    /// Bring it back.
    Readmit,
}

/// The paths of a PE that an order is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The PE whose agent is asked.
    pub pe: u32,
    /// Its rail.
    pub rail: u32,
    /// Peer and rail of the other end; none: all paths over the rail.
    pub to: Option<(u32, u32)>,
}

impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pe, self.rail)?;
        self.to.map_or(Ok(()), |(pe, rail)| write!(f, ">{pe}.{rail}"))
    }
}

impl FromStr for Paths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = |text: &str| {
            let (pe, rail) = text.split_once('.')?;
            Some((pe.parse().ok()?, rail.parse().ok()?))
        };
        let (from, to) = match text.split_once('>') {
            Some((from, to)) => (end(from), end(to).map(Some)),
            None => (end(text), Some(None)),
        };
        let ((pe, rail), to) = from.zip(to).ok_or_else(|| {
            format!(
                "path: expected PE.RAIL>PE.RAIL, as in 0.1>2.1, or PE.RAIL for a whole rail, got {text:?}"
            )
        })?;
        Ok(Self { pe, rail, to })
    }
}

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// What is to be done.
    pub verb: Verb,
    /// With which paths.
    pub paths: Paths,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.verb == Verb::Retire { "retire" } else { "readmit" }, self.paths)
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (verb, paths) = text.trim().split_once(' ').unwrap_or((text, ""));
        let verb = match verb {
            "retire" => Verb::Retire,
            "readmit" => Verb::Readmit,
            other => return Err(format!("order: expected retire or readmit, got {other:?}")),
        };
        Ok(Self { verb, paths: paths.parse()? })
    }
}

/// Why an order was not carried out, or not heard.
#[derive(Debug, Error)]
pub enum ControlError {
    /// A system call.
    #[error("{}: {doing}: {error}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The agent says no.
    #[error("{0}")]
    Refused(String),
}

fn failed<'a>(path: &'a Path, doing: &'static str) -> impl FnOnce(io::Error) -> ControlError + 'a {
    move |error| ControlError::Io { path: path.to_owned(), doing, error }
}

/// The socket of the agent whose status page is `page`.
pub fn socket_of(page: &Path) -> PathBuf {
    let name = page.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    page.with_file_name(format!(".{name}.orders"))
}

/// Removes sockets of agents whose pages are gone.
pub(super) fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let page = name.strip_prefix('.').and_then(|name| name.strip_suffix(".orders"));
        if page.is_some_and(|page| !folder.join(page).exists()) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Where an agent hears orders. Dropping it removes the socket.
pub struct Control {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Control {
    /// Listens beside a status page that is this process's own.
    ///
    /// # Errors
    /// [`ControlError::Io`] with what was met.
    pub fn open(page: &Path) -> Result<Self, ControlError> {
        let path = socket_of(page);
        // The page is locked by this process: whatever bears this name was a dead one's.
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).map_err(failed(&path, "cannot be made"))?;
        let control = Self { socket, path };
        let ready = || {
            std::fs::set_permissions(&control.path, Permissions::from_mode(0o600))?;
            control.socket.set_nonblocking(true)
        };
        ready().map_err(failed(&control.path, "cannot be made"))?;
        Ok(control)
    }

    /// The next order, or what is wrong with it, and whom to answer.
    pub fn next_order(&self) -> Option<(Result<Order, String>, SocketAddr)> {
        let mut line = [0; LINE_MAX];
        let (length, from) = self.socket.recv_from(&mut line).ok()?;
        Some((String::from_utf8_lossy(&line[..length]).parse(), from))
    }

    /// Answers. Who does not wait for it any more does not get it.
    pub fn answer(&self, to: &SocketAddr, answer: &Result<String, String>) {
        let (word, text) = match answer {
            Ok(text) => ("ok", text),
            Err(text) => ("no", text),
        };
        let mut line = format!("{word} {text}").into_bytes();
        line.truncate(LINE_MAX);
        if let Some(path) = to.as_pathname() {
            let _ = self.socket.send_to(&line, path);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Gives an order to the agent whose status page is `page`, and waits for its answer.
///
/// # Errors
/// [`ControlError`]: nobody there, no answer in time, or the agent's own no.
pub fn give(page: &Path, order: Order, patience: Duration) -> Result<String, ControlError> {
    /// The operator's end, gone when the answer is in.
    struct Here(PathBuf);
    impl Drop for Here {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
    let there = socket_of(page);
    let here = Here(there.with_file_name(format!(".{}.asks", std::process::id())));
    let _ = std::fs::remove_file(&here.0);
    let socket = UnixDatagram::bind(&here.0).map_err(failed(&here.0, "cannot be made"))?;
    let ask = || {
        socket.set_read_timeout(Some(patience))?;
        socket.send_to(order.to_string().as_bytes(), &there)
    };
    ask().map_err(failed(&there, "no agent takes orders"))?;
    let mut line = [0; LINE_MAX];
    let length = socket.recv(&mut line).map_err(failed(&there, "no answer"))?;
    let line = String::from_utf8_lossy(&line[..length]);
    match line.split_once(' ') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("no", text)) => Err(ControlError::Refused(text.to_owned())),
        _ => Err(ControlError::Refused(format!("an answer that makes no sense: {line:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_what_they_say() {
        for text in ["retire 0.1>2.3", "readmit 7.0"] {
            assert_eq!(text.parse::<Order>().map(|order| order.to_string()), Ok(text.to_owned()));
        }
        for (text, want) in [
            ("", "order: expected"),
            ("remove 0.1", "expected retire or readmit, got \"remove\""),
            ("retire", "got \"\""),
            ("retire 0>1", "PE.RAIL>PE.RAIL"),
            ("retire 0.1>", "got \"0.1>\""),
            ("retire -1.0", "got \"-1.0\""),
            ("retire 0.99999999999", "path: expected"),
        ] {
            let met = text.parse::<Order>().expect_err(text);
            assert!(met.contains(want), "{met}");
        }
    }
}
