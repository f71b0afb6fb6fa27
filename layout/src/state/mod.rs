//! The device state: what host, agent and device code share about channels, paths and keys.
//!
//! All structures are `repr(C)` with fixed-width fields and no implicit padding. Addresses are absolute in
//! the device's address space. Words that several parties write lie in cache lines of their own.

mod channel;
mod fetch;
mod mailbox;
mod mirror;
mod owner;
mod path;
mod record;
mod tally;
mod words;

pub use channel::{BINDING, BOUND, Channel, NO_SLOT, Resolution, SUSPECT_DOUBLINGS_MAX, Step, Switch};
pub use fetch::{AmoForm, FetchReply, FetchRequest, FetchSlot, FetchStatus};
pub use mailbox::{AnswerStatus, InHand, Mailbox};
pub use mirror::{Mirror, SwitchWord};
pub use owner::{LEASE_NS, OwnerWord};
pub use path::{CqMap, HotPath, PathIdentity, PathRow, PathState};
pub use record::{CauseKind, SwitchKind, SwitchRecord};
pub use tally::{STEP_RECORDS, StepRecord, Tally};
pub use words::{BLOCKED, CLOSED, FROZEN, GENERATION_MASK, HomeWord, INDEX_MASK, ReadyWord, Word};

/// First word of a [`DeviceState`]: "SHUNTDEV" as little-endian bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SHUNTDEV");
/// Path slots a channel may have: the ticket word has three bits for them.
pub const SLOTS_MAX: usize = 8;
/// Entries of the ring of switch records.
pub const RECORDS: usize = 256;

/// Scratch words of a channel beyond its ring depth: two that ledger words are read into, then spares, and last the
/// one that answers nobody wants are written to.
pub const SCRATCH_EXTRA: u32 = 8;
/// Bytes of a channel's two ledger words at its receiver: A, written before a bracketed signal, and B, behind it.
pub const LEDGER_BYTES: u64 = 16;

/// What lies behind the heap, at heap offsets that are the same on every PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapTail {
    /// The ledger words: [`LEDGER_BYTES`] a channel.
    pub ledger: u64,
    /// A [`FetchSlot`] a channel, and behind them a number a channel; 0 where there are none.
    pub fetch: u64,
    /// Bytes of heap and tail.
    pub end: u64,
}

impl HeapTail {
    /// Behind a heap of `heap_bytes`, for `channels` channels; with room for exact fetching atomics, or without.
    pub const fn new(heap_bytes: u64, channels: u64, exact: bool) -> Self {
        let ledger = heap_bytes.next_multiple_of(64);
        let end = ledger + channels * LEDGER_BYTES;
        if !exact {
            return Self { ledger, fetch: 0, end };
        }
        let fetch = end.next_multiple_of(64);
        Self { ledger, fetch, end: fetch + channels * (size_of::<FetchSlot>() as u64 + 8) }
    }
}

/// Numbers that steer the device's patience. All times in nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// 1: switch paths on failure. 0: report the first failure to the caller.
    pub fault_tolerance: u32,
    /// 1: a signal that the receiver clears is bracketed by two ledger words. 0: it is not.
    pub bracket: u32,
    /// A path with work outstanding and no completion for this long is suspected.
    pub suspect_ns: u64,
    /// How long a switcher waits for the agent's fence before it gives up on proof.
    pub fence_wait_ns: u64,
    /// How long every path must stay dead before the peer is reported lost. 0: at once.
    pub give_up_ns: u64,
    /// How long the primary must have been on standby before a channel goes back to it.
    pub recovery_window_ns: u64,
    /// Longest drain before a switch-back is turned into a switch.
    pub drain_ns: u64,
    /// Longest wait for one ledger READ.
    pub ledger_ns: u64,
    /// A path whose completions usually come fast is suspected sooner than after `suspect_ns`, never sooner than this.
    pub suspect_floor_ns: u64,
    /// Longest time a packet may live in the network (fence by time).
    pub packet_lifetime_ns: u64,
    /// [`FencePolicy`].
    pub fence: u32,
    /// [`OrderPolicy`].
    pub ordering: u32,
    /// 1: receivers act on put data before a signal covers it, so a put that nobody can know of is not repeated.
    pub polled_puts: u32,
    /// When a requester that hears nothing has stopped trying, in milliseconds: its retries, each four times as long as
    /// its time-out may say (IBTA, Local ACK Timeout). 0: nothing is known of it.
    pub rc_gives_up_ms: u32,
}

/// How an old path is proven unable to change anything.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencePolicy {
    /// The agents' word.
    Strict = 0,
    /// The agents' word, or an error completion of the old incarnation and the packet lifetime since.
    Time = 1,
}

