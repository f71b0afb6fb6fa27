//! Reads PTX text and says what must not be in a kernel: calls out of the module, a stack, a way to panic.
//!
//! Pure: text in, facts out. It knows PTX only as far as it needs to: functions, statements, opcodes.

/// One function of a PTX module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Symbol.
    pub name: String,
    /// True for a kernel.
    pub entry: bool,
    /// Sizes of its arguments and of its answer: `b32 b64 -> b64`.
    pub signature: String,
    /// Instructions, as PTX counts them.
    pub instructions: usize,
    /// Loads, parameters left out.
    pub loads: usize,
    /// Stores, parameters left out.
    pub stores: usize,
    /// Read-modify-writes.
    pub atomics: usize,
    /// Read-modify-writes that no inline assembly of ours spells out: what `core::sync::atomic` becomes, relaxed and of
    /// gpu scope whatever was asked for.
    pub foreign_atomics: usize,
    /// Symbols it calls, one for each call.
    pub calls: Vec<String>,
    /// True if it touches a stack.
    pub stack: bool,
}

/// What a module holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Functions with a body, in order.
    pub functions: Vec<Function>,
    /// Functions declared elsewhere: nothing links them.
    pub external: Vec<String>,
}

impl Module {
    /// Parses PTX text.
    pub fn parse(text: &str) -> Self {
        let mut module = Self::default();
        let text = without_comments(text);
        let mut rest = text.as_str();
        while let Some(head) = next_head(rest) {
            if head.external {
                module.external.push(head.name);
            } else if let Some(body) = head.body {
                let signature = signature(head.declared);
                module.functions.push(Function { signature, ..read_body(head.name, head.entry, body) });
            }
            rest = head.rest;
        }
        module
    }

    /// The kernels, and what a library exports.
    pub fn roots(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.entry || function.name.starts_with("shunt_"))
    }

    /// Everything that is wrong with it, one line each.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.roots().next().is_none() {
            faults.push("no entry point: the module holds no kernel and exports nothing".to_owned());
        }
        for name in &self.external {
            faults.push(format!("`.extern .func {name}`: not inlined, and nothing links it"));
        }
        for function in self.functions.iter().filter(|function| self.reachable(&function.name)) {
            if function.stack {
                faults.push(format!("{}: uses a stack (.local)", function.name));
            }
            if function.foreign_atomics != 0 {
                let count = function.foreign_atomics;
                faults.push(format!("{}: {count} atomics that are none of Platform's", function.name));
            }
            for callee in &function.calls {
                if is_panic(callee) {
                    faults.push(format!("{}: can panic (calls {callee})", function.name));
                } else if !self.functions.iter().any(|other| other.name == *callee) {
                    faults.push(format!("{}: calls {callee}, which the module does not hold", function.name));
                }
            }
        }
        faults.dedup();
        faults
    }

    /// True for roots and for what they call, directly or not.
    pub fn reachable(&self, name: &str) -> bool {
        let mut seen: Vec<&str> = Vec::new();
        let mut open: Vec<&str> = self.roots().map(|root| root.name.as_str()).collect();
        while let Some(next) = open.pop() {
            if next == name {
                return true;
            }
            if seen.contains(&next) {
                continue;
            }
            seen.push(next);
            if let Some(function) = self.functions.iter().find(|function| function.name == next) {
                open.extend(function.calls.iter().map(String::as_str));
            }
        }
        false
    }
}

/// Start of a function, cut out of the text.
struct Head<'t> {
    name: String,
    entry: bool,
    external: bool,
    /// From the keyword to the body.
    declared: &'t str,
    body: Option<&'t str>,
    rest: &'t str,
}

/// Finds the next `.entry` or `.func` and its body.
fn next_head(text: &str) -> Option<Head<'_>> {
    let keyword = |word: &str| text.find(word).map(|at| (at, word.len()));
    let (at, length) =
        [keyword(".entry "), keyword(".func "), keyword(".func(")].into_iter().flatten().min()?;
    let entry = text[at..].starts_with(".entry");
    let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let external = text[line_start..at].contains(".extern");
    // A return value stands in parentheses before the name: `.func (.param .b32 r) name (`.
    let mut after = text[at + length..].trim_start();
    if text[at..].starts_with(".func(") || after.starts_with('(') {
        after = after.split_once(')').map_or("", |(_, tail)| tail).trim_start();
    }
    let name: String = after.chars().take_while(|c| c.is_alphanumeric() || "_$.%".contains(*c)).collect();
    let end = after.find(';').unwrap_or(after.len());
    let open = after.find('{').filter(|open| *open < end);
    let Some(open) = open else {
        return Some(Head { name, entry, external, declared: "", body: None, rest: &after[end..] });
    };
    let declared = &text[at..text.len() - after.len() + open];
    let close = open + matching_brace(&after[open..]);
    Some(Head { name, entry, external, declared, body: Some(&after[open + 1..close]), rest: &after[close..] })
}

