//! How holders of the same bytes share the work: so that the one with most to do has as little as can be. Pure.
//!
//! A flow from groups of work to workers. A worker takes `level * rate` at most. Halving finds the least level at which
//! all work flows.

use std::collections::VecDeque;

/// Work that any of these workers can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// How much: bytes to write.
    pub work: u64,
    /// Who can do it: places in the list of rates.
    pub workers: Vec<usize>,
}

/// A network of work: groups in front, workers behind.
struct Net<'a> {
    groups: &'a [Group],
    /// How much of each group each worker takes.
    flow: Vec<Vec<u64>>,
    /// What each group has left, and each worker may still take.
    left: Vec<u64>,
    room: Vec<u64>,
}

impl Net<'_> {
    fn new<'a>(groups: &'a [Group], room: Vec<u64>) -> Net<'a> {
        let flow = groups.iter().map(|_| vec![0; room.len()]).collect();
        Net { groups, flow, left: groups.iter().map(|group| group.work).collect(), room }
    }

    /// Moves as much as the shortest path has room for. False if there is none.
    fn augment(&mut self) -> bool {
        let (groups, workers) = (self.groups.len(), self.room.len());
        // Groups come first, then workers. Each remembers from where it was reached.
        let mut from = vec![None; groups + workers];
        let starts = (0..groups).filter(|group| self.left[*group] > 0);
        let mut next: VecDeque<usize> = starts.collect();
        next.iter().for_each(|group| from[*group] = Some(*group));
        let end = loop {
            let Some(at) = next.pop_front() else { return false };
            if at >= groups && self.room[at - groups] > 0 {
                break at;
            }
            let reached: Vec<usize> = if at < groups {
                self.groups[at].workers.iter().map(|worker| groups + worker).collect()
            } else {
                (0..groups).filter(|group| self.flow[*group][at - groups] > 0).collect()
            };
            for to in reached {
                if from[to].is_none() {
                    from[to] = Some(at);
                    next.push_back(to);
                }
            }
        };
        let (mut path, mut at) = (vec![end], end);
        while let Some(before) = from[at].filter(|before| *before != at) {
            path.push(before);
            at = before;
        }
        path.reverse();
        self.push(&path);
        true
    }

    fn push(&mut self, path: &[usize]) {
        let groups = self.groups.len();
        let (first, last) = (path[0], path[path.len() - 1] - groups);
        let mut most = self.left[first].min(self.room[last]);
        for pair in path.windows(2).filter(|pair| pair[0] >= groups) {
            most = most.min(self.flow[pair[1]][pair[0] - groups]);
        }
        for pair in path.windows(2) {
            if pair[0] < groups {
                self.flow[pair[0]][pair[1] - groups] += most;
            } else {
                self.flow[pair[1]][pair[0] - groups] -= most;
            }
        }
        self.left[first] -= most;
        self.room[last] -= most;
    }
}

fn flow(groups: &[Group], rates: &[u64], level: u64) -> Option<Vec<Vec<u64>>> {
    let mut net = Net::new(groups, rates.iter().map(|rate| rate.saturating_mul(level)).collect());
    while net.augment() {}
    net.left.iter().all(|left| *left == 0).then_some(net.flow)
}

/// How much of each group each worker takes, by group and worker: workers have their rates, and the largest quotient of
/// load and rate is the least there is. Work of a group without a worker that has a rate is not shared: `None`.
pub fn shares(groups: &[Group], rates: &[u64]) -> Option<Vec<Vec<u64>>> {
    let all: u64 = groups.iter().map(|group| group.work).sum();
    let sum = rates.iter().sum::<u64>();
    let mut best = flow(groups, rates, all)?;
    let (mut least, mut most) = (all.checked_div(sum)?, all);
    while least < most {
        let level = least + (most - least) / 2;
        match flow(groups, rates, level) {
            Some(flow) => (best, most) = (flow, level),
            None => least = level + 1,
        }
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By Hall's theorem: the largest quotient, over all sets of workers, of what only they can do and their rates.
    fn least_level(groups: &[Group], rates: &[u64]) -> u64 {
        let of_set = |set: u32| {
            let is_in = |worker: &usize| set >> worker & 1 == 1;
            let theirs = groups.iter().filter(|group| group.workers.iter().all(is_in));
            let work: u64 = theirs.map(|group| group.work).sum();
            let rate: u64 = (0..rates.len()).filter(is_in).map(|worker| rates[worker]).sum();
            work.div_ceil(rate)
        };
        (1..1u32 << rates.len()).map(of_set).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn no_sharing_is_more_even(
            rates in proptest::collection::vec(1..4u64, 1..6),
            groups in proptest::collection::vec((0..10_000u64, 1..64usize), 0..12),
        ) {
            let in_set = |set: usize| (0..rates.len()).filter(move |worker| (set >> worker) & 1 == 1);
            let groups: Vec<Group> = groups
                .into_iter()
                .map(|(work, set)| Group { work, workers: in_set(set).collect() })
                .filter(|group| !group.workers.is_empty())
                .collect();
            let shares = shares(&groups, &rates).expect("each has a worker");
            for (group, shares) in groups.iter().zip(&shares) {
                prop_assert_eq!(shares.iter().sum::<u64>(), group.work, "all of it");
                let strangers = (0..rates.len()).filter(|worker| !group.workers.contains(worker));
                prop_assert_eq!(strangers.map(|worker| shares[worker]).sum::<u64>(), 0);
            }
            let load = |worker: usize| shares.iter().map(|shares| shares[worker]).sum::<u64>();
            let level = (0..rates.len()).map(|worker| load(worker).div_ceil(rates[worker])).max();
            prop_assert_eq!(level, Some(least_level(&groups, &rates)));
        }
    }

    #[test]
    fn work_that_nobody_can_do_is_not_shared() {
        let group = |workers: &[usize]| Group { work: 5, workers: workers.to_vec() };
        assert_eq!(shares(&[group(&[])], &[1]), None);
        assert_eq!(shares(&[group(&[0])], &[0]), None);
        assert_eq!(shares(&[], &[0]), None);
        assert_eq!(shares(&[group(&[0, 1])], &[0, 1]), Some(vec![vec![0, 5]]));
    }
}
