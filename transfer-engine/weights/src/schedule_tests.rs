//! Every byte once, evenly, and without those who are lost.

use super::*;
use crate::audit::{Audit, audit};
use crate::param::Held;
use proptest::prelude::*;

const RULES: Rules = Rules { piece: 256, grain: 4 };

/// A parameter of `grains` grains of 4 bytes, cut at these places, each part held by the trainers of a set of bits.
fn param(number: usize, grains: u64, cuts: &[u64], sets: &[u32], trainers: u32) -> Param {
    let mut edges: BTreeSet<u64> = cuts.iter().map(|cut| cut % grains * 4).collect();
    edges.extend([0, grains * 4]);
    let edges: Vec<u64> = edges.into_iter().collect();
    let held = edges.windows(2).zip(sets.iter().cycle()).flat_map(|(pair, set)| {
        let bytes = pair[0]..pair[1];
        let holds = move |trainer: &u32| set >> trainer & 1 == 1;
        (0..trainers).filter(holds).map(move |trainer| Held { trainer, bytes: bytes.clone() })
    });
    Param { name: format!("layer.{number}"), bytes: grains * 4, held: held.collect(), wanted: Vec::new() }
}

/// Has each server want a part of each parameter, one behind the other in its memory.
fn want(params: &mut [Param], servers: u32, is_full: bool) {
    let mut at = vec![0; servers as usize];
    for param in params {
        let grains = param.bytes / 4;
        for server in 0..servers {
            let (first, last) = (u64::from(server), u64::from(server) + 1);
            let of = |part: u64| part * grains / u64::from(servers) * 4;
            let bytes = if is_full { 0..param.bytes } else { of(first)..of(last) };
            if bytes.is_empty() {
                continue;
            }
            let len = bytes.end - bytes.start;
            param.wanted.push(Wanted { server, bytes, at: at[server as usize] });
            at[server as usize] += len;
        }
    }
}

fn wanted(params: &[Param]) -> u64 {
    params.iter().flat_map(|param| &param.wanted).map(|it| it.bytes.end - it.bytes.start).sum()
}

/// Writes all tasks of a schedule on one map of bytes: how often each byte of each server is written, and from where.
fn naive(schedule: &Schedule) -> BTreeMap<(u32, u64), Vec<(u32, u64)>> {
    let mut map: BTreeMap<(u32, u64), Vec<(u32, u64)>> = BTreeMap::new();
    for (_, task) in schedule.all() {
        for byte in 0..task.len() {
            let from = (task.param, task.bytes.start + byte);
            map.entry((task.server, task.at + byte)).or_default().push(from);
        }
    }
    map
}

prop_compose! {
    fn case()(trainers in 1..6u32, servers in 1..5u32, is_full in any::<bool>())(
        rates in proptest::collection::vec(0..3u32, trainers as usize),
        shapes in proptest::collection::vec(
            (
                1..200u64,
                proptest::collection::vec(any::<u64>(), 0..4),
                proptest::collection::vec(1..1u32 << trainers, 1..4),
            ),
            1..8,
        ),
        servers in Just(servers), is_full in Just(is_full),
    ) -> (Vec<u32>, u32, Vec<Param>) {
        let trainers = rates.len() as u32;
        let shapes = shapes.iter().enumerate();
        let mut params: Vec<Param> =
            shapes.map(|(number, (grains, cuts, sets))| param(number, *grains, cuts, sets, trainers)).collect();
        want(&mut params, servers, is_full);
        (rates, servers, params)
    }
}

