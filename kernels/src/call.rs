//! What a kernel is told. It travels by value, as the parameter of a launch: on a GPU that is constant memory.

/// The arguments of every kernel. Each reads those that its documentation names and leaves the others alone.
///
/// Offsets are offsets in the symmetric heap. Kernels that run in several blocks use `src + block * stride`,
/// `dst + block * stride` and `word + block * 8`, on the channel `channel + block`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The other PE.
    pub peer: u32,
    /// Channel to it.
    pub channel: u32,
    /// Where data goes.
    pub dst: u64,
    /// Where data comes from.
    pub src: u64,
    /// Bytes of each message.
    pub bytes: u64,
    /// Distance between the buffers of neighbouring blocks or PEs.
    pub stride: u64,
    /// A word: what a signal or an atomic changes, or what is waited for.
    pub word: u64,
    /// What a word is told or compared with.
    pub value: u64,
    /// The other operand of a compare-and-swap: what the word must be.
    pub expect: u64,
    /// Where a fetched value goes: eight bytes of this PE's heap.
    pub result: u64,
    /// Rounds.
    pub rounds: u64,
    /// Rounds between two waits: how much is in flight. 0: all of them.
    pub window: u64,
    /// Patience of each wait, in nanoseconds.
    pub timeout_ns: u64,
}

impl Call {
    /// What one of several blocks does.
    #[inline(always)]
    pub(crate) const fn of_block(self, block: u32) -> Self {
        let shift = self.stride.wrapping_mul(block as u64);
        Self {
            channel: self.channel.wrapping_add(block),
            dst: self.dst.wrapping_add(shift),
            src: self.src.wrapping_add(shift),
            word: self.word.wrapping_add(8 * block as u64),
            ..self
        }
    }
}

const _: () = assert!(size_of::<Call>() == 96);