/// Sizes of arguments and answer: `.func (.param .b64 r) name(.param .b32 a)` is `b32 -> b64`.
fn signature(declared: &str) -> String {
    let sizes = |list: &str| {
        let one = |param: &str| {
            param.split_whitespace().find_map(|word| word.strip_prefix(".b")).map(|n| format!("b{n}"))
        };
        list.split(',').filter_map(one).collect::<Vec<_>>().join(" ")
    };
    let mut lists = declared.split('(').skip(1).map(|list| sizes(list.split(')').next().unwrap_or_default()));
    let (first, second) = (lists.next().unwrap_or_default(), lists.next());
    let (answer, arguments) = second.map_or((String::new(), first.clone()), |arguments| (first, arguments));
    format!("{arguments} -> {answer}").trim().to_owned()
}

/// Length of the text from an opening brace up to the one that closes it.
fn matching_brace(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    text.len()
}

fn read_body(name: String, entry: bool, body: &str) -> Function {
    let mut function = Function { name, entry, ..Function::default() };
    let mut inline = false;
    for statement in body.split(';') {
        // A label may stand before it.
        match statement.lines().last().unwrap_or_default().trim() {
            ASM_BEGIN => inline = true,
            ASM_END => inline = false,
            _ => read_statement(&mut function, statement, inline),
        }
    }
    function
}

/// What the comments around inline assembly become, so that they stay.
const ASM_BEGIN: &str = ".shunt_asm_begin";
const ASM_END: &str = ".shunt_asm_end";

fn read_statement(function: &mut Function, statement: &str, inline: bool) {
    // Lines that belong to no instruction: `.loc`, labels, braces of a call or of inline assembly.
    let mut text = String::new();
    for line in statement.lines().map(str::trim) {
        let line = line.trim_start_matches(['{', '}']).trim_start();
        let first = line.split_whitespace().next().unwrap_or_default();
        if !(first.is_empty() || first == ".loc" || first == ".pragma" || line.ends_with(':')) {
            text.push_str(line);
            text.push(' ');
        }
    }
    let text = text.trim();
    if text.starts_with(".local") || text.contains("__local_depot") {
        function.stack = true;
    }
    if text.is_empty() || text.starts_with('.') {
        return;
    }
    let mut words = text.split_whitespace();
    let mut opcode = words.next().unwrap_or_default();
    if opcode.starts_with('@') {
        opcode = words.next().unwrap_or_default();
    }
    function.instructions += 1;
    let is = |prefix: &str| opcode.starts_with(prefix);
    if is("ld.local") || is("st.local") {
        function.stack = true;
    }
    if is("ld.") && !is("ld.param") {
        function.loads += 1;
    } else if is("st.") && !is("st.param") {
        function.stores += 1;
    } else if is("atom.") || is("red.") {
        function.atomics += 1;
        function.foreign_atomics += usize::from(!inline);
    } else if opcode == "call" || is("call.") {
        function.calls.push(callee(text));
    }
}

/// The symbol of `call.uni (retval), name, (params)`.
fn callee(statement: &str) -> String {
    let after = statement.split_once(char::is_whitespace).map_or("", |(_, tail)| tail).trim_start();
    let after = match after.strip_prefix('(') {
        Some(inner) => inner.split_once(')').map_or("", |(_, tail)| tail),
        None => after,
    };
    let is_symbol = |c: char| c.is_alphanumeric() || "_$.%".contains(c);
    after.trim_start_matches(|c: char| !is_symbol(c)).chars().take_while(|c| is_symbol(*c)).collect()
}

/// True for what Rust calls to panic, and for the panic handler itself.
fn is_panic(symbol: &str) -> bool {
    ["panic", "rust_begin_unwind", "unwrap_failed", "expect_failed", "slice_index_fail"]
        .iter()
        .any(|part| symbol.contains(part))
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        // Debug sections hold no code, and much of everything else.
        if line.trim_start().starts_with(".section") {
            break;
        }
        match line.trim() {
            "// begin inline asm" => out.extend([ASM_BEGIN, ";"]),
            "// end inline asm" => out.extend([ASM_END, ";"]),
            _ => out.push_str(line.split_once("//").map_or(line, |(code, _)| code)),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
