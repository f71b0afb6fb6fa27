//! What a responder owes, in the order asked, and what it remembers for requests that come again.

use crate::endpoint::Endpoint;
use crate::memory::Access;
use crate::step_context::StepContext;
use crate::units::Units;
use shunt_soft_wire::packet::{Body, Part, Payload, Reth, aeth};
use shunt_soft_wire::psn;
use std::collections::VecDeque;

/// Something a responder owes. `again`: asked by a duplicate, so beyond the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owed {
    Ack {
        psn: u32,
        msn: u32,
        syndrome: u8,
    },
    Read {
        psn: u32,
        msn: u32,
        rkey: u32,
        address: u64,
        bytes: u32,
        sent: u32,
        ticket: u64,
        ready: bool,
        again: bool,
    },
    Atomic {
        psn: u32,
        msn: u32,
        ticket: u64,
        original: Option<u64>,
        again: bool,
    },
}

/// A READ or atomic remembered for duplicates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Remembered {
    Read { psn: u32, packets: u32, rkey: u32, address: u64, bytes: u32 },
    Atomic { psn: u32, ticket: u64, original: Option<u64> },
}

/// The answers of one responder.
#[derive(Debug)]
pub(crate) struct Answers {
    owed: VecDeque<Owed>,
    remembered: VecDeque<Remembered>,
    /// READs and atomics that may be owed and are remembered.
    most: usize,
    next_ticket: u64,
}

impl Answers {
    /// None owed; tickets go on from `next_ticket`.
    pub(crate) fn new(next_ticket: u64) -> Self {
        Self { owed: VecDeque::new(), remembered: VecDeque::new(), most: 1, next_ticket }
    }

    /// The ticket that the next request gets: none is used twice, so that what was posted for a queue pair that is gone
    /// answers nothing.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.next_ticket
    }

    /// Hands out a ticket.
    pub(crate) fn take_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket - 1
    }

    /// So many READs and atomics may be owed.
    pub(crate) fn allow(&mut self, most: usize) {
        self.most = most;
    }

    /// Forgets what is owed.
    pub(crate) fn clear(&mut self) {
        self.owed.clear();
        self.remembered.clear();
    }

    /// True if nothing is owed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// Owes an acknowledgement, or moves the one owed last if nothing stands between.
    #[inline(always)]
    pub(crate) fn owe_ack(&mut self, psn: u32, msn: u32, syndrome: u8) {
        let new = Owed::Ack { psn, msn, syndrome };
        match self.owed.back_mut() {
            Some(last @ Owed::Ack { syndrome: aeth::ACK, .. }) if syndrome == aeth::ACK => *last = new,
            _ => self.owed.push_back(new),
        }
    }

    /// Owes the answer to a READ or an atomic.
    pub(crate) fn owe(&mut self, owed: Owed) {
        self.owed.push_back(owed);
    }

    /// True if no more READs and atomics may be owed.
    pub(crate) fn is_full(&self) -> bool {
        let counts = |owed: &&Owed| match owed {
            Owed::Ack { .. } => false,
            Owed::Read { again, .. } | Owed::Atomic { again, .. } => !again,
        };
        self.owed.iter().filter(counts).count() >= self.most
    }

    /// True if the answer to this request is on its way already: a duplicate then adds nothing.
    pub(crate) fn is_owed(&self, at: u32) -> bool {
        self.owed.iter().any(|owed| match *owed {
            Owed::Ack { .. } => false,
            Owed::Read { psn: first, sent, .. } => first == at && sent == 0,
            Owed::Atomic { psn: first, .. } => first == at,
        })
    }

    /// Remembers a READ or atomic for duplicates; the oldest goes.
    pub(crate) fn remember(&mut self, entry: Remembered) {
        if self.remembered.len() >= self.most {
            self.remembered.pop_front();
        }
        self.remembered.push_back(entry);
    }

    /// True if a READ that came again, at PSN `at`, is one that is remembered, or the rest of one.
    pub(crate) fn knows_read(&self, at: u32, again: Reth, mtu: u32) -> bool {
        self.remembered.iter().any(|remembered| match *remembered {
            Remembered::Read { psn: first, packets, rkey, address, bytes } => {
                let index = psn::distance(at, first);
                let skip = index as i64 * mtu as i64;
                index >= 0
                    && (index as u32) < packets
                    && again.rkey == rkey
                    && again.address == address.wrapping_add(skip as u64)
                    && again.bytes as i64 == bytes as i64 - skip
            }
            Remembered::Atomic { .. } => false,
        })
    }

    /// Ticket and result of the atomic at PSN `at`, if it is remembered.
    pub(crate) fn known_atomic(&self, at: u32) -> Option<(u64, Option<u64>)> {
        self.remembered.iter().find_map(|remembered| match *remembered {
            Remembered::Atomic { psn: first, ticket, original } if first == at => Some((ticket, original)),
            _ => None,
        })
    }

    /// The request with ticket `done`, which waited for writes before it, was executed: an atomic found `original`.
    pub(crate) fn executed(&mut self, done: u64, original: Option<u64>) {
        for owed in &mut self.owed {
            match owed {
                Owed::Read { ticket, ready, .. } if *ticket == done => *ready = true,
                Owed::Atomic { ticket, original: answer, .. } if *ticket == done => *answer = original,
                _ => {}
            }
        }
        for remembered in &mut self.remembered {
            match remembered {
                Remembered::Atomic { ticket, original: answer, .. } if *ticket == done => *answer = original,
                _ => {}
            }
        }
    }

    /// Sends the next owed packet, if it can be sent.
    pub(crate) fn send_next(&mut self, qp: &Endpoint, units: &mut Units, cx: &mut StepContext) -> Sent {
        match self.owed.front().copied() {
            None => Sent::Nothing,
            Some(Owed::Ack { psn, msn, syndrome }) => {
                self.owed.pop_front();
                send_ack(psn, msn, syndrome, qp, units)
            }
            Some(Owed::Atomic { original: None, .. } | Owed::Read { ready: false, .. }) => Sent::Nothing,
            Some(Owed::Atomic { psn, msn, original: Some(original), .. }) => {
                self.owed.pop_front();
                qp.emit(units, psn, false, false, Body::AtomicAck { msn, original });
                Sent::Packet
            }
            Some(Owed::Read { psn, msn, rkey, address, bytes, sent, .. }) => {
                let at = psn::add(psn, sent);
                let (part, body) = match read(rkey, address, bytes, sent, qp, units, cx) {
                    Ok((part, payload)) => (part, Body::ReadResponse { part, msn, payload }),
                    Err(syndrome) => {
                        // The key went away between request and response.
                        self.owed.pop_front();
                        return send_ack(at, msn, syndrome, qp, units);
                    }
                };
                qp.emit(units, at, false, false, body);
                match self.owed.front_mut() {
                    Some(Owed::Read { sent, .. }) if !part.ends() => *sent += 1,
                    _ => {
                        self.owed.pop_front();
                    }
                }
                Sent::Packet
            }
        }
    }
}

