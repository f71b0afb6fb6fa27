//! One transfer: how many of its pieces wait, are under way and are done, and how it ends. Pure.

use crate::error::TransferError;
use crate::ids::{LaneId, PeerId, TransferId};
use crate::piece::{Op, Work};
use shunt_layout::mutant::Mutant;
use shunt_recovery::nanos::Nanos;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// A lane is to be fenced.
    Close(LaneId),
    /// A transfer has ended.
    Ended(Ended),
    /// A peer had no lane for the give-up time. Said once for each time it is lost.
    Lost(PeerId),
}

/// What has become of lanes and pieces so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lanes that were opened.
    pub opened: u64,
    /// Lanes that were closed, because they failed or held what was cancelled. Those to a peer that has left are not.
    pub closed: u64,
    /// Of those that were opened: between rails whose lane to the same peer was closed before.
    pub returned: u64,
    /// Pieces that were under way on a closed lane and go over another one.
    pub again: u64,
    /// Times that some pieces of an immediate had arrived, some had not, and their receiver could not tell which.
    pub replays: u64,
}

impl Counts {
    /// A lane was opened; whether one between its rails was closed before.
    pub(crate) fn opened(&mut self, returns: bool) {
        self.opened += 1;
        self.returned += u64::from(returns);
    }
}

/// Proof that the source of a transfer is not read again and that no byte of it can land any more: every piece was
/// executed, never posted, or was under way on a lane that was fenced at both ends. Only the end of a transfer makes
/// one.
///
/// A NIC acknowledges a write that is on its way to memory, and a READ waits for it there (PCI Express base
/// specification, 2.4.1, posted requests). So lanes that have executed pieces of it are read from first. One that is
/// written as a whole with an immediate is not waited for: its receiver knows by its immediates that the bytes are
/// there, and [`Engine::submit_flush`](crate::engine::Engine::submit_flush) that they are wherever they are.
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
    pub work: Work,
    pub peer: PeerId,
    /// Transfers that were begun before it.
    pub age: u64,
    /// Its pieces; of these, how many wait, are under way, and are executed.
    pub total: u32,
    pub waiting: u32,
    pub under_way: u32,
    pub written: u32,
    /// Marks of lanes that have executed pieces of it, which may not be in memory yet.
    pub on: u32,
    trouble: Option<Box<Trouble>>,
}

/// Why a transfer may not be written as a whole.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// Why the rest is not sent.
    pub stopped: Option<TransferError>,
    pub drain_until: Option<Nanos>,
    /// Pieces that may have been executed or not, and cannot be any more.
    pub uncertain: u64,
    /// Pieces that may still land.
    pub unproven: u64,
    /// Where it was written a lane was closed without a proof: what that one had executed may still land.
    pub unsure: bool,
    /// How many of the lanes that have executed pieces of it have to tell that these are in memory; `None`: they were
    /// not asked.
    pub lands: Option<u32>,
}

static NONE: Trouble =
    Trouble { stopped: None, drain_until: None, uncertain: 0, unproven: 0, unsure: false, lands: None };

impl Life {
    /// One of so many pieces, of which so many are under way. The others wait.
    #[inline]
    pub const fn new(work: Work, (peer, age): (PeerId, u64), total: u32, under_way: u32) -> Self {
        Self {
            work,
            peer,
            age,
            total,
            waiting: total - under_way,
            under_way,
            written: 0,
            on: 0,
            trouble: None,
        }
    }

    /// What is wrong with it.
    pub fn trouble(&self) -> &Trouble {
        self.trouble.as_deref().unwrap_or(&NONE)
    }

    /// The same, to be changed.
    pub fn trouble_mut(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    /// The rest of it is not sent, unless that was so already.
    pub fn stop(&mut self, why: impl FnOnce(u64, u64) -> TransferError) {
        let (written, of) = (self.written.into(), self.total.into());
        self.trouble_mut().stopped.get_or_insert_with(|| why(written, of));
    }

    /// So many that waited are under way.
    #[inline]
    pub const fn posted(&mut self, count: u32) {
        (self.waiting, self.under_way) = (self.waiting - count, self.under_way + count);
    }

    /// How it ends: nothing of it waits, and nothing is under way.
    #[inline]
    pub fn end(&self, transfer: TransferId) -> Ended {
        let quiesced = Some(Quiesced { transfer, written: self.written.into() });
        if self.trouble.is_none() && self.written == self.total {
            return Ended { transfer, result: Ok(()), quiesced };
        }
        let may_land = self.may_land();
        let is_quiet = may_land == 0 || Mutant::UnprovenIsProof.on();
        Ended { transfer, result: self.result(may_land), quiesced: quiesced.filter(|_| is_quiet) }
    }

    /// Pieces that may still land, as far as is known.
    fn may_land(&self) -> u64 {
        let Trouble { unproven, unsure, .. } = self.trouble();
        // What flushes lanes wrote nothing, and is of no use without those.
        let executed = if *unsure && !self.is_counted() { self.written.max(1) } else { 0 };
        unproven + u64::from(executed)
    }

    /// True if its receiver learns by immediates that all of it is in memory: they come behind the bytes.
    #[inline]
    pub fn is_counted(&self) -> bool {
        let has_imm = matches!(self.work.op, Op::Write(Some(_)));
        has_imm && self.written == self.total && self.trouble().stopped.is_none()
    }

    /// Where in the peer's memory bytes of it may be that are on their way still, though no piece is under way. None
    /// are, or there is no proof anyway.
    pub fn lands_at(&self) -> Option<u64> {
        let is_late = self.on != 0 && !self.is_counted() && self.may_land() == 0;
        let wrote = is_late && matches!(self.work.op, Op::Write(_));
        let spans = if wrote { self.work.spans.all() } else { &[] };
        spans.iter().find(|span| span.len > 0).map(|span| span.remote)
    }

    /// One of the lanes that were asked has told that what it had executed is in memory.
    pub fn landed(&mut self) {
        self.trouble_mut().lands.iter_mut().for_each(|lands| *lands -= 1);
    }

    /// Of so many pieces that were under way it is not known whether they were executed (`quiet`), or whether they will
    /// be.
    pub fn gives_up(&mut self, pieces: u32, quiet: bool) {
        self.under_way -= pieces;
        let Trouble { uncertain, unproven, .. } = self.trouble_mut();
        *(if quiet { uncertain } else { unproven }) += u64::from(pieces);
    }

    /// A piece that was under way was not executed. True if it waits again: the rest of it is sent.
    pub fn is_again(&mut self) -> bool {
        let goes_on = !self.is_stopped();
        (self.under_way, self.waiting) = (self.under_way - 1, self.waiting + u32::from(goes_on));
        goes_on
    }

    /// True if the rest of it is not sent.
    pub fn is_stopped(&self) -> bool {
        let Trouble { stopped, uncertain, unproven, .. } = self.trouble();
        stopped.is_some() || uncertain + unproven > 0
    }

    #[cold]
    fn result(&self, may_land: u64) -> Result<(), TransferError> {
        let (peer, of, written) = (self.peer, self.total.into(), self.written.into());
        let Trouble { stopped, uncertain, .. } = self.trouble();
        match stopped {
            _ if may_land > 0 => Err(TransferError::Unproven { peer, pieces: may_land }),
            _ if self.written == self.total => Ok(()),
            _ if *uncertain > 0 => Err(TransferError::Uncertain { peer, pieces: *uncertain }),
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