/// In which order what is written may become visible at its receiver.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderPolicy {
    /// As it was posted. Queue pairs that say otherwise are refused.
    #[default]
    Strict = 0,
    /// Data of puts in any order, by keys with relaxed ordering; a signal behind all that was posted before it.
    Relaxed = 1,
    /// Writes in any order, whatever queue pairs say. What carries order is an atomic: those are executed behind all
    /// that was posted before them.
    Unordered = 2,
}

impl OrderPolicy {
    /// The policy of a raw word; anything unknown is the one that promises least.
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Strict,
            1 => Self::Relaxed,
            _ => Self::Unordered,
        }
    }
}

/// The root. One per PE, written by the host before any kernel runs, read back and compared.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub struct DeviceState {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`].
    pub abi_version: u32,
    /// `size_of::<DeviceState>()`.
    pub bytes: u32,
    /// This PE.
    pub my_pe: u32,
    /// PEs in the job.
    pub pe_count: u32,
    /// Channels to each peer.
    pub channels_per_pe: u32,
    /// Path slots of each channel, 1 to [`SLOTS_MAX`]; slot 0 is the primary.
    pub slots: u32,
    /// Rails of each PE (the row length of hint and key tables).
    pub rails: u32,
    /// log2 of the bytes one key covers.
    pub log2_chunk: u32,
    /// Chunks of the symmetric heap.
    pub chunks: u32,
    /// log2 of every ring's depth, send and completion queues alike.
    pub log_depth: u32,
    /// First address of this PE's symmetric heap.
    pub heap_base: u64,
    /// Its length in bytes; equal on all PEs.
    pub heap_bytes: u64,
    /// `[u64; pe_count]`: first address of each PE's heap, as that PE's keys expect it.
    pub peer_heap: u64,
    /// `[u32; rails * chunks]`: lkeys, big-endian, row (rail, chunk).
    pub lkeys: u64,
    /// `[u32; pe_count * rails * chunks]`: rkeys, big-endian, row (pe, remote rail, chunk).
    pub rkeys: u64,
    /// `[Channel; pe_count * channels_per_pe]`, row (pe, channel).
    pub channels: u64,
    /// `[PathRow; pe_count * channels_per_pe * slots]`, row (pe, channel, slot).
    pub paths: u64,
    /// `[Mailbox; pe_count * channels_per_pe]`.
    pub mailboxes: u64,
    /// `[HintWord; (1 + pe_count) * rails]`: row 0 is this PE's own rails, row 1 + pe that peer's.
    pub hints: u64,
    /// Counter bumped with each request, so that the agent looks at one word when idle.
    pub wake: u64,
    /// `[SwitchRecord; RECORDS]`.
    pub records: u64,
    /// Counter of records ever written.
    pub records_head: u64,
    /// Scratch that ledger and flush READs land in: `[u64; pe_count * channels_per_pe *
    /// scratch_per_channel]`.
    pub scratch: u64,
    /// Scratch words of one channel: its ring depth and [`SCRATCH_EXTRA`].
    pub scratch_per_channel: u32,
    /// 1: switchers leave a [`StepRecord`] of each step.
    pub step_records: u32,
    /// `[u32; rails]`: lkeys of the scratch, big-endian.
    pub scratch_lkeys: u64,
    /// Patience.
    pub policy: Policy,
    /// `[Tally; pe_count * channels_per_pe]`.
    pub tallies: u64,
    /// `[StepRecord; STEP_RECORDS]`.
    pub steps: u64,
    /// Counter of step records ever written.
    pub steps_head: u64,
    /// Heap offset, behind `heap_bytes`, of the ledger words: `[[u64; 2]; pe_count * channels_per_pe]`, row (sender,
    /// channel). The same on every PE.
    pub ledger: u64,
    /// Slots of every ring less one.
    pub ring_mask: u32,
    /// [`mask_of`] `channels_per_pe`.
    pub channel_mask: u32,
    /// The last scratch word of the first channel, where answers go that nobody wants.
    pub sink: u64,
    /// As `rkeys`, for the data of puts: under the same keys, or under keys with relaxed ordering.
    pub data_rkeys: u64,
    /// Heap offset, behind `heap_bytes`, of what exact fetching atomics use: `[FetchSlot; pe_count * channels_per_pe]`,
    /// row (PE, channel), and behind them `[u64; pe_count * channels_per_pe]`, the number of the newest request of each
    /// row. The same on every PE; 0: there is none.
    pub fetch: u64,
    /// 1: host calls have the owner of a word execute every atomic, which was asked for, or is needed: a NIC of the job
    /// keeps no count that says whether it executed one. 0: those whose answer is wanted.
    pub fetch_exact: u32,
    /// 1: a NIC of the job has no masked atomics, so that nobody posts one. 0: all have them.
    pub plain_atomics: u32,
    /// `[Mirror; pe_count * channels_per_pe]`.
    pub mirrors: u64,
    /// `[HomeWord; pe_count * channels_per_pe]`: where the words that many write are at home, by the agent. In a row
    /// that leads to this PE itself: this PE's own home.
    pub homes: u64,
    /// `[HotPath; pe_count * channels_per_pe * slots]`, rows as those of `paths`.
    pub hot: u64,
    /// The first so many channels to each peer are host calls' and the agent's alone: waits of kernels look after the
    /// others. 0: waits look after all. Less than `channels_per_pe`.
    pub host_channels: u32,
    /// Unused, zero.
    pub reserved2: u32,
    /// One more than the bytes at the heap's start that lie in the memory of the device whose kernels use this root,
    /// where rings and doorbell records lie there too: fences of the device order all of that for NICs. 0: rings and
    /// records lie elsewhere, or the heap does.
    pub own_end: u64,
    /// Unused, zero: up to a multiple of the alignment.
    pub reserved3: [u64; 2],
}

