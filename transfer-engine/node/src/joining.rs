//! Calls that wait for lanes to the same peer. One that gives up must not take the peer from the others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Those calls.
#[derive(Default)]
struct Calls {
    waiting: u32,
    /// The peer joined for one of them, and none has had a lane.
    is_new: bool,
}

/// They, by the peer's number.
#[derive(Default)]
pub(crate) struct Joining(Mutex<BTreeMap<u32, Calls>>);

impl Joining {
    fn calls(&self) -> MutexGuard<'_, BTreeMap<u32, Calls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more call waits, which may be why the peer joined.
    pub fn begin(&self, peer: u32, is_new: bool) {
        let mut calls = self.calls();
        let calls = calls.entry(peer).or_default();
        calls.waiting += 1;
        calls.is_new |= is_new;
    }

    /// One has a lane, so the peer stays; or the peer has left.
    pub fn ended(&self, peer: u32) {
        let mut calls = self.calls();
        let Some(its) = calls.get_mut(&peer) else { return };
        its.waiting -= 1;
        its.is_new = false;
        if its.waiting == 0 {
            calls.remove(&peer);
        }
    }

    /// One gives up. True if no other waits and the peer joined for nothing: it is to leave.
    pub fn gave_up(&self, peer: u32) -> bool {
        let mut calls = self.calls();
        let Some(its) = calls.get_mut(&peer) else { return false };
        its.waiting -= 1;
        let is_last = its.waiting == 0;
        let leaves = is_last && its.is_new;
        if is_last {
            calls.remove(&peer);
        }
        leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call with a short deadline ended the longer one of another thread: it had the peer leave.
    #[test]
    fn the_last_call_that_gives_up_has_a_new_peer_leave() {
        let joining = Joining::default();
        joining.begin(3, true);
        joining.begin(3, false);
        assert!(!joining.gave_up(3), "another one waits");
        assert!(joining.gave_up(3), "though the peer was there before that call");
        joining.begin(3, false);
        assert!(!joining.gave_up(3), "it had joined before");
    }

    #[test]
    fn a_peer_to_which_a_lane_was_open_stays() {
        let joining = Joining::default();
        (0..2).for_each(|_| joining.begin(5, true));
        joining.ended(5);
        assert!(!joining.gave_up(5));
        joining.ended(5);
        assert!(!joining.gave_up(5));
    }
}
