//! The end of the control socket that lies elsewhere: the operator's program, a benchmark, a test.

use super::wire::{Answer, FaultView, Injected, ProcessView, Request, Watched};
use super::{ANSWER_MAX, PREFIX, SUFFIX};
use crate::settings::{self, Settings};
use serde::de::DeserializeOwned;
use shunt_soft_nic::uplink::runtime_directory;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the other end may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a process with devices cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody is there.
    #[error("no process with soft devices listens at {path:?}: {cause}")]
    Connect {
        /// Its socket.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// It went away, or does not answer.
    #[error("{path:?} does not answer: {cause}")]
    Silent {
        /// Its socket.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// It refused; its words.
    #[error("{0}")]
    Refused(String),
    /// It answered something else.
    #[error("{path:?} answered {met:?}; {cause}")]
    Answer {
        /// Its socket.
        path: PathBuf,
        /// Some of the answer.
        met: String,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
}

/// A process that may have soft devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its control socket.
    pub socket: PathBuf,
}

/// Where the socket of a process lies, if it has devices.
pub fn socket_of(fabric: &str, pid: u32) -> PathBuf {
    directory_of(&runtime_directory(), fabric).join(format!("{PREFIX}{pid}{SUFFIX}"))
}

/// Where this process's own socket lies, once it has opened a device: by its number and its environment.
pub fn own() -> PathBuf {
    let fabric = std::env::var(settings::FABRIC).ok().filter(|name| !name.is_empty());
    socket_of(&fabric.unwrap_or(Settings::default().fabric), std::process::id())
}

fn directory_of(runtime: &Path, fabric: &str) -> PathBuf {
    runtime.join(format!("fabric-{fabric}"))
}

/// Names of the fabrics of this user, used or not.
pub fn fabrics() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(runtime_directory()) else { return Vec::new() };
    let name =
        |entry: std::fs::DirEntry| Some(entry.file_name().to_str()?.strip_prefix("fabric-")?.to_owned());
    let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
    names.sort();
    names
}

/// Processes of a fabric that have a socket, by number. Some may be gone: connecting tells.
pub fn processes(fabric: &str) -> Vec<Process> {
    processes_in(&runtime_directory(), fabric)
}

/// The same, in a runtime directory of the caller's choice.
pub fn processes_in(runtime: &Path, fabric: &str) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir(directory_of(runtime, fabric)) else { return Vec::new() };
    let process = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let pid = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()?;
        Some(Process { pid, socket: path })
    };
    let mut found: Vec<Process> = entries.flatten().filter_map(|entry| process(entry.path())).collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// A connection to one process.
pub struct Client {
    path: PathBuf,
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    /// An answer is due on this connection: it may still come, and would be taken for that of the next question.
    owed: bool,
}

impl Client {
    /// Connects to a socket.
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        let failed = |cause| ControlError::Connect { path: path.into(), cause };
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let reader = BufReader::new(stream.try_clone().map_err(failed)?);
        Ok(Self { path: path.into(), stream, reader, owed: false })
    }

    /// Plans a fault, so many nanoseconds from now, and returns its number.
    pub fn inject(&mut self, nic: u32, from_now_ns: u64, fault: &str) -> Result<u64, ControlError> {
        let request = Request::Inject { nic, at_ns: from_now_ns, fault: fault.into() };
        self.ask::<Injected>(&request).map(|injected| injected.id)
    }

    /// All faults, planned and past.
    pub fn faults(&mut self) -> Result<Vec<FaultView>, ControlError> {
        self.ask(&Request::Faults {})
    }

    /// The process and its NICs.
    pub fn nics(&mut self) -> Result<ProcessView, ControlError> {
        self.ask(&Request::Nics {})
    }

    /// Has 8-byte placements at an address of the process counted from now on.
    pub fn watch(&mut self, address: u64) -> Result<Watched, ControlError> {
        self.ask(&Request::Watch { address })
    }

    /// What was counted at an address.
    pub fn watched(&mut self, address: u64) -> Result<Watched, ControlError> {
        self.ask(&Request::Watched { address })
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ControlError> {
        if self.owed {
            *self = Self::connect(&self.path)?;
        }
        let line = self.exchange(request).map_err(|cause| {
            let cause = match cause.kind() {
                io::ErrorKind::WouldBlock => io::Error::other(format!("it said nothing for {PATIENCE:?}")),
                _ => cause,
            };
            ControlError::Silent { path: self.path.clone(), cause }
        })?;
        match serde_json::from_str(&line) {
            Ok(Answer::Ok(answer)) => Ok(answer),
            Ok(Answer::Error(text)) => Err(ControlError::Refused(text)),
            Err(cause) => {
                let met = line.chars().take(80).collect();
                Err(ControlError::Answer { path: self.path.clone(), met, cause })
            }
        }
    }

    fn exchange(&mut self, request: &Request) -> io::Result<String> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.owed = true;
        self.stream.write_all(line.as_bytes())?;
        line.clear();
        (&mut self.reader).take(ANSWER_MAX).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.owed = !line.ends_with('\n');
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Who said nothing once is asked again: what he says late would be taken for the answer of the next question.
    #[test]
    fn a_question_without_an_answer_ends_its_connection() {
        let path = std::env::temp_dir().join(format!("shunt-client-{}.sock", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            for answer in ["", "{\"ok\":{\"id\":7}}\n"] {
                let (stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                (&stream).write_all(answer.as_bytes()).unwrap();
            }
        });
        let mut client = Client::connect(&path).unwrap();
        assert!(matches!(client.inject(0, 0, "down"), Err(ControlError::Silent { .. })));
        assert_eq!(client.inject(0, 0, "down").unwrap(), 7);
        server.join().unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
