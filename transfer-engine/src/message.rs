//! Messages: cut into numbered parts, which lanes carry in any order and some more than once, and put together again in
//! the order in which they were sent. Pure.
//!
//! Each part has a number of its own, one more than the last part to that peer. The receiver hands messages over in
//! this order. A part whose transfer has ended is sent without its bytes, so that nothing waits for its number; what is
//! left of its message is dropped.

use crate::error::TransferError;
use crate::ids::PeerId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most bytes of a part, its header among them.
pub const PART_BYTES: usize = 1024;
/// Most bytes of a message.
pub const MESSAGE_MAX: usize = 1 << 20;
/// Number, big-endian, and flags.
const HEADER: usize = 9;
const FLAGS: usize = HEADER - 1;
/// The last part of its message.
const LAST: u8 = 1;
/// Its bytes are not sent.
const SKIPPED: u8 = 2;

/// The same part without its bytes.
pub(crate) fn skipped(part: &[u8]) -> Arc<[u8]> {
    let mut header = part.get(..HEADER).unwrap_or(&[0; HEADER]).to_vec();
    header[FLAGS] |= SKIPPED;
    header.into()
}

/// Numbers of the parts to each peer.
#[derive(Debug, Default)]
pub struct Outgoing(BTreeMap<PeerId, u64>);

impl Outgoing {
    /// The parts of the next message to a peer.
    ///
    /// # Errors
    /// It is longer than [`MESSAGE_MAX`]. No number was taken.
    pub fn parts(&mut self, peer: PeerId, bytes: &[u8]) -> Result<Vec<Arc<[u8]>>, TransferError> {
        if bytes.len() > MESSAGE_MAX {
            let (what, want) = ("bytes of a message", "2^20 at most");
            return Err(TransferError::Refused { what, want, met: bytes.len().to_string() });
        }
        let next = self.0.entry(peer).or_default();
        let count = bytes.len().div_ceil(PART_BYTES - HEADER).max(1);
        let part = |at: usize| {
            let body = bytes.chunks(PART_BYTES - HEADER).nth(at).unwrap_or_default();
            let flags = if at + 1 == count { LAST } else { 0 };
            let number = (*next + at as u64).to_be_bytes();
            [&number[..], &[flags], body].concat().into()
        };
        let parts = (0..count).map(part).collect();
        *next += count as u64;
        Ok(parts)
    }

    /// A peer is gone. One that has its number begins again.
    pub fn forget(&mut self, peer: PeerId) {
        self.0.remove(&peer);
    }
}

/// What has arrived of a peer.
#[derive(Debug, Default)]
struct Incoming {
    next: u64,
    /// Parts that wait for one before them: flags and bytes.
    early: BTreeMap<u64, (u8, Vec<u8>)>,
    /// The message that the next part goes on with.
    partial: Vec<u8>,
    /// A part of it was skipped.
    spoilt: bool,
}

/// Parts of all peers.
#[derive(Debug, Default)]
pub struct Messages(BTreeMap<PeerId, Incoming>);

impl Messages {
    /// A part has arrived: the messages that it completes, in order. What is no part is dropped.
    pub fn arrived(&mut self, peer: PeerId, part: &[u8]) -> Vec<Vec<u8>> {
        let incoming = self.0.entry(peer).or_default();
        let Some((header, body)) = part.split_at_checked(HEADER) else { return Vec::new() };
        let number = header.iter().take(FLAGS).fold(0, |number, byte| number << 8 | u64::from(*byte));
        if number >= incoming.next {
            incoming.early.insert(number, (header[FLAGS], body.to_vec()));
        }
        std::iter::from_fn(|| incoming.take_next()).flatten().collect()
    }

    /// A peer is gone. One that has its number begins again.
    pub fn forget(&mut self, peer: PeerId) {
        self.0.remove(&peer);
    }
}

impl Incoming {
    /// Takes the next part, if it is there: the message that it completes, if it completes one.
    fn take_next(&mut self) -> Option<Option<Vec<u8>>> {
        let (flags, body) = self.early.remove(&self.next)?;
        self.next += 1;
        self.spoilt |= flags & SKIPPED != 0;
        self.partial.extend(body);
        if flags & LAST == 0 {
            return Some(None);
        }
        let (message, spoilt) = (std::mem::take(&mut self.partial), std::mem::take(&mut self.spoilt));
        Some((!spoilt).then_some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PEER: PeerId = PeerId(2);

    #[test]
    fn a_message_is_as_long_as_it_may_be_and_no_longer() {
        let mut outgoing = Outgoing::default();
        assert!(outgoing.parts(PEER, &vec![0; MESSAGE_MAX + 1]).is_err());
        let parts = outgoing.parts(PEER, &vec![7; MESSAGE_MAX]).expect("as long as it may be");
        assert!(parts.iter().all(|part| part.len() <= PART_BYTES));
        let mut messages = Messages::default();
        let got: Vec<_> = parts.iter().rev().flat_map(|part| messages.arrived(PEER, part)).collect();
        assert!(got == [vec![7; MESSAGE_MAX]]);
    }

    #[test]
    fn what_is_no_part_and_what_a_peer_sent_before_it_was_gone_are_dropped() {
        let (mut outgoing, mut messages) = (Outgoing::default(), Messages::default());
        assert!(
            messages.arrived(PEER, &[]).is_empty() && messages.arrived(PEER, &[9; HEADER - 1]).is_empty()
        );
        let two = outgoing.parts(PEER, &[1; PART_BYTES]).expect("short");
        assert!(messages.arrived(PEER, &two[0]).is_empty(), "half of it");
        outgoing.forget(PEER);
        messages.forget(PEER);
        let one = outgoing.parts(PEER, b"again").expect("short");
        assert_eq!(messages.arrived(PEER, &one[0]), [b"again"]);
    }

    proptest! {
        /// Whatever order parts arrive in, and how often: messages come in order, each once, and none of which a part
        /// was skipped.
        #[test]
        fn messages_keep_their_order(
            lengths in proptest::collection::vec((0..3 * PART_BYTES, any::<bool>()), 1..12),
            order in proptest::collection::vec(any::<proptest::sample::Index>(), 0..80),
        ) {
            let (mut outgoing, mut messages) = (Outgoing::default(), Messages::default());
            let (mut parts, mut wanted) = (Vec::new(), Vec::new());
            for (number, (len, skips)) in lengths.into_iter().enumerate() {
                let bytes = vec![number as u8; len];
                let mut all = outgoing.parts(PEER, &bytes).expect("short");
                if skips {
                    let last = all.len() - 1;
                    all[last / 2] = skipped(&all[last / 2]);
                } else {
                    wanted.push(bytes);
                }
                parts.extend(all);
            }
            let some = order.iter().map(|index| index.get(&parts)).chain(parts.iter().rev());
            let got: Vec<_> = some.flat_map(|part| messages.arrived(PEER, part)).collect();
            prop_assert!(got == wanted);
        }
    }
}
