//! Rows, plans and sums, against naive ones.

use proptest::prelude::*;
use shunt_deep_ep_bridge::reference;
use shunt_layout::moe::Shape;
use shunt_moe_proxy::buffers::Buffers;
use shunt_moe_proxy::plan::{Part, Place, Plan, What};
use shunt_moe_proxy::routes::{BadRoutes, Counts, Row, count, from_bytes, rows, to_bytes};
use shunt_moe_proxy::sum;
use shunt_moe_proxy::words::{Step, number, step};
use std::collections::BTreeMap;

/// Routes of all ranks, drawn: some tokens have fewer experts than they may, some have none.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// Where everything lies.
    pub buffers: Buffers,
    /// By rank.
    pub routes: Vec<Vec<i64>>,
}

pub fn drawn() -> impl Strategy<Value = Drawn> {
    let sizes = (1..5u32, 1..4u32, 1..7u32, 1..5u32, 0..6u32, 1..4u32);
    sizes.prop_flat_map(|(ranks, local, tokens, topk, private, rails)| {
        let shape = Shape::new(ranks, ranks * local, tokens, 512).expect("a shape");
        let topk = topk.min(ranks * local);
        let all: Vec<i64> = (0..i64::from(ranks * local)).collect();
        let token = (Just(all).prop_shuffle(), proptest::collection::vec(0..8u32, topk as usize));
        let token = token.prop_map(|(experts, none)| {
            let one = |(expert, none): (i64, u32)| if none == 0 { -1 } else { expert };
            experts.into_iter().zip(none).map(one).collect::<Vec<i64>>()
        });
        let rank = proptest::collection::vec(token, 0..=tokens as usize).prop_map(|tokens| tokens.concat());
        let buffers = Buffers { shape, topk, private, rails, piece_min: 1500 };
        let routes = proptest::collection::vec(rank, ranks as usize);
        routes.prop_map(move |routes| Drawn { buffers, routes })
    })
}

impl Drawn {
    fn counts(&self) -> Counts {
        let Buffers { shape, topk, .. } = self.buffers;
        let mut counts = Counts::new(shape, topk);
        for (rank, routes) in (0..).zip(&self.routes) {
            let own = count(&shape, &rows(&shape, topk, routes).expect("routes"));
            let own = from_bytes(&to_bytes(&own));
            counts.learn(rank, &own).expect("as many as there may be");
        }
        assert!(counts.are_whole());
        counts
    }

    /// Tokens of a rank for an expert, one route after the other.
    fn naive(&self, source: u32, expert: u32) -> Vec<u32> {
        let tokens = self.routes[source as usize].chunks(self.buffers.topk as usize);
        let chose = |(_, route): &(u32, &[i64])| route.contains(&i64::from(expert));
        (0..).zip(tokens).filter(chose).map(|(token, _)| token).collect()
    }
}

/// What lies where: by region of a rank and first byte. Each place is written once, and nothing overlaps.
#[derive(Default)]
struct Land(BTreeMap<u64, (u64, (u32, u32, u32))>);

impl Land {
    fn put(&mut self, at: u64, len: u64, what: (u32, u32, u32)) {
        let before = self.0.range(..=at).next_back();
        assert!(before.is_none_or(|(start, (bytes, _))| start + bytes <= at), "{at} after {before:?}");
        let behind = self.0.range(at..).next();
        assert!(behind.is_none_or(|(start, _)| at + len <= *start), "{at} before {behind:?}");
        self.0.insert(at, (len, what));
    }

    fn get(&self, at: u64) -> Option<(u32, u32, u32)> {
        self.0.get(&at).map(|(_, what)| *what)
    }

    fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(at, (len, _))| at + len)
    }
}

/// Copies a part, in units.
fn copy(part: &Part, unit: u64, from: &Land, to: &mut Land) {
    assert!(part.len.is_multiple_of(unit) && part.len > 0, "{part:?}");
    for done in (0..part.len).step_by(unit as usize) {
        to.put(part.at + done, unit, from.get(part.from + done).expect("something lies there"));
    }
}

/// All ranks, and what lies in their regions.
struct All<'a> {
    drawn: &'a Drawn,
    counts: Counts,
    sends: Vec<Land>,
    receives: Vec<Land>,
}

