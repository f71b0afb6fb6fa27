//! What a simulated network is, and what has happened in it.

use super::faults::Fault;

/// What a network is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Everything random comes from it.
    pub seed: u64,
    /// Engines.
    pub nodes: u32,
    /// Rails of each.
    pub rails: u32,
    /// Bytes of memory of each.
    pub memory: usize,
    /// Most pieces under way on a lane.
    pub depth: u32,
    /// Pieces of a connection have no order, and a fence tells what receivers count.
    pub unordered: bool,
    /// Writes are executed before they are in memory. Not where pieces have no order.
    pub late: bool,
    /// One fence in so many ends without a count; 0: none.
    pub no_truth: u64,
    /// One fence in so many proves nothing; 0: none.
    pub unproven: u64,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pieces that were executed.
    pub executed: u64,
    /// Pieces that were lost with their rail, or behind one that was.
    pub lost: u64,
    /// Acknowledgements that were lost: the piece was executed.
    pub acks_lost: u64,
    /// Pieces that were held back.
    pub held: u64,
    /// Writes that came to memory after they were executed, with nothing behind them that waited.
    pub landed_late: u64,
    /// Pieces that were refused: their keys are not the receiver's.
    pub denied: u64,
    /// Pieces that came when their connection was fenced, and did nothing.
    pub late: u64,
    /// Connections that were fenced.
    pub fences: u64,
    /// Fences without a count.
    pub no_truth: u64,
    /// Fences that proved nothing.
    pub unproven: u64,
    /// Connections that were opened again.
    pub reopened: u64,
    /// Pieces that were executed after a younger one.
    pub reordered: u64,
    /// Faults that changed something.
    pub hits: u64,
}

/// The key of a node's memory on a rail.
pub const fn key(node: u32, rail: u32) -> u32 {
    0x100 * (node + 1) + rail
}
