//! Soft NICs that libibverbs shows, asked over the control socket of this process: where they are, what fails at them,
//! what they wrote.

use shunt_soft_machine::control::{Client, ControlError, CounterReport, own};
use shunt_soft_nic::{FaultKind, WordWatch};
use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};

/// The library that makes soft NICs of libibverbs, as the environment names it.
const PRELOADED: &str = "libshunt_soft_rdma";

/// Why it is not known what the NICs are.
#[derive(Debug, thiserror::Error)]
pub enum Unclear {
    /// The socket does not work.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// There should be one.
    #[error(
        "LD_PRELOAD names {PRELOADED} and this process has no control socket at {0}: it is not known what its NICs are"
    )]
    Missing(String),
}

/// The control socket of this process.
pub struct Control {
    client: Mutex<Client>,
    /// Numbers that injected faults have there, by the order they were injected in.
    ids: Mutex<Vec<u64>>,
}

impl Control {
    /// Connects, if this process has soft NICs. A device must have been looked at: that is when the socket is made.
    ///
    /// # Errors
    /// It cannot be told whether it has.
    pub fn find() -> Result<Option<Self>, Unclear> {
        let path = own();
        match Client::connect(&path) {
            Ok(client) => Ok(Some(Self { client: Mutex::new(client), ids: Mutex::default() })),
            // Nobody listens: what lies there, if anything does, is of a process that had the same number.
            Err(ControlError::Connect { cause, .. })
                if matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
            {
                let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
                if preloaded.to_string_lossy().contains(PRELOADED) {
                    return Err(Unclear::Missing(path.display().to_string()));
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn ask<T>(&self, question: impl FnOnce(&mut Client) -> Result<T, ControlError>) -> Result<T, String> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        question(&mut client).map_err(|error| error.to_string())
    }

    /// Makes a NIC fail, so many nanoseconds from now.
    ///
    /// # Errors
    /// It cannot be made to.
    pub fn inject(&self, device: &str, from_now_ns: u64, kind: FaultKind) -> Result<usize, String> {
        let nics = self.ask(Client::nics)?.nics;
        let nic = nics.iter().find(|nic| nic.name == device);
        let nic = nic.ok_or_else(|| format!("{device} is no soft NIC of this process"))?;
        let id = self.ask(|client| client.inject(nic.index, from_now_ns, &kind.to_string()))?;
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.push(id);
        Ok(ids.len() - 1)
    }

    /// How often each fault has struck, in the order of injection.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn hits(&self) -> Result<Vec<u64>, String> {
        let faults = self.ask(Client::faults)?;
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let hits = |id: &u64| faults.iter().find(|fault| fault.id == *id).map_or(0, |fault| fault.hits);
        Ok(ids.iter().map(hits).collect())
    }

    /// Counts what is placed on a word from now on.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn watch(&self, address: u64) -> Result<(), String> {
        self.ask(|client| client.watch(address)).map(|_| ())
    }

    /// What was placed on it.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn watched(&self, address: u64) -> Result<WordWatch, String> {
        let seen = self.ask(|client| client.watched(address))?;
        Ok(WordWatch { writes: seen.writes, last: seen.last, not_increasing: seen.not_increasing })
    }

    /// What each NIC counts, with its name.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn counters(&self) -> Result<Vec<(String, CounterReport)>, String> {
        let nics = self.ask(Client::nics)?.nics;
        Ok(nics.into_iter().map(|nic| (nic.name, nic.counters)).collect())
    }
}
