//! The model that is synchronised: parameters of several sizes, who holds and who wants which bytes, and what the bytes
//! are. Every end makes the same one.

use crate::options::{Copies, Options, UNIT};
use shunt_weight_sync::pipeline::Transform;
use shunt_weight_sync::stages::Rounding;
use shunt_weight_sync::{Held, Param, Wanted};
use std::ops::Range;

/// Sizes of parameters, in turn: some are matrices, some are small.
const SIZES: [u64; 6] = [4, 8, 1, 6, 2, 3];

/// So many parts of a parameter, as equal as can be: the so-many-th.
fn part(bytes: u64, parts: u32, number: u32) -> Range<u64> {
    let edge = |number: u32| bytes / UNIT * u64::from(number) / u64::from(parts) * UNIT;
    edge(number)..edge(number + 1)
}

fn len(bytes: &Range<u64>) -> u64 {
    bytes.end - bytes.start
}

/// Bytes of each parameter. Together they have as many as was asked for, to the unit.
fn sizes(options: &Options) -> Vec<u64> {
    let count = options.params as usize;
    let shares: Vec<u64> = SIZES.iter().copied().cycle().take(count).collect();
    let (all, units) = (shares.iter().sum::<u64>(), options.bytes / UNIT);
    let mut sizes: Vec<u64> = shares.iter().map(|share| (units * share / all).max(1) * UNIT).collect();
    let rest = (units * UNIT).saturating_sub(sizes.iter().sum());
    sizes[0] += rest;
    sizes
}

/// The parameters, with their shards at the trainers and at the servers.
///
/// Trainers stand in as many groups as there are replicas, and each group holds all. Which member of a group holds a
/// shard moves on from parameter to parameter, in each group by another step. So whatever one trainer cannot do, all
/// others can do together.
pub fn params(options: &Options) -> Vec<Param> {
    let groups = options.replicas();
    let members = options.trainers / groups;
    let mut at = vec![0; options.servers as usize];
    let one = |(number, bytes): (u32, u64)| {
        let held = (0..groups).flat_map(|group| {
            (0..members).map(move |shard| Held {
                trainer: group * members + (shard + number * group) % members,
                bytes: part(bytes, members, shard),
            })
        });
        let wanted = (0..options.servers).map(|server| match options.copies {
            Copies::Full => (server, 0..bytes),
            Copies::Shard => (server, part(bytes, options.servers, server)),
        });
        let mut place = |(server, bytes): (u32, Range<u64>)| {
            let start = at[server as usize];
            at[server as usize] += len(&bytes);
            Wanted { server, bytes, at: start }
        };
        Param {
            name: format!("layer.{number}"),
            bytes,
            held: held.filter(|it| !it.bytes.is_empty()).collect(),
            wanted: wanted.filter(|(_, bytes)| !bytes.is_empty()).map(&mut place).collect(),
        }
    };
    (0..).zip(sizes(options)).map(one).collect()
}

