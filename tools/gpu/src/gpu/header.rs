//! The C header of the device library: made from the Rust source, held against the functions that came out.

use super::audit::Module;
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::fmt::Write;

/// Where it is.
const FILE: &str = "kernels/include/shunt_device.h";
const LIBRARY: &str = "kernels/src/library.rs";

/// A function as its source says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    doc: Vec<String>,
    /// One for each group of threads.
    names: Vec<String>,
    /// Names and types.
    args: Vec<(String, String)>,
    out: String,
}

/// Writes the header, or fails unless the committed one is what would be written.
pub fn make(bless: bool) -> Result<()> {
    let read = |path: &str| {
        std::fs::read_to_string(sh::root().join(path)).with_context(|| format!("cannot read {path}"))
    };
    let types = read("device/src/types.rs")?;
    let text = header(
        &read(LIBRARY)?,
        &read("kernels/src/outcome.rs")?,
        &types,
        &read("layout/src/state/fetch.rs")?,
    )?;
    if bless {
        std::fs::write(sh::root().join(FILE), text)?;
        println!("wrote {FILE}");
        return Ok(());
    }
    if read(FILE)? != text {
        bail!("{FILE} is not what {LIBRARY} says: --bless writes it");
    }
    Ok(())
}

/// Every function that the module exports is in the committed header with arguments of the same sizes, and the other
/// way round.
pub fn check(module: &Module) -> Result<Vec<String>> {
    let text =
        std::fs::read_to_string(sh::root().join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let declared = declarations(&text);
    let exported: Vec<(String, String)> =
        module.roots().map(|root| (root.name.clone(), root.signature.clone())).collect();
    let mut faults = Vec::new();
    for (name, signature) in &exported {
        match declared.iter().find(|(have, _)| have == name) {
            None => faults.push(format!("{name}: exported, but not in {FILE}")),
            Some((_, have)) if have != signature => {
                faults.push(format!("{name}: {signature} in PTX, {have} in {FILE}"));
            }
            Some(_) => {}
        }
    }
    for (name, _) in declared.iter().filter(|(name, _)| !exported.iter().any(|(have, _)| have == name)) {
        faults.push(format!("{name}: in {FILE}, but not exported"));
    }
    Ok(faults)
}

/// Functions of a header, with the sizes of their arguments and of their answer as PTX writes them: `b32 b64 -> b64`.
fn declarations(header: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for line in header.lines().filter_map(|line| line.strip_prefix("SHUNT_DEVICE ")) {
        let Some((head, args)) = line.split_once('(') else { continue };
        let mut words = head.split_whitespace();
        let (answer, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let bits = |c_type: &str| {
            if c_type.starts_with("uint32_t") && !c_type.contains('*') { "b32" } else { "b64" }
        };
        let args = args.trim_end_matches(';').trim_end_matches(')');
        let args: Vec<&str> = args
            .split(',')
            .map(str::trim)
            .filter(|arg| !arg.is_empty() && *arg != "void")
            .map(bits)
            .collect();
        out.push((
            name.to_owned(),
            format!("{} -> {}", args.join(" "), bits(answer)).trim_start().to_owned(),
        ));
    }
    out
}

fn header(library: &str, outcome: &str, types: &str, forms: &str) -> Result<String> {
    let mut out = String::from(HEAD);
    out.push_str("/* Faults: the low 32 bits of a failed post, or the status of a wait. */\nenum {\n");
    variants(&mut out, between(types, "pub enum FaultKind {", "\n}")?)?;
    out.push_str(
        "    /* shunt_root holds no device state of this version. */\n    SHUNT_MISMATCH = 0x100,\n",
    );
    out.push_str("    /* Of shunt_test: not yet. */\n    SHUNT_PENDING = 0x101\n};\n\n");
    out.push_str("/* Forms of an atomic, for shunt_exact. */\nenum {\n");
    variants(&mut out, between(forms, "pub enum AmoForm {", "\n}")?)?;
    out.push_str("};\n\n");
    out.push_str("/* The report of a fault. */\ntypedef struct shunt_report {\n");
    for line in between(outcome, "pub struct Outcome {", "\n}")?.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            writeln!(out, "    /*{} */", plain(comment))?;
        } else if let Some((name, rust)) =
            line.trim_end_matches(',').strip_prefix("pub ").and_then(|f| f.split_once(": "))
        {
            writeln!(out, "    {} {name};", c_type(rust)?)?;
        }
    }
    out.push_str("} shunt_report;\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    for function in functions(library)? {
        out.push('\n');
        let (first, last) = (0, function.doc.len().saturating_sub(1));
        for (i, line) in function.doc.iter().enumerate() {
            let (open, close) = (if i == first { "/*" } else { " *" }, if i == last { " */" } else { "" });
            writeln!(out, "{open}{}{close}", plain(line))?;
        }
        let args: Vec<String> = (function.args.iter())
            .map(|(name, rust)| Ok(format!("{} {name}", c_type(rust)?).replace("* ", "*")))
            .collect::<Result<_>>()?;
        let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
        let passed: Vec<&str> = function.args.iter().map(|(name, _)| name.as_str()).collect();
        let answer = c_type(&function.out)?;
        for name in &function.names {
            match name.strip_suffix("_warp") {
                Some(of) => writeln!(out, "SHUNT_WARP({answer}, {of}, ({args}), ({}))", passed.join(", "))?,
                None => writeln!(out, "SHUNT_DEVICE {answer} {name}({args});")?,
            }
        }
    }
    out.push_str(TAIL);
    Ok(out)
}

