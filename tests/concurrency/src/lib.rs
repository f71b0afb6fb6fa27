//! One channel in memory, and a platform for its device code whose words are those of a concurrency checker.
//!
//! The device code is the one that ships: it is generic over `Platform`. Under loom every access of a word is an access
//! of a loom atomic with the order that the host's platform uses; under shuttle the same, for more threads. The memory
//! of words that never change while kernels run, and of WQEs, is plain.

use shunt_layout::mlx5::wqe::Wqebb;
use shunt_layout::state::{
    Channel, DeviceState, HintWord, HotPath, MAGIC, Mailbox, Mirror, PathRow, PathState, Policy, RECORDS,
    SCRATCH_EXTRA, STEP_RECORDS, StepRecord, SwitchRecord, SwitchWord, Tally,
};
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// log2 of the rings' depth.
pub const LOG_DEPTH: u32 = 2;
/// Blocks of a ring.
pub const DEPTH: usize = 1 << LOG_DEPTH;
/// Bytes of each heap.
pub const HEAP_BYTES: u64 = 4096;
/// Longer than any test waits.
const LONG_NS: u64 = 1 << 40;

/// A device state with one channel to peer 1, and all memory that it names. Zero where nothing was written.
pub struct Bench {
    memory: Vec<(*mut u8, Layout)>,
    /// The root.
    pub state: *mut DeviceState,
}

impl Drop for Bench {
    fn drop(&mut self) {
        for (at, layout) in self.memory.drain(..) {
            // SAFETY: made by `table` with this layout, and nobody uses it any more: the threads have ended.
            unsafe { dealloc(at, layout) };
        }
    }
}

impl Bench {
    /// A channel with `slots` paths, all ready.
    pub fn new(slots: u32) -> Self {
        let mut bench = Self { memory: Vec::new(), state: std::ptr::null_mut() };
        let state: *mut DeviceState = bench.table(1);
        let channels: *mut Channel = bench.table(2);
        let paths: *mut PathRow = bench.table(2 * slots as usize);
        let hot: *mut HotPath = bench.table(2 * slots as usize);
        for slot in 0..2 * slots as usize {
            let row = bench.row(slot as u32 % slots);
            // SAFETY: a row of the table, not shared yet.
            unsafe { *paths.add(slot) = row };
            // SAFETY: as above.
            unsafe { *hot.add(slot) = HotPath::of(&row) };
        }
        let heap_base = bench.table::<u64>(HEAP_BYTES as usize / 8) as u64;
        let peer_heap: *mut u64 = bench.table(2);
        // SAFETY: two words, not shared yet.
        unsafe { *peer_heap.add(1) = heap_base };
        let policy = Policy {
            fault_tolerance: 1,
            bracket: 0,
            suspect_ns: LONG_NS,
            fence_wait_ns: LONG_NS,
            give_up_ns: LONG_NS,
            recovery_window_ns: LONG_NS,
            drain_ns: LONG_NS,
            ledger_ns: LONG_NS,
            suspect_floor_ns: LONG_NS,
            packet_lifetime_ns: LONG_NS,
            fence: 0,
            ordering: 0,
            polled_puts: 0,
            rc_gives_up_ms: 0,
        };
        // SAFETY: zeroed and not shared yet; every table is as long as the root says.
        unsafe {
            let root = &mut *state;
            (root.magic, root.abi_version, root.bytes) =
                (MAGIC, shunt_layout::ABI_VERSION, size_of::<DeviceState>() as u32);
            (root.pe_count, root.channels_per_pe, root.slots, root.rails) = (2, 1, slots, 1);
            (root.log2_chunk, root.chunks, root.log_depth) = (30, 1, LOG_DEPTH);
            root.ring_mask = DEPTH as u32 - 1;
            (root.heap_base, root.heap_bytes, root.peer_heap) = (heap_base, HEAP_BYTES, peer_heap as u64);
            (root.lkeys, root.rkeys) = (bench.table::<u32>(2) as u64, bench.table::<u32>(4) as u64);
            root.data_rkeys = root.rkeys;
            (root.channels, root.paths, root.hot) = (channels as u64, paths as u64, hot as u64);
            root.mailboxes = bench.table::<Mailbox>(2) as u64;
            let mirrors = bench.table::<Mirror>(2);
            (*mirrors.add(1)).word = SwitchWord::START.0;
            (*channels.add(1)).switch.word = SwitchWord::START.0;
            (root.mirrors, root.homes) = (mirrors as u64, bench.table::<u64>(2) as u64);
            root.hints = bench.table::<HintWord>(4) as u64;
            root.wake = bench.table::<u64>(1) as u64;
            root.records = bench.table::<SwitchRecord>(RECORDS) as u64;
            root.records_head = bench.table::<u64>(1) as u64;
            let scratch = DEPTH as u32 + SCRATCH_EXTRA;
            root.scratch = bench.table::<u64>(2 * scratch as usize) as u64;
            root.scratch_per_channel = scratch;
            root.sink = root.scratch + u64::from(scratch - 1) * 8;
            root.scratch_lkeys = bench.table::<u32>(2) as u64;
            root.tallies = bench.table::<Tally>(2) as u64;
            root.steps = bench.table::<StepRecord>(STEP_RECORDS) as u64;
            root.steps_head = bench.table::<u64>(1) as u64;
            root.policy = policy;
        }
        bench.state = state;
        bench
    }

