//! Finds barriers that only some threads of a block may reach, and operations of a full warp that only some of its
//! lanes may. Pure: control-flow graphs in, findings out.
//!
//! A value has a [`Level`]: alike in the whole block, alike in a warp, or different from lane to lane. Branches on a
//! value that differs split the threads until their arms join again. Between the branch and the join both arms have to
//! execute the same operations in the same order, on every way through; else the finding names the branch. Operations
//! in two copies, one an arm, are correct only for the forms that count threads instead of meeting at an address (PTX
//! ISA, "barrier": `barrier.sync` without `.aligned`; "bar.warp.sync" and "shfl.sync" from sm_70 on), so an aligned
//! barrier is a finding wherever it stands.
//!
//! What is taken as alike in a block: arguments of kernels and of exported functions (their contract), constant memory,
//! plain loads from an address that is alike (data, which a word covers that all acquired or were told of), the same by
//! the loads of [`PIECES`], and the word of shared memory by which a block broadcasts.

mod graph;
mod level;
mod ssa;

use super::flow::{Function, Statement};
use graph::Graph;
use level::Level;
use ssa::{Shape, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Symbol of the word by which a block broadcasts (`device/src/platform/nvptx/lanes.rs`).
const BLOCK_WORD: &str = "shunt_block_word";

/// Kernels whose relaxed loads of 8 or 16 bytes bring data that changes no more: (head of the function's name, reason).
/// The same instruction reads path rows and CQ entries, which do change: in every other function it differs by lane.
const PIECES: &[(&str, &str)] = &[(
    "shunt_kernel_moe_normal_dispatch_",
    "a token's header says where the token goes; the block acquired the word that covers it before it looks",
)];

/// One line for each finding.
pub fn findings(functions: &[Function]) -> Vec<String> {
    let mut found: Vec<String> = functions.iter().flat_map(aligned).collect();
    let mut summaries = meeting(functions);
    let meets = functions.iter().filter(|function| summaries.contains_key(&function.name));
    let mut checked: Vec<Checked<'_>> = meets
        .map(|function| {
            let shape = Shape::new(function);
            Checked { levels: vec![Level::Block; shape.values.len()], shape, split_by: HashMap::new() }
        })
        .collect();
    loop {
        let rose: Vec<bool> = checked.iter_mut().map(|checked| checked.rise(&mut summaries)).collect();
        if !rose.contains(&true) {
            break;
        }
    }
    found.extend(checked.iter().flat_map(|checked| checked.unbalanced(&summaries)));
    found
}

/// True for a barrier of a block that wants all threads of a warp at one instruction.
fn is_aligned(opcode: &str) -> bool {
    let family = |name: &str| opcode == name || opcode.starts_with(&format!("{name}."));
    opcode.contains(".aligned")
        || family("bar") && !opcode.starts_with("bar.warp")
        || family("barrier.cluster")
}

fn aligned(function: &Function) -> impl Iterator<Item = String> + '_ {
    let all = function.blocks.iter().flat_map(|block| &block.statements);
    all.filter_map(move |statement| {
        let Statement { line, opcode, .. } = statement;
        let said = match opcode.as_str() {
            aligned if is_aligned(aligned) => {
                "expects all threads of a warp at this one instruction: expected `barrier.sync`, which counts threads"
            }
            "activemask.b32" => "tells who is converged, which nothing promises: expected a mask that is an argument",
            _ => return None,
        };
        Some(format!("{}: line {line}: `{opcode}` {said}", function.name))
    })
}

/// What a statement waits for others with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meeting {
    /// All threads of the block, by this instruction: another number is another barrier.
    Block(String),
    /// All lanes of the warp, by this operation with this mask.
    Warp(String, String),
    /// A function that has one of these in it.
    Call(String),
}

/// What callers need to know of a function that meets others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Summary {
    params: Vec<Level>,
    answer: Level,
    meets_block: bool,
    meets_warp: bool,
}

type Summaries = BTreeMap<String, Summary>;

/// The bound of a comparison, the mask of a warp's operation.
fn last_operand(statement: &Statement) -> &str {
    statement.operands.rsplit(',').next().unwrap_or_default().trim()
}