proptest! {
    #[test]
    fn every_byte_of_every_target_is_written_once((rates, servers, params) in case()) {
        let planned = Schedule::plan(&rates, servers, &params, RULES);
        let held_by_one_that_works = params.iter().all(|param| {
            let parts: BTreeSet<_> = param.held.iter().map(|it| it.bytes.start).collect();
            parts.iter().all(|start| {
                param.held.iter().any(|it| it.bytes.start == *start && rates[it.trainer as usize] > 0)
            })
        });
        // Nobody may want a part of which all holders are lost.
        if !held_by_one_that_works {
            let is_lost = matches!(planned, Err(PlanError::Lost { .. } | PlanError::None { .. }));
            prop_assert!(is_lost || planned.is_ok());
            if planned.is_err() {
                return Ok(());
            }
        }
        let schedule = planned.expect("all is held by one that works");
        let map = naive(&schedule);
        prop_assert_eq!(map.len() as u64, wanted(&params));
        for (number, param) in (0..).zip(&params) {
            for it in &param.wanted {
                for byte in 0..it.bytes.end - it.bytes.start {
                    let met = map.get(&(it.server, it.at + byte));
                    prop_assert_eq!(met, Some(&vec![(number, it.bytes.start + byte)]));
                }
            }
        }
        let clean = Audit { wanted: wanted(&params), ..Audit::default() };
        prop_assert_eq!(audit(&schedule, &params), clean);
        for (trainer, task) in schedule.all() {
            prop_assert!(rates[trainer as usize] > 0, "a lost one writes nothing");
            prop_assert!(!task.is_empty() && task.len() <= RULES.piece && task.at.is_multiple_of(4));
        }
    }

    /// Within 1 % of the most even there is, and a cut for each kind of shard.
    #[test]
    fn nobody_has_more_than_it_must((rates, servers, params) in case()) {
        let Ok(schedule) = Schedule::plan(&rates, servers, &params, RULES) else { return Ok(()) };
        let works = |trainer: &u32| rates[*trainer as usize] > 0;
        let mut least = 0.0f64;
        for set in 1..1u32 << rates.len() {
            let rate: u32 = (0..rates.len()).filter(|it| set >> it & 1 == 1).map(|it| rates[it]).sum();
            let mut only_theirs = 0;
            for param in &params {
                let starts: BTreeSet<_> = param.held.iter().map(|it| (it.bytes.start, it.bytes.end)).collect();
                for (start, end) in starts {
                    let mut holders = param.held.iter().filter(|it| it.bytes.start == start).map(|it| it.trainer);
                    if holders.by_ref().filter(works).all(|it| set >> it & 1 == 1) {
                        let copies = param.wanted.iter().map(|it| {
                            it.bytes.end.min(end).saturating_sub(it.bytes.start.max(start))
                        });
                        only_theirs += copies.sum::<u64>();
                    }
                }
            }
            if rate > 0 {
                least = least.max(only_theirs as f64 / f64::from(rate));
            }
        }
        let slack = f64::from(servers) * 4.0 * f64::from(1 << rates.len());
        for trainer in (0..rates.len() as u32).filter(works) {
            let load = schedule.load(trainer) as f64 / f64::from(rates[trainer as usize]);
            prop_assert!(load <= least * 1.01 + slack, "{load} of {least} at trainer {trainer}");
        }
    }
}

/// As hybrid sharding has it: two groups of trainers, and the second one's shards lie elsewhere for each parameter.
fn hybrid(trainers: u32, servers: u32) -> Vec<Param> {
    let half = trainers / 2;
    let mut params: Vec<Param> = (0..40)
        .map(|number| {
            let bytes = 4096 * u64::from(number % 5 + 1) * u64::from(half);
            let shard = bytes / u64::from(half);
            let of = |group: u32, shard_number: u32| Held {
                trainer: group * half + (shard_number + number * group) % half,
                bytes: u64::from(shard_number) * shard..u64::from(shard_number + 1) * shard,
            };
            let held = (0..2).flat_map(|group| (0..half).map(move |shard| of(group, shard))).collect();
            Param { name: format!("layer.{number}"), bytes, held, wanted: Vec::new() }
        })
        .collect();
    want(&mut params, servers, true);
    params
}

#[test]
fn replicas_take_over_what_a_slow_or_lost_trainer_cannot_do() {
    let params = hybrid(8, 8);
    let all = wanted(&params) as f64;
    for slow in [2, 1, 0] {
        let mut rates = [2; 8];
        rates[3] = slow;
        let schedule =
            Schedule::plan(&rates, 8, &params, Rules { piece: 1 << 20, grain: 4 }).expect("replicas");
        assert_eq!((audit(&schedule, &params).missing, audit(&schedule, &params).doubled), (0, 0));
        let even = all / f64::from(rates.iter().sum::<u32>());
        for (trainer, rate) in (0..).zip(rates) {
            let (load, share) = (schedule.load(trainer) as f64, f64::from(rate) * even);
            assert!((load - share).abs() <= 0.01 * even * 2.0, "trainer {trainer}: {load} of {share}");
        }
    }
}

