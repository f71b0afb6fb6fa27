//! Pointers into a device state: the state itself and one channel of it. The address arithmetic of the tables is here.

use crate::platform::{Platform, Root};
use crate::root::root;
use crate::shared::{Shared, fields};
use crate::types::HeapOffset;
use core::marker::PhantomData;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{
    self, Channel, DeviceState, HintWord, HomeWord, HotPath, Mailbox, Mirror, PathRow, Policy, ReadyWord,
    Tally, Word,
};

// The three words that everyone looks at (rules 1, 4 and 5).
fields!(Channel { ticket: u64, done: u64, ready: u64 });

/// A device state that was checked.
#[derive(Clone, Copy)]
pub(crate) struct StatePtr<'s, P: Platform> {
    pub(crate) root: P::Root,
    pub(crate) platform: P,
    state: PhantomData<&'s DeviceState>,
}

/// A channel of it. It hands out the words that all parts share; the others belong to one part each.
#[derive(Clone, Copy)]
pub(crate) struct ChannelPtr<'s, P: Platform> {
    pub(crate) state: StatePtr<'s, P>,
    /// Row of the channel table in the low half, the peer it leads to in the high one. The peer is kept,
    /// because a division costs a GPU twenty instructions; in one word, because a structure of three goes
    /// over a stack.
    place: u64,
}

/// Quotient and remainder. `attach` refuses a zero divisor, which the compiler does not know: without this
/// there would be a panic path in every kernel.
#[inline(always)]
const fn divide(value: u32, by: u32) -> (u32, u32) {
    match (value.checked_div(by), value.checked_rem(by)) {
        (Some(quotient), Some(remainder)) => (quotient, remainder),
        _ => (0, 0),
    }
}

impl<'s, P: Platform> StatePtr<'s, P> {
    /// # Safety
    /// As [`Device::attached`](crate::Device::attached).
    #[inline(always)]
    pub(crate) unsafe fn at(state: *const DeviceState, platform: P) -> Self {
        Self { root: P::Root::at(state), platform, state: PhantomData }
    }

