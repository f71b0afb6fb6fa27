//! Instructions, decoded once. An opcode that is not known is an error that names its line: nothing is skipped.

use crate::text::{Body, NotRead, Part, Statement, bits, wrong};
use std::collections::HashMap;

/// Number of a register in its function.
pub type Register = u32;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A register.
    Register(Register),
    /// A constant.
    Constant(u64),
    /// A special register.
    Special(Special),
    /// The address of a constant table.
    Table(usize),
}

/// Special registers that our code reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Special {
    Thread,
    Threads,
    Block,
    Blocks,
    Lane,
    Time,
}

/// Types of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Type {
    Unsigned(u32),
    Signed(u32),
    Float,
}

impl Type {
    /// Width in bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Unsigned(bits) | Self::Signed(bits) => bits,
            Self::Float => 32,
        }
    }
}

/// Operations of two operands and a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Multiply,
    MultiplyHigh,
    MultiplyWide,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Least,
    Most,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    LessOrUnordered,
}

/// Who sees an access in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Scope {
    /// Weak.
    Thread,
    /// `.gpu`.
    Gpu,
    /// `.sys`: the NIC and the host as well.
    System,
}

/// What an access orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Who it is for.
    pub scope: Scope,
    /// What comes later is later.
    pub acquires: bool,
    /// What came before is before.
    pub releases: bool,
}

/// Memory that an access goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Space {
    Global,
    /// Global, by the path for what never changes.
    Constants,
    /// The module's root.
    Root,
    Shared,
    /// A device's register.
    Mmio,
}

/// Where a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Parameter {
    /// One of the function's own.
    Own(usize),
    /// What it answers.
    Answer,
    /// One of a function that is about to be called.
    Theirs(usize),
    /// What that one answered.
    Answered,
}

/// Read-modify-writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Atomic {
    Add,
    And,
    Or,
    CompareSwap,
}

/// What an instruction does.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Operation {
    Move {
        to: Register,
        from: Arg,
    },
    Unpack {
        to: Vec<Option<Register>>,
        from: Arg,
        bits: u32,
    },
    Pack {
        to: Register,
        from: Vec<Arg>,
        bits: u32,
    },
    Binary {
        operation: Binary,
        kind: Type,
        to: Register,
        a: Arg,
        b: Arg,
    },
    AddCarry {
        to: Register,
        a: Arg,
        b: Arg,
        takes: bool,
    },
    MultiplyAdd {
        kind: Type,
        to: Register,
        a: Arg,
        b: Arg,
        c: Arg,
    },
    Not {
        kind: Type,
        to: Register,
        from: Arg,
    },
    Negate {
        kind: Type,
        to: Register,
        from: Arg,
    },
    Convert {
        to: Register,
        from: Arg,
        into: Type,
        out_of: Type,
    },
    ToFp8 {
        to: Register,
        high: Arg,
        low: Arg,
    },
    Select {
        to: Register,
        kind: Type,
        yes: Arg,
        no: Arg,
        by: Arg,
    },
    Compare {
        to: Register,
        compare: Compare,
        kind: Type,
        a: Arg,
        b: Arg,
        with: Option<Arg>,
    },
    /// Shifts a pair of words, and takes one of them.
    Funnel {
        to: Register,
        low: Arg,
        high: Arg,
        by: Arg,
        left: bool,
    },
    Permute {
        to: Register,
        a: Arg,
        b: Arg,
        selector: Arg,
    },
    Extract {
        to: Register,
        from: Arg,
        at: Arg,
        count: Arg,
        bits: u32,
    },
    Load {
        space: Space,
        order: Order,
        bytes: u32,
        to: Vec<Option<Register>>,
        base: Arg,
        offset: i64,
    },
    Store {
        space: Space,
        order: Order,
        bytes: u32,
        from: Vec<Arg>,
        base: Arg,
        offset: i64,
    },
    LoadParameter {
        which: Parameter,
        bytes: u32,
        to: Vec<Option<Register>>,
        offset: usize,
    },
    StoreParameter {
        which: Parameter,
        bytes: u32,
        from: Vec<Arg>,
        offset: usize,
    },
    Atomic {
        atomic: Atomic,
        order: Order,
        bytes: u32,
        to: Register,
        base: Arg,
        offset: i64,
        a: Arg,
        b: Option<Arg>,
    },
    Fence {
        order: Order,
    },
    Branch {
        to: usize,
    },
    BranchIndexed {
        by: Arg,
        to: Vec<usize>,
    },
    Call {
        function: usize,
    },
    Return,
    Trap,
    Sleep {
        ns: Arg,
    },
    BlockBarrier {
        aligned: bool,
    },
    WarpBarrier {
        mask: Arg,
    },
    /// Across a butterfly: `lane` is what the other lane's number differs by.
    Shuffle {
        to: Register,
        from: Arg,
        lane: Arg,
        mask: Arg,
        butterfly: bool,
    },
    Ballot {
        to: Register,
        from: Arg,
        mask: Arg,
    },
    /// Bits above the first that is set.
    LeadingZeros {
        to: Register,
        from: Arg,
        bits: u32,
    },
    /// Bits that are set.
    Ones {
        to: Register,
        from: Arg,
        bits: u32,
    },
    /// Two pairs of BF16, the larger magnitude of each; one that is no number does not count.
    LargerMagnitudes {
        to: Register,
        a: Arg,
        b: Arg,
    },
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// Register that must be true, or false if `.1`.
    pub guard: Option<(Register, bool)>,
    /// What it does.
    pub operation: Operation,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Symbol.
    pub name: String,
    /// Bytes of each parameter.
    pub params: Vec<usize>,
    /// Its instructions.
    pub code: Vec<Instruction>,
    /// How many registers it has.
    pub registers: usize,
}

