//! A function's values: each has one place where it comes from.

use super::graph::Graph;
use super::level::Level;
use crate::gpu::flow::{Function, Statement};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};

/// Where a value comes from: each has one place, so that a register that is written twice is two of them.
#[derive(Clone, Debug)]
pub enum Value {
    /// Before the first statement.
    Start,
    Special(Level),
    Param(usize),
    /// What a call returned.
    Answer(String),
    Written {
        block: usize,
        statement: usize,
        reads: Vec<usize>,
    },
    /// One of several, by the way that led here.
    Phi {
        block: usize,
        operands: Vec<usize>,
    },
}

/// The name between the brackets of `[param0+8]`.
fn bracketed(operands: &str) -> &str {
    operands.split(['[', ']', '+']).nth(1).unwrap_or_default()
}

/// A call, with the values of each argument.
pub struct Call {
    pub name: String,
    pub arguments: Vec<Vec<usize>>,
}

/// A function in static single assignment (Braun and others, "Simple and Efficient Construction of SSA Form").
pub struct Shape<'f> {
    pub function: &'f Function,
    pub graph: Graph,
    pub values: Vec<Value>,
    /// What the last branch of a block depends on.
    pub branches: Vec<Vec<usize>>,
    pub calls: Vec<Call>,
    pub answers: Vec<usize>,
    /// Blocks in which a value is used.
    uses: Vec<BTreeSet<usize>>,
    /// Of a split: phis where its arms meet; values that leave a loop which threads leave at different turns.
    splits: Vec<OnceCell<(Vec<usize>, Vec<usize>)>>,
}

impl<'f> Shape<'f> {
    pub fn new(function: &'f Function) -> Self {
        let graph = Graph::new(&function.blocks);
        let mut build = Build::new(function, &graph);
        for block in (0..function.blocks.len()).filter(|block| graph.reached[*block]) {
            build.read(block);
        }
        build.answer();
        let same = build.alike();
        let Build { mut values, mut branches, mut calls, mut answers, .. } = build;
        for value in &mut values {
            if let Value::Written { reads: list, .. } | Value::Phi { operands: list, .. } = value {
                list.iter_mut().for_each(|at| *at = same[*at]);
            }
        }
        let arguments = calls.iter_mut().flat_map(|call| &mut call.arguments).flatten();
        arguments.chain(branches.iter_mut().flatten()).chain(&mut answers).for_each(|at| *at = same[*at]);
        let uses = uses(&values, &branches, &answers);
        let splits = vec![OnceCell::new(); function.blocks.len()];
        Self { function, graph, values, branches, calls, answers, uses, splits }
    }

    /// True for the number of the thread in its block.
    pub fn is_thread(&self, value: usize) -> bool {
        let Value::Written { block, statement, .. } = self.values[value] else { return false };
        let statement = &self.function.blocks[block].statements[statement];
        statement.opcode.starts_with("mov") && statement.operands.ends_with("%tid.x")
    }

    /// What threads that split here may have differently afterwards: (phis, values that outlive a loop).
    pub fn split(&self, from: usize) -> &(Vec<usize>, Vec<usize>) {
        self.splits[from].get_or_init(|| {
            let region = self.graph.region(from);
            let meet = self.graph.meets(from);
            let loops = region.contains(&from);
            let (mut joins, mut outlive) = (Vec::new(), Vec::new());
            for (at, value) in self.values.iter().enumerate() {
                match value {
                    Value::Phi { block, operands } if meet.contains(block) => {
                        // Other ways into the block are none of this branch's.
                        let ways = operands.iter().zip(&self.graph.before[*block]);
                        let own = ways.filter(|(_, before)| **before == from || region.contains(*before));
                        if own.map(|(operand, _)| operand).collect::<BTreeSet<_>>().len() > 1 {
                            joins.push(at);
                        }
                    }
                    // A constant is one in each turn.
                    Value::Written { reads, .. } if reads.is_empty() => {}
                    Value::Phi { block, .. } | Value::Written { block, .. }
                        if loops
                            && region.contains(block)
                            && self.uses[at].iter().any(|user| !region.contains(user)) =>
                    {
                        outlive.push(at);
                    }
                    _ => {}
                }
            }
            (joins, outlive)
        })
    }
}

