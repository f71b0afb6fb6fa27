//! Where the words of a device state are. The only file that turns the state's addresses into pointers.

use crate::platform::{Platform, Root};
use crate::root::root;
use crate::types::{AbiMismatch, HeapOffset};
use crate::wqe_write::Place;
use core::marker::PhantomData;
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::cqe::{CQE_BYTES, Tail};
use shunt_layout::mlx5::wqe::Wqebb;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{
    self, CqMap, DeviceState, HintWord, MAGIC, Mailbox, PathIdentity, PathRow, PathState, ReadyWord, Step,
    StepRecord, SwitchRecord, Tally, Word,
};

/// A device state, checked once.
#[derive(Clone, Copy)]
pub struct Device<'s, P: Platform> {
    pub(crate) root: P::Root,
    pub(crate) platform: P,
    state: PhantomData<&'s DeviceState>,
}

/// One ordered stream to one peer.
#[derive(Clone, Copy)]
pub struct Channel<'s, P: Platform> {
    pub(crate) device: Device<'s, P>,
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

/// What a post reads of a path: one cache line.
#[derive(Clone, Copy)]
pub(crate) struct PathView {
    pub send_queue: u64,
    pub doorbell_record: u64,
    pub doorbell_register: u64,
    pub base: u64,
    pub qpn_shifted: u32,
    pub local_rail: u32,
    pub remote_rail: u32,
}

impl PathView {
    /// Where ticket `number` of the group of `word` stands. In 32 bits: positions, counters and doorbells need no more.
    #[inline(always)]
    pub(crate) fn place(&self, word: Word, number: u32) -> Place {
        let index = (word.0 as u32).wrapping_add(number).wrapping_sub(self.base as u32);
        Place { index: index as u64, qpn_shifted: self.qpn_shifted }
    }
}

/// What a look at the completions of a path reads.
#[derive(Clone, Copy)]
pub(crate) struct CqView {
    pub entries: u64,
    pub map: CqMap,
    pub log_depth: u32,
    pub mask: u32,
}

impl CqView {
    /// The owner bit of completion `number`.
    #[inline(always)]
    pub(crate) fn owner(&self, number: u32) -> bool {
        number >> (self.log_depth & 31) & 1 != 0
    }

    /// Where the last word of completion `number` is.
    #[inline(always)]
    pub(crate) fn tail_address(&self, number: u32) -> *const u32 {
        let at = self.entries + (number & self.mask) as u64 * CQE_BYTES as u64;
        (at + shunt_layout::mlx5::cqe::TAIL_OFFSET as u64) as *const u32
    }
}

impl<'s, P: Platform> Device<'s, P> {
    /// Checks that `state` is a device state of this version.
    ///
    /// # Safety
    /// `state` was written by the host's upload, every table it names is mapped here, all of it outlives
    /// `'s`, and nobody writes the root while `'s` lasts.
    ///
    /// # Errors
    /// [`AbiMismatch`] with what was met instead.
    #[inline(always)]
    pub unsafe fn attach(state: *const DeviceState, platform: P) -> Result<Self, AbiMismatch> {
        // SAFETY: forwarded to the caller.
        let device = unsafe { Self::attached(state, platform) };
        device.version().map(|()| device)
    }

    /// Says whether the state is of this version.
    ///
    /// # Errors
    /// [`AbiMismatch`] with what was met instead.
    #[inline(always)]
    pub fn version(self) -> Result<(), AbiMismatch> {
        let magic = root!(self, magic);
        let (abi_version, bytes) = (root!(self, abi_version), root!(self, bytes));
        if magic != MAGIC
            || abi_version != shunt_layout::ABI_VERSION
            || bytes as usize != size_of::<DeviceState>()
        {
            return Err(AbiMismatch { magic, abi_version, bytes });
        }
        Ok(())
    }

    /// The same without a look at the version: for entry points of one call, whose host checked it when it wrote the
    /// root.
    ///
    /// # Safety
    /// As [`attach`](Self::attach), and the state is of this version.
    #[inline(always)]
    pub unsafe fn attached(state: *const DeviceState, platform: P) -> Self {
        Self { root: P::Root::at(state), platform, state: PhantomData }
    }

