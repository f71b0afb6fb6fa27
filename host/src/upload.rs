//! The device state, written into device-visible memory, read back and compared.

use crate::error::UploadError;
use crate::gpu::{GpuMemory, Span};
use crate::keys::KeyTable;
use crate::plan::{Plan, Shape};
use crate::slots::home_at_start;
use shunt_layout::ABI_VERSION;
use shunt_layout::state::{
    Channel, DeviceState, HeapTail, HomeWord, MAGIC, Mirror, PathRow, Policy, SCRATCH_EXTRA, Switch,
    SwitchWord, Word, mask_of,
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
    /// What the job may use of it.
    pub heap_bytes: u64,
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
    /// Every path row, in table order.
    pub paths: &'a [PathRow],
    /// Patience.
    pub policy: Policy,
    /// Whether switchers leave a record of each step.
    pub step_records: bool,
}

/// The root as it will lie at `base`.
pub fn device_state(plan: &Plan, base: u64, contents: &Contents<'_>) -> DeviceState {
    let shape = plan.shape;
    let at = |range: &Range<u64>| base + range.start;
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
        peer_heap: at(&plan.peer_heap),
        lkeys: at(&plan.lkeys),
        rkeys: at(&plan.rkeys),
        channels: at(&plan.channels),
        paths: at(&plan.paths),
        mailboxes: at(&plan.mailboxes),
        mirrors: at(&plan.mirrors),
        homes: at(&plan.homes),
        hints: at(&plan.hints),
        wake: at(&plan.wake),
        records: at(&plan.records),
        records_head: at(&plan.records_head),
        scratch: at(&plan.scratch),
        scratch_per_channel: (1 << shape.log_depth) + SCRATCH_EXTRA,
        step_records: contents.step_records as u32,
        scratch_lkeys: at(&plan.scratch_lkeys),
        policy: contents.policy,
        tallies: at(&plan.tallies),
        steps: at(&plan.steps),
        steps_head: at(&plan.steps_head),
        ledger: contents.tail.ledger,
        channel_mask: mask_of(shape.channels_per_pe),
        sink: at(&plan.scratch) + (((1 << shape.log_depth) + SCRATCH_EXTRA - 1) * 8) as u64,
        ring_mask: (1 << shape.log_depth) - 1,
        data_rkeys: match contents.keys.data_apart() {
            true => base + (plan.rkeys.start + plan.rkeys.end) / 2,
            false => at(&plan.rkeys),
        },
        fetch: contents.tail.fetch,
        fetch_exact: contents.fetch_exact as u32,
        reserved2: 0,
        reserved3: [0; 5],
    }
}

/// All channels before their first ticket: slot 0, generation 0, nobody switching.
fn channels(shape: &Shape) -> Vec<u8> {
    let mut bytes = vec![0; shape.pes as usize * shape.channels_per_pe as usize * size_of::<Channel>()];
    let start = Word::new(0, 0, 0);
    for (row, channel) in bytes.chunks_exact_mut(size_of::<Channel>()).enumerate() {
        let mut put = |at: usize, value: &[u8]| channel[at..at + value.len()].copy_from_slice(value);
        let row = row as u32;
        put(offset_of!(Channel, ticket), &start.0.to_le_bytes());
        put(offset_of!(Channel, done), &start.0.to_le_bytes());
        let (peer, index) = (row / shape.channels_per_pe, row % shape.channels_per_pe);
        put(offset_of!(Channel, peer), &peer.to_le_bytes());
        put(offset_of!(Channel, index), &index.to_le_bytes());
        put(offset_of!(Channel, switch) + offset_of!(Switch, word), &SwitchWord::START.0.to_le_bytes());
    }
    bytes
}