#[test]
fn bytes_without_a_replica_are_lost_by_name() {
    let mut params = vec![param(0, 8, &[], &[0b11], 2), param(1, 8, &[4], &[0b01, 0b10], 2)];
    want(&mut params, 1, true);
    let lost = PlanError::Lost { param: "layer.1".to_owned(), bytes: 16..32, held: vec![1] };
    assert_eq!(Schedule::plan(&[1, 0], 1, &params, RULES), Err(lost.clone()));
    assert_eq!(
        lost.to_string(),
        "parameter layer.1: expected a trainer that works and holds bytes 16 to 32, got none; [1] held them"
    );
    assert!(Schedule::plan(&[1, 1], 1, &params, RULES).is_ok());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let plan = |rates: &[u32], servers, params: &[Param], rules| {
        Schedule::plan(rates, servers, params, rules).expect_err("refused").to_string()
    };
    let mut good = vec![param(0, 8, &[], &[1], 1)];
    want(&mut good, 1, true);
    assert_eq!(plan(&[], 1, &good, RULES), "trainers that work: expected one or more, got none");
    assert_eq!(plan(&[0], 1, &good, RULES), "trainers that work: expected one or more, got none");
    assert_eq!(plan(&[1], 0, &good, RULES), "servers: expected one or more, got none");
    for (piece, grain) in [(0, 4), (6, 4), (2, 4), (8, 0)] {
        assert!(plan(&[1], 1, &good, Rules { piece, grain }).starts_with("a piece: expected a multiple of"));
    }
    let with = |change: &dyn Fn(&mut Param)| {
        let mut params = good.clone();
        change(&mut params[0]);
        plan(&[1], 1, &params, RULES)
    };
    let of = "parameter layer.0 of 32 bytes: expected ";
    let refused = |said: &str| format!("{of}{said}");
    assert_eq!(with(&|it| it.held[0].trainer = 1), refused("shards of trainer 0 to 0, got 1"));
    assert_eq!(with(&|it| it.wanted[0].server = 7), refused("shards of server 0 to 0, got 7"));
    assert_eq!(with(&|it| it.held[0].bytes = 0..36), refused("a shard inside it at trainer 0, got 0 to 36"));
    assert_eq!(with(&|it| it.wanted[0].bytes = 8..8), refused("a shard inside it at server 0, got 8 to 8"));
    assert_eq!(
        with(&|it| it.held[0].bytes = 0..30),
        refused("shards that end at multiples of 4 bytes, got 30")
    );
    assert_eq!(
        with(&|it| it.wanted[0].at = u64::MAX - 3),
        refused("memory below 2^64 bytes, got 18446744073709551612 at server 0")
    );
    assert_eq!(
        with(&|it| it.wanted.push(Wanted { server: 0, bytes: 0..4, at: 28 })),
        "memory of server 0: expected one source for each byte, got two at byte 28"
    );
}

#[test]
fn an_audit_sees_what_is_wrong() {
    let mut params = vec![param(0, 8, &[], &[1], 2)];
    want(&mut params, 1, true);
    let task = |bytes: Range<u64>, at| Task { param: 0, bytes, server: 0, at };
    let of = |tasks: Vec<Vec<Task>>| audit(&Schedule { tasks }, &params);
    let clean = Audit { wanted: 32, ..Audit::default() };
    assert_eq!(of(vec![vec![task(0..32, 0)]]), clean);
    assert_eq!(of(vec![vec![task(0..28, 0)]]), Audit { missing: 4, ..clean });
    assert_eq!(of(vec![vec![task(0..32, 0), task(4..12, 4), task(4..8, 4)]]), Audit { doubled: 12, ..clean });
    assert_eq!(of(vec![vec![task(0..32, 0), task(0..4, 8)]]), Audit { foreign: 4, ..clean });
    assert_eq!(of(vec![vec![task(0..16, 0)], vec![task(16..32, 16)]]), Audit { not_held: 16, ..clean });
}