    /// A path that is ready, with rings of its own. The completion queue holds invalid entries.
    fn row(&mut self, slot: u32) -> PathRow {
        let entries: *mut u32 = self.table(DEPTH * 16);
        for entry in 0..DEPTH {
            // SAFETY: inside the queue, not shared yet. The last word of an entry: opcode INVALID.
            unsafe { *entries.add(entry * 16 + 15) = 0xf0u32.to_be() };
        }
        // SAFETY: a path row is plain words, for which zero is a value.
        let mut row: PathRow = unsafe { std::mem::zeroed() };
        row.send_queue = self.table::<Wqebb>(DEPTH) as u64;
        row.completion_queue = entries as u64;
        row.doorbell_record = self.table::<u32>(2) as u64;
        row.doorbell_register = self.table::<u64>(1) as u64;
        (row.qpn_shifted, row.log_depth) = ((0x100 + slot) << 8, LOG_DEPTH);
        (row.state, row.incarnation) = (PathState::Ready as u32, 1);
        row
    }

    /// Zeroed memory for `count` of a type of plain words.
    fn table<T>(&mut self, count: usize) -> *mut T {
        let layout = Layout::array::<T>(count).expect("a small table").align_to(128).expect("a power of two");
        // SAFETY: no table is empty.
        let at = unsafe { alloc_zeroed(layout) };
        assert!(!at.is_null(), "no memory");
        self.memory.push((at, layout));
        at.cast()
    }

    /// Words that threads may share, by address: those of 64 bits, and those of 32. A checker wants them made before
    /// the threads.
    pub fn shared(&self, slots: u32) -> (Vec<usize>, Vec<usize>) {
        // SAFETY: the root is valid and does not change.
        let root = unsafe { &*self.state };
        let tally = root.tallies as usize + size_of::<Tally>();
        let mut spans = vec![
            (self.channel() as usize, size_of::<Channel>()),
            (self.mailbox() as usize, size_of::<Mailbox>()),
            (self.mirror() as usize, size_of::<Mirror>()),
            (tally, size_of::<Tally>()),
            (root.records_head as usize, 8),
            (root.wake as usize, 8),
            (root.hints as usize, 32),
            (root.peer_heap as usize, 16),
        ];
        let mut halves = Vec::new();
        for slot in 0..slots {
            // SAFETY: a row of the table; these addresses do not change.
            let row = unsafe { &*self.path(slot) };
            spans.push((self.path(slot) as usize, 128));
            spans.push((self.hot(slot) as usize, 128));
            spans.push((row.doorbell_register as usize, 8));
            halves.push(row.doorbell_record as usize);
            for block in 0..DEPTH {
                halves.extend((0..16).map(|word| row.send_queue as usize + block * 64 + word * 4));
                halves.extend((12..16).map(|word| row.completion_queue as usize + block * 64 + word * 4));
            }
        }
        let words =
            spans.iter().flat_map(|(at, bytes)| (0..bytes / 8).map(move |word| at + word * 8)).collect();
        halves.extend(spans.iter().flat_map(|(at, bytes)| (0..bytes / 4).map(move |half| at + half * 4)));
        (words, halves)
    }

    /// The row of a path of the channel to peer 1.
    pub fn path(&self, slot: u32) -> *mut PathRow {
        // SAFETY: the root is valid; row (pe 1, channel 0, slot) is inside the table.
        unsafe { ((*self.state).paths as *mut PathRow).add(((*self.state).slots + slot) as usize) }
    }