fn is_block_barrier(opcode: &str) -> bool {
    opcode.starts_with("barrier") || opcode.starts_with("bar.") && !opcode.starts_with("bar.warp")
}

fn is_warp_operation(opcode: &str) -> bool {
    ["bar.warp", "shfl.sync", "vote.sync", "match", "redux.sync"].iter().any(|head| opcode.starts_with(head))
}

/// Functions that have such operations, or call one that has: all others meet nobody.
fn meeting(functions: &[Function]) -> Summaries {
    let mut all = Summaries::new();
    loop {
        let mut found = all.clone();
        for function in functions {
            let mut summary =
                Summary { params: vec![Level::Block; function.params.len()], ..Summary::default() };
            for statement in function.blocks.iter().flat_map(|block| &block.statements) {
                let called = statement.callee().and_then(|name| all.get(name));
                summary.meets_block |=
                    is_block_barrier(&statement.opcode) || called.is_some_and(|called| called.meets_block);
                summary.meets_warp |=
                    is_warp_operation(&statement.opcode) || called.is_some_and(|called| called.meets_warp);
            }
            if summary.meets_block || summary.meets_warp {
                found.insert(function.name.clone(), summary);
            }
        }
        if found == all {
            return all;
        }
        all = found;
    }
}

/// A function that meets others, with the levels of its values.
struct Checked<'f> {
    shape: Shape<'f>,
    levels: Vec<Level>,
    /// Of a value that differs by the way that led to it: the block that ends in the branch.
    split_by: HashMap<usize, usize>,
}

impl<'f> Checked<'f> {
    /// Levels with what is known of parameters and callees; raises the parameters of callees and the own answer.
    fn rise(&mut self, summaries: &mut Summaries) -> bool {
        let mut rose = false;
        while self.pass(summaries) {
            rose = true;
        }
        let shape = &self.shape;
        for call in &shape.calls {
            let arguments: Vec<Level> = call.arguments.iter().map(|values| self.highest(values)).collect();
            let Some(other) = summaries.get_mut(&call.name) else { continue };
            for (param, level) in other.params.iter_mut().zip(arguments) {
                rose |= level > *param;
                *param = level.max(*param);
            }
        }
        let answer = self.highest(&shape.answers);
        if let Some(own) = summaries.get_mut(&shape.function.name) {
            rose |= answer > own.answer;
            own.answer = own.answer.max(answer);
        }
        rose
    }

    fn highest(&self, values: &[usize]) -> Level {
        values.iter().map(|value| self.levels[*value]).max().unwrap_or_default()
    }

    /// One pass over all values; true if a level rose.
    fn pass(&mut self, summaries: &Summaries) -> bool {
        let mut rose = false;
        for value in 0..self.shape.values.len() {
            let level = self.of(&self.shape.values[value], summaries);
            rose |= level > self.levels[value];
            self.levels[value] = level.max(self.levels[value]);
        }
        for (from, level) in self.splits() {
            let (joins, outlive) = self.shape.split(from);
            for value in joins.iter().chain(outlive) {
                if level > self.levels[*value] {
                    self.levels[*value] = level;
                    self.split_by.insert(*value, from);
                    rose = true;
                }
            }
        }
        rose
    }

    fn of(&self, value: &Value, summaries: &Summaries) -> Level {
        match value {
            Value::Start => Level::Block,
            Value::Special(level) => *level,
            Value::Phi { operands, .. } => self.highest(operands),
            Value::Param(at) => {
                let own = summaries.get(&self.shape.function.name);
                own.and_then(|own| own.params.get(*at).copied()).unwrap_or_default()
            }
            Value::Answer(name) => summaries.get(name).map_or(Level::Lane, |other| other.answer),
            Value::Written { block, statement, reads } => {
                self.result(&self.shape.function.blocks[*block].statements[*statement], reads)
            }
        }
    }