fn plain(comment: &str) -> String {
    comment
        .replace(['`', '[', ']'], "")
        .replace("FaultKind", "fault")
        .replace("STATUS_ABI_MISMATCH", "SHUNT_MISMATCH")
}

fn between<'t>(text: &'t str, from: &str, to: &str) -> Result<&'t str> {
    let (_, tail) = text.split_once(from).with_context(|| format!("there is no '{from}'"))?;
    Ok(tail.split_once(to).map_or(tail, |(inner, _)| inner))
}

/// `PeerLost` to `PEER_LOST`.
/// The values of an enumeration.
fn variants(out: &mut String, list: &str) -> Result<()> {
    for line in list.lines().filter_map(|line| line.trim().strip_suffix(',')) {
        let (name, value) = line.split_once(" = ").with_context(|| format!("'{line}' has no value"))?;
        writeln!(out, "    SHUNT_{} = {value},", upper(name))?;
    }
    Ok(())
}

fn upper(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_uppercase());
    }
    out
}

fn c_type(rust: &str) -> Result<&'static str> {
    Ok(match rust {
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "*mut Outcome" => "shunt_report *",
        "*mut u64" => "uint64_t *",
        other => bail!("{LIBRARY}: '{other}' has no name in C"),
    })
}

/// Reads the lists of functions: calls of `library!` and of `atomics!` in their own order.
fn functions(source: &str) -> Result<Vec<Function>> {
    let mut out = Vec::new();
    let lists = between(source, "\nlibrary! {\n", "\n}\n")?;
    let mut doc = Vec::new();
    let mut rest = lists;
    while let Some((line, tail)) = rest.split_once('\n').or((!rest.is_empty()).then_some((rest, ""))) {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("///") {
            doc.push(comment.to_owned());
        } else if line.starts_with('[') {
            let names = between(rest, "[", "]")?;
            let names = names
                .split(',')
                .filter_map(|name| name.split_whitespace().next())
                .map(str::to_owned)
                .collect();
            let after = between(rest, "]", "|")?;
            let args = arguments(between(after, "(", ")")?)?;
            let answer = between(after, "->", "=")?.trim().to_owned();
            out.push(Function { doc: std::mem::take(&mut doc), names, args, out: answer });
        }
        rest = tail;
    }
    for line in
        between(source, "\natomics! {\n", "\n}\n")?.lines().map(str::trim).filter(|line| !line.is_empty())
    {
        let (names, tail) = line.split_once('(').with_context(|| format!("'{line}' is no atomic"))?;
        let (own, amo) = tail.split_once(") = ").with_context(|| format!("'{line}' is no atomic"))?;
        let amo = amo.trim_end_matches(';');
        for (name, fetches) in names.split_whitespace().zip([false, true]) {
            let mut args = arguments("peer: u32, channel: u32, word: u64")?;
            args.extend(arguments(own)?);
            let mut doc = format!(" {amo} on the word at word of the heap of peer, by one thread.");
            if fetches {
                args.push(("result".to_owned(), "u64".to_owned()));
                doc = " The same, what the word was going to the eight bytes at result of this PE's heap."
                    .to_owned();
            }
            out.push(Function { doc: vec![doc], names: vec![name.to_owned()], args, out: "u64".to_owned() });
        }
    }
    Ok(out)
}

fn arguments(text: &str) -> Result<Vec<(String, String)>> {
    let split = |arg: &str| {
        let (name, rust) = arg.split_once(':').with_context(|| format!("'{arg}' is no argument"))?;
        Ok((name.trim().to_owned(), rust.trim().to_owned()))
    };
    text.split(',').filter(|arg| !arg.trim().is_empty()).map(split).collect()
}

const HEAD: &str = r#"/*
 * Shunt's device library, for CUDA C++. Made by `cargo xtask gpu --bless` from kernels/src/library.rs: do not edit.
 *
 * Compile with `nvcc -rdc=true` and link libshunt_device.a. A function that comes three times is for one thread, for a
 * warp that acts as one, and for a block of whole warps: all threads of the group call it with the same arguments and
 * get the same answer. Offsets are offsets in the symmetric heap. Every wait has a deadline, in nanoseconds from the
 * call, and SHUNT_OVERDUE leaves what was waited for under way.
 *
 * One source file of the program says SHUNT_DEFINE_ROOT, and the host copies the root of the device state there before
 * the first kernel that uses it: cudaMemcpyToSymbol(shunt_root, state, SHUNT_ROOT_BYTES).
 */
