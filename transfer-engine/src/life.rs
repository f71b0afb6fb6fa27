//! One transfer: how many of its pieces wait, are under way and are done, and how it ends. Pure.

use crate::error::TransferError;
use crate::ids::{PeerId, TransferId};
use shunt_layout::mutant::Mutant;
use shunt_recovery::nanos::Nanos;

/// Proof that no byte of a transfer can land any more and that its source is not read again: every piece was executed,
/// never posted, or was under way on a lane that was fenced at both ends. Only the end of a transfer makes one.
#[derive(Debug, PartialEq, Eq)]
pub struct Quiesced {
    transfer: TransferId,
    written: u64,
}

impl Quiesced {
    /// Of which transfer.
    pub const fn transfer(&self) -> TransferId {
        self.transfer
    }

    /// How many of its pieces were executed.
    pub const fn written(&self) -> u64 {
        self.written
    }
}

/// How a transfer is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// What is not posted is dropped, the rest is waited for.
    Unposted,
    /// The same, until then; then as `Now`.
    Drain(Nanos),
    /// Lanes that hold pieces of it are fenced. Pieces of other transfers on them are sent again, if they have to be.
    Now,
}

/// How a transfer ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub transfer: TransferId,
    /// All of it was written, or why not.
    pub result: Result<(), TransferError>,
    /// Proof that it is over. None of one that ended with [`TransferError::Unproven`].
    pub quiesced: Option<Quiesced>,
}

/// A transfer that has not ended.
#[derive(Debug)]
pub(crate) struct Life {
    pub peer: PeerId,
    pub total: u64,
    pub waiting: u64,
    pub under_way: u64,
    pub written: u64,
    /// Why the rest is not sent.
    pub stopped: Option<TransferError>,
    pub drain_until: Option<Nanos>,
    /// Pieces that may have been executed or not, and cannot be any more.
    pub uncertain: u64,
    /// Pieces that may still land.
    pub unproven: u64,
}

impl Life {
    /// One of so many pieces, all of which wait.
    pub const fn new(peer: PeerId, total: u64) -> Self {
        Self {
            peer,
            total,
            waiting: total,
            under_way: 0,
            written: 0,
            stopped: None,
            drain_until: None,
            uncertain: 0,
            unproven: 0,
        }
    }

    /// How it ends: nothing of it waits, and nothing is under way.
    pub fn end(&self, transfer: TransferId) -> Ended {
        let is_quiet = self.unproven == 0 || Mutant::UnprovenIsProof.on();
        let quiesced = is_quiet.then_some(Quiesced { transfer, written: self.written });
        Ended { transfer, result: self.result(), quiesced }
    }

    /// True if the rest of it is not sent.
    pub const fn is_stopped(&self) -> bool {
        self.stopped.is_some() || self.uncertain + self.unproven > 0
    }

    fn result(&self) -> Result<(), TransferError> {
        let Self { peer, total: of, written, .. } = *self;
        match &self.stopped {
            _ if self.unproven > 0 => Err(TransferError::Unproven { peer, pieces: self.unproven }),
            _ if written == of => Ok(()),
            _ if self.uncertain > 0 => Err(TransferError::Uncertain { peer, pieces: self.uncertain }),
            Some(TransferError::PeerLost { waited_ns, .. }) => {
                Err(TransferError::PeerLost { peer, waited_ns: *waited_ns, written, of })
            }
            Some(TransferError::PeerLeft { .. }) => Err(TransferError::PeerLeft { peer, written, of }),
            Some(TransferError::Denied { .. }) => Err(TransferError::Denied { peer, written, of }),
            _ => Err(TransferError::Cancelled { written, of }),
        }
    }
}

#[cfg(test)]
pub(crate) const fn proof(transfer: TransferId, written: u64) -> Quiesced {
    Quiesced { transfer, written }
}
