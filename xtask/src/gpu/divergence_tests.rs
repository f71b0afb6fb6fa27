//! Kernels of a few lines, one for each thing that the check must see or must not.

use super::*;
use crate::gpu::flow;

/// Findings in a kernel with this body; `%r1` is the thread, `%r2` the lane, `%rd1` an argument.
fn of(body: &str) -> Vec<String> {
    of_module(&format!(
        ".visible .entry k(\n\t.param .u64 k_param_0\n)\n{{\n\t.reg .pred %p<9>;\n\t.reg .b32 %r<9>;\n\t\
         mov.u32 %r1, %tid.x;\n\tmov.u32 %r2, %laneid;\n\tld.param.b64 %rd1, [k_param_0];\n{body}\n\tret;\n}}\n"
    ))
}

fn of_module(text: &str) -> Vec<String> {
    findings(&flow::read(text).unwrap())
}

#[track_caller]
fn one(found: &[String], word: &str) {
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("k: line ") && found[0].contains(word), "{found:?}");
}

#[track_caller]
fn none(found: &[String]) {
    assert!(found.is_empty(), "{found:?}");
}

const LEADER: &str = "\tsetp.ne.b32 %p1, %r1, 0;\n\t@%p1 bra $OTHERS;\n";

#[test]
fn an_aligned_barrier_is_found_wherever_it_stands() {
    one(&of("\tbar.sync 0;"), "`bar.sync`");
    one(&of("\tbarrier.sync.aligned 0;"), "barrier.sync.aligned");
    none(&of("\tbarrier.sync 0;"));
}

#[test]
fn a_barrier_in_one_arm_is_found() {
    one(&of(&format!("{LEADER}\tbarrier.sync 0;\n$OTHERS:")), "got 1 against 0");
}

#[test]
fn a_copy_in_each_arm_is_none() {
    none(&of(&format!("{LEADER}\tbarrier.sync 0;\n\tbra.uni $JOIN;\n$OTHERS:\n\tbarrier.sync 0;\n$JOIN:")));
}

#[test]
fn two_against_one_are_found() {
    let body = format!(
        "{LEADER}\tbarrier.sync 0;\n\tbarrier.sync 0;\n\tbra.uni $JOIN;\n$OTHERS:\n\tbarrier.sync 0;\n$JOIN:"
    );
    one(&of(&body), "got 2 against 1");
}

#[test]
fn a_barrier_in_a_loop_that_lanes_leave_at_different_turns_is_found() {
    let body = "$LOOP:\n\tbarrier.sync 0;\n\tld.acquire.sys.global.b32 %r3, [%rd1];\n\tsetp.ne.b32 %p1, %r3, 0;\n\t\
                @%p1 bra $LOOP;";
    one(&of(body), "between lanes by line 12 `ld.acquire.sys.global.b32`");
    none(&of(&body.replace("ld.acquire.sys.global.b32", "ld.global.nc.b32")));
}

#[test]
fn what_the_block_was_told_does_not_split_it() {
    let body = format!(
        "{LEADER}\tst.volatile.shared.b64 [shunt_block_word], %rd1;\n$OTHERS:\n\tbarrier.sync 0;\n\t\
         ld.volatile.shared.b64 %rd2, [shunt_block_word];\n\tbarrier.sync 0;\n\tsetp.eq.b64 %p2, %rd2, 0;\n\t\
         @%p2 bra $END;\n\tbarrier.sync 0;\n$END:"
    );
    none(&of(&body));
    one(
        &of(&body
            .replace("volatile.shared.b64 %rd2, [shunt_block_word]", "volatile.shared.b64 %rd2, [other]")),
        "got",
    );
}

#[test]
fn what_differs_by_the_arm_splits_later() {
    let body = format!(
        "\tmov.b32 %r3, 1;\n{LEADER}\tmov.b32 %r3, 2;\n$OTHERS:\n\tsetp.eq.b32 %p2, %r3, 2;\n\t@%p2 bra $END;\n\t\
         barrier.sync 0;\n$END:"
    );
    one(&of(&body), "by the branch in line 12");
    none(&of(&body.replace("mov.b32 %r3, 2", "mov.b32 %r3, 1")));
}

