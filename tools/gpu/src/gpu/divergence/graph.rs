//! Where the arms of a branch join, and which blocks lie between.

use crate::gpu::flow::Block;
use std::collections::{BTreeSet, HashMap};

/// Successors without those that only lead to a trap, and where arms join. The last number is the exit.
pub struct Graph {
    /// Successors.
    pub next: Vec<Vec<usize>>,
    /// Predecessors that are reached.
    pub before: Vec<Vec<usize>>,
    /// Blocks that the entry leads to.
    pub reached: Vec<bool>,
    /// Immediate postdominator.
    pub join: Vec<usize>,
}

impl Graph {
    /// Of the blocks of a function.
    pub fn new(blocks: &[Block]) -> Self {
        let exit = blocks.len();
        let mut next: Vec<Vec<usize>> = blocks.iter().map(|block| block.next.clone()).collect();
        // A block that leads to traps alone is as good as one.
        let mut doomed: Vec<bool> = blocks.iter().map(|block| block.traps).collect();
        while let Some(at) = (0..exit)
            .find(|at| !doomed[*at] && !next[*at].is_empty() && next[*at].iter().all(|to| doomed[*to]))
        {
            doomed[at] = true;
        }
        for (at, block) in blocks.iter().enumerate() {
            next[at].retain(|to| !doomed[*to]);
            if next[at].is_empty() && !block.traps {
                next[at].push(exit);
            }
        }
        let mut reached = vec![false; exit + 1];
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut reached[at], true) && at < exit {
                open.extend(&next[at]);
            }
        }
        let mut before = vec![Vec::new(); exit + 1];
        for (at, targets) in next.iter().enumerate().filter(|(at, _)| reached[*at]) {
            targets.iter().for_each(|to| before[*to].push(at));
        }
        let join = joins(&next, exit);
        Self { next, before, reached, join }
    }

    /// Blocks between a branch and the join of its arms, the branch itself if a loop leads back to it.
    pub fn region(&self, from: usize) -> BTreeSet<usize> {
        let mut seen = BTreeSet::new();
        let mut open = self.next[from].clone();
        while let Some(at) = open.pop() {
            if at != self.join[from] && at < self.next.len() && seen.insert(at) {
                open.extend(&self.next[at]);
            }
        }
        seen
    }

    /// Blocks where ways from different arms of a branch come together, up to the join of all.
    pub fn meets(&self, from: usize) -> BTreeSet<usize> {
        // The arm, or the last meeting, that a block is reached from.
        let mut origin: HashMap<usize, usize> = HashMap::new();
        let mut meet = BTreeSet::new();
        // Numbers above those of blocks stand for arms: an arm may begin where another one joins it.
        let arms = self.next[from].iter().enumerate();
        let mut open: Vec<(usize, usize)> = arms.map(|(at, arm)| (*arm, usize::MAX - at)).collect();
        while let Some((at, by)) = open.pop() {
            let new = match origin.get(&at) {
                None => by,
                Some(known) if *known == by || *known == at => continue,
                Some(_) => {
                    meet.insert(at);
                    at
                }
            };
            origin.insert(at, new);
            if at != self.join[from] && at != from && at < self.next.len() {
                open.extend(self.next[at].iter().map(|to| (*to, new)));
            }
        }
        meet
    }

    /// Strongly connected parts that are reached from `start` before `join`, what comes later first (Tarjan).
    pub fn parts(&self, start: usize, join: usize) -> Vec<Vec<usize>> {
        let inside = |at: usize| at != join && at < self.next.len();
        let mut parts = Vec::new();
        let mut index: HashMap<usize, (usize, usize)> = HashMap::new();
        let mut stack: Vec<usize> = Vec::new();
        let mut on_stack: BTreeSet<usize> = BTreeSet::new();
        // (block, next successor to look at)
        let mut path: Vec<(usize, usize)> = Vec::new();
        if inside(start) {
            path.push((start, 0));
        }
        while let Some((at, turn)) = path.pop() {
            if turn == 0 {
                let number = index.len();
                index.insert(at, (number, number));
                stack.push(at);
                on_stack.insert(at);
            }
            if let Some(to) = self.next[at].get(turn).copied() {
                path.push((at, turn + 1));
                if inside(to) && !index.contains_key(&to) {
                    path.push((to, 0));
                }
                continue;
            }
            let mut low = index[&at].1;
            for to in self.next[at].iter().filter(|to| on_stack.contains(to)) {
                low = low.min(index[to].1);
            }
            if let Some(own) = index.get_mut(&at) {
                own.1 = low;
            }
            if low == index[&at].0 {
                let begin = stack.iter().position(|other| *other == at).unwrap_or(0);
                let part = stack.split_off(begin);
                part.iter().for_each(|at| {
                    on_stack.remove(at);
                });
                parts.push(part);
            }
        }
        parts
    }
}

/// Immediate postdominators (Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed graph).
fn joins(next: &[Vec<usize>], exit: usize) -> Vec<usize> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); exit + 1];
    for (at, targets) in next.iter().enumerate() {
        targets.iter().for_each(|to| before[*to].push(at));
    }
    // Postorder of the reversed graph from the exit; what never ends is joined at the exit.
    let mut order = Vec::new();
    let mut seen = vec![false; exit + 1];
    let mut open = vec![(exit, 0usize)];
    seen[exit] = true;
    while let Some((at, turn)) = open.pop() {
        match before[at].get(turn) {
            Some(to) => {
                open.push((at, turn + 1));
                if !seen[*to] {
                    seen[*to] = true;
                    open.push((*to, 0));
                }
            }
            None => order.push(at),
        }
    }
    let mut rank = vec![0; exit + 1];
    order.iter().enumerate().for_each(|(number, at)| rank[*at] = number);
    let mut join: Vec<Option<usize>> = vec![None; exit + 1];
    join[exit] = Some(exit);
    let mut changed = true;
    while changed {
        changed = false;
        for at in order.iter().rev().copied().filter(|at| *at != exit) {
            let mut new: Option<usize> = None;
            for to in next[at].iter().copied().filter(|to| join[*to].is_some()) {
                new = Some(match new {
                    None => to,
                    Some(mut other) => {
                        let mut to = to;
                        while to != other {
                            while rank[to] < rank[other] {
                                to = join[to].unwrap_or(exit);
                            }
                            while rank[other] < rank[to] {
                                other = join[other].unwrap_or(exit);
                            }
                        }
                        to
                    }
                });
            }
            if new != join[at] {
                join[at] = new;
                changed = true;
            }
        }
    }
    join.into_iter().map(|at| at.unwrap_or(exit)).collect()
}