    /// Row `index` of a table.
    ///
    /// # Safety
    /// The root gives `table` for a table of `T` with more rows than `index`.
    #[inline(always)]
    pub(crate) unsafe fn row_of<T>(self, table: u64, index: u32) -> Shared<'s, P, T> {
        // SAFETY: inside a table, by the caller's promise.
        unsafe { Shared::new((table as *mut T).add(index as usize), self.platform) }
    }

    /// The channel `index` to `peer`. An index beyond the channels there are stands for one of them.
    #[inline(always)]
    pub(crate) fn channel(self, peer: u32, index: u32) -> ChannelPtr<'s, P> {
        if P::CHECKS_PEERS {
            let pes = root!(self, pe_count);
            assert!(peer < pes, "channel: expected a peer below {pes}, got {peer}");
        }
        let per_pe = root!(self, channels_per_pe);
        let row = peer * per_pe + state::wrapped(index, per_pe, root!(self, channel_mask));
        self.place(row, peer)
    }

    /// The channel of a row of the channel table, modulo the rows there are.
    #[inline(always)]
    pub(crate) fn row(self, row: u32) -> ChannelPtr<'s, P> {
        let per_pe = root!(self, channels_per_pe);
        let row = divide(row, root!(self, pe_count) * per_pe).1;
        self.place(row, divide(row, per_pe).0)
    }

    /// The channel of a row, or the next one that waits look after: the first of each peer may be the host's.
    #[inline(always)]
    pub(crate) fn attended(self, row: u32) -> ChannelPtr<'s, P> {
        let (per_pe, host) = (root!(self, channels_per_pe), root!(self, host_channels));
        let row = divide(row, root!(self, pe_count) * per_pe).1;
        let (peer, channel) = divide(row, per_pe);
        self.place(row + host.saturating_sub(channel), peer)
    }

    #[inline(always)]
    fn place(self, row: u32, peer: u32) -> ChannelPtr<'s, P> {
        ChannelPtr { state: self, place: (peer as u64) << 32 | row as u64 }
    }

    /// True if a failure is to be survived.
    #[inline(always)]
    pub(crate) fn tolerant(self) -> bool {
        P::FAULT_TOLERANCE && root!(self, policy.fault_tolerance) != 0
    }

    /// WQEs that the caller wrote are visible, to NICs too, before what it stores next; and so is what it stored before
    /// where they have a NIC read or write, which lies in the heap before offset `end`, 0 if they do neither.
    #[inline(always)]
    pub(crate) fn wqes_before_publish(self, end: u64) {
        match end < root!(self, own_end) {
            true => self.platform.own_stores_before_store(),
            false => self.platform.wqes_before_publish(),
        }
    }

    /// The numbers of the policy. On a GPU those that nobody looks at are not read.
    #[inline(always)]
    pub(crate) fn policy(self) -> Policy {
        Policy {
            fault_tolerance: root!(self, policy.fault_tolerance),
            bracket: root!(self, policy.bracket),
            suspect_ns: root!(self, policy.suspect_ns),
            fence_wait_ns: root!(self, policy.fence_wait_ns),
            give_up_ns: root!(self, policy.give_up_ns),
            recovery_window_ns: root!(self, policy.recovery_window_ns),
            drain_ns: root!(self, policy.drain_ns),
            ledger_ns: root!(self, policy.ledger_ns),
            suspect_floor_ns: root!(self, policy.suspect_floor_ns),
            packet_lifetime_ns: root!(self, policy.packet_lifetime_ns),
            fence: root!(self, policy.fence),
            ordering: root!(self, policy.ordering),
            polled_puts: root!(self, policy.polled_puts),
            rc_gives_up_ms: root!(self, policy.rc_gives_up_ms),
        }
    }

    /// The address of a heap offset in this PE's memory.
    #[inline(always)]
    pub(crate) fn local_address(self, at: HeapOffset) -> u64 {
        root!(self, heap_base) + at.0
    }

    /// An aligned word of this PE's own heap.
    #[inline(always)]
    pub(crate) fn heap_word(self, at: HeapOffset) -> Shared<'s, P, u64> {
        // SAFETY: callers pass aligned offsets inside the heap: the waits check them, and for the accesses of a kernel
        // `Device::holds` is what its author asks.
        unsafe { Shared::new(self.local_address(at) as *mut u64, self.platform) }
    }

    /// Heap offset behind everything of this PE that requests of its own come from: the heap, and rows behind it.
    #[inline(always)]
    pub(crate) fn heap_end(self) -> u64 {
        let rows = root!(self, pe_count) as u64 * root!(self, channels_per_pe) as u64;
        match root!(self, fetch) {
            0 => root!(self, heap_bytes),
            fetch => fetch + rows * size_of::<state::FetchSlot>() as u64,
        }
    }

    #[inline(always)]
    pub(crate) fn heap_contains(self, at: HeapOffset, bytes: u64) -> bool {
        at.0 <= root!(self, heap_bytes) && bytes <= root!(self, heap_bytes) - at.0
    }

    #[inline(always)]
    pub(crate) fn peer_heap(self, peer: u32) -> u64 {
        // SAFETY: `peer_heap` has a word for each PE.
        unsafe { self.row_of::<u64>(root!(self, peer_heap), peer) }.load_base()
    }

    /// The lkey of a heap offset on a local rail, big-endian.
    #[inline(always)]
    pub(crate) fn lkey(self, rail: u32, at: u64) -> u32 {
        let chunk = (at >> root!(self, log2_chunk)) as u32;
        let row = rail * root!(self, chunks) + chunk;
        // SAFETY: a row a rail, and rails come from path rows; a column a chunk, and the offset was checked against the
        // heap.
        unsafe { self.row_of::<u32>(root!(self, lkeys), row) }.load_key()
    }

    /// The rkey of a heap offset of `peer` on that peer's rail, big-endian.
    #[inline(always)]
    pub(crate) fn rkey(self, peer: u32, rail: u32, at: u64) -> u32 {
        let chunk = (at >> root!(self, log2_chunk)) as u32;
        let row = (peer * root!(self, rails) + rail) * root!(self, chunks) + chunk;
        // SAFETY: as `lkey`, with rows for each peer.
        unsafe { self.row_of::<u32>(root!(self, rkeys), row) }.load_key()
    }

    /// The same for the data of puts.
    #[inline(always)]
    pub(crate) fn data_rkey(self, peer: u32, rail: u32, at: u64) -> u32 {
        let chunk = (at >> root!(self, log2_chunk)) as u32;
        let row = (peer * root!(self, rails) + rail) * root!(self, chunks) + chunk;
        // SAFETY: as `rkey`: the two tables have one shape.
        unsafe { self.row_of::<u32>(root!(self, data_rkeys), row) }.load_key()
    }

    #[inline(always)]
    pub(crate) fn scratch_lkey(self, rail: u32) -> u32 {
        // SAFETY: one key a rail.
        unsafe { self.row_of::<u32>(root!(self, scratch_lkeys), rail) }.load_key()
    }

    /// What the agent says of a rail: this PE's own, or a peer's.
    #[inline(always)]
    pub(crate) fn hint(self, pe: Option<u32>, rail: u32) -> HintWord {
        let index = state::hint_index(root!(self, rails), pe, rail);
        // SAFETY: the hint table has a row for this PE and for each peer, a word a rail.
        HintWord(unsafe { self.row_of::<u64>(root!(self, hints), index) }.load_acquire())
    }

    /// Says to the agent that a mailbox has a request.
    #[inline(always)]
    pub(crate) fn wake_agent(self) {
        // SAFETY: the one wake word.
        unsafe { self.row_of::<u64>(root!(self, wake), 0) }.fetch_add(1);
    }
}

