//! The device state, written into device-visible memory, read back and compared.

use crate::error::UploadError;
use crate::gpu::{GpuMemory, Region, Span};
use crate::keys::KeyTable;
use crate::plan::{Bases, Plan, Shape, Side};
use crate::slots::home_at_start;
use shunt_layout::ABI_VERSION;
use shunt_layout::state::{
    CLOSED, Channel, DeviceState, FROZEN, HeapTail, HomeWord, HotPath, MAGIC, Mirror, NO_SLOT, PathRow,
    Policy, SCRATCH_EXTRA, Step, Switch, SwitchWord, Word, mask_of,
};
use std::mem::offset_of;
use std::ops::Range;

/// What the state says beside where things lie.
pub struct Contents<'a> {
    /// Heap of this PE, and what lies behind it.
    pub heap: Span,
    /// Where.
    pub tail: HeapTail,
    /// Host calls have the owner of a word execute every atomic.
    pub fetch_exact: bool,
    /// A NIC of the job has no masked atomics.
    pub plain_atomics: bool,
    /// Channels to each peer that kernels' waits leave alone.
    pub host_channels: u32,
    /// What the job may use of it.
    pub heap_bytes: u64,
    /// Bytes at its start that lie in the memory of the device, as queues do; 0 if queues do not.
    pub own_heap: u64,
    /// First address of each PE's heap.
    pub peer_heap: &'a [u64],
    /// Rails of each PE.
    pub rails_of: &'a [u32],
    /// log2 of the bytes one key covers.
    pub log2_chunk: u32,
    /// Keys.
    pub keys: &'a KeyTable,
    /// Key of the scratch on each rail, as numbers.
    pub scratch_keys: &'a [u32],
    /// The same for the scratch in the device's memory.
    pub device_scratch_keys: &'a [u32],
    /// Every path row, in table order.
    pub paths: &'a [PathRow],
    /// Patience.
    pub policy: Policy,
    /// Whether switchers leave a record of each step.
    pub step_records: bool,
}

/// The root of a side, as it will lie at `bases`.
pub fn device_state(plan: &Plan, bases: Bases, side: &Side, contents: &Contents<'_>) -> DeviceState {
    let (shape, shared) = (plan.shape, &plan.shared);
    let at = |range: &Range<u64>| bases.of(side.region) + range.start;
    let host = |range: &Range<u64>| bases.host + range.start;
    let counted = |range: &Range<u64>| match side.region {
        Region::Host => host(range),
        Region::Device => host(range) + (range.end - range.start) / 2,
    };
    DeviceState {
        magic: MAGIC,
        abi_version: ABI_VERSION,
        bytes: size_of::<DeviceState>() as u32,
        my_pe: shape.me,
        pe_count: shape.pes,
        channels_per_pe: shape.channels_per_pe,
        slots: shape.slots,
        rails: shape.rails,
        log2_chunk: contents.log2_chunk,
        chunks: shape.chunks,
        log_depth: shape.log_depth,
        heap_base: contents.heap.address,
        heap_bytes: contents.heap_bytes,
        peer_heap: at(&side.peer_heap),
        lkeys: at(&side.lkeys),
        rkeys: at(&side.rkeys),
        channels: at(&side.channels),
        paths: host(&shared.paths),
        mailboxes: host(&shared.mailboxes),
        mirrors: host(&shared.mirrors),
        homes: host(&shared.homes),
        hints: host(&shared.hints),
        wake: counted(&shared.wake),
        records: counted(&shared.records),
        records_head: counted(&shared.records_head),
        scratch: at(&side.scratch),
        scratch_per_channel: (1 << shape.log_depth) + SCRATCH_EXTRA,
        step_records: contents.step_records as u32,
        scratch_lkeys: at(&side.scratch_lkeys),
        policy: contents.policy,
        tallies: host(&shared.tallies),
        steps: counted(&shared.steps),
        steps_head: counted(&shared.steps_head),
        ledger: contents.tail.ledger,
        channel_mask: mask_of(shape.channels_per_pe),
        sink: at(&side.scratch) + (((1 << shape.log_depth) + SCRATCH_EXTRA - 1) * 8) as u64,
        ring_mask: (1 << shape.log_depth) - 1,
        data_rkeys: match contents.keys.data_apart() {
            true => bases.of(side.region) + (side.rkeys.start + side.rkeys.end) / 2,
            false => at(&side.rkeys),
        },
        fetch: contents.tail.fetch,
        fetch_exact: contents.fetch_exact as u32,
        plain_atomics: contents.plain_atomics as u32,
        hot: at(&side.hot),
        host_channels: contents.host_channels,
        reserved2: 0,
        own_end: match (side.region, contents.own_heap) {
            (Region::Host, _) | (Region::Device, 0) => 0,
            (Region::Device, own) => own + 1,
        },
        reserved3: [0; 2],
    }
}

