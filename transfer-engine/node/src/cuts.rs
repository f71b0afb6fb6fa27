//! Peers that were cut off, or have left: the proof that nothing of them lands here any more, however often it is asked
//! for.

use crate::pending::Slot;
use crate::process::Process;
use crate::rails::Rails;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::engine::Engine;
use shunt_transfer_engine::ids::PeerId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Why a peer is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It has left, or its process has.
    Left,
    /// This end cut it off.
    CutOff,
}

#[derive(Default)]
struct State {
    /// By number: filled once the proof is there.
    proofs: BTreeMap<u32, Arc<Slot<()>>>,
    /// What the log was not told.
    untold: Vec<(u32, Why)>,
}

/// Those of one node.
#[derive(Clone, Default)]
pub(crate) struct Cuts(Arc<Mutex<State>>);

impl Cuts {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        // Each change is whole by itself.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The proof of a peer that was cut off here, or that a job's end knows to have left: it is there, or it comes.
    pub fn proof(&self, peer: u32) -> Option<Arc<Slot<()>>> {
        self.with(|state| state.proofs.get(&peer).cloned())
    }

    /// Has the engine cut a peer off; false if it did before. The proof may be waited for as often as one likes.
    pub fn cut(&self, engine: &mut Engine<Rails>, now: Nanos, peer: u32, why: Why) -> bool {
        let (slot, filler) = Slot::new(Process::own());
        let begun = engine.leave(now, PeerId(peer), Box::new(move || filler.fill(())));
        if begun {
            self.with(|state| {
                state.proofs.insert(peer, slot);
                state.untold.push((peer, why));
            });
        }
        begun
    }

    /// The engine cuts a peer off for who tells of it himself.
    pub fn tell(&self, peer: u32, why: Why) {
        self.with(|state| state.untold.push((peer, why)));
    }

    /// What the log was not told.
    pub fn take_untold(&self) -> Vec<(u32, Why)> {
        self.with(|state| std::mem::take(&mut state.untold))
    }
}