/// A module that can be run.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its functions.
    pub functions: Vec<Function>,
    /// Constant tables, each from an aligned address on.
    pub tables: Vec<Vec<u64>>,
    by_name: HashMap<String, usize>,
}

impl Module {
    /// Decodes PTX text.
    ///
    /// # Errors
    /// A line with something that this machine does not know.
    pub fn read(text: &str) -> Result<Self, NotRead> {
        let text = crate::text::read(text)?;
        let by_name: HashMap<String, usize> =
            text.bodies.iter().enumerate().map(|(at, body)| (body.name.clone(), at)).collect();
        let (names, bytes): (Vec<String>, Vec<Vec<u8>>) = text.tables.into_iter().unzip();
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let tables = bytes.iter().map(|bytes| bytes.chunks(8).map(word).collect()).collect();
        let tables_by: HashMap<String, usize> = names.into_iter().zip(0..).collect();
        let functions = text.bodies.iter().map(|body| Decode::function(body, &by_name, &tables_by));
        Ok(Self { functions: functions.collect::<Result<_, _>>()?, tables, by_name })
    }

    /// Number of a function.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

struct Decode<'b> {
    body: &'b Body,
    by_name: &'b HashMap<String, usize>,
    tables: &'b HashMap<String, usize>,
    registers: HashMap<String, Register>,
    labels: HashMap<&'b str, usize>,
    targets: HashMap<&'b str, &'b [String]>,
}

impl<'b> Decode<'b> {
    fn function(
        body: &'b Body,
        by_name: &'b HashMap<String, usize>,
        tables: &'b HashMap<String, usize>,
    ) -> Result<Function, NotRead> {
        let (mut labels, mut targets, mut count) = (HashMap::new(), HashMap::new(), 0);
        for part in &body.parts {
            match part {
                Part::Label(name) => drop(labels.insert(name.as_str(), count)),
                Part::Table(name, list) => drop(targets.insert(name.as_str(), list.as_slice())),
                Part::Statement(_) => count += 1,
            }
        }
        let mut decode = Self { body, by_name, tables, registers: HashMap::new(), labels, targets };
        let mut code = Vec::new();
        for part in &body.parts {
            if let Part::Statement(statement) = part {
                let guard = statement.guard.as_ref().map(|(name, not)| (decode.register(name), *not));
                let operation = decode.operation(statement)?;
                code.push(Instruction { line: statement.line, guard, operation });
            }
        }
        // A lane that falls off the end returns.
        let line = code.last().map_or(0, |last: &Instruction| last.line);
        code.push(Instruction { line, guard: None, operation: Operation::Return });
        let params = body.params.iter().map(|(_, bytes)| *bytes).collect();
        Ok(Function { name: body.name.clone(), params, code, registers: decode.registers.len() })
    }

