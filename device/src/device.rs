//! The device: what a kernel gets from the host, and this PE's own part of the heap, where kernels keep words and
//! messages that other blocks and NICs look at.
//!
//! Offsets are the caller's: aligned to the access, and inside what [`Device::holds`] said yes to.

use crate::channel::Channel;
use crate::platform::{Lanes, Platform};
use crate::poster::Poster;
use crate::root::root;
use crate::rounds::{self, Rounds};
use crate::stall::StallDetector;
use crate::state_ptr::StatePtr;
use crate::types::{AbiMismatch, Amo, Deadline, Fault, FaultKind, HeapOffset};
use shunt_layout::state::{DeviceState, MAGIC};

/// Bytes that one access moves at most.
pub const PIECE_BYTES: u64 = 16;

/// A device state, checked once.
#[derive(Clone, Copy)]
pub struct Device<'s, P: Platform> {
    state: StatePtr<'s, P>,
}

/// The four words of a piece.
#[inline(always)]
const fn segment([low, high]: [u64; 2]) -> [u32; 4] {
    [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
}

impl<'s, P: Platform> Channel<'s, P> {
    /// The device that it belongs to. Here, because devices know channels and not the other way.
    #[inline(always)]
    pub fn device(self) -> Device<'s, P> {
        Device::of(self.state())
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
        let magic = root!(self.state, magic);
        let (abi_version, bytes) = (root!(self.state, abi_version), root!(self.state, bytes));
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
        // SAFETY: forwarded to the caller.
        Self::of(unsafe { StatePtr::at(state, platform) })
    }

    #[inline(always)]
    pub(crate) const fn of(state: StatePtr<'s, P>) -> Self {
        Self { state }
    }

    /// The channel `index` to `peer`. An index beyond the channels there are stands for one of them.
    ///
    /// # Panics
    /// On the host: there is no such peer. A GPU checks nothing.
    #[inline(always)]
    pub fn channel(self, peer: u32, index: u32) -> Channel<'s, P> {
        Channel::of(self.state.channel(peer, index))
    }

    /// The channel that has this [`number`](Channel::number).
    #[inline(always)]
    pub fn numbered(self, number: u32) -> Channel<'s, P> {
        Channel::of(self.state.row(number))
    }

    /// This PE's number.
    #[inline(always)]
    pub fn my_pe(self) -> u32 {
        root!(self.state, my_pe)
    }

    /// PEs of the job.
    #[inline(always)]
    pub fn pe_count(self) -> u32 {
        root!(self.state, pe_count)
    }

    /// Now, in nanoseconds.
    #[inline(always)]
    pub fn now_ns(self) -> u64 {
        self.state.platform.now_ns()
    }

    /// The body of a wait loop of the kernel's own: one that has a deadline.
    #[inline(always)]
    pub fn relax(self) {
        self.state.platform.relax();
    }

    /// What the leader acquired, all lanes may read from here on: an acquire is the leader's, the barrier hands it on.
    /// No lane needs a fence of its own.
    #[inline(always)]
    pub fn share<L: Lanes>(self, lanes: L, value: u64) -> u64 {
        lanes.sync();
        lanes.broadcast(value, 0)
    }

    /// The address of a heap offset in this PE's memory.
    #[inline(always)]
    pub fn local_address(self, at: HeapOffset) -> u64 {
        self.state.local_address(at)
    }

    /// Whether `bytes` from `at` on lie in the heap, and `at` is aligned to a piece.
    #[inline(always)]
    pub fn holds(self, at: HeapOffset, bytes: u64) -> bool {
        at.0.is_multiple_of(PIECE_BYTES) && self.state.heap_contains(at, bytes)
    }

    /// One word of the heap, acquire: what a NIC placed before it is visible.
    #[inline(always)]
    pub fn load(self, at: HeapOffset) -> u64 {
        self.state.heap_word(at).load_acquire()
    }

    /// The answer of a fetching atomic, once its ticket is done: the word's old value. A NIC writes answers of eight
    /// bytes as the host's numbers, but answers of four bytes big-endian.
    #[inline(always)]
    pub fn fetched(self, amo: Amo, result: HeapOffset) -> u64 {
        let word = self.load(result);
        if amo.bytes() == 4 { u32::from_be(word as u32) as u64 } else { word }
    }

    /// Stores a word; release: who acquires it sees what this lane stored before.
    #[inline(always)]
    pub fn store(self, at: HeapOffset, value: u64) {
        self.state.heap_word(at).store_release(value);
    }

    /// Adds to a word of this PE's own, atomically among lanes; what it was. Not atomic with what NICs do to the word.
    #[inline(always)]
    pub fn add(self, at: HeapOffset, value: u64) -> u64 {
        self.state.heap_word(at).fetch_add(value)
    }

    /// Makes a word of this PE's own `new` if it is `expected`; what it was.
    #[inline(always)]
    pub fn swap_if(self, at: HeapOffset, expected: u64, new: u64) -> u64 {
        self.state.heap_word(at).compare_swap(expected, new)
    }

    /// One piece of 16 bytes, relaxed: a word that covers it was acquired before.
    #[inline(always)]
    pub fn load_piece(self, at: HeapOffset) -> [u64; 2] {
        // SAFETY: an aligned piece of the heap (module documentation).
        unsafe { self.state.platform.load_two(self.local_address(at) as *const u64) }
    }

    /// Stores one piece of 16 bytes, relaxed: what covers it is posted or stored afterwards.
    #[inline(always)]
    pub fn store_piece(self, at: HeapOffset, piece: [u64; 2]) {
        // SAFETY: an aligned piece of the heap (module documentation).
        unsafe { self.state.platform.store_segment(self.local_address(at) as *mut u32, segment(piece)) }
    }

    /// The same by the lanes that are to store, without a branch.
    #[inline(always)]
    pub fn store_piece_if(self, stores: bool, at: HeapOffset, piece: [u64; 2]) {
        let address = self.local_address(at) as *mut u32;
        // SAFETY: an aligned piece of the heap (module documentation).
        unsafe { self.state.platform.store_segment_if(stores, address, segment(piece)) }
    }

    /// One word of another rank of this node, at the address under which this one reaches it (NVLink, or threads of one
    /// process). Acquire: what its writer stored before is visible.
    ///
    /// # Safety
    /// An aligned word of memory that is mapped here, and that others touch as words alone.
    #[inline(always)]
    pub unsafe fn load_near(self, at: u64) -> u64 {
        // SAFETY: forwarded to the caller.
        unsafe { self.state.platform.load_acquire(at as *const u64) }
    }

    /// Stores one such word, release.
    ///
    /// # Safety
    /// As for `load_near`.
    #[inline(always)]
    pub unsafe fn store_near(self, at: u64, value: u64) {
        // SAFETY: forwarded to the caller.
        unsafe { self.state.platform.store_release(at as *mut u64, value) }
    }

    /// Stores one such piece of 16 bytes, relaxed: a word that covers it is stored afterwards.
    ///
    /// # Safety
    /// An aligned piece of memory that is mapped here, and that nobody reads before a word covers it.
    #[inline(always)]
    pub unsafe fn store_piece_near(self, at: u64, piece: [u64; 2]) {
        // SAFETY: forwarded to the caller.
        unsafe { self.state.platform.store_segment(at as *mut u32, segment(piece)) }
    }

    /// A round that starts now.
    #[inline(always)]
    pub fn rounds(self) -> Rounds {
        Rounds::new(self.now_ns())
    }

    /// Looks after two channels: notices failures, carries switches on.
    #[inline(always)]
    pub fn look_after(self, rounds: &mut Rounds) {
        rounds.look_after(self.state);
    }

    /// One look at one channel, by its row of the channel table. The agent calls this, so that a switch needs no
    /// kernel. That a channel is dead is its callers' business.
    #[inline(always)]
    pub fn attend_to(self, row: u32, stall: &mut StallDetector) {
        rounds::attend_to(self.state.row(row), stall);
    }

    /// [`Channel::touch`] on one channel, by its row of the channel table.
    pub fn touch(self, row: u32) -> bool {
        let channel = self.state.row(row);
        !channel.is_loopback() && Poster::of(channel).touch()
    }

    /// Waits until the heap word at `word` is at least `value`, and answers with what it is then. All that
    /// was put before the signal that wrote it is visible.
    ///
    /// # Errors
    /// `Overdue` when the deadline passes, `BadAddress` for a word that is not one of the heap's.
    #[inline(always)]
    pub fn wait_until_ge<L: Lanes>(
        self,
        lanes: L,
        word: HeapOffset,
        value: u64,
        deadline: Deadline,
    ) -> Result<u64, Fault> {
        if !word.0.is_multiple_of(8) || !self.state.heap_contains(word, 8) {
            return Err(self.channel(self.my_pe(), 0).told(FaultKind::BadAddress));
        }
        let mut seen = self.load(word);
        if lanes.rank() == 0 && seen < value {
            seen = self.wait_slow(word.0, value, deadline.at_ns);
        }
        // The other lanes did not load what the leader saw: make what it covers visible to them as well. A broadcast
        // need not order anything, so the barrier does.
        let seen = self.share(lanes, seen);
        if seen >= value { Ok(seen) } else { Err(self.channel(self.my_pe(), 0).told(FaultKind::Overdue)) }
    }

    /// Answers with what the word holds when it is enough or when time is up: one register, no stack on a
    /// GPU.
    #[inline(never)]
    fn wait_slow(self, word: u64, value: u64, until_ns: u64) -> u64 {
        let mut rounds = self.rounds();
        loop {
            self.look_after(&mut rounds);
            let seen = self.load(HeapOffset(word));
            if seen >= value || self.now_ns() > until_ns {
                return seen;
            }
            self.relax();
        }
    }
}