    /// What posts on it read.
    pub fn hot(&self, slot: u32) -> *mut HotPath {
        // SAFETY: the root is written, and the table has a row for each slot of both PEs' channels.
        unsafe { ((*self.state).hot as *mut HotPath).add(((*self.state).slots + slot) as usize) }
    }

    /// The channel to peer 1.
    pub fn channel(&self) -> *mut Channel {
        // SAFETY: the root is valid; row (pe 1, channel 0) is inside the table.
        unsafe { ((*self.state).channels as *mut Channel).add(1) }
    }

    /// What its agent reads.
    pub fn mirror(&self) -> *mut Mirror {
        // SAFETY: as for the channel.
        unsafe { ((*self.state).mirrors as *mut Mirror).add(1) }
    }

    /// Its mailbox.
    pub fn mailbox(&self) -> *mut Mailbox {
        // SAFETY: as for the channel.
        unsafe { ((*self.state).mailboxes as *mut Mailbox).add(1) }
    }
}

/// The platform, for the checker of this name: `loom` or `shuttle`. Defines `Memory` and `Checked` where it is used.
#[macro_export]
macro_rules! platform {
    ($checker:ident) => {
        use std::collections::HashMap;
        use std::sync::{Arc, Mutex};
        use $checker::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

        /// Words that are modelled, by address, made when they are first touched; the rest is plain memory.
        pub struct Memory {
            pub bench: $crate::Bench,
            words: Mutex<HashMap<usize, Arc<AtomicU64>>>,
            halves: Mutex<HashMap<usize, Arc<AtomicU32>>>,
            clock: std::sync::atomic::AtomicU64,
            /// Checks of WQEs at each doorbell: the one that rings must see what it covers.
            pub rung: Mutex<Vec<(usize, u64)>>,
            /// What the test takes away.
            pub unordered_publish: bool,
            /// See `unordered_publish`: a group does not acquire what those before it published.
            pub unacquired_turn: bool,
            /// See `unordered_publish`.
            pub no_post_lock: bool,
        }

        // SAFETY: raw addresses inside are used through atomics, or written before threads start.
        unsafe impl Send for Memory {}
        // SAFETY: as above.
        unsafe impl Sync for Memory {}

        impl Memory {
            pub fn new(slots: u32) -> Self {
                let memory = Self {
                    bench: $crate::Bench::new(slots),
                    words: Mutex::default(),
                    halves: Mutex::default(),
                    clock: std::sync::atomic::AtomicU64::new(1),
                    rung: Mutex::default(),
                    unordered_publish: false,
                    unacquired_turn: false,
                    no_post_lock: false,
                };
                let (words, halves) = memory.bench.shared(slots);
                for at in words {
                    memory.word(at);
                }
                for at in halves {
                    memory.half(at);
                }
                memory
            }

            pub fn word(&self, at: usize) -> Arc<AtomicU64> {
                let mut words = self.words.lock().expect("no panic under this lock");
                // SAFETY: an aligned address inside the bench, whose plain memory is only its first value.
                words
                    .entry(at)
                    .or_insert_with(|| Arc::new(AtomicU64::new(unsafe { *(at as *const u64) })))
                    .clone()
            }

            pub fn half(&self, at: usize) -> Arc<AtomicU32> {
                let mut halves = self.halves.lock().expect("no panic under this lock");
                // SAFETY: as for `word`.
                halves
                    .entry(at)
                    .or_insert_with(|| Arc::new(AtomicU32::new(unsafe { *(at as *const u32) })))
                    .clone()
            }
        }

        #[derive(Clone, Copy)]
        pub struct Checked<'m>(pub &'m Memory);

        // SAFETY: the contract of `Platform` is on its callers; every address is one of the bench.
        #[allow(clippy::undocumented_unsafe_blocks)]
        impl shunt_device::Platform for Checked<'_> {
            type Root = shunt_device::platform::InMemory;
            fn now_ns(self) -> u64 {
                self.0.clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
            }
            fn relax(self) {
                $checker::thread::yield_now();
            }
            unsafe fn load(self, address: *const u64) -> u64 {
                self.0.word(address as usize).load(Ordering::Relaxed)
            }
            unsafe fn load_acquire(self, address: *const u64) -> u64 {
                self.0.word(address as usize).load(Ordering::Acquire)
            }
            unsafe fn store(self, address: *mut u64, value: u64) {
                self.0.word(address as usize).store(value, Ordering::Relaxed)
            }
            unsafe fn store_release(self, address: *mut u64, value: u64) {
                self.0.word(address as usize).store(value, Ordering::Release)
            }
            unsafe fn fetch_add(self, address: *mut u64, value: u64) -> u64 {
                self.0.word(address as usize).fetch_add(value, Ordering::AcqRel)
            }
            unsafe fn fetch_or(self, address: *mut u64, value: u64) -> u64 {
                self.0.word(address as usize).fetch_or(value, Ordering::AcqRel)
            }
            unsafe fn fetch_and(self, address: *mut u64, value: u64) -> u64 {
                self.0.word(address as usize).fetch_and(value, Ordering::AcqRel)
            }
            unsafe fn compare_swap(self, address: *mut u64, expected: u64, new: u64) -> u64 {
                let (good, bad) = match self.0.unordered_publish {
                    true => (Ordering::Relaxed, Ordering::Relaxed),
                    false => (Ordering::AcqRel, Ordering::Acquire),
                };
                match self.0.word(address as usize).compare_exchange(expected, new, good, bad) {
                    Ok(old) | Err(old) => old,
                }
            }
            unsafe fn compare_swap_acquire(self, address: *mut u64, expected: u64, new: u64) -> u64 {
                let relaxed = self.0.unordered_publish || self.0.unacquired_turn;
                let order = if relaxed { Ordering::Relaxed } else { Ordering::Acquire };
                match self.0.word(address as usize).compare_exchange(expected, new, order, Ordering::Relaxed)
                {
                    Ok(old) | Err(old) => old,
                }
            }
            unsafe fn try_lock(self, address: *mut u32) -> bool {
                self.0.no_post_lock
                    || self
                        .0
                        .half(address as usize)
                        .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
            }
            unsafe fn unlock(self, address: *mut u32) {
                self.0.half(address as usize).store(0, Ordering::Release)
            }
            unsafe fn load32(self, address: *const u32) -> u32 {
                self.0.half(address as usize).load(Ordering::Acquire)
            }
            unsafe fn store32(self, address: *mut u32, value: u32) {
                self.0.half(address as usize).store(value, Ordering::Release)
            }
            unsafe fn load_cqe(self, address: *const u32) -> u32 {
                self.0.half(address as usize).load(Ordering::Acquire)
            }
            unsafe fn load_key(self, _address: *const u32) -> u32 {
                0
            }
            unsafe fn load_two(self, address: *const u64) -> [u64; 2] {
                // SAFETY: forwarded to the caller.
                unsafe { [self.load(address), self.load(address.add(1))] }
            }
            unsafe fn load_four(self, address: *const u32) -> [u32; 4] {
                // SAFETY: words of a path's row, which the bench made and nobody writes in these tests.
                unsafe { [*address, *address.add(1), *address.add(2), *address.add(3)] }
            }
            unsafe fn load_wqe(
                self,
                address: *const shunt_layout::mlx5::wqe::Wqebb,
            ) -> shunt_layout::mlx5::wqe::Wqebb {
                let mut block = [0; 16];
                for (number, word) in block.iter_mut().enumerate().take(12) {
                    *word = self.0.half(address as usize + number * 4).load(Ordering::Relaxed);
                }
                shunt_layout::mlx5::wqe::Wqebb(block)
            }
            unsafe fn store_segment(self, address: *mut u32, segment: [u32; 4]) {
                for (number, word) in segment.into_iter().enumerate() {
                    self.0.half(address as usize + number * 4).store(word, Ordering::Relaxed);
                }
            }
            fn wqes_before_publish(self) {
                if !self.0.unordered_publish {
                    fence(Ordering::Release);
                }
            }
            unsafe fn store_doorbell_record(self, address: *mut u32, value: u32) {
                self.0.half(address as usize).store(value, Ordering::Release)
            }
            fn record_before_register(self) {}
            unsafe fn store_register(self, address: *mut u64, value: u64) {
                self.0.ring(address as usize, value);
                self.0.word(address as usize).store(value, Ordering::Release)
            }
            fn cqe_before_data(self) {}
            fn announce_before_recheck(self) {
                fence(Ordering::SeqCst);
            }
        }
    };
}
