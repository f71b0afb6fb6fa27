//! Each rule fires on what it forbids and is silent on what it allows.

use super::*;

fn found(path: &str, text: &str) -> Vec<String> {
    check(path, text).into_iter().map(|finding| finding.text).collect()
}

fn assert_fires(path: &str, text: &str, part: &str) {
    let found = found(path, text);
    assert!(found.iter().any(|text| text.contains(part)), "{part:?} not in {found:?} for {text:?}");
}

fn assert_silent(path: &str, text: &str) {
    assert_eq!(found(path, text), Vec::<String>::new(), "{text:?}");
}

#[test]
fn long_lines() {
    let line = |length: usize| format!("// {}\n", "x".repeat(length - 3));
    assert_silent("host/src/a.rs", &line(120));
    assert_fires("host/src/a.rs", &line(121), "121 columns");
    assert_silent("host/src/a.rs", &format!("// see https://{}\n", "x".repeat(200)));
}

#[test]
fn long_files() {
    assert_silent("host/src/a.rs", &"\n".repeat(500));
    assert_fires("host/src/a.rs", &"\n".repeat(501), "501 lines");
    for exempt in ["host/tests/a.rs", "tests/src/a.rs", "layout/src/mlx5/prm/qp.rs"] {
        assert_silent(exempt, &"\n".repeat(501));
    }
}

#[test]
fn long_functions() {
    let function =
        |lines: usize| format!("    fn long() {{\n{}    }}\n", "        work();\n".repeat(lines - 2));
    assert_silent("host/src/a.rs", &function(70));
    assert_fires("host/src/a.rs", &function(71), "long has 71 lines");
    // Braces in strings, characters and comments do not count; a declaration has no body.
    let tricky = "fn a() { let x = ('}', \"}\", r#\"}\"#); /* } */ } // }\nfn b(x: [u8; 4]);\n";
    assert_silent("host/src/a.rs", &format!("{tricky}{}", function(70)));
}

#[test]
fn unfinished_code() {
    assert_fires("host/src/a.rs", "fn a() { todo!() }", "todo!"); // text the rule is tried on
    assert_fires("host/src/a.rs", "fn a() { unimplemented!() }", "unimplemented!"); // text the rule is tried on
    assert_fires("host/src/a.rs", "fn a() { dbg!(1); }", "dbg!");
    assert_fires("host/src/a.rs", "#[ignore]\nfn a() {}", "#[ignore"); // text the rule is tried on
    assert_fires("host/src/a.rs", "#[ignore = \"slow\"]\nfn a() {}", "#[ignore"); // text the rule is tried on
    let spoken_of = "// todo!() is refused\nfn a() { f(\"todo!()\"); my_todo!() }"; // text the rule is tried on
    assert_silent("host/src/a.rs", spoken_of);
}

#[test]
fn assembly_outside_its_file() {
    for word in ["asm!", "global_asm!", "core::arch::asm!"] {
        let text = format!("fn a() {{ {word}(\"nop\") }}");
        assert_fires("device/src/poster.rs", &text, "assembly");
        assert_fires("kernels/src/put.rs", &text, "assembly");
        assert_silent("device/src/platform/nvptx.rs", &text);
        assert_silent("kernels/src/nvptx_math.rs", &text);
        assert_silent("device/src/platform/dma.rs", &text);
    }
}

#[test]
fn atomics_in_device_code() {
    let text = "use core::sync::atomic::AtomicU64;";
    assert_fires("device/src/poster.rs", text, "Platform");
    assert_silent("device/src/platform/host.rs", text);
    assert_silent("host/src/pe.rs", text);
}

#[test]
fn unsafe_without_a_reason() {
    for text in [
        "fn a() {\n    unsafe { b() }\n}",
        "fn a() {\n    // unsafe is fine\n    unsafe { b() }\n}",
        "fn a() {\n    // SAFETY: for the first.\n    unsafe { b() };\n    unsafe { c() };\n}",
        "unsafe impl Send for A {}",
        "fn a() {\n    let x = \"SAFETY:\";\n    unsafe\n    {\n        b()\n    }\n}",
    ] {
        assert_fires("host/src/a.rs", text, "SAFETY");
    }
}

#[test]
fn unsafe_with_a_reason() {
    for text in [
        "fn a() {\n    // SAFETY: b is called once.\n    unsafe { b() }\n}",
        "fn a() {\n    // SAFETY: both are valid.\n    let x = match unsafe { b() } {\n        \
         1 => 2,\n    };\n}",
        "fn a() {\n    // SAFETY: a long reason,\n    // on two lines.\n    #[allow(x)]\n    \
         unsafe { b() }\n}",
        "fn a() {\n    unsafe { b() } // SAFETY: on the same line.\n}",
        "// SAFETY: it is plain data.\nunsafe impl Send for A {}",
        "/// # Safety\n/// Not twice.\npub unsafe fn a() {}",
        "type F = unsafe fn();",
        "// SAFETY (all blocks below): the trait's contract.\n#[allow(x)]\nimpl P for H {\n    \
         fn a() {\n        \
         x();\n        unsafe { b() }\n    }\n}",
    ] {
        assert_silent("host/src/a.rs", text);
    }
}

#[test]
fn lifetimes_are_not_characters() {
    assert_silent(
        "host/src/a.rs",
        "fn a<'s>(x: &'s str, y: char) -> &'s str { if y == '\\'' { x } else { \"{\" } }",
    );
}

#[test]
fn lines_that_are_no_tests() {
    for (text, lines) in [
        ("", 0),
        ("// a\n\nfn a() {}\n", 3),
        ("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n", 1),
        ("#[cfg(test)]\n#[path = \"a;{.rs\"]\nmod tests;\nfn a() {}\n", 1),
        ("#[cfg(test)]\nconst A: [u8; 2] = [0;\n 2];\nfn a() {}\n", 1),
        ("fn a() {\n    let a = \"#[cfg(test)]\";\n}\n// #[cfg(test)]\n", 4),
        ("#[cfg(test)]\nuse a::{\n    b,\n};\nmod c;\n#[cfg(test)]\nimpl A {\n}\n", 1),
    ] {
        assert_eq!(lines_without_tests(text), lines, "{text:?}");
    }
}

/// `shunt env | head` ended with status 101 where a variable was wrong.
#[test]
fn programs_do_not_panic_on_a_closed_stderr() {
    let line = "fn a() {\n    eprintln!(\"x\");\n}\n";
    assert_fires("cli/src/a.rs", line, "complain!");
    assert_silent("cli/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{line}}}\n"));
    for path in ["tools/task/src/a.rs", "host/examples/a.rs", "cli/tests/a.rs"] {
        assert_silent(path, line);
    }
}
