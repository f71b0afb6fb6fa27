//! PTX text as control-flow graphs: functions, basic blocks, statements with the registers they read and write.
//!
//! Pure. It knows what LLVM and our inline assembly print, and refuses a statement that it cannot place.

use anyhow::{Context, Result, bail};
use std::collections::HashMap;

/// A statement that is not a directive.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Line of the PTX text, from 1.
    pub line: usize,
    /// Opcode with its modifiers: `ld.acquire.sys.global.b64`.
    pub opcode: String,
    /// Predicate register that guards it: of branches alone. What else has one stands in a block of its own, behind a
    /// branch.
    pub guard: Option<String>,
    /// Registers it writes; a part of the answer is one, named as the text does: `func_retval0+8`.
    pub writes: Vec<String>,
    /// Registers it reads, special ones among them; the guard is not.
    pub reads: Vec<String>,
    /// Operands as they stand in the text.
    pub operands: String,
}

impl Statement {
    /// The function that it calls.
    pub fn callee(&self) -> Option<&str> {
        if !self.opcode.starts_with("call") {
            return None;
        }
        let operands = self.operands.as_str();
        let after = match operands.strip_prefix('(') {
            Some(inner) => inner.split_once(')').map_or("", |(_, tail)| tail),
            None => operands,
        };
        after.trim_start_matches([',', ' ']).split([',', ' ', '(']).next()
    }
}

/// Statements without a branch between them.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// In order.
    pub statements: Vec<Statement>,
    /// Blocks that may follow.
    pub next: Vec<usize>,
    /// Ends in `trap`: nobody waits for this thread any more, the kernel has failed.
    pub traps: bool,
}

/// A function with a body. Block 0 is its entry.
#[derive(Clone, Debug)]
pub struct Function {
    /// Symbol.
    pub name: String,
    /// Names of its parameters, in order.
    pub params: Vec<String>,
    /// Basic blocks.
    pub blocks: Vec<Block>,
}

/// The functions of a module, in order.
pub fn read(text: &str) -> Result<Vec<Function>> {
    let mut functions = Vec::new();
    let mut head: Option<Head> = None;
    let mut body: Option<Body> = None;
    for (number, raw) in text.lines().enumerate() {
        let line = number + 1;
        if raw.trim_start().starts_with(".section") {
            break;
        }
        let code = raw.split_once("//").map_or(raw, |(code, _)| code).trim();
        if let Some(open) = &mut body {
            if raw.starts_with('}') {
                let Body { parts, .. } = body.take().context("a body ends")?;
                let Head { name, params } = head.take().context("a body has a head")?;
                let blocks = blocks_of(&parts).with_context(|| name.clone())?;
                functions.push(Function { name, params, blocks });
                continue;
            }
            open.take(code, line).with_context(|| format!("line {line}"))?;
        } else if raw.starts_with('{') && head.is_some() {
            body = Some(Body::default());
        } else if code.contains(".entry ") || code.contains(".func ") || code.contains(".func(") {
            head = Some(Head { name: symbol(code), params: Vec::new() });
        } else if let Some(head) = &mut head {
            if let Some(param) = code.strip_prefix(".param") {
                let name = param.trim_end_matches([',', ')']).split_whitespace().last().unwrap_or_default();
                head.params.push(name.split('[').next().unwrap_or_default().to_owned());
            } else if head.name.is_empty() {
                head.name = symbol(code);
            }
        }
    }
    Ok(functions)
}

struct Head {
    name: String,
    params: Vec<String>,
}

/// The symbol that a head declares: the last name before the parameters.
fn symbol(code: &str) -> String {
    let is_symbol = |c: char| c.is_alphanumeric() || "_$".contains(c);
    let mut after =
        code.split_once(".entry").or_else(|| code.split_once(".func")).map_or("", |(_, tail)| tail);
    if after.trim_start().starts_with('(') {
        after = after.split_once(')').map_or("", |(_, tail)| tail);
    }
    after.trim_start().chars().take_while(|c| is_symbol(*c)).collect()
}

