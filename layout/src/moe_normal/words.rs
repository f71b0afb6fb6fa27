//! Which words there are: what ranks say to all; counters of rings, of records and of meetings.

/// Words of a rank, of all nodes: written by that rank, at all others. First of all, so that only the number of ranks
/// has a part in where they lie. Never set to zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum OfRank {
    /// Its [`Terms`](super::Terms), eight words.
    Terms = 0,
    /// That they came.
    Told = 8,
    /// That it gave a call up: its epoch, which is its last cleaning's number (high half), and [why](super::Why). Its
    /// own copy has the epoch alone.
    GaveUp = 9,
}

/// Words of a channel and a node. The first four are written by the rank of equal number in that node, kind 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum ByNode {
    /// Dispatch: slots that came from the node.
    DispatchTail = 0,
    /// Dispatch: slots that the node has taken.
    DispatchHead = 1,
    /// Combine: slots that came from the node.
    CombineTail = 2,
    /// Combine: slots that the node has taken.
    CombineHead = 3,
    /// Own, of dispatch and combine: tokens looked at in this call.
    Cursor = 4,
    /// Own, dispatch: slots filled for the node.
    DispatchFilled = 5,
    /// Own, dispatch: slots put to it.
    DispatchPut = 6,
    /// Own, dispatch: slots taken of what came from it.
    DispatchTaken = 7,
    /// Own, dispatch: of these, slots that it was told of.
    DispatchTold = 8,
    /// Own, dispatch: slots taken when this call ends.
    DispatchUntil = 9,
    /// Own, combine: slots filled.
    CombineFilled = 10,
    /// Own, combine: slots put.
    CombinePut = 11,
    /// Own, combine: slots taken.
    CombineTaken = 12,
    /// Own, combine: slots told of.
    CombineTold = 13,
    /// Own, combine, of node 0: tokens summed in this call.
    Summed = 14,
}

/// Words of a channel and a rank of this node. The first two are written by that rank, directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum ByLocal {
    /// Slots that came from the rank.
    Tail = 0,
    /// Slots that the rank has taken.
    Head = 1,
    /// Own: slots pushed to it.
    Pushed = 2,
    /// Own: slots taken of what came from it.
    Taken = 3,
    /// Own: slots taken when this call ends.
    Until = 4,
}

/// Words of a channel, a node and a rank of this node: combine, where rows that go to a node have a ring of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum ByBoth {
    /// Slots that came from the rank.
    Tail = 0,
    /// Slots that the rank has taken.
    Head = 1,
    /// Own: slots pushed to it.
    Pushed = 2,
    /// Own: slots taken of what came from it.
    Taken = 3,
    /// Own: the next row.
    Next = 4,
    /// Own: the row behind the last.
    End = 5,
}

/// Words of a node. All are written by the rank of equal number there, kind 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum OfNode {
    /// The last notify whose record came.
    Noted = 0,
    /// The last notify whose record from here is not needed there any more.
    Credit = 1,
    /// Where the rank stands in the meetings.
    Meeting = 2,
    /// Halves of cleanings that the rank has come to. Never set to zero.
    Cleaned = 3,
}

/// Words of a rank of this node, written by that rank, directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum OfLocal {
    /// The last notify of which it has all records.
    Noted = 0,
    /// The last notify whose records here it has read.
    Read = 1,
    /// Where it stands in the meetings.
    Meeting = 2,
    /// Halves of cleanings that it has come to. Never set to zero.
    Cleaned = 3,
}

/// Words of a rank in what all say: whole cache lines, each with one writer.
pub const OF_RANK: u64 = 16;
pub(super) const BY_NODE: u64 = 15;
pub(super) const BY_LOCAL: u64 = 5;
pub(super) const BY_BOTH: u64 = 6;
pub(super) const OF_NODE: u64 = 4;
pub(super) const OF_LOCAL: u64 = 4;
const _: () = assert!(ByNode::Summed as u64 + 1 == BY_NODE && ByLocal::Until as u64 + 1 == BY_LOCAL);
const _: () = assert!(ByBoth::End as u64 + 1 == BY_BOTH);
const _: () = assert!((OfRank::GaveUp as u64) < OF_RANK);
const _: () = assert!(OfNode::Cleaned as u64 + 1 == OF_NODE && OfLocal::Cleaned as u64 + 1 == OF_LOCAL);
