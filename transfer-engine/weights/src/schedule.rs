//! Which trainer writes which bytes to which server. Pure: ends that know the same make the same schedule.

use crate::param::{Param, Wanted};
use crate::share::{Group, shares};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use thiserror::Error;

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Place of the parameter in the list.
    pub param: u32,
    /// Which bytes of it.
    pub bytes: Range<u64>,
    /// To which server.
    pub server: u32,
    /// Where the first byte comes to: see [`Wanted::at`].
    pub at: u64,
}

impl Task {
    /// How many bytes, as the trainer holds them.
    pub const fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// Never: a task has bytes.
    pub const fn is_empty(&self) -> bool {
        self.bytes.end == self.bytes.start
    }
}

/// What all trainers keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Most bytes of a task.
    pub piece: u64,
    /// Parameters are cut at multiples of so many bytes only: of an element, and of what a transform needs.
    pub grain: u64,
}

/// Why there is no schedule.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// Nobody writes, or nobody is written to.
    #[error("{what}: expected one or more, got none")]
    None {
        /// `trainers that work` or `servers`.
        what: &'static str,
    },
    /// A rule that no cut can keep to.
    #[error("a piece: expected a multiple of {grain} bytes from there on, got {piece}")]
    Rules {
        /// Bytes of a piece.
        piece: u64,
        /// Bytes of a grain.
        grain: u64,
    },
    /// A shard that cannot be.
    #[error("parameter {param} of {len} bytes: expected {want}, got {met}")]
    Shard {
        /// Its name.
        param: String,
        /// Its bytes.
        len: u64,
        /// What would be right.
        want: String,
        /// What was met.
        met: String,
    },
    /// No trainer that works holds these bytes.
    #[error(
        "parameter {param}: expected a trainer that works and holds bytes {} to {}, got none; {held:?} held them",
        bytes.start, bytes.end
    )]
    Lost {
        /// Its name.
        param: String,
        /// The bytes.
        bytes: Range<u64>,
        /// Trainers that held all of them, and do not work.
        held: Vec<u32>,
    },
    /// Two parts of parameters would come to the same place.
    #[error("memory of server {server}: expected one source for each byte, got two at byte {at}")]
    Twice {
        /// The server.
        server: u32,
        /// The byte.
        at: u64,
    },
}

/// Bytes that the same trainers hold and the same servers want.
struct Segment<'a> {
    param: u32,
    bytes: Range<u64>,
    wanted: Vec<&'a Wanted>,
}

/// Who writes what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    tasks: Vec<Vec<Task>>,
}

impl Schedule {
    /// Shares the writes between trainers. `rates` has one for each trainer, in any unit: who has twice the rate of
    /// another gets twice the work, as far as it holds the bytes. Rate 0 is a trainer that is lost, and gets none.
    ///
    /// # Errors
    /// No trainer works, a shard is out of bounds, two shards come to the same place, or only lost trainers hold some
    /// bytes.
    pub fn plan(rates: &[u32], servers: u32, params: &[Param], rules: Rules) -> Result<Self, PlanError> {
        if rates.iter().all(|rate| *rate == 0) {
            return Err(PlanError::None { what: "trainers that work" });
        }
        if servers == 0 {
            return Err(PlanError::None { what: "servers" });
        }
        let Rules { piece, grain } = rules;
        if grain == 0 || piece < grain || !piece.is_multiple_of(grain) {
            return Err(PlanError::Rules { piece, grain });
        }
        params.iter().try_for_each(|param| check(param, rates.len() as u32, servers, grain))?;
        check_targets(params, servers)?;
        let mut by_holders: BTreeMap<Vec<usize>, Vec<Segment<'_>>> = BTreeMap::new();
        for (number, param) in (0..).zip(params) {
            for (holders, segment) in segments(number, param, rates)? {
                by_holders.entry(holders).or_default().push(segment);
            }
        }
        let work = |segments: &[Segment<'_>]| {
            segments.iter().map(|it| (it.bytes.end - it.bytes.start) * it.wanted.len() as u64).sum()
        };
        let group = |(workers, segments): (&Vec<usize>, &Vec<_>)| Group {
            work: work(segments),
            workers: workers.clone(),
        };
        let groups: Vec<Group> = by_holders.iter().map(group).collect();
        let rates: Vec<u64> = rates.iter().map(|rate| u64::from(*rate)).collect();
        let shares = shares(&groups, &rates).ok_or(PlanError::None { what: "trainers that work" })?;
        let mut tasks = vec![Vec::new(); rates.len()];
        for ((holders, segments), shares) in by_holders.iter().zip(shares) {
            deal(holders, segments, shares, rules, &mut tasks);
        }
        Ok(Self { tasks })
    }

    /// Of one trainer, in order. Writes of the same bytes to several servers follow each other.
    pub fn tasks(&self, trainer: u32) -> &[Task] {
        self.tasks.get(trainer as usize).map_or(&[], Vec::as_slice)
    }

    /// Of all trainers, with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Task)> {
        (0..).zip(&self.tasks).flat_map(|(trainer, tasks)| tasks.iter().map(move |task| (trainer, task)))
    }

    /// Bytes that a trainer writes, as it holds them.
    pub fn load(&self, trainer: u32) -> u64 {
        self.tasks(trainer).iter().map(Task::len).sum()
    }
}