    /// The channel `index` to `peer`. An index beyond the channels there are stands for one of them.
    #[inline(always)]
    pub fn channel(self, peer: u32, index: u32) -> Channel<'s, P> {
        let per_pe = root!(self, channels_per_pe);
        let row = peer * per_pe + state::wrapped(index, per_pe, root!(self, channel_mask));
        self.place(row, peer)
    }

    /// The channel of a row of the channel table, modulo the rows there are.
    #[inline(always)]
    pub(crate) fn row(self, row: u32) -> Channel<'s, P> {
        let per_pe = root!(self, channels_per_pe);
        let row = divide(row, root!(self, pe_count) * per_pe).1;
        self.place(row, divide(row, per_pe).0)
    }

    #[inline(always)]
    fn place(self, row: u32, peer: u32) -> Channel<'s, P> {
        Channel { device: self, place: (peer as u64) << 32 | row as u64 }
    }

    /// The channel that has this [`number`](Channel::number).
    #[inline(always)]
    pub fn numbered(self, number: u32) -> Channel<'s, P> {
        self.row(number)
    }

    /// This PE's number.
    #[inline(always)]
    pub fn my_pe(self) -> u32 {
        root!(self, my_pe)
    }

    /// PEs of the job.
    #[inline(always)]
    pub fn pe_count(self) -> u32 {
        root!(self, pe_count)
    }

    /// Now, in nanoseconds.
    #[inline(always)]
    pub fn now_ns(self) -> u64 {
        self.platform.now_ns()
    }

    /// The address of a heap offset in this PE's memory.
    #[inline(always)]
    pub fn local_address(self, at: HeapOffset) -> u64 {
        root!(self, heap_base) + at.0
    }

    /// One word of the heap, acquire: what a NIC placed before it is visible.
    #[inline(always)]
    pub fn load(self, at: HeapOffset) -> u64 {
        // SAFETY: callers pass aligned offsets inside the heap (checked by the public waits).
        unsafe { self.platform.load_acquire(self.local_address(at) as *const u64) }
    }

    #[inline(always)]
    pub(crate) fn heap_contains(self, at: HeapOffset, bytes: u64) -> bool {
        at.0 <= root!(self, heap_bytes) && bytes <= root!(self, heap_bytes) - at.0
    }

    #[inline(always)]
    pub(crate) fn peer_heap(self, peer: u32) -> u64 {
        // SAFETY: `peer_heap` has a word for each PE (upload).
        unsafe { self.platform.load((root!(self, peer_heap) as *const u64).add(peer as usize)) }
    }

    /// The lkey of a heap offset on a local rail, big-endian.
    #[inline(always)]
    pub(crate) fn lkey(self, rail: u32, at: u64) -> u32 {
        let chunk = (at >> root!(self, log2_chunk)) as u32;
        let row = rail * root!(self, chunks) + chunk;
        // SAFETY: the offset was checked against the heap, so its chunk is a column; rails come from path
        // rows.
        unsafe { self.platform.load_key((root!(self, lkeys) as *const u32).add(row as usize)) }
    }

    /// The rkey of a heap offset of `peer` on that peer's rail, big-endian.
    #[inline(always)]
    pub(crate) fn rkey(self, peer: u32, rail: u32, at: u64) -> u32 {
        let chunk = (at >> root!(self, log2_chunk)) as u32;
        let row = (peer * root!(self, rails) + rail) * root!(self, chunks) + chunk;
        // SAFETY: as for `lkey`.
        unsafe { self.platform.load_key((root!(self, rkeys) as *const u32).add(row as usize)) }
    }

    /// The same for the data of puts.
    #[inline(always)]
    pub(crate) fn data_rkey(self, peer: u32, rail: u32, at: u64) -> u32 {
        let chunk = (at >> root!(self, log2_chunk)) as u32;
        let row = (peer * root!(self, rails) + rail) * root!(self, chunks) + chunk;
        // SAFETY: as for `lkey`.
        unsafe { self.platform.load_key((root!(self, data_rkeys) as *const u32).add(row as usize)) }
    }

    #[inline(always)]
    pub(crate) fn scratch_lkey(self, rail: u32) -> u32 {
        // SAFETY: one key a rail (upload).
        unsafe { self.platform.load_key((root!(self, scratch_lkeys) as *const u32).add(rail as usize)) }
    }

    #[inline(always)]
    pub(crate) fn hint(self, pe: Option<u32>, rail: u32) -> HintWord {
        let index = state::hint_index(root!(self, rails), pe, rail);
        // SAFETY: the hint table has a row for this PE and for each peer, a word a rail (upload).
        HintWord(unsafe {
            self.platform.load_acquire((root!(self, hints) as *const u64).add(index as usize))
        })
    }
}

impl<'s, P: Platform> Channel<'s, P> {
    #[inline(always)]
    pub(crate) fn platform(self) -> P {
        self.device.platform
    }

    /// Row of the channel table.
    #[inline(always)]
    pub(crate) fn row(self) -> u32 {
        self.place as u32
    }

    #[inline(always)]
    pub(crate) fn words(self) -> *mut state::Channel {
        // SAFETY: the row is below the channel count: `Device::channel` composed it.
        unsafe { (root!(self.device, channels) as *mut state::Channel).add(self.row() as usize) }
    }

