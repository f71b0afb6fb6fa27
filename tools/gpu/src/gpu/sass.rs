//! Reads what nvdisasm prints: instructions, accesses and calls of each function, and what a call costs as long as
//! nothing fails.
//!
//! Pure: text in, facts out.

use std::collections::{BTreeMap, BTreeSet};

/// Machine code of one function, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Instructions, padding left out.
    pub instructions: usize,
    /// Loads of global memory. What comes out of constant or shared memory is none.
    pub loads: usize,
    /// Stores to global memory.
    pub stores: usize,
    /// Read-modify-writes of global memory.
    pub atomics: usize,
    /// Fences and barriers of a block.
    pub barriers: usize,
    /// Accesses to a stack.
    pub local: usize,
    /// One more than the highest register.
    pub registers: usize,
    /// Functions it calls.
    pub calls: BTreeSet<String>,
}

impl Code {
    fn instruction(&mut self, text: &str) {
        let mut words = text.trim_end_matches(';').split_whitespace();
        let mut opcode = words.next().unwrap_or_default();
        if opcode.starts_with('@') {
            opcode = words.next().unwrap_or_default();
        }
        self.instructions += 1;
        match opcode.split('.').next().unwrap_or_default() {
            "LDG" | "LD" => self.loads += 1,
            "STG" | "ST" => self.stores += 1,
            "ATOM" | "ATOMG" | "RED" | "REDG" => self.atomics += 1,
            "MEMBAR" | "FENCE" | "BAR" | "UCGABAR_ARV" | "UCGABAR_WAIT" => self.barriers += 1,
            "LDL" | "STL" => self.local += 1,
            "CALL" => {
                self.calls.extend(target(text).filter(|name| !name.starts_with(".L_")).map(str::to_owned))
            }
            _ => {}
        }
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            let number = word.strip_prefix('R').and_then(|number| number.parse::<usize>().ok());
            self.registers = self.registers.max(number.map_or(0, |number| number + 1));
        }
    }

    fn add(&mut self, other: &Self) {
        self.instructions += other.instructions;
        self.loads += other.loads;
        self.stores += other.stores;
        self.atomics += other.atomics;
        self.barriers += other.barriers;
        self.local += other.local;
        self.registers = self.registers.max(other.registers);
    }
}

/// What stands between a backquote with parenthesis and its end: the label that a branch or call goes to.
fn target(text: &str) -> Option<&str> {
    text.split_once("`(").and_then(|(_, tail)| tail.split_once(')')).map(|(name, _)| name)
}

/// The functions of a listing made with `nvdisasm -c`.
pub fn read(text: &str) -> BTreeMap<String, Code> {
    let mut out = BTreeMap::new();
    let mut name = String::new();
    let mut body: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(tail) = line.strip_prefix(".section\t") {
            finish(&mut out, &name, &mut body);
            let section = tail.trim().split([',', '\t', ' ']).next().unwrap_or_default().trim_matches('"');
            name = section.strip_prefix(".text.").unwrap_or_default().to_owned();
        }
        let code =
            line.strip_prefix("/*").and_then(|tail| tail.split_once("*/")).map(|(_, code)| code.trim());
        if let Some(code) = code.filter(|code| code.ends_with(';')) {
            body.push(code);
        } else if line.starts_with(".L_") {
            body.push(line);
        }
    }
    finish(&mut out, &name, &mut body);
    out
}

/// Counts a function. Behind its last instruction stand a branch to itself and NOPs up to the next line of the
/// instruction cache: padding.
fn finish(out: &mut BTreeMap<String, Code>, name: &str, body: &mut Vec<&str>) {
    let is_label = |line: &str| line.starts_with(".L_");
    let is_padding = |at: usize| {
        let label = at.checked_sub(1).map_or("", |before| body[before]).trim_end_matches(':');
        body[at].starts_with("NOP")
            || is_label(label) && body[at].starts_with("BRA") && target(body[at]) == Some(label)
    };
    let end =
        (0..body.len()).rev().find(|at| !is_label(body[*at]) && !is_padding(*at)).map_or(0, |at| at + 1);
    if !name.is_empty() && end != 0 {
        let code: &mut Code = out.entry(name.to_owned()).or_default();
        body[..end].iter().filter(|line| !is_label(line)).for_each(|line| code.instruction(line));
    }
    body.clear();
}

/// What runs as long as nothing fails, waits or is out of the ordinary: `root` and all that it calls, but for functions
/// that are cold.
pub fn no_fault_path(code: &BTreeMap<String, Code>, root: &str) -> (Code, Vec<String>) {
    let mut sum = Code::default();
    let mut met: Vec<String> = vec![root.to_owned()];
    let mut at = 0;
    while at < met.len() {
        if let Some(function) = code.get(&met[at]) {
            sum.add(function);
            for callee in function.calls.iter().filter(|callee| !is_cold(callee)) {
                if !met.contains(callee) {
                    met.push(callee.clone());
                }
            }
        }
        at += 1;
    }
    met.remove(0);
    (sum, met)
}