impl<'s, P: Platform> ChannelPtr<'s, P> {
    #[inline(always)]
    pub(crate) const fn platform(self) -> P {
        self.state.platform
    }

    #[inline(always)]
    pub(crate) fn now_ns(self) -> u64 {
        self.state.platform.now_ns()
    }

    /// Row of the channel table: one register, where the pointer takes two.
    #[inline(always)]
    pub(crate) const fn row(self) -> u32 {
        self.place as u32
    }

    #[inline(always)]
    pub(crate) const fn peer(self) -> u32 {
        (self.place >> 32) as u32
    }

    /// True if it leads to this PE itself.
    #[inline(always)]
    pub(crate) fn is_loopback(self) -> bool {
        self.peer() == root!(self.state, my_pe)
    }

    /// The channel's index at its peer.
    #[inline(always)]
    pub(crate) fn index(self) -> u32 {
        self.row() - self.peer() * root!(self.state, channels_per_pe)
    }

    /// Entries of its rings.
    #[inline(always)]
    pub(crate) fn depth(self) -> u64 {
        root!(self.state, ring_mask) as u64 + 1
    }

    /// Whether an aligned word of `bytes`, a power of two, lies in the heap.
    #[inline(always)]
    pub(crate) fn word_fits(self, at: HeapOffset, bytes: u64) -> bool {
        // An aligned word lies in the heap if it begins in the part that is whole words.
        at.0 & (bytes - 1) == 0 && at.0 < root!(self.state, heap_bytes) & !(bytes - 1)
    }

    /// Whether all NICs of the job have an atomic, which is `masked` or not.
    #[inline(always)]
    pub(crate) fn has_atomic(self, masked: bool) -> bool {
        !masked || root!(self.state, plain_atomics) == 0
    }