/// What a body is made of, labels and registers of inner scopes made unique.
#[derive(Debug)]
enum Part {
    Label(String),
    Targets(String, Vec<String>),
    Statement(Statement),
}

#[derive(Default)]
struct Body {
    parts: Vec<Part>,
    pending: String,
    pending_line: usize,
    /// Open braces: the names that each declares.
    scopes: Vec<Scope>,
    scopes_seen: usize,
}

#[derive(Default)]
struct Scope {
    id: usize,
    names: Vec<String>,
}

impl Body {
    fn take(&mut self, code: &str, line: usize) -> Result<()> {
        let mut depth_of_list = 0usize;
        for c in code.chars() {
            let starts = self.pending.trim().is_empty();
            match c {
                '{' if starts => {
                    self.scopes_seen += 1;
                    self.scopes.push(Scope { id: self.scopes_seen, names: Vec::new() });
                }
                '}' if starts => {
                    self.scopes.pop().context("a brace closes what none opened")?;
                }
                ';' => self.statement()?,
                ':' if depth_of_list == 0 && is_label(self.pending.trim()) => {
                    let label = self.declare(self.pending.trim().to_owned());
                    self.pending.clear();
                    self.parts.push(Part::Label(label));
                }
                _ => {
                    depth_of_list += usize::from(c == '{');
                    depth_of_list = depth_of_list.saturating_sub(usize::from(c == '}'));
                    if starts {
                        self.pending.clear();
                        self.pending_line = line;
                    }
                    self.pending.push(c);
                }
            }
        }
        self.pending.push(' ');
        Ok(())
    }

    /// Name in the innermost scope, which becomes part of it.
    fn declare(&mut self, name: String) -> String {
        match self.scopes.last_mut() {
            None => name,
            Some(scope) => {
                let unique = format!("{name}@{}", scope.id);
                scope.names.push(name);
                unique
            }
        }
    }

    /// What a name means here. A label may be declared further on in its scope: of inline assembly, whose labels
    /// have no `$`.
    fn resolve(&self, name: &str) -> String {
        match self.scopes.iter().rev().find(|scope| scope.names.iter().any(|known| known == name)) {
            Some(scope) => format!("{name}@{}", scope.id),
            None => name.to_owned(),
        }
    }

    fn statement(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.pending);
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        if text.starts_with('.') {
            if let Some(list) = text.strip_prefix(".branchtargets") {
                let targets = list.split(',').map(|target| target.trim().to_owned()).collect();
                let Some(Part::Label(name)) = self.parts.pop() else {
                    bail!("`{text}`: expected a label before it")
                };
                self.parts.push(Part::Targets(name, targets));
            } else if let Some(declared) = text.strip_prefix(".reg") {
                for name in declared.split_once(char::is_whitespace).map_or("", |(_, names)| names).split(',')
                {
                    let name = name.split_whitespace().last().unwrap_or_default();
                    if !name.contains('<') && !self.scopes.is_empty() {
                        self.declare(name.to_owned());
                    }
                }
            }
            return Ok(());
        }
        let mut rest = text;
        let mut guard = None;
        if let Some(guarded) = rest.strip_prefix('@') {
            let (register, tail) = guarded.split_once(char::is_whitespace).context("a guard stands alone")?;
            guard = Some(self.resolve(register.trim_start_matches('!')));
            rest = tail.trim_start();
        }
        let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let operands = operands.trim();
        let (writes, reads) = self.registers(opcode, operands);
        let operands = if opcode.starts_with("bra") && !operands.starts_with('$') {
            let scope = self.scopes.last().map_or(0, |scope| scope.id);
            format!("{operands}@{scope}")
        } else {
            operands.to_owned()
        };
        self.parts.push(Part::Statement(Statement {
            line: self.pending_line,
            opcode: opcode.to_owned(),
            guard,
            writes,
            reads,
            operands,
        }));
        Ok(())
    }

    /// (written, read). The first operand of what has a result is written, a vector as a whole.
    fn registers(&self, opcode: &str, operands: &str) -> (Vec<String>, Vec<String>) {
        let none = ["st.", "red.", "bra", "brx", "ret", "bar", "fence", "nanosleep", "call", "trap", "exit"];
        let all = |text: &str| -> Vec<String> {
            let is_name = |c: char| c.is_alphanumeric() || "_%$.".contains(c);
            text.split(|c: char| !is_name(c))
                .filter(|word| word.starts_with('%') || self.resolve(word) != *word)
                .map(|word| self.resolve(word))
                .collect()
        };
        if none.iter().any(|head| opcode.starts_with(head)) {
            let place = operands.split(['[', ']']).nth(1).unwrap_or_default();
            let answers = opcode.starts_with("st.param") && place.starts_with("func_retval");
            return (answers.then(|| place.to_owned()).into_iter().collect(), all(operands));
        }
        let end = match operands.strip_prefix('{') {
            Some(list) => list.find('}').map_or(operands.len(), |at| at + 2),
            None => operands.find(',').unwrap_or(operands.len()),
        };
        let (first, rest) = operands.split_at(end);
        (all(first), all(rest))
    }
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_$".contains(c))
}