/// What the agent reads of them.
fn mirrors(shape: &Shape) -> Vec<u8> {
    let mut bytes = vec![0; shape.rows() as usize * size_of::<Mirror>()];
    for mirror in bytes.chunks_exact_mut(size_of::<Mirror>()) {
        let word = offset_of!(Mirror, word);
        mirror[word..word + 8].copy_from_slice(&SwitchWord::START.0.to_le_bytes());
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

/// Writes everything into control memory at `base`, reads it back and compares. Memory is fresh, so zero.
pub fn upload(
    memory: &dyn GpuMemory,
    plan: &Plan,
    base: u64,
    contents: &Contents<'_>,
) -> Result<(), UploadError> {
    let state = device_state(plan, base, contents);
    let words = |values: &[u64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let mut scratch_keys = contents.scratch_keys.to_vec();
    scratch_keys.resize(plan.shape.rails as usize, 0);
    let write = |table: &'static str, range: &Range<u64>, bytes: &[u8]| {
        assert_eq!(bytes.len() as u64, range.end - range.start, "{table} is as long as planned");
        put(memory, table, base + range.start, bytes)
    };
    write("peer_heap", &plan.peer_heap, &words(contents.peer_heap))?;
    write("lkeys", &plan.lkeys, &contents.keys.lkey_bytes())?;
    write("rkeys", &plan.rkeys, &contents.keys.rkey_bytes())?;
    let scratch_lkeys: Vec<u8> = scratch_keys.iter().flat_map(|key| key.to_be_bytes()).collect();
    write("scratch_lkeys", &plan.scratch_lkeys, &scratch_lkeys)?;
    write("channels", &plan.channels, &channels(&plan.shape))?;
    write("mirrors", &plan.mirrors, &mirrors(&plan.shape))?;
    write("homes", &plan.homes, &words(&homes(&plan.shape, contents.rails_of)))?;
    // SAFETY: 256 bytes, filled by its fields.
    write("paths", &plan.paths, unsafe { bytes_of(contents.paths) })?;
    for (name, range) in plan.tables() {
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
            write(name, range, &vec![0; (range.end - range.start) as usize])?;
        }
    }
    // The root last: who finds its magic finds everything else.
    // SAFETY: 384 bytes, filled by its fields.
    write("state", &plan.state, unsafe { bytes_of(std::slice::from_ref(&state)) })
}

/// Writes the key tables alone: others have been added. Who used a key finds the same one.
pub fn upload_keys(
    memory: &dyn GpuMemory,
    plan: &Plan,
    base: u64,
    keys: &KeyTable,
) -> Result<(), UploadError> {
    put(memory, "lkeys", base + plan.lkeys.start, &keys.lkey_bytes())?;
    put(memory, "rkeys", base + plan.rkeys.start, &keys.rkey_bytes())
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

    fn shape() -> Shape {
        Shape { pes: 2, me: 1, channels_per_pe: 2, slots: 2, rails: 2, chunks: 1, log_depth: 4 }
    }

    fn row(mark: u64) -> PathRow {
        PathRow {
            send_queue: mark,
            completion_queue: 0,
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
            cq_map: 0,
            wide: 0,
            pad0: [0; 3],
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
            tail: HeapTail::new(1 << 20, 4, false),
            fetch_exact: false,
            peer_heap: &[0x6000_0000, 0x7000_0000],
            rails_of: &[1, 2],
            log2_chunk: 20,
            keys: &keys.unwrap(),
            scratch_keys: &[0x500],
            paths: &rows,
            policy: crate::config::policy(&crate::config::EnvConfig::default()),
            step_records: false,
        })
    }

    #[test]
    fn everything_lies_where_the_root_says() {
        let (memory, plan) = (HeapMemory::new(), shape().plan());
        let span = memory.alloc(plan.bytes, Placement::Control).unwrap();
        with_contents(|contents| upload(&memory, &plan, span.address, contents)).unwrap();
        let word = |address: u64| {
            let mut bytes = [0; 4];
            memory.read(address, &mut bytes).unwrap();
            u32::from_le_bytes(bytes)
        };
        let state = with_contents(|contents| device_state(&plan, span.address, contents));
        assert_eq!(word(span.address), u32::from_le_bytes(*b"SHUN"));
        assert_eq!(word(state.lkeys + 4), 0x200u32.to_be());
        assert_eq!(word(state.rkeys + 4), 0x400u32.to_be());
        assert_eq!(word(state.data_rkeys + 4), 0x401u32.to_be());
        assert_eq!((word(state.scratch_lkeys), word(state.scratch_lkeys + 4)), (0x500u32.to_be(), 0));
        assert_eq!(word(state.peer_heap), 0x6000_0000);
        assert_eq!(word(state.paths + 3 * 256), 0x3000);
        let channel = state.channels + 3 * 512;
        assert_eq!(word(channel + offset_of!(Channel, peer) as u64), 1);
        assert_eq!(word(channel + offset_of!(Channel, index) as u64), 1);
        let start = SwitchWord::START.0 as u32;
        assert_eq!(word(channel + 256 + offset_of!(Switch, word) as u64), start);
        assert_eq!(word(state.mirrors + 3 * 128 + offset_of!(Mirror, word) as u64), start);
        let home = |row: u64| word(state.homes + row * 8);
        assert_eq!([home(0), home(1), home(2), home(3)], [0, 0, 0, 1], "channel modulo the rails of the PE");
        // SAFETY: nothing else knows the span.
        unsafe { memory.free(span) }
    }

    #[test]
    fn one_wrong_bit_is_found_in_every_table() {
        let plan = shape().plan();
        for (name, range) in plan.tables() {
            if matches!(name, "rings" | "doorbells" | "spares") {
                continue;
            }
            let mut memory = Forgetful { heap: HeapMemory::new(), at: 0, hit: AtomicBool::new(false) };
            let span = memory.alloc(plan.bytes, Placement::Control).unwrap();
            memory.at = span.address + range.end - 1;
            let result = with_contents(|contents| upload(&memory, &plan, span.address, contents));
            assert!(memory.hit.load(Ordering::Relaxed), "{name} was written");
            assert!(
                matches!(result, Err(UploadError::Differs { table, .. }) if table == name),
                "{name}: {result:?}"
            );
            // SAFETY: nothing else knows the span.
            unsafe { memory.free(span) }
        }
    }
}