    /// Level of what a statement writes, by what it reads.
    fn result(&self, statement: &Statement, reads: &[usize]) -> Level {
        let opcode = statement.opcode.as_str();
        let operands = self.highest(reads);
        let is = |head: &str| opcode.starts_with(head);
        if is("ld.volatile.shared") && statement.operands.contains(BLOCK_WORD) {
            return Level::Block;
        }
        if is("shfl.sync") {
            return self.shuffled(statement, reads);
        }
        if is("vote.sync") || is("redux.sync") {
            return Level::Warp.min(operands);
        }
        let name = self.shape.function.name.as_str();
        let piece = (is("ld.relaxed.sys.global.v2") || is("ld.relaxed.sys.global.v4"))
            && PIECES.iter().any(|(head, _)| name.starts_with(head));
        let changes = is("ld.")
            && !piece
            && ["acquire", "relaxed", "volatile", "mmio"].iter().any(|word| opcode.contains(word));
        if is("atom.") || is("activemask") || changes {
            return Level::Lane;
        }
        // Warps of a block are its threads by 32.
        let bound = last_operand(statement);
        let by_warps = (is("setp.gt.u32") || is("setp.le.u32")) && bound == "31"
            || (is("setp.lt.u32") || is("setp.ge.u32")) && bound == "32";
        if by_warps && reads.iter().all(|value| self.shape.is_thread(*value)) {
            return Level::Warp;
        }
        operands
    }

    /// Level of what a shuffle hands on: alike if all lanes of the warp read one lane, or wherever they read.
    fn shuffled(&self, statement: &Statement, reads: &[usize]) -> Level {
        let operands = self.highest(reads);
        let list: Vec<&str> = statement.operands.split(',').map(str::trim).collect();
        // With a predicate, which says whether the lane is in range; with a segment, each of which has its own lane.
        let (predicate, whole) = (list[0].contains('|'), ["31", "0x1f"].contains(list.get(3).unwrap_or(&"")));
        let by_index = statement.opcode.contains(".idx") && whole;
        // Registers read: value, lane to read from.
        let from = reads.get(1).map_or(Level::Block, |value| self.levels[*value]);
        match by_index && from < Level::Lane {
            true => Level::Warp.min(operands),
            false if predicate => Level::Lane,
            false => operands,
        }
    }

    /// Blocks whose last branch threads may take differently, with the level of its condition.
    fn splits(&self) -> Vec<(usize, Level)> {
        let branches = self.shape.branches.iter().enumerate();
        let split = |(at, condition): (usize, &Vec<usize>)| {
            let level = self.highest(condition);
            (self.shape.graph.next[at].len() > 1 && level > Level::Block).then_some((at, level))
        };
        branches.filter_map(split).collect()
    }

    /// Where one of these values became different: the statement, or the branch, that its level comes from.
    fn cause(&self, values: &[usize], level: Level) -> String {
        let mut open: Vec<usize> = values.to_vec();
        let mut seen = BTreeSet::new();
        let mut last = "what it is told".to_owned();
        while let Some(value) = open.pop() {
            if self.levels[value] < level || !seen.insert(value) {
                continue;
            }
            if let Some(split) = self.split_by.get(&value) {
                let branch = self.shape.function.blocks[*split].statements.last();
                return format!("the branch in line {}", branch.map_or(0, |branch| branch.line));
            }
            let from = match &self.shape.values[value] {
                Value::Written { block, statement, reads } => {
                    let Statement { line, opcode, .. } =
                        &self.shape.function.blocks[*block].statements[*statement];
                    last = format!("line {line} `{opcode}`");
                    reads
                }
                Value::Phi { operands, .. } => operands,
                _ => return last,
            };
            open.extend(from);
        }
        last
    }

    /// What a statement meets others by, if a split at `level` harms that.
    fn meeting(statement: &Statement, level: Level, summaries: &Summaries) -> Option<Meeting> {
        let opcode = statement.opcode.as_str();
        if let Some(name) = statement.callee() {
            let other = summaries.get(name)?;
            let harmed = other.meets_block || level == Level::Lane && other.meets_warp;
            return harmed.then(|| Meeting::Call(name.to_owned()));
        }
        if is_warp_operation(opcode) {
            return (level == Level::Lane)
                .then(|| Meeting::Warp(opcode.to_owned(), last_operand(statement).to_owned()));
        }
        is_block_barrier(opcode).then(|| Meeting::Block(format!("{opcode} {}", statement.operands)))
    }