/// Where the switch of a channel stands before its first ticket. With two roots each channel has a second row, on the
/// side that it is not of, and both show the agent where they stand in one mirror: its own begins behind the other.
fn start_word(shape: &Shape) -> SwitchWord {
    match shape.kernels_from {
        None => SwitchWord::START,
        Some(_) => (0..3).fold(SwitchWord::START, |word, _| word.announced(NO_SLOT)),
    }
}

/// All channels before their first ticket: slot 0, generation 0, nobody switching. A row of another side's channel is
/// dead, and was before its channel began: who takes it by mistake is told that its
/// peer is lost, and nothing of it reaches the mirror.
fn channels(shape: &Shape, side: &Side) -> Vec<u8> {
    let mut bytes = vec![0; shape.rows() as usize * size_of::<Channel>()];
    let (start, alive) = (Word::new(0, 0, 0).0, start_word(shape));
    let dead = SwitchWord::START.at_step(Step::Dead).passed();
    for (row, channel) in bytes.chunks_exact_mut(size_of::<Channel>()).enumerate() {
        let mut put = |at: usize, value: &[u8]| channel[at..at + value.len()].copy_from_slice(value);
        let row = row as u32;
        let (peer, index) = (row / shape.channels_per_pe, row % shape.channels_per_pe);
        let own = side.indices.contains(&index);
        put(offset_of!(Channel, ticket), &(if own { start } else { start | CLOSED }).to_le_bytes());
        put(offset_of!(Channel, done), &(if own { start } else { start | FROZEN }).to_le_bytes());
        put(offset_of!(Channel, peer), &peer.to_le_bytes());
        put(offset_of!(Channel, index), &index.to_le_bytes());
        let word = if own { alive } else { dead };
        put(offset_of!(Channel, switch) + offset_of!(Switch, word), &word.0.to_le_bytes());
    }
    bytes
}

/// What the agent reads of them.
fn mirrors(shape: &Shape) -> Vec<u8> {
    let mut bytes = vec![0; shape.rows() as usize * size_of::<Mirror>()];
    for mirror in bytes.chunks_exact_mut(size_of::<Mirror>()) {
        let word = offset_of!(Mirror, word);
        mirror[word..word + 8].copy_from_slice(&start_word(shape).0.to_le_bytes());
    }
    bytes
}

/// Words that many write are at home where every sender's primary leads.
fn homes(shape: &Shape, rails_of: &[u32]) -> Vec<u64> {
    let home = |row: u32| {
        let (peer, index) = (row / shape.channels_per_pe, row % shape.channels_per_pe);
        let rails = rails_of.get(peer as usize).copied().unwrap_or(1).max(1);
        HomeWord::new(home_at_start(rails, index), 0).0
    };
    (0..shape.rows() as u32).map(home).collect()
}

/// The bytes of a structure that has no padding.
///
/// # Safety
/// `T` is `repr(C)` of integers, and its fields fill it: no byte is padding.
unsafe fn bytes_of<T: Copy>(value: &[T]) -> &[u8] {
    // SAFETY: in bounds; every byte is initialised, by the caller's promise.
    unsafe { std::slice::from_raw_parts(value.as_ptr().cast(), size_of_val(value)) }
}

