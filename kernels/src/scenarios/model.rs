//! What a launch does to the heaps, said again without NICs, rings or lanes.

use super::launch::{HEAP_BYTES, Launch};
use crate::Call;

/// Where the words are that kind 1 signals write: they begin at 0, as the device library asks.
pub const WORDS: std::ops::Range<usize> = 0..512;

/// Clears the words that signals write.
pub fn clear_words(heaps: &mut [Vec<u8>]) {
    heaps.iter_mut().for_each(|heap| heap[WORDS].fill(0));
}

/// Applies a launch that succeeds; the value of each block's outcome, where the model knows it.
pub fn apply(launch: &Launch, heaps: &mut [Vec<u8>]) -> Vec<Option<u64>> {
    (0..launch.blocks).map(|block| apply_block(launch, block, heaps)).collect()
}

fn apply_block(launch: &Launch, block: u32, heaps: &mut [Vec<u8>]) -> Option<u64> {
    let (me, peer) = (launch.pe as usize, launch.call.peer as usize);
    let call = match launch.kernel {
        "put_bw" | "put_latency" | "drill" => launch.call.of_block(block),
        _ => launch.call,
    };
    match launch.kernel {
        "put" | "put_latency" => {
            copy(heaps, (me, call.src), (peer, call.dst), call.bytes);
            None
        }
        "put_bw" => {
            copy(heaps, (me, call.src), (peer, call.dst), call.bytes);
            Some(call.rounds)
        }
        "put_signal" => {
            copy(heaps, (me, call.src), (peer, call.dst), call.bytes);
            store(&mut heaps[peer], call.word, &call.value.to_le_bytes());
            None
        }
        "drill" => {
            copy(heaps, (me, call.src), (peer, call.dst), call.bytes);
            store(&mut heaps[peer], call.word, &(call.value + call.rounds - 1).to_le_bytes());
            Some(call.rounds)
        }
        "get" => {
            copy(heaps, (peer, call.src), (me, call.dst), call.bytes);
            None
        }
        "p" => {
            store(&mut heaps[peer], call.dst, &call.value.to_le_bytes()[..call.bytes as usize]);
            None
        }
        "signal_monotone" => {
            store(&mut heaps[peer], call.word, &call.value.to_le_bytes());
            None
        }
        "signal_cleared" | "signal_add" => {
            change(&mut heaps[peer], call.word, 8, |old| old.wrapping_add(call.value));
            None
        }
        "signal_cleared32" => {
            change(&mut heaps[peer], call.word, 4, |old| old.wrapping_add(call.value));
            None
        }
        "all_to_all" => all_to_all(launch, block as usize, heaps),
        "attach" | "quiet" => Some(0),
        "wait_until" => Some(call.value),
        name => atomic(name, &call, me, peer, heaps),
    }
}

fn all_to_all(launch: &Launch, block: usize, heaps: &mut [Vec<u8>]) -> Option<u64> {
    let (call, me) = (&launch.call, launch.pe as usize);
    if block != me && block < heaps.len() {
        let (src, dst) = (call.src + call.stride * block as u64, call.dst + call.stride * me as u64);
        copy(heaps, (me, src), (block, dst), call.bytes);
        store(&mut heaps[block], call.word + 8 * me as u64, &call.value.to_le_bytes());
    }
    Some(call.value)
}

/// `amo_KIND` and `fetch_KIND`: a kind ends in the bits of its word.
fn atomic(name: &str, call: &Call, me: usize, peer: usize, heaps: &mut [Vec<u8>]) -> Option<u64> {
    let (fetches, kind) = match name.split_once('_') {
        Some(("fetch", kind)) => (true, kind),
        Some(("amo", kind)) => (false, kind),
        _ => panic!("the model knows no kernel {name}"),
    };
    let (kind, bits) = kind.split_at(kind.len() - 2);
    let bytes = if bits == "32" { 4 } else { 8 };
    let (value, expect) = (call.value, call.expect);
    let same = |old: u64| if bytes == 4 { old as u32 == expect as u32 } else { old == expect };
    let old = change(&mut heaps[peer], call.word, bytes, |old| match kind {
        "add" => old.wrapping_add(value),
        "set" | "swap" => value,
        "and" => old & value,
        "or" => old | value,
        "xor" => old ^ value,
        "cas" => {
            if same(old) {
                value
            } else {
                old
            }
        }
        _ => panic!("the model knows no atomic {kind}"),
    });
    if !fetches {
        return None;
    }
    // A NIC brings four bytes big-endian, eight as the host has them.
    match bytes {
        4 => store(&mut heaps[me], call.result, &(old as u32).to_be_bytes()),
        _ => store(&mut heaps[me], call.result, &old.to_le_bytes()),
    }
    Some(old)
}

fn copy(heaps: &mut [Vec<u8>], from: (usize, u64), to: (usize, u64), bytes: u64) {
    let (start, end) = (from.1 as usize, (from.1 + bytes) as usize);
    let data = heaps[from.0][start..end].to_vec();
    store(&mut heaps[to.0], to.1, &data);
}

fn store(heap: &mut [u8], at: u64, data: &[u8]) {
    heap[at as usize..at as usize + data.len()].copy_from_slice(data);
}

/// Changes a word; what it was.
fn change(heap: &mut [u8], at: u64, bytes: usize, with: impl Fn(u64) -> u64) -> u64 {
    let mut word = [0; 8];
    word[..bytes].copy_from_slice(&heap[at as usize..at as usize + bytes]);
    let old = u64::from_le_bytes(word);
    store(heap, at, &with(old).to_le_bytes()[..bytes]);
    old
}

const _: () = assert!(WORDS.end < HEAP_BYTES);