    fn register(&mut self, name: &str) -> Register {
        let next = self.registers.len() as Register;
        *self.registers.entry(name.to_owned()).or_insert(next)
    }

    fn arg(&mut self, text: &str, line: u32) -> Result<Arg, NotRead> {
        let special = match text {
            "%tid.x" => Some(Special::Thread),
            "%ntid.x" => Some(Special::Threads),
            "%ctaid.x" => Some(Special::Block),
            "%nctaid.x" => Some(Special::Blocks),
            "%laneid" => Some(Special::Lane),
            "%globaltimer" => Some(Special::Time),
            _ => None,
        };
        if let Some(special) = special {
            return Ok(Arg::Special(special));
        }
        if self.body.declares(text) {
            return Ok(Arg::Register(self.register(text)));
        }
        if text.starts_with('%') {
            return wrong(line, format!("`{text}`: a special register that this machine does not know"));
        }
        if let Some(table) = self.tables.get(text) {
            return Ok(Arg::Table(*table));
        }
        let number = text.trim_end_matches('U');
        let constant = if let Some(hex) = number.strip_prefix("0x") {
            u64::from_str_radix(hex, 16).ok()
        } else if let Some(hex) = number.strip_prefix("0f") {
            u64::from_str_radix(hex, 16).ok()
        } else {
            number.parse::<i64>().map(|value| value as u64).or_else(|_| number.parse()).ok()
        };
        constant.map_or_else(
            || wrong(line, format!("operand `{text}`: expected a register or a number")),
            |v| Ok(Arg::Constant(v)),
        )
    }

    fn to(&mut self, statement: &Statement) -> Result<Register, NotRead> {
        match statement.operands.first().map(String::as_str) {
            Some(name) if self.body.declares(name) => Ok(self.register(name)),
            other => wrong(statement.line, format!("result {other:?}: expected a register that is declared")),
        }
    }

    fn args(&mut self, statement: &Statement, from: usize) -> Result<Vec<Arg>, NotRead> {
        statement.operands.iter().skip(from).map(|text| self.arg(text, statement.line)).collect()
    }

    /// `{%r1, _}` or `%r1`.
    fn list(&mut self, text: &str) -> Vec<Option<Register>> {
        let inner = text.trim_start_matches('{').trim_end_matches('}');
        inner.split(',').map(str::trim).map(|name| (name != "_").then(|| self.register(name))).collect()
    }

    fn values(&mut self, text: &str, line: u32) -> Result<Vec<Arg>, NotRead> {
        let inner = text.trim_start_matches('{').trim_end_matches('}');
        inner.split(',').map(|name| self.arg(name.trim(), line)).collect()
    }