/// Bytes of stack that a call of `root` takes at most, given the frame of each function.
pub fn stack(code: &BTreeMap<String, Code>, frames: &BTreeMap<String, u32>, root: &str) -> u32 {
    fn deepest<'c>(
        code: &'c BTreeMap<String, Code>,
        frames: &BTreeMap<String, u32>,
        at: &'c str,
        above: &mut Vec<&'c str>,
    ) -> u32 {
        // Nothing in device code calls itself; what is met twice is met by another way.
        if above.contains(&at) {
            return 0;
        }
        above.push(at);
        let callees = code.get(at).map(|function| &function.calls);
        let below = callees.into_iter().flatten().map(|callee| deepest(code, frames, callee, above)).max();
        above.pop();
        frames.get(at).copied().unwrap_or_default() + below.unwrap_or_default()
    }
    deepest(code, frames, root, &mut Vec::new())
}

/// Functions of the device crate that are never inlined and only called when there is something to wait for, to repair
/// or to report. By the house's rule their names end in `_slow`; the others stand here.
const COLD: &[&str] = &["touch"];

/// True for what only runs when something fails, waits or is out of the ordinary.
pub fn is_cold(symbol: &str) -> bool {
    let name = short(symbol);
    // Those of a header in CUDA C++ are mangled in another way.
    let foreign = symbol.starts_with("_ZN") && symbol.contains("_slow");
    name.ends_with("_slow") || foreign || COLD.contains(&name.as_str())
}

/// The last part of a Rust path, demangled, without what it is generic over.
pub fn short(symbol: &str) -> String {
    let full = format!("{:#}", rustc_demangle::demangle(symbol));
    let mut plain = String::new();
    let mut depth = 0usize;
    for c in full.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    plain.rsplit("::").find(|part| !part.is_empty()).unwrap_or(&plain).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\t.section\t.text.put,\"ax\",@progbits\n\
        put:\n\
        \x20       /*0000*/                   LDC R1, c[0x0][0x28] ;\n\
        .L_x_1:\n\
        \x20       /*0010*/              @!P0 BRA `(.L_x_1) ;\n\
        \x20       /*0020*/                   NOP;\n\
        \x20       /*0030*/                   LDG.E.64.STRONG.SYS R6, desc[UR36][R40.64] ;\n\
        \x20       /*0040*/                   STG.E.NA.128.STRONG.SYS desc[UR4][R2.64], R8 ;\n\
        \x20       /*0050*/              @P1  ATOMG.E.CAS.STRONG.SYS PT, R6, [R4], R5, R9 ;\n\
        \x20       /*0060*/                   MEMBAR.ALL.GPU ;\n\
        \x20       /*0070*/                   CALL.ABS.NOINC `(admit_slow) ;\n\
        \x20       /*0080*/                   CALL.REL.NOINC `(.L_x_1) ;\n\
        \x20       /*0090*/                   CALL.ABS.NOINC `(helper) ;\n\
        \x20       /*00a0*/                   EXIT ;\n\
        .L_x_2:\n\
        \x20       /*00b0*/                   BRA `(.L_x_2);\n\
        \x20       /*00c0*/                   NOP;\n\
        .L_x_9:\n\
        \t.section\t.text.helper,\"ax\",@progbits\n\
        \x20       /*0000*/                   STL [R1], R77 ;\n\
        \x20       /*0010*/                   CALL.ABS.NOINC `(admit_slow) ;\n\
        \x20       /*0020*/                   RET.ABS.NODEC R20 `(helper) ;\n\
        \t.section\t.text.admit_slow,\"ax\",@progbits\n\
        \x20       /*0000*/                   LDG.E R0, desc[UR36][R4.64+0x8] ;\n\
        \x20       /*0010*/                   EXIT ;\n";

    #[test]
    fn padding_is_left_out_and_kinds_are_told_apart() {
        let put = &read(LISTING)["put"];
        assert_eq!((put.instructions, put.registers), (11, 41));
        assert_eq!((put.loads, put.stores, put.atomics, put.barriers, put.local), (1, 1, 1, 1, 0));
        assert_eq!(put.calls.iter().collect::<Vec<_>>(), ["admit_slow", "helper"]);
    }

    #[test]
    fn the_no_fault_path_stops_at_what_is_cold() {
        let (sum, through) = no_fault_path(&read(LISTING), "put");
        assert_eq!((sum.instructions, sum.loads, sum.local, sum.registers), (14, 1, 1, 78));
        assert_eq!(through, ["helper"]);
    }

    #[test]
    fn stack_is_that_of_the_deepest_call() {
        let frames =
            [("put", 8), ("helper", 16), ("admit_slow", 100)].map(|(name, bytes)| (name.to_owned(), bytes));
        let frames = BTreeMap::from(frames);
        assert_eq!(stack(&read(LISTING), &frames, "put"), 124);
        assert_eq!(stack(&read(LISTING), &frames, "admit_slow"), 100);
    }

    #[test]
    fn names_are_short() {
        assert_eq!(short("shunt_put_lane"), "shunt_put_lane");
        let panics = "_RNvNtNtCsk1KesSCTqGJ_4core9panicking11panic_const23panic_const_rem_by_zero";
        assert_eq!(short(panics), "panic_const_rem_by_zero");
        let slow = "_RNvMNtCs7wNHnE41cu7_12shunt_device4postINtNtB4_6access7ChannelNtNtNtB4_8platform5nvptx3GpuE\
                    10admit_slowCs43K9U5cETwp_13shunt_kernels";
        assert_eq!(short(slow), "admit_slow");
        assert!(
            is_cold(slow)
                && is_cold("touch")
                && !is_cold("shunt_put_warp")
                && !is_cold("__cuda_sm20_rem_u64")
        );
    }
}