/// Whether the shards of a parameter lie in it, and end where it may be cut.
fn check(param: &Param, trainers: u32, servers: u32, grain: u64) -> Result<(), PlanError> {
    let Param { name, bytes: len, held, wanted } = param;
    let refuse =
        |want: String, met: String| Err(PlanError::Shard { param: name.clone(), len: *len, want, met });
    let held = held.iter().map(|it| ("trainer", it.trainer, trainers, &it.bytes, 0));
    let wanted = wanted.iter().map(|it| ("server", it.server, servers, &it.bytes, it.at));
    for (what, number, count, bytes, at) in held.chain(wanted) {
        let Range { start, end } = *bytes;
        if number >= count {
            return refuse(format!("shards of {what} 0 to {}", count.saturating_sub(1)), format!("{number}"));
        }
        if start >= end || end > *len {
            return refuse(format!("a shard inside it at {what} {number}"), format!("{start} to {end}"));
        }
        if let Some(edge) = [start, end, at].into_iter().find(|edge| !edge.is_multiple_of(grain)) {
            return refuse(format!("shards that end at multiples of {grain} bytes"), edge.to_string());
        }
        if at.checked_add(end - start).is_none() {
            return refuse("memory below 2^64 bytes".to_owned(), format!("{at} at {what} {number}"));
        }
    }
    Ok(())
}

/// Whether no two shards of a server come to the same place.
fn check_targets(params: &[Param], servers: u32) -> Result<(), PlanError> {
    let mut targets: Vec<Vec<Range<u64>>> = vec![Vec::new(); servers as usize];
    for Wanted { server, bytes, at } in params.iter().flat_map(|param| &param.wanted) {
        targets[*server as usize].push(*at..at + (bytes.end - bytes.start));
    }
    for (server, mut targets) in (0..).zip(targets) {
        targets.sort_by_key(|target| target.start);
        if let Some(pair) = targets.windows(2).find(|pair| pair[1].start < pair[0].end) {
            return Err(PlanError::Twice { server, at: pair[1].start });
        }
    }
    Ok(())
}

/// Parts of a parameter that somebody wants, each with the trainers that work and hold all of it.
fn segments<'a>(
    number: u32,
    param: &'a Param,
    rates: &[u32],
) -> Result<Vec<(Vec<usize>, Segment<'a>)>, PlanError> {
    let held = param.held.iter().map(|it| &it.bytes);
    let edges = held.chain(param.wanted.iter().map(|it| &it.bytes)).flat_map(|it| [it.start, it.end]);
    let edges: Vec<u64> = edges.collect::<BTreeSet<_>>().into_iter().collect();
    let mut all = Vec::new();
    for pair in edges.windows(2) {
        let bytes = pair[0]..pair[1];
        let covers = |it: &Range<u64>| it.start <= bytes.start && it.end >= bytes.end;
        let wanted: Vec<_> = param.wanted.iter().filter(|it| covers(&it.bytes)).collect();
        if wanted.is_empty() {
            continue;
        }
        let holders: BTreeSet<u32> =
            param.held.iter().filter(|it| covers(&it.bytes)).map(|it| it.trainer).collect();
        let works = |trainer: &u32| rates[*trainer as usize] > 0;
        let live: Vec<usize> = holders.iter().copied().filter(works).map(|it| it as usize).collect();
        if live.is_empty() {
            let (param, held) = (param.name.clone(), holders.into_iter().collect());
            return Err(PlanError::Lost { param, bytes, held });
        }
        all.push((live, Segment { param: number, bytes, wanted }));
    }
    Ok(all)
}

/// Gives segments to their holders, to each as many bytes as its share says, to the nearest cut.
fn deal(
    holders: &[usize],
    segments: &[Segment<'_>],
    mut shares: Vec<u64>,
    rules: Rules,
    tasks: &mut [Vec<Task>],
) {
    let mut holders = holders.iter().copied().peekable();
    for Segment { param, bytes, wanted } in segments {
        let mut start = bytes.start;
        while start < bytes.end {
            let Some(holder) = holders.peek().copied() else { return };
            let (left, copies) = (bytes.end - start, wanted.len() as u64);
            let grains = (shares[holder] as f64 / (copies * rules.grain) as f64).round() as u64;
            let is_last = holders.clone().nth(1).is_none();
            let take = if is_last { left } else { left.min(grains.saturating_mul(rules.grain)) };
            shares[holder] = shares[holder].saturating_sub(take * copies);
            write(*param, start..start + take, wanted, rules.piece, holder, &mut tasks[holder]);
            start += take;
            if start < bytes.end {
                holders.next();
            }
        }
    }
}

/// Cuts bytes into pieces, and has each written to all that want it. Trainers begin with different servers.
fn write(
    param: u32,
    bytes: Range<u64>,
    wanted: &[&Wanted],
    piece: u64,
    trainer: usize,
    tasks: &mut Vec<Task>,
) {
    let mut start = bytes.start;
    while start < bytes.end {
        let part = start..bytes.end.min(start + piece);
        let first = trainer % wanted.len();
        for it in wanted[first..].iter().chain(&wanted[..first]) {
            let at = it.at + (part.start - it.bytes.start);
            tasks.push(Task { param, bytes: part.clone(), server: it.server, at });
        }
        start = part.end;
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