#ifndef SHUNT_DEVICE_H
#define SHUNT_DEVICE_H

#include <stdint.h>

#ifdef __CUDACC__
#define SHUNT_DEVICE __device__
/* What a warp does as one, its first lane does; before it all lanes meet, and behind it, so that each sees what it saw.
 * Inlined: a warp that meets in a function of its own costs a stack on sm_80. */
#define SHUNT_WARP(ANSWER, NAME, PARAMETERS, ARGUMENTS)                                                    \
    static __device__ __forceinline__ ANSWER NAME##_warp PARAMETERS {                                      \
        const unsigned before = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);       \
        ANSWER answer = 0;                                                                                 \
        __syncwarp();                                                                                      \
        if (before % 32 == 0) answer = NAME##_thread ARGUMENTS;                                            \
        answer = __shfl_sync(0xffffffffu, answer, 0);                                                      \
        __syncwarp();                                                                                      \
        return answer;                                                                                     \
    }
#else
#define SHUNT_DEVICE
#define SHUNT_WARP(ANSWER, NAME, PARAMETERS, ARGUMENTS) ANSWER NAME##_warp PARAMETERS;
#endif

#define SHUNT_ROOT_BYTES 384
#define SHUNT_DEFINE_ROOT extern "C" { __constant__ __align__(16) unsigned char shunt_root[SHUNT_ROOT_BYTES]; }

/* What a post answers: a ticket, or SHUNT_FAILED and a fault. */
#define SHUNT_FAILED (UINT64_C(1) << 63)

"#;

const TAIL: &str = r#"
#ifdef __cplusplus
}
static_assert(sizeof(shunt_report) == 72, "the report has another size in Rust");
#endif

#endif
"#;

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\nlibrary! {\n    /// Puts `bytes`.\n    /// Twice.\n    [shunt_a_thread Solo, \
        shunt_a_warp Warp](\n\
        peer: u32,\n dst: u64,\n    ) -> u64 =\n |lanes| f(|| lanes);\n\n    /// Tells.\n    [shunt_b Solo]\
        (report: *mut Outcome) -> u32 = |_one| 0;\n}\n\natomics! {\n    shunt_add32 shunt_fetch_add32(value: u32) = \
        Amo::Add32(value);\n}\n";

    #[test]
    fn functions_are_read_from_their_source() {
        let functions = functions(SOURCE).unwrap();
        let names: Vec<String> = functions.iter().map(|function| function.names.join(" ")).collect();
        assert_eq!(names, ["shunt_a_thread shunt_a_warp", "shunt_b", "shunt_add32", "shunt_fetch_add32"]);
        assert_eq!(functions[0].args, [("peer".into(), "u32".into()), ("dst".into(), "u64".into())]);
        assert_eq!((functions[0].doc.len(), functions[1].out.as_str()), (2, "u32"));
    }

    #[test]
    fn a_header_declares_what_the_source_lists() {
        let types = "pub enum FaultKind {\n    /// Text.\n    PeerLost = 3,\n}\n";
        let outcome =
            "pub struct Outcome {\n    /// What [`STATUS_ABI_MISMATCH`] is.\n    pub status: u32,\n}\n";
        let forms = "pub enum AmoForm {\n    /// Adds.\n    Add32 = 1,\n}\n";
        let text = header(SOURCE, outcome, types, forms).unwrap();
        assert!(text.contains("SHUNT_ADD32 = 1,"), "{text}");
        assert!(text.contains("SHUNT_PEER_LOST = 3,") && text.contains("    uint32_t status;"), "{text}");
        assert!(
            text.contains("SHUNT_DEVICE uint64_t shunt_a_thread(uint32_t peer, uint64_t dst);"),
            "{text}"
        );
        let of_warp = "SHUNT_WARP(uint64_t, shunt_a, (uint32_t peer, uint64_t dst), (peer, dst))";
        assert!(text.contains(of_warp), "{text}");
        let declared = declarations(&text);
        assert_eq!(declared.len(), 4);
        assert_eq!(declared[0], ("shunt_a_thread".to_owned(), "b32 b64 -> b64".to_owned()));
        assert_eq!(declared[1], ("shunt_b".to_owned(), "b64 -> b32".to_owned()));
        assert_eq!(declared[3].1, "b32 b32 b64 b32 b64 -> b64");
    }

    #[test]
    fn the_committed_header_is_made_from_the_source() {
        make(false).unwrap();
    }
}