    /// Splits whose arms do not meet others alike, one line each.
    fn unbalanced(&self, summaries: &Summaries) -> Vec<String> {
        let mut found = Vec::new();
        let (function, graph) = (self.shape.function, &self.shape.graph);
        for (from, level) in self.splits() {
            let region = graph.region(from);
            let meetings: Vec<Vec<Meeting>> = (function.blocks.iter().enumerate())
                .map(|(at, block)| {
                    let statements = block.statements.iter().filter(|_| region.contains(&at));
                    statements.filter_map(|statement| Self::meeting(statement, level, summaries)).collect()
                })
                .collect();
            if meetings.iter().all(Vec::is_empty) {
                continue;
            }
            let join = graph.join[from];
            let arms: Vec<_> = graph.next[from]
                .iter()
                .map(|arm| Ways { graph, meetings: &meetings, join, known: HashMap::new() }.from(*arm))
                .collect();
            if !arms.iter().all(|arm| arm.as_ref().is_some_and(|ways| ways.len() == 1) && *arm == arms[0]) {
                let line = function.blocks[from].statements.last().map_or(0, |last| last.line);
                let among = if level == Level::Warp { "warps" } else { "lanes" };
                let arms: Vec<String> = arms.iter().map(say).collect();
                found.push(format!(
                    "{}: line {line}: threads split between {among} by {}: expected the same barriers on every way to \
                     where they join, got {}",
                    function.name,
                    self.cause(&self.shape.branches[from], level),
                    arms.join(" against ")
                ));
            }
        }
        found
    }
}

/// How many meetings an arm has.
fn say(arm: &Option<BTreeSet<Vec<Meeting>>>) -> String {
    let Some(ways) = arm else { return "one in each turn of a loop".to_owned() };
    let counts: BTreeSet<usize> = ways.iter().map(Vec::len).collect();
    counts.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ")
}

/// Sequences of meetings from a block up to the join; none if a loop has one.
struct Ways<'a> {
    graph: &'a Graph,
    meetings: &'a [Vec<Meeting>],
    join: usize,
    known: HashMap<usize, Option<BTreeSet<Vec<Meeting>>>>,
}

impl Ways<'_> {
    /// More sequences than this are unlike in any case.
    const MOST: usize = 8;

    fn from(&mut self, start: usize) -> Option<BTreeSet<Vec<Meeting>>> {
        // Blocks that meet nobody and loop only among themselves are one point: contract strongly connected parts.
        let parts = self.graph.parts(start, self.join);
        for part in parts {
            let loops = part.len() > 1 || self.graph.next[part[0]].contains(&part[0]);
            if loops && part.iter().any(|at| !self.meetings[*at].is_empty()) {
                for at in &part {
                    self.known.insert(*at, None);
                }
                continue;
            }
            let mut tails: Option<BTreeSet<Vec<Meeting>>> = Some(BTreeSet::new());
            let exits = part.iter().flat_map(|at| &self.graph.next[*at]).filter(|next| !part.contains(next));
            for next in exits {
                let way = match *next == self.join {
                    true => Some(BTreeSet::from([Vec::new()])),
                    false => self.known.get(next).cloned().flatten(),
                };
                match (&mut tails, way) {
                    (Some(all), Some(way)) => all.extend(way),
                    (tails, _) => *tails = None,
                }
            }
            let own = if loops { &[][..] } else { &self.meetings[part[0]][..] };
            let ways = tails.filter(|tails| tails.len() <= Self::MOST);
            let ways = ways.map(|tails| tails.into_iter().map(|tail| [own, &tail].concat()).collect());
            for at in &part {
                self.known.insert(*at, ways.clone());
            }
        }
        if start == self.join {
            return Some(BTreeSet::from([Vec::new()]));
        }
        self.known.get(&start).cloned().flatten()
    }
}

#[cfg(test)]
#[path = "../divergence_tests.rs"]
mod tests;
