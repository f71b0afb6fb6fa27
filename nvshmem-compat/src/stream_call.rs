//! A call on a stream as the kernel has it that does it: `shunt_nvshmem_stream_call` in `include/shunt/device_link.h`.
//! Pure.

/// What it does: `SHUNT_NVSHMEM_STREAM_PUT` and those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum What {
    /// Source to the target at a PE; with a word, a signal behind it.
    Put,
    /// The other way.
    Get,
    /// A signal at a PE.
    Signal,
    /// Until a word here holds.
    Wait,
    /// All that kernels posted is done.
    Quiet,
    /// Members of a team meet.
    Meet,
    /// The same, and all that kernels posted is done.
    Barrier,
    /// Of member `op`.
    Broadcast,
    /// `fcollect`.
    Collect,
    /// A part for each member.
    AllToAll,
}

/// The call. Addresses are of this PE's heap, 0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StreamCall {
    /// What it does.
    pub what: What,
    /// Where to.
    pub target: u64,
    /// Where from.
    pub source: u64,
    /// How many bytes; of a team's member each.
    pub bytes: u64,
    /// The signal's, or what is waited for.
    pub word: u64,
    /// The same's value.
    pub value: u64,
    /// Of the signal or the comparison; a broadcast's root.
    pub op: i32,
    /// PE or team.
    pub peer: i32,
    /// What is behind it on the stream may change the source.
    pub waits: i32,
    unused: i32,
}

const _: () = assert!(size_of::<StreamCall>() == 64);

impl StreamCall {
    /// One that moves nothing.
    pub const fn new(what: What, peer: i32) -> Self {
        Self { what, target: 0, source: 0, bytes: 0, word: 0, value: 0, op: 0, peer, waits: 0, unused: 0 }
    }

    /// The same, from one place to another.
    pub const fn moving(self, target: u64, source: u64, bytes: u64) -> Self {
        Self { target, source, bytes, ..self }
    }

    /// The same, ending when its source may be changed and its target is there, or sooner.
    pub const fn until_done(self, done: bool) -> Self {
        Self { waits: done as i32, ..self }
    }

    /// The same, with a word: a signal, or what is waited for.
    pub const fn with_word(self, word: u64, value: u64, op: i32) -> Self {
        Self { word, value, op, ..self }
    }
}