/// What [`wrapped`] needs of a count.
pub const fn mask_of(count: u32) -> u32 {
    match count.checked_next_power_of_two() {
        Some(power) => power - 1,
        None => u32::MAX,
    }
}

/// One of `count`, which is not 0, for any number: itself below `count`, and the remainder where `count` is a power of
/// two. A GPU has no division.
#[inline(always)]
pub const fn wrapped(number: u32, count: u32, mask: u32) -> u32 {
    let inside = number & mask;
    if inside >= count { inside - count } else { inside }
}

/// The number of hint word for `rail` of `pe` (`None`: this PE).
#[inline(always)]
pub const fn hint_index(rails: u32, pe: Option<u32>, rail: u32) -> u32 {
    match pe {
        None => rail,
        Some(pe) => (1 + pe) * rails + rail,
    }
}

/// What the agent knows of one rail: bit 0 set while its port is down, the top bit while the rail is suspected of
/// carrying nothing, the one below it while its NIC is mute as well; the rest counts changes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintWord(pub u64);

impl HintWord {
    /// True while the rail's port is down.
    #[inline(always)]
    pub const fn down(self) -> bool {
        self.0 & 1 != 0
    }

    /// True while the rail is suspected: other rails are chosen first, and it is left sooner by who waits in vain.
    #[inline(always)]
    pub const fn suspect(self) -> bool {
        self.0 & Self::SUSPECT != 0
    }

    /// True while the rail's NIC has not answered a command and nothing has come through it since: what is posted on
    /// such a rail can be fenced by the other end alone.
    #[inline(always)]
    pub const fn mute(self) -> bool {
        self.0 & Self::MUTE != 0
    }

    const SUSPECT: u64 = 1 << 63;
    const MUTE: u64 = 1 << 62;
    const DOWN: u64 = 1;

    /// The word with `flag` set or not, and one more change counted.
    const fn with(self, flag: u64, on: bool) -> Self {
        const FLAGS: u64 = HintWord::SUSPECT | HintWord::MUTE | HintWord::DOWN;
        let count = ((self.0 & !FLAGS) + 2) & !FLAGS;
        Self(self.0 & FLAGS & !flag | if on { flag } else { 0 } | count)
    }

    /// The word after a change to `down`.
    pub const fn changed(self, down: bool) -> Self {
        self.with(Self::DOWN, down)
    }

    /// The word after a change of suspicion.
    pub const fn suspected(self, suspect: bool) -> Self {
        self.with(Self::SUSPECT, suspect)
    }

    /// The word after its NIC was found mute, or not so any more.
    pub const fn muted(self, mute: bool) -> Self {
        self.with(Self::MUTE, mute)
    }
}

const _: () = {
    assert!(size_of::<DeviceState>() == 384 && align_of::<DeviceState>() == 128);
    assert!(size_of::<Policy>() == 88);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_is_wrapped_into_the_count() {
        for count in [1, 2, 3, 7, 16, 100, 641, 1024, u32::MAX] {
            let wrapped = |number| wrapped(number, count, mask_of(count));
            for number in [0, 1, 2, count - 1, count, count.wrapping_add(1), 1 << 31, u32::MAX - 1, u32::MAX]
            {
                assert!(wrapped(number) < count, "{number} of {count}");
                assert!(number >= count || wrapped(number) == number, "{number} of {count}");
                assert!(!count.is_power_of_two() || wrapped(number) == number % count, "{number} of {count}");
            }
        }
    }
}
