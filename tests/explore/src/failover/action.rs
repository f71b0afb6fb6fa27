//! What can happen in model F.
#![allow(missing_docs)] // `pe` sends, or is the one it happens to; `path` is where

/// One thing that happens at once. `pe` sends, or is the one it happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The receiver of `pe`'s channel sees the next signal, reads what it covers, clears and reuses.
    Consume { pe: usize },
    /// The program at `pe` uses a fetched value and reuses its buffer.
    UseFetched { pe: usize, op: usize },
    /// `pe` posts its next operation.
    Post { pe: usize },
    /// The responder executes the next message.
    Execute { pe: usize, path: usize },
    /// The responder takes a message of the incarnation before for the next one.
    Ghost { pe: usize, path: usize },
    /// `pe` gets the next completion, or READ response.
    Complete { pe: usize, path: usize },
    /// `pe` sees an error completion, or a flush, on its path and closes.
    SeeError { pe: usize },
    /// The other end is in ERR, so `pe`'s retries run out; it closes.
    NoAnswer { pe: usize },
    /// A deadline passes though the path is alive; `pe` closes.
    Deadline { pe: usize },
    /// Fault: `pe`'s retries run out; it closes.
    Fail { pe: usize },
    /// Fault: the NIC at `pe`'s end of `path` answers no commands any more.
    Mute { pe: usize, path: usize },
    /// No fence at all (a break): the cut is what is known now.
    SkipFence { pe: usize },
    /// `pe`'s agent moves its half to ERR and reads it.
    FenceLocal { pe: usize },
    /// The peer's agent moves its half to ERR.
    FenceRemote { pe: usize },
    /// The peer's agent reads its half.
    Query { pe: usize },
    /// The peer's agent has its NIC place what it holds.
    Flush { pe: usize },
    /// Nobody answers: the packet lifetime is to prove the fence.
    GoTimed { pe: usize },
    /// The packet lifetime is over.
    Lifetime { pe: usize },
    /// `pe`'s agent answers, `pe` cuts and chooses the next path.
    Answer { pe: usize },
    /// One operation of the journal is replayed.
    Replay { pe: usize },
    /// The channel opens on the next path.
    Open { pe: usize },
    /// `pe` closes to go back to path 0.
    GoBack { pe: usize },
    /// The backup is drained and flushed; the channel opens on path 0.
    Drained { pe: usize },
    /// A NIC places its oldest write.
    Visible { pe: usize, path: usize },
    /// Another PE adds to the shared word.
    OtherAdd,
    /// B's agent dies.
    KillAgent,
    /// The agents recreate path 0.
    Revive,
}