/// What became of an attempt to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing is owed, or it must wait.
    Nothing,
    /// A packet left.
    Packet,
    /// A NAK left behind which the queue pair is in ERR.
    FatalNak,
}

fn send_ack(at: u32, msn: u32, syndrome: u8, qp: &Endpoint, units: &mut Units) -> Sent {
    units.counters.naks += (syndrome >= aeth::NAK_SEQUENCE) as u64;
    units.counters.rnr_naks += (syndrome >> 5 == 1) as u64;
    qp.emit(units, at, false, false, Body::Ack { syndrome, msn });
    if syndrome > aeth::NAK_SEQUENCE { Sent::FatalNak } else { Sent::Packet }
}

/// Reads the data of response number `sent` to a READ.
fn read(
    rkey: u32,
    address: u64,
    bytes: u32,
    sent: u32,
    qp: &Endpoint,
    units: &mut Units,
    cx: &mut StepContext,
) -> Result<(Part, Payload), u8> {
    let offset = sent * qp.mtu;
    let some = (bytes - offset).min(qp.mtu);
    let at = address.wrapping_add(offset as u64);
    let source = units.remote(qp.owner(), rkey, at, some as u64, Access::RemoteRead)?;
    let mut payload = cx.pool.take(some as usize);
    if let Some((span, _)) = source {
        span.load(payload.bytes_mut());
    }
    Ok((Part::of(sent, bytes.div_ceil(qp.mtu).max(1)), payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_merge_unless_something_stands_between() {
        let mut answers = Answers::new(0);
        answers.owe_ack(1, 1, aeth::ACK);
        answers.owe_ack(2, 2, aeth::ACK);
        assert!(matches!(answers.owed[0], Owed::Ack { psn: 2, msn: 2, .. }));
        answers.owe_ack(3, 2, aeth::NAK_SEQUENCE);
        answers.owe_ack(4, 3, aeth::ACK);
        assert!(matches!(answers.owed[1], Owed::Ack { psn: 3, syndrome: aeth::NAK_SEQUENCE, .. }));
        assert_eq!(answers.owed.len(), 3);
    }

    #[test]
    fn the_oldest_of_what_is_remembered_goes() {
        let mut answers = Answers::new(7);
        let ticket = answers.take_ticket();
        answers.remember(Remembered::Atomic { psn: 1, ticket, original: None });
        answers.executed(ticket, Some(5));
        assert_eq!(answers.known_atomic(1), Some((7, Some(5))));
        answers.remember(Remembered::Read { psn: 2, packets: 2, rkey: 9, address: 0x100, bytes: 300 });
        assert_eq!(answers.known_atomic(1), None);
        let rest = Reth { address: 0x200, rkey: 9, bytes: 44 };
        assert!(answers.knows_read(3, rest, 256) && !answers.knows_read(2, rest, 256));
    }
}