impl<'a> All<'a> {
    /// Packed: own counts, then rows, each named by its source, expert and token.
    fn packed(drawn: &'a Drawn) -> Self {
        let lands = || (0..drawn.buffers.shape.ranks).map(|_| Land::default()).collect();
        let mut all = Self { drawn, counts: drawn.counts(), sends: lands(), receives: lands() };
        for rank in 0..drawn.buffers.shape.ranks {
            let (own, send) = (all.own(rank), &mut all.sends[rank as usize]);
            send.put(0, drawn.buffers.counts_bytes(), (rank, u32::MAX, 0));
            for (at, row) in (0..).zip(own) {
                send.put(drawn.buffers.row(at), drawn.buffers.row_bytes(), (rank, row.expert, row.token));
            }
        }
        all
    }

    fn own(&self, rank: u32) -> Vec<Row> {
        let Buffers { shape, topk, .. } = self.drawn.buffers;
        rows(&shape, topk, &self.drawn.routes[rank as usize]).expect("routes")
    }

    fn plan(&self, rank: u32) -> Plan<'_> {
        Plan { buffers: &self.drawn.buffers, rank, counts: &self.counts }
    }

    /// Writes parts of a rank, which are as many for each other rank as that one expects.
    fn write(&mut self, rank: u32, parts: &[Part], unit: u64, expected: impl Fn(Plan<'_>) -> u64) {
        let mut immediates = vec![0; self.sends.len()];
        for part in parts {
            assert!(part.to != rank, "{part:?}");
            immediates[part.to as usize] += 1;
            copy(part, unit, &self.sends[rank as usize], &mut self.receives[part.to as usize]);
        }
        for (to, met) in (0..).zip(immediates).filter(|(to, _)| *to != rank) {
            assert_eq!(met, expected(self.plan(to)), "from {rank} to {to}");
        }
    }

    /// What each expert gets is what a look at every route says. It makes something of each row.
    fn experts(&mut self, rank: u32) {
        let (drawn, local) = (self.drawn, self.drawn.buffers.shape.local_experts);
        let ranks = drawn.buffers.shape.ranks;
        let mut due = (rank * local..(rank + 1) * local).flat_map(|expert| {
            (0..ranks).flat_map(move |source| {
                drawn.naive(source, expert).into_iter().map(move |token| (source, expert, token))
            })
        });
        let arrivals = self.plan(rank).arrivals();
        let made_at: Vec<u64> = (0..ranks).map(|source| self.plan(rank).made_at(source)).collect();
        for arrival in arrivals {
            let met = match arrival.place {
                Place::Own(at) => self.sends[rank as usize].get(at),
                Place::Private(at) | Place::Contiguous(at) => self.receives[rank as usize].get(at),
            };
            let is_own = arrival.place.received().is_none();
            assert_eq!((is_own, met), (arrival.source == rank, due.next()));
            let (what, bytes) = (met.expect("a row"), drawn.buffers.made_bytes());
            if is_own {
                let at = self.counts.before(rank, rank) + arrival.number;
                self.receives[rank as usize].put(drawn.buffers.returned(at), bytes, what);
            } else {
                let at = made_at[arrival.source as usize] + arrival.number;
                self.sends[rank as usize].put(drawn.buffers.made(at), bytes, what);
            }
        }
        assert_eq!(due.next(), None, "no row is missing");
    }
}