    fn operation(&mut self, statement: &Statement) -> Result<Operation, NotRead> {
        let (opcode, line) = (statement.opcode.as_str(), statement.line);
        let words: Vec<&str> = opcode.split('.').collect();
        let unknown = || wrong(line, format!("`{opcode}`: an instruction that this machine does not know"));
        let kind = words.iter().rev().find_map(|word| kind_of(word));
        Ok(match words[0] {
            "mov" => self.moved(statement, kind)?,
            "cvta" => Operation::Move { to: self.to(statement)?, from: self.args(statement, 1)?[0] },
            "ld" | "st" => self.memory(statement, &words)?,
            "atom" => self.atomic(statement, &words)?,
            "bra" => Operation::Branch { to: self.target(&statement.operands[0], line)? },
            "brx" => {
                let name = statement.operands[1].as_str();
                let Some(targets) = self.targets.get(name).copied() else {
                    return wrong(line, format!("`{name}`: expected a list of targets"));
                };
                let to = targets.iter().map(|target| self.target(target, line)).collect::<Result<_, _>>()?;
                Operation::BranchIndexed { by: self.arg(&statement.operands[0], line)?, to }
            }
            "call" => self.call(statement)?,
            "ret" | "exit" => Operation::Return,
            "trap" => Operation::Trap,
            "nanosleep" => Operation::Sleep { ns: self.args(statement, 0)?[0] },
            "fence" if matches!(words[1..], ["acq_rel" | "sc", "sys" | "gpu"]) => {
                Operation::Fence { order: order_of(&words) }
            }
            "bar" | "barrier" if opcode == "bar.warp.sync" => {
                Operation::WarpBarrier { mask: self.args(statement, 0)?[0] }
            }
            "bar" | "barrier" => self.barrier(statement)?,
            "vote" if opcode == "vote.sync.ballot.b32" => {
                let args = self.args(statement, 1)?;
                Operation::Ballot { to: self.to(statement)?, from: args[0], mask: args[1] }
            }
            "max" if opcode == "max.xorsign.abs.bf16x2" => {
                let args = self.args(statement, 1)?;
                Operation::LargerMagnitudes { to: self.to(statement)?, a: args[0], b: args[1] }
            }
            "shfl" if matches!(opcode, "shfl.sync.idx.b32" | "shfl.sync.bfly.b32") => {
                let args = self.args(statement, 1)?;
                if args.get(2) != Some(&Arg::Constant(31)) {
                    return wrong(line, "a shuffle in parts of a warp: expected one of all lanes, `31`");
                }
                let butterfly = opcode == "shfl.sync.bfly.b32";
                let (to, from) = (self.to(statement)?, args[0]);
                Operation::Shuffle { to, from, lane: args[1], mask: args[3], butterfly }
            }
            _ => match self.arithmetic(statement, &words, kind)? {
                Some(operation) => operation,
                None => return unknown(),
            },
        })
    }

    /// The one barrier that a block has.
    fn barrier(&self, statement: &Statement) -> Result<Operation, NotRead> {
        let Statement { line, opcode, operands, .. } = statement;
        match opcode.as_str() {
            _ if *operands != ["0"] => {
                wrong(*line, format!("`{opcode}` {operands:?}: expected barrier 0 of all threads"))
            }
            "barrier.sync" => Ok(Operation::BlockBarrier { aligned: false }),
            "barrier.sync.aligned" | "bar.sync" => Ok(Operation::BlockBarrier { aligned: true }),
            _ => wrong(*line, format!("`{opcode}`: a barrier that this machine does not know")),
        }
    }

    fn target(&self, name: &str, line: u32) -> Result<usize, NotRead> {
        self.labels.get(name).map_or_else(|| wrong(line, format!("no label `{name}`")), |at| Ok(*at))
    }

    fn moved(&mut self, statement: &Statement, kind: Option<Type>) -> Result<Operation, NotRead> {
        let bits = kind.map_or(64, Type::bits);
        let (to, from) = (&statement.operands[0], &statement.operands[1]);
        if to.starts_with('{') {
            return Ok(Operation::Unpack { to: self.list(to), from: self.arg(from, statement.line)?, bits });
        }
        if from.starts_with('{') {
            return Ok(Operation::Pack {
                to: self.to(statement)?,
                from: self.values(from, statement.line)?,
                bits,
            });
        }
        Ok(Operation::Move { to: self.to(statement)?, from: self.arg(from, statement.line)? })
    }

