//! `SHUNT_VERBS_PEER=required`: a connection that cannot be protected is refused, not made without protection.
//!
//! What is known when the program connects is refused there, with an errno: [`refusal`]. What turns out later moves the
//! queue pair to ERR, so that the program's requests end in errors.

use crate::hooks::batch;
use crate::queue_pair::QueuePair;
use crate::settings::{Peer, settings};
use crate::voice;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a program waits until its NICs are open and the store has answered, or has not.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a queue pair has no backup.
pub(super) const ONE_NIC: &str = "there is one NIC only";
/// Why one is not looked for at the other end.
pub(super) const BY_LID: &str = "it is connected by LID";

/// What the agent knows.
#[derive(Debug, Default)]
struct Known {
    /// NICs that it has, or why it has none.
    nics: Option<Result<usize, String>>,
    /// The store is there.
    store: Option<bool>,
}

impl Known {
    /// Why a connection is refused, if it is; none while that is not known yet.
    fn judge(&self) -> Option<Result<(), String>> {
        match (self.nics.as_ref()?, self.store) {
            (Err(why), _) => Some(Err(why.clone())),
            (Ok(nics), _) if *nics < 2 => Some(Err(ONE_NIC.to_owned())),
            (Ok(_), None) => None,
            (Ok(_), Some(false)) => Some(Err("the store is not there, or refuses this process".to_owned())),
            (Ok(_), Some(true)) => Some(Ok(())),
        }
    }
}

static KNOWN: (Mutex<Known>, Condvar) = (Mutex::new(Known { nics: None, store: None }), Condvar::new());

fn tell(change: impl FnOnce(&mut Known)) {
    change(&mut KNOWN.0.lock().unwrap_or_else(PoisonError::into_inner));
    KNOWN.1.notify_all();
}

/// True if connections without protection are refused.
pub fn is_asked() -> bool {
    settings().peer == Peer::Required
}

/// The agent has so many NICs, or none, and why.
pub(super) fn tell_nics(nics: Result<usize, String>) {
    tell(|known| known.nics = Some(nics));
}

/// The store is there, or is not, or that is not known.
pub(super) fn tell_store(open: Option<bool>) {
    tell(|known| known.store = open);
}

/// Why a connection is refused that the program makes now, if it is. Waits until that is known.
pub(super) fn refusal() -> Option<String> {
    let known = KNOWN.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waits = |known: &mut Known| known.judge().is_none();
    let (known, _) =
        KNOWN.1.wait_timeout_while(known, PATIENCE, waits).unwrap_or_else(PoisonError::into_inner);
    match known.judge() {
        Some(answer) => answer.err(),
        None => Some(format!("NICs and store were not ready within {} s", PATIENCE.as_secs())),
    }
}

/// Says that a queue pair is refused.
pub fn say_refused(device: &str, qpn: u32, why: &str) {
    voice::say(&format!(
        "{device} QP {qpn:#x}: expected one that can be protected (SHUNT_VERBS_PEER=required), got: {why}; it is \
         refused"
    ));
}

/// One that is not protected any more, by no wish of the program's: it takes nothing more.
pub(super) fn refuse(pair: &QueuePair, why: &str) {
    if !is_asked() {
        return;
    }
    say_refused(&pair.context.device, pair.qpn, why);
    let raw = pair.raw.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = *raw {
        // SAFETY: alive while the guard is held.
        let errno = unsafe { batch::fence(pair, own.0) };
        if errno != 0 {
            voice::say(&format!("QP {:#x} cannot be moved to ERR: error {errno}", pair.qpn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_waited_for_and_what_cannot_be_is_refused() {
        let judge = |nics: Option<Result<usize, &str>>, store| {
            let nics = nics.map(|nics| nics.map_err(str::to_owned));
            Known { nics, store }.judge()
        };
        assert_eq!(judge(None, Some(true)), None);
        assert_eq!(judge(Some(Ok(2)), None), None);
        assert_eq!(judge(Some(Ok(2)), Some(true)), Some(Ok(())));
        let refused = |nics, store| judge(Some(nics), store).unwrap().unwrap_err();
        assert_eq!(refused(Err("no device"), None), "no device");
        assert_eq!(refused(Ok(1), Some(true)), "there is one NIC only");
        assert_eq!(refused(Ok(2), Some(false)), "the store is not there, or refuses this process");
    }
}
