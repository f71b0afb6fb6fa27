//! What decoders and prefillers say to each other, as messages of the transfer engine.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of what [`Word::to_bytes`] writes.
const VERSION: u8 = 1;

/// A wish for the cache of one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Its number at the decoder, never used twice: the immediate of every write of it.
    pub id: u32,
    /// What is computed: a number that the application knows the prompt by.
    pub prompt: u64,
    /// The decoder's pages, in the order of the prompt. Every layer writes all of them.
    pub pages: Vec<u32>,
    /// Where the context goes: bytes from the first one of the decoder's region.
    pub context: u64,
}

/// The shape of a cache. Both ends have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Layers.
    pub layers: u32,
    /// Bytes of a page of one layer.
    pub page_len: u64,
    /// Bytes of the context: what follows the last layer, in one write.
    pub context_len: u64,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layers, page_len, context_len } = self;
        write!(f, "{layers} layers, pages of {page_len} bytes and a context of {context_len} bytes")
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// Of a prefiller: it takes requests, under a number that the application gave it. It is said again until a decoder
    /// has answered.
    Serves(u32),
    /// Of a decoder: its cache, a description of its region and how many pages there are.
    Cache(Shape, Vec<u8>, u32),
    /// Of a decoder: a request.
    Ask(Ask),
    /// Of a decoder: a request is of no use any more.
    Cancel(u32),
    /// Of a prefiller: nothing of a request lands any more, and not all of it was written. Why, if it was not the
    /// decoder's wish.
    Over(u32, Option<String>),
    /// Of a prefiller: a request failed, and what is under way may still land.
    Unproven(u32),
    /// Of either: it lives. A decoder's is answered.
    Beat,
}

impl Word {
    /// As it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(&(VERSION, self)).unwrap_or_default()
    }

    /// Reads one; none if it is of another version or cut short.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ((version, word), rest) = postcard::take_from_bytes::<(u8, Self)>(bytes).ok()?;
        (version == VERSION && rest.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_is_read_and_what_is_cut_short_is_not() {
        let shape = Shape { layers: 3, page_len: 4096, context_len: 64 };
        let ask = Ask { id: 300, prompt: 1 << 40, pages: vec![5, 1000], context: 7 };
        let words = [
            Word::Serves(7),
            Word::Cache(shape, vec![1, 2, 3], 9),
            Word::Ask(ask),
            Word::Cancel(1),
            Word::Over(2, Some("why".to_owned())),
            Word::Unproven(3),
            Word::Beat,
        ];
        for word in words {
            let bytes = word.to_bytes();
            assert_eq!(Word::from_bytes(&bytes), Some(word));
            for cut in 0..bytes.len() {
                assert_eq!(Word::from_bytes(&bytes[..cut]), None);
            }
            assert_eq!(Word::from_bytes(&[&bytes[..], &[0]].concat()), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Word::from_bytes(&bytes);
        }
    }
}
