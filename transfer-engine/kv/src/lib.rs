//! Transfer of KV caches from prefill to decode. A decoder owns the pages and asks for them; a prefiller writes each
//! layer as soon as it is there. Each request ends in exactly one way: complete, cancelled and quiet, or with its
//! prefiller lost and cut off. Pages are used again only then.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`words`] | what the two say to each other |
//! | [`layout`] | which pages a prefiller with other heads writes: MLA, GQA; pure |
//! | [`cache`] | the memory of a decoder's pages, by layer, page and context; pure |
//! | [`pool`] | which pages are free; pure |
//! | [`requests`] | a decoder's requests and peers: what is to be done, and how each ends; pure |
//! | [`decoder`] | a decoder on a node |
//! | [`prefiller`] | a prefiller on a node |

pub mod cache;
pub mod decoder;
pub mod layout;
pub mod pool;
pub mod prefiller;
pub mod requests;
pub mod words;

pub use decoder::{Decoder, Ended, How};
pub use prefiller::{Job, Prefiller};