/// Blocks in which each value is used.
fn uses(values: &[Value], branches: &[Vec<usize>], answers: &[usize]) -> Vec<BTreeSet<usize>> {
    let mut uses = vec![BTreeSet::new(); values.len()];
    for value in values {
        let (block, list) = match value {
            Value::Written { block, reads, .. } => (*block, reads),
            Value::Phi { block, operands } => (*block, operands),
            _ => continue,
        };
        for used in list {
            uses[*used].insert(block);
        }
    }
    for (block, condition) in branches.iter().enumerate() {
        for used in condition {
            uses[*used].insert(block);
        }
    }
    // The exit has the number behind the last block's.
    for used in answers {
        uses[*used].insert(branches.len());
    }
    uses
}

struct Build<'f, 'g> {
    function: &'f Function,
    graph: &'g Graph,
    values: Vec<Value>,
    /// What each statement writes, by its block and place.
    written: HashMap<(usize, usize), usize>,
    /// Last value of a register that a block writes.
    ends: Vec<HashMap<&'f str, usize>>,
    /// Registers that any statement writes.
    ever: BTreeSet<&'f str>,
    /// Value of a register where a block begins.
    starts: HashMap<(usize, String), usize>,
    branches: Vec<Vec<usize>>,
    calls: Vec<Call>,
    answers: Vec<usize>,
}

/// Registers as they are in the middle of a block, and the call that is being made up there.
#[derive(Default)]
struct Place<'f> {
    block: usize,
    local: HashMap<&'f str, usize>,
    arguments: Vec<Vec<usize>>,
    called: Option<usize>,
}

impl<'f, 'g> Build<'f, 'g> {
    /// With a value for all that is written, so that reads find it in any order.
    fn new(function: &'f Function, graph: &'g Graph) -> Self {
        let count = function.blocks.len();
        let mut build = Self {
            function,
            graph,
            values: vec![Value::Start],
            written: HashMap::new(),
            ends: vec![HashMap::new(); count],
            ever: BTreeSet::new(),
            starts: HashMap::new(),
            branches: vec![Vec::new(); count],
            calls: Vec::new(),
            answers: Vec::new(),
        };
        for (block, body) in function.blocks.iter().enumerate() {
            for (statement, text) in
                body.statements.iter().enumerate().filter(|(_, text)| !text.writes.is_empty())
            {
                let value = build.add(Value::Written { block, statement, reads: Vec::new() });
                build.written.insert((block, statement), value);
                for register in &text.writes {
                    build.ends[block].insert(register, value);
                    build.ever.insert(register);
                }
            }
        }
        build
    }

    /// What the statements of a block read.
    fn read(&mut self, block: usize) {
        let function = self.function;
        let mut place = Place { block, ..Place::default() };
        for (at, statement) in function.blocks[block].statements.iter().enumerate() {
            let registers = statement.reads.iter().chain(&statement.guard);
            let mut reads: Vec<usize> = registers.map(|register| self.value(&place, register)).collect();
            self.account(&mut place, statement, &mut reads);
            let Some(value) = self.written.get(&(block, at)).copied() else { continue };
            if let Value::Written { reads: known, .. } = &mut self.values[value] {
                *known = reads;
            }
            place.local.extend(statement.writes.iter().map(|register| (register.as_str(), value)));
        }
    }

    /// Each part of the answer, as it is at the exit: which one it is differs by the way that led there.
    fn answer(&mut self) {
        let all = self.function.blocks.iter().flat_map(|block| &block.statements);
        let parts: BTreeSet<&String> = all
            .filter(|statement| statement.opcode.starts_with("st.param"))
            .flat_map(|statement| &statement.writes)
            .collect();
        let exit = self.function.blocks.len();
        self.answers = parts.into_iter().map(|part| self.at_start(part, exit)).collect();
    }

    fn value(&mut self, place: &Place<'f>, register: &str) -> usize {
        match place.local.get(register) {
            Some(value) => *value,
            None => self.at_start(register, place.block),
        }
    }

