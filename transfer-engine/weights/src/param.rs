//! Parameters: who holds which bytes, and who wants which. Pure.

use std::ops::Range;

/// Bytes of a parameter that a trainer holds. Another trainer may hold the same: a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its number.
    pub trainer: u32,
    /// The bytes, counted from the parameter's first.
    pub bytes: Range<u64>,
}

/// Bytes of a parameter that a server wants: a full copy or a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its number.
    pub server: u32,
    /// The bytes, counted from the parameter's first.
    pub bytes: Range<u64>,
    /// Where the first of them comes to in the server's memory. It is counted in bytes as trainers hold them: a
    /// transform that makes fewer of them moves it along.
    pub at: u64,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Bytes, as trainers hold them.
    pub bytes: u64,
    /// Its sharding at the trainers.
    pub held: Vec<Held>,
    /// Its sharding at the servers.
    pub wanted: Vec<Wanted>,
}
