//! Keys: the rows that host and device look up against a search of the whole list, at chunk borders, at the heap's end
//! and beyond; and WQEs read back against what was written.

use std::mem::offset_of;
use std::ops::Range;

use proptest::prelude::*;
use shunt_device::wqe_write::{self, Place, Segments};
use shunt_device::{FaultKind, HeapOffset, Put, Solo, journal};
use shunt_host::keys::{KeyShape, KeyTable, chunks};
use shunt_layout::mlx5::wqe::{Ctrl, DataSegment, Opcode, Wqebb, remote_address, remote_key};
use shunt_layout::state::PathRow;
use shunt_tests::cluster::Cluster;
use shunt_tests::oracle::load;
use shunt_tests::spec::RunSpec;

/// A key and what it covers: the table as a list.
struct Covered {
    pe: u32,
    rail: u32,
    span: Range<u64>,
    key: u32,
}

fn find(list: &[Covered], pe: u32, rail: u32, offset: u64) -> Option<u32> {
    list.iter().find(|one| one.pe == pe && one.rail == rail && one.span.contains(&offset)).map(|one| one.key)
}

/// Offsets where something may go wrong.
fn offsets(log2_chunk: u32, bytes: u64) -> impl Strategy<Value = u64> {
    let chunk = 1u64 << log2_chunk;
    let borders = (0..=bytes / chunk + 1, -2i64..=2)
        .prop_map(move |(number, off)| (number * chunk).saturating_add_signed(off));
    prop_oneof![borders, 0..bytes + chunk, bytes.saturating_sub(3)..bytes + 3, u64::MAX - 3..u64::MAX]
}