    fn arithmetic(
        &mut self,
        statement: &Statement,
        words: &[&str],
        kind: Option<Type>,
    ) -> Result<Option<Operation>, NotRead> {
        let pred = words.last() == Some(&"pred");
        let Some(kind) = kind.or(pred.then_some(Type::Unsigned(1))) else { return Ok(None) };
        let (to, args) = (self.to(statement)?, self.args(statement, 1)?);
        let binary = |operation| Some(Operation::Binary { operation, kind, to, a: args[0], b: args[1] });
        let second = words.get(1).copied().unwrap_or_default();
        Ok(match words[0] {
            "add" if second == "cc" => Some(Operation::AddCarry { to, a: args[0], b: args[1], takes: false }),
            "addc" => Some(Operation::AddCarry { to, a: args[0], b: args[1], takes: true }),
            "add" => binary(Binary::Add),
            "sub" => binary(Binary::Sub),
            "mul" if second == "hi" => binary(Binary::MultiplyHigh),
            "mul" if second == "wide" => binary(Binary::MultiplyWide),
            "mul" => binary(Binary::Multiply),
            "div" => binary(Binary::Divide),
            "rem" => binary(Binary::Remainder),
            "and" => binary(Binary::And),
            "or" => binary(Binary::Or),
            "xor" => binary(Binary::Xor),
            "shl" => binary(Binary::ShiftLeft),
            "shr" => binary(Binary::ShiftRight),
            "min" => binary(Binary::Least),
            "max" => binary(Binary::Most),
            "mad" if second == "lo" => {
                Some(Operation::MultiplyAdd { kind, to, a: args[0], b: args[1], c: args[2] })
            }
            "clz" => Some(Operation::LeadingZeros { to, from: args[0], bits: kind.bits() }),
            "popc" => Some(Operation::Ones { to, from: args[0], bits: kind.bits() }),
            "not" => Some(Operation::Not { kind, to, from: args[0] }),
            "neg" => Some(Operation::Negate { kind, to, from: args[0] }),
            "cvt" if words.contains(&"e4m3x2") => Some(Operation::ToFp8 { to, high: args[0], low: args[1] }),
            "cvt" if words.len() == 3 => match (kind_of(words[1]), kind_of(words[2])) {
                (Some(into), Some(out_of)) if into != Type::Float && out_of != Type::Float => {
                    Some(Operation::Convert { to, from: args[0], into, out_of })
                }
                _ => None,
            },
            "cvt" if matches!(words[1..], ["rn", "f32", "u32" | "s32"] | ["rzi", "u32", "f32"]) => {
                kind_of(words[2]).zip(kind_of(words[3])).map(|(into, out_of)| Operation::Convert {
                    to,
                    from: args[0],
                    into,
                    out_of,
                })
            }
            "selp" => Some(Operation::Select { to, kind, yes: args[0], no: args[1], by: args[2] }),
            "setp" => self.compared(words, kind, to, &args),
            "shf" if words[1..] == ["l", "wrap", "b32"] || words[1..] == ["r", "wrap", "b32"] => {
                let left = second == "l";
                Some(Operation::Funnel { to, low: args[0], high: args[1], by: args[2], left })
            }
            "prmt" => Some(Operation::Permute { to, a: args[0], b: args[1], selector: args[2] }),
            "bfe" => {
                Some(Operation::Extract { to, from: args[0], at: args[1], count: args[2], bits: kind.bits() })
            }
            _ => None,
        })
    }

    fn compared(&self, words: &[&str], kind: Type, to: Register, args: &[Arg]) -> Option<Operation> {
        let compare = match words[1] {
            "eq" => Compare::Equal,
            "ne" => Compare::NotEqual,
            "lt" => Compare::Less,
            "le" => Compare::LessOrEqual,
            "gt" => Compare::Greater,
            "ge" => Compare::GreaterOrEqual,
            "ltu" => Compare::LessOrUnordered,
            _ => return None,
        };
        let with = match words[2] {
            "and" => Some(args[2]),
            _ if words.len() == 3 => None,
            _ => return None,
        };
        Some(Operation::Compare { to, compare, kind, a: args[0], b: args[1], with })
    }

