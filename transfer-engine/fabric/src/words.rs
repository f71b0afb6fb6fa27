//! What the two ends of a path tell each other. Pure.

use serde::{Deserialize, Serialize};

/// First byte of every message: what follows, and its version.
const VERSION: u8 = 0xf1;

/// Immediates that are settled: as many pieces of each were executed, and none is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// From 1 on, one more with each.
    pub number: u32,
    /// Immediate and count.
    pub counts: Vec<(u32, u64)>,
}

/// What an end that closes asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asks {
    /// How many of these arrived.
    pub imms: Vec<u32>,
    /// Which of these keys are none.
    pub keys: Vec<u32>,
    /// What may not have been taken yet.
    pub batch: Option<Batch>,
}

/// What became of an immediate at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrived {
    /// So many arrived that are not settled. Less than 0 while what was settled is not read yet.
    pub count: i64,
    /// As many were, when an expectation of it was reached last.
    pub reached: i64,
}

/// The answer, once the endpoint is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answers {
    /// By immediate.
    pub counts: Vec<(u32, Arrived)>,
    /// Keys that are none.
    pub unknown: Vec<u32>,
}

/// A word about an incarnation of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// Of the end that leads: its endpoint has this name.
    Offer(Vec<u8>),
    /// Of the other end: its endpoint has this name, and knows the offered one.
    Accept(Vec<u8>),
    /// Of the end that leads: it knows the accepted one.
    Ready,
    /// The sender's first operation is executed; true: it does not know that the peer's is.
    Probed(bool),
    /// The sender's endpoint is closed.
    Close(Asks),
    /// The sender's endpoint is closed: the answer.
    Closed(Answers),
    /// The sender's endpoint is being closed: to be asked again.
    Wait,
    /// The sender has no endpoint of this incarnation, and knows nothing of it.
    Gone,
    /// Counts that are settled.
    Settle(Batch),
    /// Those up to this number were taken.
    Settled(u32),
}

/// A message: number of the path, incarnation, word.
pub(crate) type Said = (u32, u32, Word);

/// A message as bytes.
pub(crate) fn encode(said: &Said) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(postcard::to_allocvec(said).unwrap_or_default());
    bytes
}

/// Reads a message; none if it is not one.
pub(crate) fn decode(bytes: &[u8]) -> Option<Said> {
    let (&version, rest) = bytes.split_first()?;
    let (said, rest) = postcard::take_from_bytes(rest).ok()?;
    (version == VERSION && rest.is_empty()).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_is_read_and_what_is_cut_short_or_too_long_is_not() {
        let batch = Batch { number: 2, counts: vec![(7, 1 << 40)] };
        let arrived = Arrived { count: -3, reached: 2 };
        for word in [
            Word::Offer(vec![1, 2]),
            Word::Close(Asks { imms: vec![u32::MAX], keys: vec![5], batch: Some(batch.clone()) }),
            Word::Closed(Answers { counts: vec![(9, arrived)], unknown: vec![1] }),
            Word::Settle(batch),
        ] {
            let said = (1, 2, word);
            let bytes = encode(&said);
            assert_eq!(decode(&bytes), Some(said));
            (0..bytes.len()).for_each(|cut| assert_eq!(decode(&bytes[..cut]), None, "cut to {cut} bytes"));
            assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
            assert_eq!(decode(&[&[VERSION + 1], &bytes[1..]].concat()), None, "another version");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [&[VERSION], &bytes[..]].concat();
            if let Some(said) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&said)), Some(said));
            }
        }
    }
}