    /// Branches, calls, and parameters either way.
    fn account(&mut self, place: &mut Place<'f>, statement: &Statement, reads: &mut Vec<usize>) {
        let (opcode, name) = (statement.opcode.as_str(), bracketed(&statement.operands));
        if opcode.starts_with("st.param") {
            if let Some(Ok(index)) = name.strip_prefix("param").map(str::parse::<usize>) {
                place.arguments.resize(place.arguments.len().max(index + 1), Vec::new());
                place.arguments[index].extend(&*reads);
            }
        } else if let Some(name) = statement.callee() {
            place.called = Some(self.add(Value::Answer(name.to_owned())));
            self.calls.push(Call { name: name.to_owned(), arguments: std::mem::take(&mut place.arguments) });
        } else if opcode.starts_with("bra") || opcode.starts_with("brx") {
            self.branches[place.block] = reads.clone();
        } else if opcode.starts_with("ld.param") {
            match self.function.params.iter().position(|param| param == name) {
                Some(at) => reads.push(self.add(Value::Param(at))),
                None => reads.extend(place.called),
            }
        }
    }

    fn add(&mut self, value: Value) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    fn at_start(&mut self, register: &str, block: usize) -> usize {
        // What nothing writes is special, and one that is not listed may be anything.
        let special = match register {
            "%warpid" => Some(Level::Warp),
            "%nwarpid" | "%smid" | "%nsmid" | "%gridid" => Some(Level::Block),
            other if ["%ntid.", "%ctaid.", "%nctaid."].iter().any(|head| other.starts_with(head)) => {
                Some(Level::Block)
            }
            other => (!self.ever.contains(other)).then_some(Level::Lane),
        };
        let key = (block, register.to_owned());
        if let Some(known) = self.starts.get(&key) {
            return *known;
        }
        if let Some(level) = special {
            let value = self.add(Value::Special(level));
            self.starts.insert(key, value);
            return value;
        }
        let before = self.graph.before[block].clone();
        let value = match before[..] {
            [] => 0,
            [one] if block != 0 => self.at_end(register, one),
            _ => {
                let phi = self.add(Value::Phi { block, operands: Vec::new() });
                self.starts.insert(key.clone(), phi);
                let mut found: Vec<usize> = before.iter().map(|from| self.at_end(register, *from)).collect();
                if block == 0 {
                    found.push(0);
                }
                if let Value::Phi { operands, .. } = &mut self.values[phi] {
                    *operands = found;
                }
                phi
            }
        };
        self.starts.insert(key, value);
        value
    }

    fn at_end(&mut self, register: &str, block: usize) -> usize {
        match self.ends[block].get(register) {
            Some(value) => *value,
            None => self.at_start(register, block),
        }
    }

    /// For each value the one it always equals: of a copy the original, of a constant its first mention; a phi of one
    /// value, or of itself and one, is that one.
    fn alike(&self) -> Vec<usize> {
        let mut same: Vec<usize> = (0..self.values.len()).collect();
        let mut constants: HashMap<(&str, &str), usize> = HashMap::new();
        for (at, value) in self.values.iter().enumerate() {
            let Value::Written { block, statement, reads } = value else { continue };
            let statement = &self.function.blocks[*block].statements[*statement];
            let copies = ["mov.", "st.param."].iter().any(|head| statement.opcode.starts_with(head));
            if !copies || statement.operands.contains('{') {
                continue;
            }
            match reads[..] {
                [] => {
                    let constant =
                        statement.operands.split_once(',').map_or("", |(_, constant)| constant.trim());
                    same[at] = *constants.entry((&statement.opcode, constant)).or_insert(at);
                }
                [one] if !matches!(self.values[one], Value::Special(_)) => same[at] = one,
                _ => {}
            }
        }
        loop {
            let mut changed = false;
            for at in 0..same.len() {
                while same[at] != same[same[at]] {
                    same[at] = same[same[at]];
                }
            }
            for at in 0..self.values.len() {
                let Value::Phi { operands, .. } = &self.values[at] else { continue };
                if same[at] != at {
                    continue;
                }
                let others: BTreeSet<usize> =
                    operands.iter().map(|operand| same[*operand]).filter(|other| *other != at).collect();
                if let (1, Some(only)) = (others.len(), others.first()) {
                    same[at] = *only;
                    changed = true;
                }
            }
            if !changed {
                return same;
            }
        }
    }
}