    fn memory(&mut self, statement: &Statement, words: &[&str]) -> Result<Operation, NotRead> {
        let line = statement.line;
        let Some(bytes) = words.last().and_then(|word| bits(word)).map(|bits| bits / 8) else {
            return wrong(line, format!("`{}`: expected a width", statement.opcode));
        };
        let load = words[0] == "ld";
        let (value, place) = match load {
            true => (&statement.operands[0], &statement.operands[1]),
            false => (&statement.operands[1], &statement.operands[0]),
        };
        let inner = place.trim_start_matches('[').trim_end_matches(']');
        let (name, offset) = inner.split_once('+').unwrap_or((inner, "0"));
        let Ok(offset) = offset.parse::<i64>() else {
            return wrong(line, format!("`{place}`: expected an offset"));
        };
        if words.contains(&"param") {
            let Some(which) = self.parameter(name) else {
                return wrong(line, format!("no parameter `{name}`"));
            };
            let offset = offset as usize;
            return Ok(match load {
                true => Operation::LoadParameter { which, bytes, to: self.list(value), offset },
                false => Operation::StoreParameter { which, bytes, from: self.values(value, line)?, offset },
            });
        }
        let space = match () {
            () if words.contains(&"shared") => Space::Shared,
            () if words.contains(&"const") => Space::Root,
            () if words.contains(&"mmio") => Space::Mmio,
            () if words.contains(&"nc") => Space::Constants,
            () => Space::Global,
        };
        let base = match space {
            Space::Shared
                if name == "shunt_block_word" && (offset, bytes) == (0, 8) && !value.contains(',') =>
            {
                Arg::Constant(0)
            }
            Space::Shared => {
                return wrong(line, format!("`{place}`: shared memory is the one word shunt_block_word"));
            }
            Space::Root if name == "shunt_root" => Arg::Constant(0),
            _ => self.arg(name, line)?,
        };
        if words.contains(&"local") {
            return wrong(line, format!("`{}`: expected no stack", statement.opcode));
        }
        let order = order_of(words);
        Ok(match load {
            true => Operation::Load { space, order, bytes, to: self.list(value), base, offset },
            false => Operation::Store { space, order, bytes, from: self.values(value, line)?, base, offset },
        })
    }

    fn parameter(&self, name: &str) -> Option<Parameter> {
        if let Some(at) = self.body.params.iter().position(|(own, _)| own == name) {
            return Some(Parameter::Own(at));
        }
        if name.starts_with("func_retval") {
            return Some(Parameter::Answer);
        }
        if name.starts_with("retval") {
            return Some(Parameter::Answered);
        }
        name.strip_prefix("param").and_then(|number| number.parse().ok()).map(Parameter::Theirs)
    }

    fn atomic(&mut self, statement: &Statement, words: &[&str]) -> Result<Operation, NotRead> {
        let line = statement.line;
        let atomic = match () {
            () if !words.contains(&"global") => {
                return wrong(line, format!("`{}`: expected an atomic on global memory", statement.opcode));
            }
            () if words.contains(&"cas") => Atomic::CompareSwap,
            () if words.contains(&"add") => Atomic::Add,
            () if words.contains(&"and") => Atomic::And,
            () if words.contains(&"or") => Atomic::Or,
            () => {
                return wrong(
                    line,
                    format!("`{}`: an atomic that this machine does not know", statement.opcode),
                );
            }
        };
        let bytes = words.last().and_then(|word| bits(word)).unwrap_or(64) / 8;
        let inner = statement.operands[1].trim_start_matches('[').trim_end_matches(']').to_owned();
        let (name, offset) = inner.split_once('+').unwrap_or((&inner, "0"));
        let offset = offset.parse().unwrap_or(0);
        let (base, a) = (self.arg(name, line)?, self.arg(&statement.operands[2], line)?);
        let b = statement.operands.get(3).map(|text| self.arg(text, line)).transpose()?;
        let to = self.to(statement)?;
        Ok(Operation::Atomic { atomic, order: order_of(words), bytes, to, base, offset, a, b })
    }

    fn call(&self, statement: &Statement) -> Result<Operation, NotRead> {
        let name = statement.operands.iter().find(|operand| !operand.starts_with('('));
        let function = name.and_then(|name| self.by_name.get(name.as_str()));
        function.map_or_else(
            || wrong(statement.line, format!("call of {name:?}: the module does not hold it")),
            |function| Ok(Operation::Call { function: *function }),
        )
    }
}

fn kind_of(word: &str) -> Option<Type> {
    let bits = bits(word)?;
    Some(match word.as_bytes()[0] {
        b's' => Type::Signed(bits),
        b'f' => Type::Float,
        _ => Type::Unsigned(bits),
    })
}

fn order_of(words: &[&str]) -> Order {
    let has = |word| words.contains(&word);
    let scope = match () {
        () if has("sys") || has("mmio") => Scope::System,
        () if has("gpu") => Scope::Gpu,
        () => Scope::Thread,
    };
    let both = has("acq_rel") || has("sc");
    Order { scope, acquires: both || has("acquire"), releases: both || has("release") }
}
