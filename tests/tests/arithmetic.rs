//! Counters at their wraps, against oracles that count one by one: ring positions, room, 16-bit WQE counters and owner
//! bits, 24-bit counts, the words of 52-bit tickets.

use proptest::prelude::*;
use shunt_device::ring::{fits, position, unwrap24};
use shunt_layout::mlx5::cqe::{Tail, opcode};
use shunt_layout::mlx5::doorbell;
use shunt_layout::state::{BLOCKED, CLOSED, ReadyWord, Word};

/// Numbers around every wrap there is, and anywhere else.
fn indices() -> impl Strategy<Value = u64> {
    let near = |at: u64| (at.saturating_sub(300)..at.saturating_add(300)).boxed();
    prop_oneof![
        near(0),
        near(1 << 16),
        near(1 << 24),
        near(1 << 32),
        near((1 << 52) - 1400),
        0u64..(1 << 52) - 1400
    ]
}

/// A ring as a list: who is in which place.
struct Ring {
    places: Vec<Option<u64>>,
}

impl Ring {
    /// Puts the next index where the one before it ends.
    fn fill(log_depth: u32, first: u64, count: u64) -> Self {
        let depth = 1usize << log_depth;
        let mut places = vec![None; depth];
        // The place of `first` by counting round from zero, in steps that a list can take.
        let mut at = (0..log_depth).fold(0, |at, bit| at + ((first >> bit & 1) << bit) as usize);
        for index in first..first + count {
            places[at] = Some(index);
            at = if at + 1 == depth { 0 } else { at + 1 };
        }
        Self { places }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn positions_are_those_of_a_ring_that_is_filled_in_turn(
        log_depth in 1u32..=12, first in indices(), ahead in 0u64..5000,
    ) {
        let ring = Ring::fill(log_depth, first, ahead + 1);
        let index = first + ahead;
        prop_assert_eq!(ring.places[position(index, log_depth) as usize], Some(index));
    }

    #[test]
    fn a_group_fits_if_a_place_is_free_for_each_of_it(
        log_depth in 1u32..=8, done in indices(), outstanding in 0u64..300, count in 1u64..300,
    ) {
        let depth = 1u64 << log_depth;
        let outstanding = outstanding.min(depth);
        let free = (done..done + depth).filter(|index| *index >= done + outstanding).count() as u64;
        prop_assert_eq!(fits(done + outstanding, count, done, depth), count <= free);
    }

    #[test]
    fn a_24_bit_count_is_unwrapped_as_counting_would(floor in indices(), ahead in 0u64..1 << 15) {
        let mut counter = (floor & 0xff_ffff) as u32;
        let mut truth = floor;
        for _ in 0..ahead {
            counter = if counter == 0xff_ffff { 0 } else { counter + 1 };
            truth += 1;
        }
        prop_assert_eq!(unwrap24(floor, counter), truth);
    }

    #[test]
    fn unwrap24_never_goes_back_and_keeps_the_count(floor in indices(), seen in 0u32..1 << 24) {
        let found = unwrap24(floor, seen);
        prop_assert!(found >= floor && found - floor < 1 << 24);
        prop_assert_eq!(found as u32 & 0xff_ffff, seen);
    }

    /// A poller at `wanted` looks at an entry that the NIC wrote for `written`, if it wrote any: it must take it for
    /// its own only if it is.
    #[test]
    fn an_entry_is_taken_only_by_whom_it_was_written_for(
        log_depth in 1u32..=15, wanted in indices(), passes in 0u64..3, fresh in any::<bool>(),
    ) {
        let depth = 1u64 << log_depth;
        // The NIC writes in order: in the poller's place lies what was written so many passes ago, or nothing.
        let written = wanted.checked_sub(passes * depth);
        let blank = Tail { wqe_counter: 0xffff, opcode: opcode::INVALID, owner: true };
        let tail = match written {
            Some(index) if !fresh => {
                // The owner bit flips each time the NIC comes round, from zero.
                let round = index / depth;
                Tail { wqe_counter: (index % 65536) as u16, opcode: opcode::REQ, owner: round % 2 == 1 }
            }
            _ => blank,
        };
        let seen = Tail::from_memory(tail.to_memory());
        prop_assert_eq!(seen, tail);
        let taken = seen.belongs_to(wanted, log_depth) && seen.wqe_counter == wanted as u16;
        let mine = !fresh && passes == 0;
        // Two passes of a ring as deep as the counter is wide look alike: no ring is.
        let alike = passes == 2 && written.is_some() && (2 * depth).is_multiple_of(65536);
        prop_assert_eq!(taken, mine || !fresh && alike);
    }

    #[test]
    fn doorbells_carry_sixteen_bits(next in indices()) {
        let record = u32::from_be(doorbell::send_counter(next));
        prop_assert_eq!(u64::from(record), next % 65536);
    }

    #[test]
    fn the_fields_of_a_word_are_apart(
        slot in 0u32..8, generation in 0u64..1000, index in indices(), other in indices(),
    ) {
        let word = Word::new(slot, generation, index);
        prop_assert_eq!((word.slot(), word.generation(), word.index()), (slot, generation % 256, index));
        prop_assert!(!word.flag());
        let moved = word.with_index(other);
        prop_assert_eq!((moved.slot(), moved.generation(), moved.index()), (slot, generation % 256, other));
        let closed = Word(word.0 | CLOSED);
        prop_assert!(closed.flag() && closed.same_generation(moved) && closed.index() == index);
        prop_assert_eq!(word.same_generation(Word::new(slot, generation + 1, index)), false);
        prop_assert_eq!(word.same_generation(Word::new(slot ^ 1, generation, index)), false);
    }

    /// Opening by swaps from what was read, while others reserve: no ticket is lost and none is handed out twice.
    #[test]
    fn a_switch_opens_whatever_was_reserved_meanwhile(
        slots in (0u32..8, 0u32..8), generation in 0u64..600, index in indices(),
        before in 0u64..500, after in 0u64..500,
    ) {
        let closed = Word(Word::new(slots.0, generation, index).0 | CLOSED);
        // Tickets are reserved by addition, closed or not: a swap from an older word fails, the next one does not.
        let newest = Word(closed.0 + before + after);
        prop_assert!(newest.flag() && newest.same_generation(closed));
        let opened = Word::new(slots.1, generation + 1, 0).with_index(newest.index());
        prop_assert_eq!(opened, Word::new(slots.1, generation + 1, index + before + after));
    }

    #[test]
    fn blocked_names_its_generation(generation in 0u64..600, other in 0u64..600, index in indices()) {
        let ready = ReadyWord(index);
        prop_assert!(!ready.blocked() && !ready.blocked_in(generation) && ready.index() == index);
        let blocked = ready.with_blocked(generation);
        prop_assert_eq!(blocked.0 & BLOCKED, BLOCKED);
        prop_assert_eq!(blocked.index(), index);
        prop_assert_eq!(blocked.blocked_in(other), generation % 256 == other % 256);
    }
}