/// Writes everything into control memory at `bases`, reads it back and compares. Memory is fresh, so zero.
pub fn upload(
    memory: &dyn GpuMemory,
    plan: &Plan,
    bases: Bases,
    contents: &Contents<'_>,
) -> Result<(), UploadError> {
    let words = |values: &[u64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let write = |region, table: &'static str, range: &Range<u64>, bytes: &[u8]| {
        assert_eq!(bytes.len() as u64, range.end - range.start, "{table} is as long as planned");
        put(memory, table, bases.of(region) + range.start, bytes)
    };
    let (shared, host) = (&plan.shared, Region::Host);
    write(host, "mirrors", &shared.mirrors, &mirrors(&plan.shape))?;
    write(host, "homes", &shared.homes, &words(&homes(&plan.shape, contents.rails_of)))?;
    // SAFETY: 256 bytes, filled by its fields.
    write(host, "paths", &shared.paths, unsafe { bytes_of(contents.paths) })?;
    for (region, name, range) in plan.tables() {
        const ZERO: [&str; 9] = [
            "mailboxes",
            "hints",
            "wake",
            "records",
            "records_head",
            "tallies",
            "steps",
            "steps_head",
            "scratch",
        ];
        if ZERO.contains(&name) {
            write(region, name, range, &vec![0; (range.end - range.start) as usize])?;
        }
    }
    for side in plan.sides() {
        let write = |table, range, bytes: &[u8]| write(side.region, table, range, bytes);
        let keys = match side.region {
            Region::Host => contents.scratch_keys,
            Region::Device => contents.device_scratch_keys,
        };
        let mut scratch_lkeys: Vec<u8> = keys.iter().flat_map(|key| key.to_be_bytes()).collect();
        scratch_lkeys.resize(plan.shape.rails as usize * 4, 0);
        write("peer_heap", &side.peer_heap, &words(contents.peer_heap))?;
        write("lkeys", &side.lkeys, &contents.keys.lkey_bytes())?;
        write("rkeys", &side.rkeys, &contents.keys.rkey_bytes())?;
        write("scratch_lkeys", &side.scratch_lkeys, &scratch_lkeys)?;
        write("channels", &side.channels, &channels(&plan.shape, side))?;
        let hot: Vec<HotPath> = contents.paths.iter().map(HotPath::of).collect();
        // SAFETY: 128 bytes, filled by its fields.
        write("hot", &side.hot, unsafe { bytes_of(&hot) })?;
    }
    // The roots last: who finds the magic of one finds everything else.
    plan.sides().try_for_each(|side| {
        let state = device_state(plan, bases, side, contents);
        // SAFETY: 384 bytes, filled by its fields.
        write(side.region, "state", &side.state, unsafe { bytes_of(std::slice::from_ref(&state)) })
    })
}

/// Writes the key tables alone: others have been added. Who used a key finds the same one.
pub fn upload_keys(
    memory: &dyn GpuMemory,
    plan: &Plan,
    bases: Bases,
    keys: &KeyTable,
) -> Result<(), UploadError> {
    plan.sides().try_for_each(|side| {
        let base = bases.of(side.region);
        put(memory, "lkeys", base + side.lkeys.start, &keys.lkey_bytes())?;
        put(memory, "rkeys", base + side.rkeys.start, &keys.rkey_bytes())
    })
}

