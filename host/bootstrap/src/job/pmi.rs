//! The launcher's key-value store, by the wire protocol of PMI-1 on the descriptor that `PMI_FD` names: PE 0 puts the
//! unique id there, the others get it. A process does this once: MPI in the same process would want the descriptor too,
//! and such a program can send a unique id by MPI.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thiserror::Error;

/// Longest wait for an answer of the launcher's: its barrier waits for all processes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why nothing was exchanged.
#[derive(Debug, Error)]
pub enum PmiError {
    /// The descriptor.
    #[error("PMI_FD: {0}")]
    Io(#[from] std::io::Error),
    /// It was asked before.
    #[error("a process can find the others by PMI once; a unique id can be used again")]
    Again,
    /// An answer that is none.
    #[error("the launcher's answer to {asked:?}: expected cmd={want} without an error, got {met:?}")]
    Answer {
        /// What was asked.
        asked: String,
        /// What came.
        met: String,
        /// What should have come.
        want: &'static str,
    },
    /// An answer without what was asked for.
    #[error("the launcher's answer to {asked:?} has no {field}")]
    Field {
        /// What was asked.
        asked: String,
        /// What is missing.
        field: &'static str,
    },
}

/// Parts that a value is sent in: stores take 256 letters, the last 0 among them.
const PARTS: usize = 2;
/// Names of the parts.
const KEY: &str = "shunt-uid";

/// A line's fields: words of the shape `name=value`.
fn fields(line: &str) -> BTreeMap<&str, &str> {
    line.split_whitespace().filter_map(|word| word.split_once('=')).collect()
}

struct Client<S> {
    stream: BufReader<S>,
}

impl<S: Read + Write> Client<S> {
    /// Asks, and answers with the field that is wanted of the answer.
    fn ask(&mut self, asked: &str, want: &'static str, field: &'static str) -> Result<String, PmiError> {
        self.stream.get_mut().write_all(format!("{asked}\n").as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let fields = fields(&line);
        let good = fields.get("cmd") == Some(&want) && fields.get("rc").is_none_or(|rc| *rc == "0");
        if !good {
            return Err(PmiError::Answer { asked: asked.to_owned(), met: line, want });
        }
        let value = fields.get(field).map(|value| (*value).to_owned());
        value.ok_or(PmiError::Field { asked: asked.to_owned(), field })
    }
}

/// The same on a descriptor that the launcher gave this process. Once in a process.
///
/// # Errors
/// As [`exchange`]; a second time.
pub fn exchange_at(fd: i32, mine: Option<&str>) -> Result<String, PmiError> {
    static USED: AtomicBool = AtomicBool::new(false);
    if USED.swap(true, Ordering::AcqRel) {
        return Err(PmiError::Again);
    }
    // SAFETY: the launcher gave this process the descriptor for this use; it is never closed here, because launchers
    // take that for the end of the process.
    let socket = ManuallyDrop::new(unsafe { UnixStream::from_raw_fd(fd) });
    socket.set_read_timeout(Some(PATIENCE))?;
    exchange(&*socket, mine)
}

/// Gives a text to all, or gets what PE 0 gave. The text has no blanks.
///
/// # Errors
/// The launcher did not answer as it should.
pub fn exchange<S: Read + Write>(stream: S, mine: Option<&str>) -> Result<String, PmiError> {
    let mut client = Client { stream: BufReader::new(stream) };
    client.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", "cmd")?;
    let store = client.ask("cmd=get_my_kvsname", "my_kvsname", "kvsname")?;
    if let Some(text) = mine {
        let half = text.len().div_ceil(PARTS);
        for part in 0..PARTS {
            let value = text.get(part * half..(part * half + half).min(text.len())).unwrap_or_default();
            let asked = format!("cmd=put kvsname={store} key={KEY}-{part} value={value}");
            client.ask(&asked, "put_result", "cmd")?;
        }
    }
    client.ask("cmd=barrier_in", "barrier_out", "cmd")?;
    let mut text = String::new();
    for part in 0..PARTS {
        let asked = format!("cmd=get kvsname={store} key={KEY}-{part}");
        text += &client.ask(&asked, "get_result", "value")?;
    }
    client.ask("cmd=finalize", "finalize_ack", "cmd")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Barrier, Mutex};

    type Store = Arc<Mutex<BTreeMap<String, String>>>;

    /// A launcher's end of one process.
    fn serve(stream: UnixStream, store: Store, barrier: Arc<Barrier>) {
        let mut out = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            let asked = fields(&line);
            let answer = match asked["cmd"] {
                "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".to_owned(),
                "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1_0".to_owned(),
                "put" => {
                    assert!(asked["value"].len() < 256 && asked["kvsname"] == "kvs_1_0");
                    store.lock().unwrap().insert(asked["key"].to_owned(), asked["value"].to_owned());
                    "cmd=put_result rc=0 msg=success".to_owned()
                }
                "barrier_in" => {
                    barrier.wait();
                    "cmd=barrier_out rc=0".to_owned()
                }
                "get" => match store.lock().unwrap().get(asked["key"]) {
                    Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                    None => "cmd=get_result rc=-1 msg=no_such_key".to_owned(),
                },
                "finalize" => "cmd=finalize_ack rc=0".to_owned(),
                other => panic!("{other}"),
            };
            out.write_all(format!("{answer}\n").as_bytes()).unwrap();
        }
    }

    /// What each of three processes ends with; PE 0 gives `text`.
    fn three(text: Option<&str>) -> Vec<Result<String, PmiError>> {
        let (store, barrier) = (Store::default(), Arc::new(Barrier::new(3)));
        std::thread::scope(|scope| {
            let processes: Vec<_> = (0..3)
                .map(|rank| {
                    let (ours, theirs) = UnixStream::pair().unwrap();
                    let (store, barrier) = (store.clone(), barrier.clone());
                    scope.spawn(move || serve(theirs, store, barrier));
                    scope.spawn(move || exchange(ours, text.filter(|_| rank == 0)))
                })
                .collect();
            processes.into_iter().map(|process| process.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_have_what_pe_0_gave() {
        for text in ["0123456789abcdef".repeat(16), "abc".into()] {
            for answer in three(Some(&text)) {
                assert_eq!(answer.unwrap(), text);
            }
        }
    }

    #[test]
    fn an_answer_that_is_none_is_said() {
        for answer in three(None) {
            let error = answer.unwrap_err().to_string();
            assert!(error.contains("no_such_key") && error.contains("cmd=get_result"), "{error}");
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(exchange(ours, None).is_err());
    }
}