fn tables() -> impl Strategy<Value = (u32, u64, Vec<u32>, u64)> {
    (12u32..=40, 1u64..20, any::<u64>()).prop_flat_map(|(log2_chunk, size, cut)| {
        let bytes = (size << log2_chunk) - cut % (1 << log2_chunk);
        let rails = prop::collection::vec(0u32..=3, 1..4);
        (Just(log2_chunk), Just(bytes), rails, offsets(log2_chunk, bytes))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_hosts_table_finds_what_a_search_finds((log2_chunk, bytes, rails, offset) in tables()) {
        let (count, most) = (chunks(bytes, log2_chunk), 3);
        let shape = KeyShape { rails: most, chunks: count, log2_chunk };
        let (mut list, mut theirs) = (Vec::new(), Vec::new());
        for (pe, rails) in (0..).zip(&rails) {
            let mut rows = Vec::new();
            for rail in 0..*rails {
                let mut row = Vec::new();
                for chunk in 0..count {
                    let key = 1 + pe * 10_000 + rail * 1_000 + chunk;
                    let from = u64::from(chunk) << log2_chunk;
                    list.push(Covered { pe, rail, span: from..from + (1 << log2_chunk), key });
                    row.push(key);
                }
                rows.push(row);
            }
            theirs.push(rows);
        }
        let table = KeyTable::build(shape, 0, &theirs[0], &theirs, &theirs).expect("rows of one length");
        for pe in 0..rails.len() as u32 + 1 {
            for rail in 0..most + 2 {
                let expected = find(&list, pe, rail, offset);
                prop_assert_eq!(table.rkey(pe, rail, offset), expected, "PE {} rail {} offset {:#x}", pe, rail, offset);
                if pe == 0 {
                    prop_assert_eq!(table.lkey(rail, offset), expected);
                }
            }
        }
    }
}

const LOG2_CHUNK: u32 = 12;

fn cluster() -> Cluster {
    let mut spec = RunSpec { log2_chunk: LOG2_CHUNK, log_depth: 7, ..RunSpec::default() };
    spec.traffic.slot_bytes = 4096;
    Cluster::start(&spec)
}

fn block(row: &PathRow, index: u64) -> Wqebb {
    let at = row.send_queue + (index & ((1 << row.log_depth) - 1)) * 64;
    let mut words = [0; 16];
    for (pair, at) in words.chunks_exact_mut(2).zip((at..).step_by(8)) {
        let word = load(at);
        (pair[0], pair[1]) = (word as u32, (word >> 32) as u32);
    }
    Wqebb(words)
}

fn segment(wqe: &Wqebb, number: usize) -> [u32; 4] {
    [wqe.0[number * 4], wqe.0[number * 4 + 1], wqe.0[number * 4 + 2], wqe.0[number * 4 + 3]]
}

/// Device code cuts a put at chunk borders of both sides, and takes each piece's keys from the right rows: its WQEs
/// against the host's table, for puts of any place and length, at the ends of the heap and beyond them.
#[test]
fn a_puts_pieces_carry_the_keys_of_their_chunks() {
    let cluster = cluster();
    let root = *cluster.pe(0).root();
    let at = root.paths + size_of::<PathRow>() as u64 * u64::from(root.channels_per_pe * root.slots);
    // SAFETY: the first slot of the channel to PE 1, mapped while the cluster lives; no agent changes a healthy path.
    let row = unsafe { (at as *const PathRow).read() };
    assert_eq!(offset_of!(PathRow, send_queue), 0);
    let bytes = cluster.pe(0).heap().bytes;
    let mut rng = shunt_tests::rng::Rng::new(5);
    let (mut refused, mut cut) = (0, 0);
    for _ in 0..400 {
        let place = |rng: &mut shunt_tests::rng::Rng| match rng.below(4) {
            0 => (rng.below(bytes >> LOG2_CHUNK) << LOG2_CHUNK).saturating_sub(rng.below(9)),
            1 => bytes - rng.below(20_000),
            2 => u64::MAX - rng.below(20_000),
            _ => rng.below(bytes),
        };
        let (dst, src) = (place(&mut rng), place(&mut rng));
        let length = rng.pick(&[1, 8, 4096, 4097, 12_288, 20_000]) - rng.below(2);
        let inside = |at: u64| at.checked_add(length).is_some_and(|end| end <= bytes);
        let task = cluster.spawn("put", 0, move |kernel| {
            let channel = kernel.device().channel(1, 0);
            let nothing = Put { dst: HeapOffset(0), src: HeapOffset(0), bytes: 0 };
            let put = Put { dst: HeapOffset(dst), src: HeapOffset(src), bytes: length };
            let from = channel.put_nbi(Solo, nothing);
            let ticket = channel.put_nbi(Solo, put);
            let deadline = shunt_device::Deadline::after(kernel.world.now(), 1_000_000_000);
            channel.quiet(Solo, deadline).expect("a healthy path");
            (from.expect("room").0 + 1, ticket)
        });
        let (first, ticket) = cluster.sim.finish(&task);
        let Ok(ticket) = ticket else {
            assert_eq!(ticket.err().map(|fault| fault.kind), Some(FaultKind::BadAddress));
            assert!(!inside(dst) || !inside(src), "{dst:#x} {src:#x} {length} is inside {bytes:#x}");
            refused += 1;
            continue;
        };
        assert!(inside(dst) && inside(src), "{dst:#x} {src:#x} {length} is outside {bytes:#x}");
        let mut moved = 0;
        for index in first..=ticket.0 {
            let wqe = block(&row, index);
            let ctrl = Ctrl::read(segment(&wqe, 0));
            assert_eq!((ctrl.opcode, ctrl.index), (Opcode::RdmaWrite as u8, index as u16));
            if length == 0 {
                assert_eq!(ctrl.ds, 2, "nothing is moved without a key");
                continue;
            }
            let DataSegment::Pointer { bytes: piece, lkey, address } = DataSegment::read(segment(&wqe, 2))
            else {
                panic!("a put is not inline");
            };
            let (to, from) = (dst + moved, src + moved);
            assert_eq!(remote_address(segment(&wqe, 1)), cluster.pe(1).heap().address + to);
            assert_eq!(address, cluster.pe(0).heap().address + from);
            let keys = cluster.pe(0).keys();
            for byte in [0, u64::from(piece) - 1] {
                assert_eq!(keys.rkey(1, row.remote_rail, to + byte), Some(remote_key(segment(&wqe, 1))));
                assert_eq!(keys.lkey(row.local_rail, from + byte), Some(lkey));
            }
            moved += u64::from(piece);
        }
        assert_eq!(moved, length, "the pieces are the put");
        cut += u64::from(ticket.0 > first);
    }
    assert!(refused > 50 && cut > 30, "{refused} refused, {cut} cut");
}

fn written(segments: Segments) -> Wqebb {
    let mut words = [0x5a5a_5a5a; 16];
    for (word, value) in words.iter_mut().zip(segments.segments[..segments.ds as usize].iter().flatten()) {
        *word = *value;
    }
    Wqebb(words)
}

proptest! {
    /// What is written into a WQE is read out of it, and moved to another path it is what would be written there.
    #[test]
    fn a_wqe_survives_the_ring(
        index in any::<u64>(), qpn in 0u32..1 << 24, to in any::<u64>(), from in any::<u64>(),
        keys in any::<(u32, u32)>(), bytes in 1u32..1 << 31, value in any::<u64>(), small in 1u32..=8,
        new_index in any::<u64>(), new_qpn in 0u32..1 << 24, new_keys in any::<(u32, u32)>(),
    ) {
        let place = Place { index, qpn_shifted: qpn << 8 };
        let new = Place { index: new_index, qpn_shifted: new_qpn << 8 };
        let all = |place: Place, (rkey, lkey): (u32, u32)| [
            (Opcode::RdmaWrite, wqe_write::write(place, to, rkey, from, lkey, bytes)),
            (Opcode::RdmaRead, wqe_write::read(place, to, rkey, from, lkey, bytes)),
            (Opcode::RdmaWrite, wqe_write::write_inline(place, to, rkey, value, small)),
            (Opcode::RdmaWrite, wqe_write::signal(place, to, rkey, value)),
        ];
        for ((opcode, segments), (_, moved)) in all(place, keys).into_iter().zip(all(new, new_keys)) {
            let wqe = written(segments);
            let ctrl = Ctrl::read(segment(&wqe, 0));
            prop_assert_eq!((ctrl.opcode, ctrl.opmod), (opcode as u8, 0));
            prop_assert_eq!((ctrl.index, ctrl.qpn, ctrl.ds), (index as u16, qpn, segments.ds));
            prop_assert!(ctrl.signalled());
            prop_assert_eq!(remote_address(segment(&wqe, 1)), to);
            prop_assert_eq!(remote_key(segment(&wqe, 1)), u32::from_be(keys.0));
            let entry = journal::read(&wqe);
            prop_assert_eq!((entry.is_read(), entry.remote, entry.blocks), (opcode == Opcode::RdmaRead, to, 1));
            match DataSegment::read(segment(&wqe, 2)) {
                DataSegment::Pointer { bytes: met, lkey, address } => {
                    prop_assert_eq!((met, lkey, address), (bytes, u32::from_be(keys.1), from));
                    prop_assert_eq!(entry.local, Some(from));
                }
                DataSegment::Inline { bytes: met } => {
                    prop_assert!(met == small || met == 8);
                    prop_assert_eq!((entry.value, entry.local), (value, None));
                }
            }
            let lkey = entry.local.map(|_| new_keys.1);
            prop_assert_eq!(journal::relocate(&wqe, new, new_keys.0, lkey), written(moved));
        }
        let nothing = journal::read(&written(wqe_write::placeholder(place)));
        prop_assert!(nothing.moves_nothing && !nothing.is_evidence() && !nothing.is_read());
    }
}
