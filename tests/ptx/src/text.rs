//! PTX text cut into functions, statements and labels. Names of inner scopes are made unique here, so that nobody else
//! has to know of scopes.

use std::collections::HashMap;

/// A statement that is not a directive.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Line of the text, from 1.
    pub line: u32,
    /// `@%p1` or `@!%p1`: the register, and whether it must be false.
    pub guard: Option<(String, bool)>,
    /// Opcode with its modifiers.
    pub opcode: String,
    /// Operands, split at commas outside of brackets.
    pub operands: Vec<String>,
}

/// What a body is made of.
#[derive(Clone, Debug)]
pub enum Part {
    /// A place to jump to.
    Label(String),
    /// Targets of an indexed branch.
    Table(String, Vec<String>),
    /// An instruction.
    Statement(Statement),
}

/// A function with a body.
#[derive(Clone, Debug)]
pub struct Body {
    /// Symbol.
    pub name: String,
    /// Parameters in order: name, bytes.
    pub params: Vec<(String, usize)>,
    /// Statements and labels in order.
    pub parts: Vec<Part>,
    /// Registers that it declares: `%r<9>` as (`%r`, 9), one alone without a number.
    pub registers: Vec<(String, Option<u32>)>,
}

impl Body {
    /// True for a register that it declares; those of inner scopes have the scope in their names.
    pub fn declares(&self, register: &str) -> bool {
        let one = |(name, bound): &(String, Option<u32>)| match (register.strip_prefix(name.as_str()), bound)
        {
            (Some(number), Some(bound)) => number.parse::<u32>().is_ok_and(|number| number < *bound),
            (Some(rest), None) => rest.is_empty(),
            (None, _) => false,
        };
        register.contains('@') || self.registers.iter().any(one)
    }
}

/// A module.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// Functions with a body.
    pub bodies: Vec<Body>,
    /// Constant tables in global memory.
    pub tables: HashMap<String, Vec<u8>>,
}

/// Why a text is no module that this machine can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRead {
    /// Line of the text, from 1.
    pub line: u32,
    /// What was met.
    pub what: String,
}

impl std::fmt::Display for NotRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PTX line {}: {}", self.line, self.what)
    }
}

/// An error of one line.
pub fn wrong<T>(line: u32, what: impl Into<String>) -> Result<T, NotRead> {
    Err(NotRead { line, what: what.into() })
}

/// Reads a module.
///
/// # Errors
/// A line that is not understood.
pub fn read(text: &str) -> Result<Text, NotRead> {
    let mut out = Text::default();
    let mut head: Option<(String, Vec<(String, usize)>)> = None;
    let mut open: Option<Open> = None;
    for (number, raw) in text.lines().enumerate() {
        let line = number as u32 + 1;
        if raw.trim_start().starts_with(".section") {
            break;
        }
        let code = raw.split_once("//").map_or(raw, |(code, _)| code).trim();
        if let Some(body) = &mut open {
            if raw.starts_with('}') {
                if let (Some(body), Some((name, params))) = (open.take(), head.take()) {
                    let Open { parts, registers, .. } = body;
                    out.bodies.push(Body { name, params, parts, registers });
                }
                continue;
            }
            body.take(code, line)?;
        } else if raw.starts_with('{') && head.is_some() {
            open = Some(Open::default());
        } else if code.contains(".entry ") || code.contains(".func ") || code.contains(".func(") {
            head = Some((symbol(code), Vec::new()));
        } else if code.starts_with(".global") {
            out.tables.extend(table(code));
        } else if let (Some((_, params)), Some(param)) = (&mut head, code.strip_prefix(".param")) {
            params.push(parameter(param.trim_end_matches([',', ')'])));
        }
    }
    Ok(out)
}

fn symbol(code: &str) -> String {
    let mut after =
        code.split_once(".entry").or_else(|| code.split_once(".func")).map_or("", |(_, tail)| tail);
    if after.trim_start().starts_with('(') {
        after = after.split_once(')').map_or("", |(_, tail)| tail);
    }
    after.trim_start().chars().take_while(|c| c.is_alphanumeric() || "_$".contains(*c)).collect()
}

/// `.b64 name` or `.align 8 .b8 name[96]`: name, bytes.
fn parameter(text: &str) -> (String, usize) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let last = words.last().copied().unwrap_or_default();
    let width = words.iter().rev().find_map(|word| bits(word)).unwrap_or(64) / 8;
    match last.split_once('[') {
        Some((name, count)) => {
            (name.to_owned(), width as usize * count.trim_end_matches(']').parse::<usize>().unwrap_or(0))
        }
        None => (last.to_owned(), width as usize),
    }
}

/// Bits of a type: `.u64` and `.b64` are 64.
pub fn bits(word: &str) -> Option<u32> {
    let number = word.strip_prefix('.').unwrap_or(word).strip_prefix(['b', 'u', 's', 'f'])?;
    number.parse().ok().filter(|bits| [8, 16, 32, 64].contains(bits))
}

/// `.global .align 4 .b8 name[24] = {1, 0};`
fn table(code: &str) -> Option<(String, Vec<u8>)> {
    let (declared, list) = code.split_once('=')?;
    let (name, bytes) = parameter(declared.trim());
    let values = list.trim().trim_start_matches('{').trim_end_matches(';').trim_end_matches('}');
    let mut bytes_of: Vec<u8> = values.split(',').filter_map(|value| value.trim().parse().ok()).collect();
    bytes_of.resize(bytes, 0);
    Some((name, bytes_of))
}