    #[inline(always)]
    pub(crate) fn words(self) -> Shared<'s, P, Channel> {
        // SAFETY: the row is below the channel count: `StatePtr` composed it.
        unsafe { self.state.row_of(root!(self.state, channels), self.row()) }
    }

    /// What posts and looks read of a path: of the one that is in use, or that a switch has entered.
    #[inline(always)]
    pub(crate) fn hot(self, slot: u32) -> Shared<'s, P, HotPath> {
        let row = self.row() * root!(self.state, slots) + slot;
        // SAFETY: a row a path, as `path`.
        unsafe { self.state.row_of(root!(self.state, hot), row) }
    }

    /// What the agent says of a path: for slow paths.
    #[inline(always)]
    pub(crate) fn path(self, slot: u32) -> Shared<'s, P, PathRow> {
        let row = self.row() * root!(self.state, slots) + slot;
        // SAFETY: slots come from ticket words, which hold only slots below the count.
        unsafe { self.state.row_of(root!(self.state, paths), row) }
    }

    #[inline(always)]
    pub(crate) fn mailbox(self) -> Shared<'s, P, Mailbox> {
        // SAFETY: one mailbox a channel.
        unsafe { self.state.row_of(root!(self.state, mailboxes), self.row()) }
    }

    /// What the agent reads of the channel, in memory of the host.
    #[inline(always)]
    pub(crate) fn mirror(self) -> Shared<'s, P, Mirror> {
        // SAFETY: one line a channel.
        unsafe { self.state.row_of(root!(self.state, mirrors), self.row()) }
    }

    /// Where the words that many write are at home, by the agent, which writes the word whole.
    #[inline(always)]
    pub(crate) fn home(self) -> HomeWord {
        // SAFETY: one word a channel.
        HomeWord(unsafe { self.state.row_of::<u64>(root!(self.state, homes), self.row()) }.load_acquire())
    }

    #[inline(always)]
    pub(crate) fn tally(self) -> Shared<'s, P, Tally> {
        // SAFETY: one row of counters a channel.
        unsafe { self.state.row_of(root!(self.state, tallies), self.row()) }
    }

    #[inline(always)]
    pub(crate) fn ticket_word(self) -> Shared<'s, P, u64> {
        self.words().ticket()
    }

    #[inline(always)]
    pub(crate) fn done_word(self) -> Shared<'s, P, u64> {
        self.words().done()
    }

    #[inline(always)]
    pub(crate) fn ready_word(self) -> Shared<'s, P, u64> {
        self.words().ready()
    }

    #[inline(always)]
    pub(crate) fn load_ticket(self) -> Word {
        Word(self.ticket_word().load_acquire())
    }

    #[inline(always)]
    pub(crate) fn load_done(self) -> Word {
        Word(self.done_word().load_acquire())
    }

    #[inline(always)]
    pub(crate) fn load_ready(self) -> ReadyWord {
        ReadyWord(self.ready_word().load_acquire())
    }

    /// True while the channel is closed in the generation of `closed`.
    pub(crate) fn still_closed(self, closed: Word) -> bool {
        let ticket = self.load_ticket();
        ticket.flag() && ticket.same_generation(closed) || Mutant::ReturnedOwnerGoesOn.on()
    }

    /// The scratch word `number` of this channel: below the ring depth, or one of the extra ones behind it.
    #[inline(always)]
    pub(crate) fn scratch(self, number: u64) -> Shared<'s, P, u64> {
        let per = root!(self.state, scratch_per_channel) as u64;
        let at = root!(self.state, scratch) + (self.row() as u64 * per + number) * 8;
        // SAFETY: each channel has `scratch_per_channel` words: the ring depth and `SCRATCH_EXTRA`.
        unsafe { Shared::new(at as *mut u64, self.platform()) }
    }

    /// Scratch word `number` of those beyond the ring depth.
    #[inline(always)]
    pub(crate) fn scratch_extra(self, number: u32) -> Shared<'s, P, u64> {
        self.scratch((root!(self.state, scratch_per_channel) - state::SCRATCH_EXTRA + number) as u64)
    }

    /// Heap offset, at the peer, of this channel's two ledger words.
    #[inline(always)]
    pub(crate) fn ledger_words(self) -> u64 {
        let state = self.state;
        let row = root!(state, my_pe) as u64 * root!(state, channels_per_pe) as u64 + self.index() as u64;
        root!(state, ledger) + row * state::LEDGER_BYTES
    }

    /// Remote address and rkey of a heap offset over a remote rail.
    #[inline(always)]
    pub(crate) fn remote(self, rail: u32, at: u64) -> (u64, u32) {
        if Mutant::SignalsRelaxed.on() {
            return self.remote_data(rail, at);
        }
        (self.state.peer_heap(self.peer()) + at, self.state.rkey(self.peer(), rail, at))
    }

    /// The same for the data of puts.
    #[inline(always)]
    pub(crate) fn remote_data(self, rail: u32, at: u64) -> (u64, u32) {
        (self.state.peer_heap(self.peer()) + at, self.state.data_rkey(self.peer(), rail, at))
    }
}
