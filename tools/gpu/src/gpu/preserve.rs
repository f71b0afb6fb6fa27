//! Who saves registers when a library function calls a cold one.
//!
//! A function that other programs call must give back the registers that its caller may be using, so what it keeps over
//! a call of its own goes to the stack before anything else happens: thirty to fifty accesses to memory in a put that
//! calls nobody. So the cold functions do the saving: `.abi_preserve` has them give back nearly all registers, and a
//! library function keeps its values in registers that it need not give back. Only functions of this module are asked,
//! and only this module calls them.
//!
//! Pure: text in, text out.

use super::audit::Module;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The first version of PTX with the directive.
const VERSION: &str = ".version 9.0";
/// Registers that a thread has at most.
pub const ALL: usize = 256;
/// Registers that a cold function does not give back: as many as leave it a pair for the address it returns to.
const KEPT: usize = 20;
/// Of the registers that only steer branches: all that there are.
const CONTROL: usize = 8;

/// How many registers each function gives back: those that functions for other programs call. A function and one that
/// it calls give back different numbers, because by that the assembler picks where they return to.
fn counts(module: &Module, registers: usize) -> BTreeMap<&str, usize> {
    let asked = |name: &str| {
        let calls = |root: &super::audit::Function| root.calls.iter().any(|callee| callee == name);
        module.roots().any(calls) && !module.roots().any(|root| root.name == name)
    };
    let named: Vec<_> = module.functions.iter().filter(|function| asked(&function.name)).collect();
    let mut depths: BTreeMap<&str, usize> =
        named.iter().map(|function| (function.name.as_str(), 0)).collect();
    // Nothing in device code calls itself, so as many rounds as there are functions settle it.
    for _ in 0..named.len() {
        for function in &named {
            let below = function.calls.iter().filter_map(|callee| depths.get(callee.as_str())).max();
            let depth = below.map_or(0, |below| (below + 1).min(named.len()));
            depths.insert(&function.name, depth);
        }
    }
    depths.into_iter().map(|(name, depth)| (name, registers - KEPT - 2 * depth)).collect()
}

/// The module with the directives, where the head of each function ends; a thread has so many registers.
pub fn with_directives(text: &str, module: &Module, registers: usize) -> String {
    let counts = counts(module, registers);
    let mut out = String::with_capacity(text.len());
    let mut count = None;
    for line in text.lines() {
        if line.starts_with(".version ") {
            out.push_str(VERSION);
            out.push('\n');
            continue;
        }
        if line.contains(".func") {
            let words = line.split(|c: char| !(c.is_alphanumeric() || "_$".contains(c)));
            count = words.rev().find_map(|word| counts.get(word));
        }
        if matches!(line.trim(), "{" | ";")
            && let Some(count) = count.take()
        {
            let _ = writeln!(out, ".abi_preserve {count}\n.abi_preserve_control {CONTROL}");
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 8.3\n\
        .visible .func  (.param .b64 r) outer_slow\n(\n\t.param .b64 a\n)\n;\n\
        .visible .func inner_slow()\n{\n\tret;\n}\n\
        .visible .func deep()\n{\n\tret;\n}\n\
        .visible .func  (.param .b64 r) outer_slow(\n\t.param .b64 a\n)\n{\n\
        \tcall.uni inner_slow, ();\n\tcall.uni deep, ();\n\tret;\n}\n\
        .visible .func shunt_put()\n{\n\
        \tcall.uni (r), outer_slow, (a);\n\tcall.uni inner_slow, ();\n\tret;\n}\n";

    #[test]
    fn what_library_functions_call_gives_registers_back() {
        let text = with_directives(TEXT, &Module::parse(TEXT), ALL);
        let head = |function: &str, end: &str, count: usize| {
            format!("{function}{end}.abi_preserve {count}\n.abi_preserve_control 8\n")
        };
        assert!(text.starts_with(".version 9.0\n"));
        assert!(text.contains(&head("outer_slow", "\n(\n\t.param .b64 a\n)\n", 234)), "{text}");
        assert!(text.contains(&head("outer_slow", "(\n\t.param .b64 a\n)\n", 234)), "{text}");
        assert!(text.contains(&head("inner_slow", "()\n", 236)), "{text}");
        assert_eq!(text.matches(".abi_preserve ").count(), 3, "neither the library's own nor what is deeper");
        let few = with_directives(TEXT, &Module::parse(TEXT), 64);
        assert!(few.contains(&head("inner_slow", "()\n", 44)), "{few}");
    }
}