#[derive(Default)]
struct Open {
    parts: Vec<Part>,
    registers: Vec<(String, Option<u32>)>,
    pending: String,
    line: u32,
    scopes: Vec<(usize, Vec<String>)>,
    seen: usize,
}

impl Open {
    fn take(&mut self, code: &str, line: u32) -> Result<(), NotRead> {
        for c in code.chars() {
            let starts = self.pending.trim().is_empty();
            match c {
                '{' if starts => {
                    self.seen += 1;
                    self.scopes.push((self.seen, Vec::new()));
                }
                '}' if starts => {
                    self.scopes.pop();
                }
                ';' => self.statement()?,
                ':' if self.pending.trim().chars().all(|c| c.is_alphanumeric() || "_$".contains(c)) => {
                    let label = std::mem::take(&mut self.pending).trim().to_owned();
                    let label = self.declare(label);
                    self.parts.push(Part::Label(label));
                }
                _ => {
                    if starts {
                        self.pending.clear();
                        self.line = line;
                    }
                    self.pending.push(c);
                }
            }
        }
        self.pending.push(' ');
        Ok(())
    }

    fn declare(&mut self, name: String) -> String {
        match self.scopes.last_mut() {
            Some((id, names)) if !name.starts_with('$') => {
                let unique = format!("{name}@{id}");
                names.push(name);
                unique
            }
            _ => name,
        }
    }

    fn resolve(&self, name: &str) -> String {
        let known = self.scopes.iter().rev().find(|(_, names)| names.iter().any(|known| known == name));
        known.map_or_else(|| name.to_owned(), |(id, _)| format!("{name}@{id}"))
    }

    /// Replaces names of inner scopes in an operand.
    fn renamed(&self, operand: &str) -> String {
        let mut out = String::new();
        let mut name = String::new();
        let is_name = |c: char| c.is_alphanumeric() || "_%$.".contains(c);
        for c in operand.chars().chain([' ']) {
            if is_name(c) {
                name.push(c);
                continue;
            }
            out.push_str(&self.resolve(&std::mem::take(&mut name)));
            out.push(c);
        }
        out.trim().to_owned()
    }

    fn statement(&mut self) -> Result<(), NotRead> {
        let text = std::mem::take(&mut self.pending);
        let (text, line) = (text.trim(), self.line);
        if text.is_empty()
            || text.starts_with(".loc")
            || text.starts_with(".pragma")
            || text.starts_with(".param")
        {
            return Ok(());
        }
        if let Some(list) = text.strip_prefix(".branchtargets") {
            let Some(Part::Label(name)) = self.parts.pop() else {
                return wrong(line, "branch targets: expected a label before them");
            };
            let targets = list.split(',').map(|target| target.trim().to_owned()).collect();
            self.parts.push(Part::Table(name, targets));
            return Ok(());
        }
        if let Some(declared) = text.strip_prefix(".reg") {
            let names = declared.trim().split_once(char::is_whitespace).map_or("", |(_, names)| names);
            for name in names.split(',').map(str::trim) {
                match name.split_once('<') {
                    Some((head, bound)) => {
                        let bound = bound.trim_end_matches('>').parse().ok();
                        self.registers.push((head.to_owned(), Some(bound.unwrap_or(0))));
                    }
                    None if self.scopes.is_empty() => self.registers.push((name.to_owned(), None)),
                    None => drop(self.declare(name.to_owned())),
                }
            }
            return Ok(());
        }
        if text.starts_with('.') {
            return wrong(
                line,
                format!("directive `{text}`: expected .reg, .param, .loc, .pragma or .branchtargets"),
            );
        }
        let (guard, rest) = match text.strip_prefix('@') {
            None => (None, text),
            Some(guarded) => {
                let (register, rest) = guarded.split_once(char::is_whitespace).unwrap_or((guarded, ""));
                let name = self.resolve(register.trim_start_matches('!'));
                (Some((name, register.starts_with('!'))), rest.trim_start())
            }
        };
        let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let mut operands: Vec<String> = split(operands).iter().map(|operand| self.renamed(operand)).collect();
        if opcode.starts_with("bra") {
            // A label of inline assembly may stand before or behind: it is of the innermost scope in either case.
            if let (Some((id, _)), Some(target)) = (self.scopes.last(), operands.first_mut())
                && !target.starts_with('$')
                && !target.contains('@')
            {
                *target = format!("{target}@{id}");
            }
        }
        self.parts.push(Part::Statement(Statement { line, guard, opcode: opcode.to_owned(), operands }));
        Ok(())
    }
}

/// At commas that no bracket holds.
pub fn split(text: &str) -> Vec<String> {
    let (mut depth, mut parts, mut part) = (0usize, Vec::new(), String::new());
    for c in text.chars() {
        match c {
            ',' if depth == 0 => parts.push(std::mem::take(&mut part).trim().to_owned()),
            _ => {
                depth += usize::from("{[(".contains(c));
                depth = depth.saturating_sub(usize::from("}])".contains(c)));
                part.push(c);
            }
        }
    }
    if !part.trim().is_empty() {
        parts.push(part.trim().to_owned());
    }
    parts
}