fn leaves(opcode: &str) -> bool {
    ["ret", "ret.uni", "trap", "exit"].contains(&opcode)
}

/// A guarded statement as what it is: a branch, a block with the statement alone, and the block behind both.
fn split(blocks: &mut Vec<Block>, statement: &Statement) {
    let behind = blocks.len() + 1;
    let branch = Statement {
        opcode: "bra".to_owned(),
        writes: Vec::new(),
        reads: Vec::new(),
        operands: String::new(),
        ..statement.clone()
    };
    if let Some(here) = blocks.last_mut() {
        here.statements.push(branch);
        here.next.extend([behind - 1, behind]);
    }
    let opcode = statement.opcode.as_str();
    let alone = Block {
        statements: vec![Statement { guard: None, ..statement.clone() }],
        next: if leaves(opcode) { Vec::new() } else { vec![behind] },
        traps: opcode == "trap",
    };
    blocks.extend([alone, Block::default()]);
}

fn blocks_of(parts: &[Part]) -> Result<Vec<Block>> {
    let mut blocks = vec![Block::default()];
    let mut labels: HashMap<&str, usize> = HashMap::new();
    let mut tables: HashMap<&str, &[String]> = HashMap::new();
    // (block, label) of branches; blocks that fall through to the one behind.
    let mut jumps: Vec<(usize, String)> = Vec::new();
    let mut falls = true;
    for part in parts {
        let here = blocks.len() - 1;
        match part {
            Part::Targets(name, targets) => {
                tables.insert(name, targets);
            }
            Part::Label(name) => {
                if falls {
                    blocks[here].next.push(here + 1);
                }
                blocks.push(Block::default());
                labels.insert(name, here + 1);
                falls = true;
            }
            Part::Statement(statement) => {
                let opcode = statement.opcode.as_str();
                let ends = opcode.starts_with("bra") || opcode.starts_with("brx");
                if statement.guard.is_some() && !ends {
                    split(&mut blocks, statement);
                    continue;
                }
                blocks[here].statements.push(statement.clone());
                let leaves = leaves(opcode);
                if ends {
                    let target = match opcode.starts_with("brx") {
                        true => statement.operands.rsplit(',').next().unwrap_or_default().trim(),
                        false => statement.operands.trim(),
                    };
                    jumps.push((here, target.to_owned()));
                }
                if ends || leaves {
                    blocks[here].traps = opcode == "trap";
                    falls = statement.guard.is_some();
                    if falls {
                        blocks[here].next.push(here + 1);
                    }
                    blocks.push(Block::default());
                    // What stands behind an unconditional jump and has no label is reached by nobody.
                    falls = statement.guard.is_some();
                }
            }
        }
    }
    for (from, target) in jumps {
        let targets = match tables.get(target.as_str()) {
            Some(targets) => targets.to_vec(),
            None => vec![target],
        };
        for target in targets {
            let to = *labels.get(target.as_str()).with_context(|| format!("no label `{target}`"))?;
            if !blocks[from].next.contains(&to) {
                blocks[from].next.push(to);
            }
        }
    }
    Ok(blocks)
}