    #[inline(always)]
    pub(crate) fn path(self, slot: u32) -> *mut PathRow {
        let row = self.row() * root!(self.device, slots) + slot;
        // SAFETY: slots come from ticket words, which hold only slots below the count.
        unsafe { (root!(self.device, paths) as *mut PathRow).add(row as usize) }
    }

    #[inline(always)]
    pub(crate) fn mailbox(self) -> *mut Mailbox {
        // SAFETY: one mailbox a channel (upload).
        unsafe { (root!(self.device, mailboxes) as *mut Mailbox).add(self.row() as usize) }
    }

    /// The channel's number among all of this PE: one register, where a channel takes two.
    #[inline(always)]
    pub fn number(self) -> u32 {
        self.row()
    }

    /// The device that it belongs to.
    #[inline(always)]
    pub fn device(self) -> Device<'s, P> {
        self.device
    }

    /// The peer at the other end.
    #[inline(always)]
    pub fn peer(self) -> u32 {
        (self.place >> 32) as u32
    }

    /// The channel's index at its peer.
    #[inline(always)]
    pub fn index(self) -> u32 {
        self.row() - self.peer() * root!(self.device, channels_per_pe)
    }

    #[inline(always)]
    pub(crate) fn ticket_word(self) -> *mut u64 {
        // SAFETY: a field of a valid channel; no reference is made.
        unsafe { addr_of_mut!((*self.words()).ticket) }
    }

    #[inline(always)]
    pub(crate) fn done_word(self) -> *mut u64 {
        // SAFETY: as above.
        unsafe { addr_of_mut!((*self.words()).done) }
    }

    #[inline(always)]
    pub(crate) fn ready_word(self) -> *mut u64 {
        // SAFETY: as above.
        unsafe { addr_of_mut!((*self.words()).ready) }
    }

    #[inline(always)]
    pub(crate) fn load_ticket(self) -> Word {
        // SAFETY: a channel word.
        Word(unsafe { self.platform().load_acquire(self.ticket_word()) })
    }

    #[inline(always)]
    pub(crate) fn load_done(self) -> Word {
        // SAFETY: a channel word.
        Word(unsafe { self.platform().load_acquire(self.done_word()) })
    }

    #[inline(always)]
    pub(crate) fn load_ready(self) -> ReadyWord {
        // SAFETY: a channel word.
        ReadyWord(unsafe { self.platform().load_acquire(self.ready_word()) })
    }

    #[inline(always)]
    pub(crate) fn load_step(self) -> Step {
        // SAFETY: a field of a valid channel.
        Step::from_raw(unsafe { self.platform().load32(addr_of_mut!((*self.words()).switch.step)) })
    }

    /// The hot line of a path.
    #[inline(always)]
    pub(crate) fn view(self, slot: u32) -> PathView {
        let (row, p) = (self.path(slot), self.platform());
        // SAFETY: fields of a valid row. They change only while no one may use the path (agent, before
        // `Ready`) or under the switch (`base`), and a reader of the wrong moment loses its compare-and-swap.
        unsafe {
            // Not the read-only path of `load_key`: the agent makes a path anew, with another QPN, while
            // kernels run.
            let [send_queue, base] = p.load_two(addr_of_mut!((*row).send_queue));
            let [doorbell_record, doorbell_register] = p.load_two(addr_of_mut!((*row).doorbell_record));
            let [qpn_shifted, _log_depth, local_rail, remote_rail] =
                p.load_four(addr_of_mut!((*row).qpn_shifted));
            PathView {
                send_queue,
                doorbell_record,
                doorbell_register,
                base,
                qpn_shifted,
                local_rail,
                remote_rail,
            }
        }
    }

    /// What a look at a path's completions needs; a post does not.
    #[inline(always)]
    pub(crate) fn completions(self, slot: u32) -> CqView {
        let (row, p) = (self.path(slot), self.platform());
        // SAFETY: as for `view`.
        unsafe {
            let [entries, map] = p.load_two(addr_of_mut!((*row).completion_queue));
            CqView {
                entries,
                map: CqMap(map),
                log_depth: root!(self.device, log_depth),
                mask: root!(self.device, ring_mask),
            }
        }
    }

    #[inline(always)]
    pub(crate) fn path_state(self, slot: u32) -> PathState {
        // SAFETY: a field of a valid row.
        PathState::from_raw(unsafe { self.platform().load32(addr_of_mut!((*self.path(slot)).state)) })
    }

    #[inline(always)]
    pub(crate) fn incarnation(self, slot: u32) -> u32 {
        // SAFETY: a field of a valid row.
        unsafe { self.platform().load32(addr_of_mut!((*self.path(slot)).incarnation)) }
    }

    /// The last word of the CQE of a ticket, if that CQE was written.
    #[inline(always)]
    pub(crate) fn tail(self, view: &CqView, ticket: u64) -> Option<Tail> {
        self.tail_of(view, view.map.physical(ticket), view.map.lag())
    }

    /// The last word of the CQE of a physical index behind `lag` wide WQEs, if that CQE was written.
    #[inline(always)]
    pub(crate) fn tail_of(self, view: &CqView, physical: u32, lag: u32) -> Option<Tail> {
        let number = physical.wrapping_sub(lag) as u64;
        // SAFETY: inside the path's completion queue, which is as deep as its send queue.
        let tail = Tail::from_memory(unsafe { self.platform().load_cqe(view.tail_address(number as u32)) });
        // Every WQE is signalled, so CQE n is that of WQE n; the counter says so a second time, so that a map that
        // is behind finds nothing.
        let counted = tail.wqe_counter == physical as u16
            && (CqMap::index(physical) <= u16::MAX as u32 || !Mutant::CounterNotWrapped.on());
        if tail.belongs_to(number, view.log_depth) && counted { Some(tail) } else { None }
    }

    /// Syndrome and vendor syndrome of an error CQE: low byte, next byte.
    #[inline(always)]
    pub(crate) fn syndrome(self, view: &CqView, physical: u32, lag: u32) -> u32 {
        let number = physical.wrapping_sub(lag) as u64;
        let at = view.entries + crate::ring::position(number, view.log_depth) * CQE_BYTES as u64;
        let word = (at + shunt_layout::mlx5::cqe::SYNDROME_WORD_OFFSET as u64) as *const u32;
        // SAFETY: as for `tail`; the body was written before the tail that the caller saw.
        let word = u32::from_be(unsafe { self.platform().load_cqe(word) });
        (word & 0xff) | (word & 0xff00)
    }

    /// The block of a physical index.
    #[inline(always)]
    pub(crate) fn block(self, view: &PathView, physical: u64) -> *mut Wqebb {
        (view.send_queue + (physical as u32 & root!(self.device, ring_mask)) as u64 * 64) as *mut Wqebb
    }

    /// The scratch word `number` of this channel.
    #[inline(always)]
    pub(crate) fn scratch(self, number: u64) -> *mut u64 {
        let per = root!(self.device, scratch_per_channel) as u64;
        (root!(self.device, scratch) + (self.row() as u64 * per + number) * 8) as *mut u64
    }

    /// Scratch word `number` of those beyond the ring depth.
    #[inline(always)]
    pub(crate) fn scratch_extra(self, number: u32) -> *mut u64 {
        self.scratch((root!(self.device, scratch_per_channel) - state::SCRATCH_EXTRA + number) as u64)
    }

    /// Where answers go that nobody wants.
    #[inline(always)]
    pub(crate) fn sink(self) -> *mut u64 {
        // In 32 bits: a scratch of 2^32 words would not fit any GPU.
        let words = self.row() * root!(self.device, scratch_per_channel);
        (root!(self.device, sink) + words as u64 * 8) as *mut u64
    }

    /// Heap offset, at the peer, of this channel's two ledger words.
    #[inline(always)]
    pub(crate) fn ledger_words(self) -> u64 {
        let device = self.device;
        let row = root!(device, my_pe) as u64 * root!(device, channels_per_pe) as u64 + self.index() as u64;
        root!(device, ledger) + row * state::LEDGER_BYTES
    }

    /// The record `number` of the ring.
    #[inline(always)]
    pub(crate) fn record(self, number: u64) -> *mut SwitchRecord {
        let at = number % state::RECORDS as u64;
        (root!(self.device, records) as *mut SwitchRecord).wrapping_add(at as usize)
    }

    /// The counters of this channel.
    #[inline(always)]
    pub(crate) fn tally(self) -> *mut Tally {
        (root!(self.device, tallies) as *mut Tally).wrapping_add(self.row() as usize)
    }

    /// The step record `number` of the ring.
    #[inline(always)]
    pub(crate) fn step_record(self, number: u64) -> *mut StepRecord {
        let at = number % state::STEP_RECORDS as u64;
        (root!(self.device, steps) as *mut StepRecord).wrapping_add(at as usize)
    }

    /// Copies who is at the ends of a path into a record.
    #[inline(always)]
    pub(crate) fn copy_identity(self, slot: u32, to: *mut PathIdentity) {
        let (from, to) = (self.path(slot), to.cast::<u64>());
        let mut i = 0;
        while i < size_of::<PathIdentity>() / 8 {
            // SAFETY: an identity is a whole number of aligned words in both structures; the record is this
            // call's.
            unsafe {
                let from = addr_of_mut!((*from).identity).cast::<u64>().add(i);
                self.platform().store(to.add(i), self.platform().load(from));
            }
            i += 1;
        }
    }
}
const _: () = assert!(size_of::<PathIdentity>().is_multiple_of(8) && align_of::<PathRow>() >= 8);