#[test]
fn turns_of_a_loop_that_lanes_leave_apart_split_later() {
    let body = "\tmov.b32 %r3, 0;\n$LOOP:\n\tadd.s32 %r3, %r3, 1;\n\tsetp.lt.u32 %p1, %r3, %r1;\n\t@%p1 bra $LOOP;\n\t\
                setp.eq.b32 %p2, %r3, 4;\n\t@%p2 bra $END;\n\tbarrier.sync 0;\n$END:";
    one(&of(body), "between lanes");
    none(&of(&body.replace("%r3, %r1", "%r3, 7")));
}

#[test]
fn operations_of_a_warp_split_by_lanes_and_not_by_warps() {
    let in_one_warp = "\tsetp.gt.u32 %p1, %r1, 31;\n\t@%p1 bra $END;\n\tbar.warp.sync 0xffffffff;\n$END:";
    none(&of(in_one_warp));
    one(&of(&in_one_warp.replace("31", "30")), "between lanes");
    one(&of(&in_one_warp.replace("bar.warp.sync 0xffffffff", "barrier.sync 0")), "between warps");
    one(
        &of(
            "\tsetp.ne.b32 %p1, %r2, 0;\n\t@%p1 bra $END;\n\tshfl.sync.idx.b32 %r3, %r1, 0, 31, 0xffffffff;\n$END:",
        ),
        "",
    );
}

#[test]
fn what_a_warp_was_told_still_splits_a_block() {
    let body = "\tshfl.sync.idx.b32 %r3, %r1, 0, 31, 0xffffffff;\n\tsetp.ne.b32 %p1, %r3, 0;\n\t@%p1 bra $END;\n\t\
                barrier.sync 0;\n$END:";
    one(&of(body), "between warps");
    none(&of(&body.replace("barrier.sync 0", "bar.warp.sync 0xffffffff")));
}

#[test]
fn a_function_with_a_barrier_is_one() {
    let callee = ".func (.param .b32 func_retval0) f(\n\t.param .b32 f_param_0\n)\n{\n\tbarrier.sync 0;\n\t\
                  ld.param.b32 %r1, [f_param_0];\n\tst.param.b32 [func_retval0], %r1;\n\tret;\n}\n";
    let kernel = |body: &str| {
        of_module(&format!("{callee}.visible .entry k(\n)\n{{\n\tmov.u32 %r1, %tid.x;\n{body}\n\tret;\n}}\n"))
    };
    let call = |argument: &str| {
        format!(
            "\tst.param.b32 [param0], {argument};\n\tcall.uni (retval0), f, (param0);\n\tld.param.b32 %r3, [retval0];\n"
        )
    };
    one(&kernel(&format!("{LEADER}{}$OTHERS:", call("7"))), "got 1 against 0");
    none(&kernel(&call("%r1")));
    // What it answers differs as its argument does.
    let after = "\tsetp.eq.b32 %p2, %r3, 4;\n\t@%p2 bra $END;\n\tbarrier.sync 0;\n$END:";
    one(&kernel(&format!("{}{after}", call("%r1"))), "between lanes");
    none(&kernel(&format!("{}{after}", call("7"))));
}

#[test]
fn a_trap_is_no_arm() {
    none(&of(&format!("{LEADER}\ttrap;\n$OTHERS:\n\tbarrier.sync 0;")));
}

#[test]
fn asking_who_is_converged_is_found() {
    one(&of("\tactivemask.b32 %r3;"), "activemask");
}

#[test]
fn labels_of_inline_assembly_are_its_own() {
    let again = "\t{ .reg .pred q; AGAIN: setp.ne.u32 q, %r1, 0;\n\t@q bra AGAIN; }\n";
    none(&of(&format!("{again}{again}\tbarrier.sync 0;")));
    one(&of(&again.replace("@q", "barrier.sync 0;\n\t@q")), "in each turn of a loop");
}