/// Writes, reads back, compares.
fn put(memory: &dyn GpuMemory, table: &'static str, address: u64, bytes: &[u8]) -> Result<(), UploadError> {
    memory.write(address, bytes)?;
    let mut back = vec![0; bytes.len()];
    memory.read(address, &mut back)?;
    match bytes.iter().zip(&back).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(UploadError::Differs { table, address, at }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::GpuError;
    use crate::gpu::{HeapMemory, Placement};
    use crate::keys::KeyShape;
    use crate::plan::COUNTER_LINE;
    use shunt_layout::state::PathIdentity;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Memory that drops one bit of what is written.
    struct Forgetful {
        heap: HeapMemory,
        at: u64,
        hit: AtomicBool,
    }

    impl GpuMemory for Forgetful {
        fn alloc(&self, bytes: u64, placement: Placement) -> Result<Span, GpuError> {
            self.heap.alloc(bytes, placement)
        }
        unsafe fn free(&self, span: Span) {
            // SAFETY: forwarded.
            unsafe { self.heap.free(span) }
        }
        fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
            let mut bytes = bytes.to_vec();
            if (address..address + bytes.len() as u64).contains(&self.at) {
                bytes[(self.at - address) as usize] ^= 0x10;
                self.hit.store(true, Ordering::Relaxed);
            }
            self.heap.write(address, &bytes)
        }
        fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
            self.heap.read(address, bytes)
        }
    }

    fn shape(kernels_from: Option<u32>) -> Shape {
        Shape { pes: 2, me: 1, channels_per_pe: 2, kernels_from, slots: 2, rails: 2, chunks: 1, log_depth: 4 }
    }

    /// Memory for a plan, its two regions one allocation each.
    fn memory_for(memory: &HeapMemory, plan: &Plan) -> (Bases, [Span; 2]) {
        let spans = [(plan.bytes, Placement::Control), (plan.device_bytes, Placement::Queues)]
            .map(|(bytes, placement)| memory.alloc(bytes, placement).unwrap());
        (Bases { host: spans[0].address, device: spans[1].address }, spans)
    }

    fn free(memory: &HeapMemory, spans: [Span; 2]) {
        // SAFETY: nothing else knows the spans.
        spans.into_iter().for_each(|span| unsafe { memory.free(span) });
    }

    fn row(mark: u64) -> PathRow {
        PathRow {
            send_queue: mark,
            completion_queue: 0,
            reserved1: 0,
            doorbell_record: 0,
            doorbell_register: 0,
            base: 0,
            qpn_shifted: 0,
            log_depth: 4,
            local_rail: 0,
            remote_rail: 0,
            state: 1,
            incarnation: 1,
            next_index: 0,
            ready_since_ns: 0,
            first_cause: 0,
            reserved: 0,
            pad0: [0; 4],
            identity: PathIdentity::EMPTY,
            pad1: [0; 5],
        }
    }

    fn with_contents<R>(f: impl FnOnce(&Contents<'_>) -> R) -> R {
        let keys = KeyTable::build(
            KeyShape { rails: 2, chunks: 1, log2_chunk: 20 },
            1,
            &[vec![0x100], vec![0x200]],
            &[vec![vec![0x300], vec![0x400]], vec![vec![0x100], vec![0x200]]],
            &[vec![vec![0x301], vec![0x401]], vec![vec![0x101], vec![0x201]]],
        );
        let rows: Vec<_> = (0..8).map(|n| row(0x1000 * n)).collect();
        f(&Contents {
            heap: Span { address: 0x7000_0000, bytes: (1 << 20) + 4 * 16 },
            heap_bytes: 1 << 20,
            own_heap: 3 << 18,
            tail: HeapTail::new(1 << 20, 4, false),
            plain_atomics: false,
            host_channels: 0,
            fetch_exact: false,
            peer_heap: &[0x6000_0000, 0x7000_0000],
            rails_of: &[1, 2],
            log2_chunk: 20,
            keys: &keys.unwrap(),
            scratch_keys: &[0x500],
            device_scratch_keys: &[0x600],
            paths: &rows,
            policy: crate::config::policy(&crate::config::EnvConfig::default()),
            step_records: false,
        })
    }

    #[test]
    fn everything_lies_where_the_root_says() {
        let (memory, plan) = (HeapMemory::new(), shape(None).plan());
        let (bases, spans) = memory_for(&memory, &plan);
        with_contents(|contents| upload(&memory, &plan, bases, contents)).unwrap();
        let word = |address: u64| {
            let mut bytes = [0; 4];
            memory.read(address, &mut bytes).unwrap();
            u32::from_le_bytes(bytes)
        };
        let state = with_contents(|contents| device_state(&plan, bases, &plan.host, contents));
        assert_eq!(word(bases.host), u32::from_le_bytes(*b"SHUN"));
        assert_eq!(word(state.lkeys + 4), 0x200u32.to_be());
        assert_eq!(word(state.rkeys + 4), 0x400u32.to_be());
        assert_eq!(word(state.data_rkeys + 4), 0x401u32.to_be());
        assert_eq!((word(state.scratch_lkeys), word(state.scratch_lkeys + 4)), (0x500u32.to_be(), 0));
        assert_eq!(word(state.peer_heap), 0x6000_0000);
        assert_eq!((word(state.paths + 3 * 256), word(state.hot + 3 * 128)), (0x3000, 0x3000));
        let channel = state.channels + 3 * 512;
        assert_eq!(word(channel + offset_of!(Channel, peer) as u64), 1);
        assert_eq!(word(channel + offset_of!(Channel, index) as u64), 1);
        let start = SwitchWord::START.0 as u32;
        assert_eq!(word(channel + 256 + offset_of!(Switch, word) as u64), start);
        assert_eq!(word(state.mirrors + 3 * 128 + offset_of!(Mirror, word) as u64), start);
        let home = |row: u64| word(state.homes + row * 8);
        assert_eq!([home(0), home(1), home(2), home(3)], [0, 0, 0, 1], "channel modulo the rails of the PE");
        free(&memory, spans);
    }

    /// Kernels have the second channel, host calls the first.
    #[test]
    fn each_root_has_its_own_channels_and_both_show_one_mirror() {
        let (memory, plan) = (HeapMemory::new(), shape(Some(1)).plan());
        let (bases, spans) = memory_for(&memory, &plan);
        with_contents(|contents| upload(&memory, &plan, bases, contents)).unwrap();
        let word = |address: u64| {
            let mut bytes = [0; 8];
            memory.read(address, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        let root = |side| with_contents(|contents| device_state(&plan, bases, side, contents));
        let (host, kernels) = (root(&plan.host), root(plan.of_kernels()));
        assert_eq!((host.own_end, kernels.own_end), (0, (3 << 18) + 1));
        let inside = |span: Span, address: u64| (span.address..span.address + span.bytes).contains(&address);
        for (state, span) in [(&host, spans[0]), (&kernels, spans[1])] {
            let own =
                [state.channels, state.hot, state.lkeys, state.rkeys, state.data_rkeys, state.peer_heap];
            let nics = [state.scratch, state.sink, state.scratch_lkeys];
            assert!(own.iter().chain(&nics).all(|address| inside(span, *address)));
            let agents = [state.paths, state.mailboxes, state.mirrors, state.homes, state.hints, state.wake];
            assert!(agents.iter().all(|address| inside(spans[0], *address)));
        }
        // What both count by adds, each counts in memory of its own.
        let counted = |state: &DeviceState| {
            [state.wake, state.records, state.records_head, state.steps, state.steps_head]
        };
        for (of_host, of_kernels) in counted(&host).iter().zip(counted(&kernels)) {
            assert!(of_host + COUNTER_LINE <= of_kernels);
        }
        let scratch_key = |state: &DeviceState| (word(state.scratch_lkeys) as u32).swap_bytes();
        assert_eq!([&host, &kernels].map(scratch_key), [0x500, 0x600]);
        for (index, mine, other) in [(0, &host, &kernels), (1, &kernels, &host)] {
            let at = |state: &DeviceState, offset: usize| word(state.channels + index * 512 + offset as u64);
            let stands = |state| SwitchWord(at(state, 256 + offset_of!(Switch, word)));
            assert_eq!((stands(mine).step(), at(mine, 0)), (Step::Idle, 0));
            assert_eq!((stands(other).step(), at(other, 0)), (Step::Dead, CLOSED));
            assert!(at(other, offset_of!(Channel, done)) == FROZEN && stands(other).lock_passed());
            // Who raises the mirror to where the dead row stands changes nothing.
            let mirror = SwitchWord(word(host.mirrors + index * 128 + offset_of!(Mirror, word) as u64));
            assert!(mirror == stands(mine) && stands(other) < mirror, "channel {index}");
        }
        free(&memory, spans);
    }

    #[test]
    fn one_wrong_bit_is_found_in_every_table() {
        for plan in [None, Some(1)].map(|first| shape(first).plan()) {
            for (region, name, range) in plan.tables() {
                if matches!(name, "rings" | "doorbells" | "spares") {
                    continue;
                }
                let mut memory = Forgetful { heap: HeapMemory::new(), at: 0, hit: AtomicBool::new(false) };
                let (bases, spans) = memory_for(&memory.heap, &plan);
                memory.at = bases.of(region) + range.end - 1;
                let result = with_contents(|contents| upload(&memory, &plan, bases, contents));
                assert!(memory.hit.load(Ordering::Relaxed), "{name} was written");
                assert!(
                    matches!(result, Err(UploadError::Differs { table, .. }) if table == name),
                    "{name}: {result:?}"
                );
                free(&memory.heap, spans);
            }
        }
    }
}