/// Where each parameter begins in memory that holds all, and the end of that.
pub fn starts(params: &[Param]) -> Vec<u64> {
    let ends = params.iter().scan(0, |end, param| {
        *end += param.bytes;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

/// What trainer 0 wants of the others, as its server 0: all that it does not hold.
pub fn gathered(params: &[Param]) -> Vec<Param> {
    let one = |(param, start): (&Param, u64)| {
        let edges = param.held.iter().flat_map(|it| [it.bytes.start, it.bytes.end]);
        let mut edges: Vec<u64> = edges.collect();
        edges.sort_unstable();
        edges.dedup();
        let is_own = |bytes: &Range<u64>| {
            let covers = |it: &&Held| it.bytes.start <= bytes.start && it.bytes.end >= bytes.end;
            param.held.iter().filter(covers).any(|it| it.trainer == 0)
        };
        let parts = edges.windows(2).map(|pair| pair[0]..pair[1]).filter(|bytes| !is_own(bytes));
        let wanted = parts.map(|bytes| Wanted { server: 0, at: start + bytes.start, bytes });
        Param { wanted: wanted.collect(), ..param.clone() }
    };
    params.iter().zip(starts(params)).map(one).collect()
}

/// The same parameters, all of them held by trainer 0 alone.
pub fn spread(params: &[Param]) -> Vec<Param> {
    let one =
        |param: &Param| Param { held: vec![Held { trainer: 0, bytes: 0..param.bytes }], ..param.clone() };
    params.iter().map(one).collect()
}

/// Bytes of a server's memory.
pub fn server_bytes(params: &[Param], server: u32, rounding: Rounding) -> u64 {
    let wanted = params.iter().flat_map(|param| &param.wanted).filter(|it| it.server == server);
    rounding.bytes(wanted.map(|it| it.at + len(&it.bytes)).max().unwrap_or(0))
}

/// Bytes that all servers want.
pub fn wanted_bytes(params: &[Param], rounding: Rounding) -> u64 {
    rounding.bytes(params.iter().flat_map(|param| &param.wanted).map(|it| len(&it.bytes)).sum())
}

/// A word of a parameter at a turn: an fp32 that is a number. Each parameter and each turn has others.
const fn word(turn: u64, param: u32, number: u64) -> u32 {
    let seed =
        (param as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ turn.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (seed ^ number).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 32) as u32 & 0xbfff_ffff
}

/// Appends bytes of a parameter at a turn. They begin and end at a word.
pub fn content(turn: u64, param: u32, bytes: Range<u64>, into: &mut Vec<u8>) {
    into.extend((bytes.start / 4..bytes.end / 4).flat_map(|number| word(turn, param, number).to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use shunt_weight_sync::audit::audit;
    use shunt_weight_sync::{Rules, Schedule};

    const RULES: Rules = Rules { piece: 1 << 20, grain: UNIT };

    fn options(line: &str) -> Options {
        Options::try_parse_from(std::iter::once("weight_sync").chain(line.split_whitespace()))
            .expect("options")
    }

    #[test]
    fn all_is_held_and_all_is_wanted() {
        for line in [
            "",
            "--trainers 3 --servers 5 --copies shard",
            "--trainers 8 --replicas 4 --params 1 --bytes 4096",
        ] {
            let options = options(line);
            let params = params(&options);
            assert_eq!(params.iter().map(|param| param.bytes).sum::<u64>(), options.bytes, "{line}");
            let rates = vec![1; options.trainers as usize];
            let schedule = Schedule::plan(&rates, options.servers, &params, RULES).expect("a schedule");
            let seen = audit(&schedule, &params);
            let copies = if options.copies == Copies::Full { u64::from(options.servers) } else { 1 };
            assert_eq!((seen.wanted, seen.missing + seen.doubled), (options.bytes * copies, 0), "{line}");
            assert_eq!(seen.wanted, wanted_bytes(&params, Rounding::Keep), "{line}");
        }
    }

    #[test]
    fn what_a_rail_less_cannot_do_all_others_take() {
        let options = options("--trainers 8 --servers 8 --params 400");
        let params = params(&options);
        let mut rates = [2; 8];
        rates[3] = 1;
        let schedule = Schedule::plan(&rates, 8, &params, RULES).expect("a schedule");
        let even = (options.bytes * 8) as f64 / 15.0;
        for (trainer, rate) in (0..).zip(rates) {
            let load = schedule.load(trainer) as f64 / even / f64::from(rate);
            assert!((load - 1.0).abs() < 0.01, "trainer {trainer}: {load}");
        }
    }

    #[test]
    fn trainer_0_gathers_what_it_does_not_hold_and_spreads_all() {
        let options = options("--trainers 4 --servers 2 --params 7");
        let params = params(&options);
        let own: u64 =
            params.iter().flat_map(|it| &it.held).filter(|it| it.trainer == 0).map(|it| len(&it.bytes)).sum();
        let gather = gathered(&params);
        let schedule = Schedule::plan(&[0, 1, 1, 1], 1, &gather, RULES).expect("a schedule");
        assert_eq!(audit(&schedule, &gather).wanted, options.bytes - own);
        let spread = spread(&params);
        let schedule = Schedule::plan(&[1, 0, 0, 0], 2, &spread, RULES).expect("a schedule");
        let seen = audit(&schedule, &spread);
        assert_eq!((seen.wanted, seen.missing, seen.not_held), (2 * options.bytes, 0, 0));
    }

    #[test]
    fn words_are_numbers_and_differ() {
        let of = |turn, param| {
            let mut bytes = Vec::new();
            content(turn, param, 64..128, &mut bytes);
            bytes
        };
        assert_ne!(of(1, 0), of(2, 0));
        assert_ne!(of(1, 0), of(1, 1));
        assert!(of(3, 4).as_chunks().0.iter().all(|word| f32::from_le_bytes(*word).is_finite()));
    }
}