proptest! {
    /// Every row is written once, read once by its expert, and comes back once, whatever the routes are.
    #[test]
    fn every_row_goes_to_its_expert_and_comes_back(drawn in drawn()) {
        let (buffers, ranks) = (drawn.buffers, drawn.buffers.shape.ranks);
        let mut all = All::packed(&drawn);
        for rank in 0..ranks {
            let (counts, first, rest) = (all.plan(rank).counts(), all.plan(rank).first(), all.plan(rank).rest());
            all.write(rank, &counts, buffers.counts_bytes(), |_| 1);
            let own = all.receives.iter().filter_map(|land| land.get(buffers.counts(rank))).count() as u32;
            prop_assert_eq!(own, ranks - 1);
            all.write(rank, &[first, rest].concat(), buffers.row_bytes(), |plan| plan.rows_from(rank));
        }
        (0..ranks).for_each(|rank| all.experts(rank));
        for rank in 0..ranks {
            let made = all.plan(rank).made();
            all.write(rank, &made, buffers.made_bytes(), |plan| plan.made_from(rank));
        }
        for rank in 0..ranks {
            for (at, row) in (0..).zip(all.own(rank)) {
                let back = all.receives[rank as usize].get(buffers.returned(at));
                prop_assert_eq!(back, Some((rank, row.expert, row.token)));
            }
            prop_assert!(all.receives[rank as usize].end() <= buffers.receive_bytes());
            prop_assert!(all.sends[rank as usize].end() <= buffers.send_bytes());
        }
    }

    #[test]
    fn sums_are_the_weighted_ones(
        values in proptest::collection::vec((-100f32..100f32, -1f32..1f32), 0..9),
        expert in 0..64u32,
    ) {
        let bf16 = |value: f32| ((value.to_bits() >> 16) as u16).to_le_bytes();
        let exact = |bits: [u8; 2]| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(bits)) << 16));
        let made: Vec<(f32, Vec<u8>)> = values.iter().map(|(value, weight)| {
            let mut made = Vec::new();
            sum::expert(expert, &bf16(*value).repeat(3), &mut made);
            (*weight, made)
        }).collect();
        for ((value, _), (_, made)) in values.iter().zip(&made) {
            let value = f32::from_bits(value.to_bits() & 0xffff_0000);
            prop_assert_eq!(made, &reference::expert(u64::from(expert), value).to_le_bytes().repeat(3));
        }
        let rows: Vec<_> = made.iter().map(|(weight, row)| (*weight, row.as_slice())).collect();
        let (mut sum, mut size) = (0.0, 0.0);
        for (weight, row) in &made {
            let part = f64::from(*weight) * exact([row[0], row[1]]);
            (sum, size) = (sum + part, size + part.abs());
        }
        for met in sum::weighted(&rows, 3) {
            let far = (exact(met.to_le_bytes()) - sum).abs();
            prop_assert!(far <= sum.abs() / 256.0 + size * 10.0 / 8_388_608.0 + 1e-30, "{met:#x} {sum}");
        }
    }

    #[test]
    fn any_counts_and_routes_are_taken_or_refused(
        routes in proptest::collection::vec(-3..9i64, 0..12),
        counts in proptest::collection::vec(0..9u32, 0..9),
        rank in 0..4u32,
    ) {
        let shape = Shape::new(2, 6, 4, 512).expect("a shape");
        let _ = rows(&shape, 2, &routes);
        let mut known = Counts::new(shape, 2);
        if known.learn(rank, &counts).is_ok() {
            prop_assert!(rank < 2 && counts.len() == 6 && counts.iter().all(|count| *count <= 4));
            prop_assert!(known.between(rank, 0) <= 8 && known.between(rank, 1) <= 8);
        }
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_it_was() {
    let shape = Shape::new(2, 4, 2, 512).expect("a shape");
    let why = |topk, routes: &[i64]| rows(&shape, topk, routes).expect_err("no routes").to_string();
    assert_eq!(why(0, &[]), "experts of a token: expected 1 to 11, got 0");
    assert_eq!(why(2, &[0, 1, 2]), "routes: expected 2 for each of at most 2 tokens, got 3");
    assert_eq!(why(1, &[0, 1, 2]), "routes: expected 1 for each of at most 2 tokens, got 3");
    assert_eq!(why(2, &[0, 1, 4, 2]), "token 1: expected an expert below 4, or -1 for none, got 4");
    assert_eq!(why(2, &[3, 3]), "token 0: expected experts that differ, got 3 twice");
    let mut counts = Counts::new(shape, 1);
    let mut why = |rank, of: &[u32]| counts.learn(rank, of).expect_err("no counts").to_string();
    assert_eq!(why(0, &[1]), "counts of rank 0: expected 4 numbers, got 1");
    assert_eq!(why(0, &[0, 0, 3, 0]), "counts of rank 0: expected at most 2 rows of an expert, got 3");
    assert_eq!(why(0, &[2, 1, 0, 0]), "counts of rank 0: expected at most 2 rows for a rank, got 3");
    assert_eq!(why(2, &[0; 4]), "counts of rank 2: expected a rank below 2, got 2");
    assert_eq!(rows(&shape, 2, &[-1, -1]), Ok::<_, BadRoutes>(Vec::new()));
}

#[test]
fn steps_are_counted_one_by_one() {
    let mut next = 0;
    for layer in 1..100 {
        for of in [Step::Dispatch, Step::Combine, Step::End] {
            next += 1;
            assert_eq!((number(layer, of), step(next)), (next, (layer, of)));
        }
    }
    let imms = What::ALL.map(|what| [what.imm(1), what.imm((1 << 28) - 1), what.imm(1 << 28)]);
    let mut all = imms.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 12, "no two are the same");
}
