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

/// Each has one defect, which an audit that looks at branches and opcodes alone does not see.
#[test]
fn whole_files_with_one_defect_each() {
    let guarded = "line 9: threads split between lanes by line 7 `mov.u32`";
    for (text, word) in [
        (include_str!("divergence/inputs/guarded_barrier.ptx"), guarded),
        (include_str!("divergence/inputs/guarded_return.ptx"), guarded),
        (include_str!("divergence/inputs/answer_by_arm.ptx"), "line 29: threads split between lanes"),
        (include_str!("divergence/inputs/shuffle_up.ptx"), "line 10: threads split between lanes"),
        (include_str!("divergence/inputs/lane_mask.ptx"), "line 9: threads split between lanes"),
        (include_str!("divergence/inputs/two_barriers.ptx"), "line 9: threads split between lanes"),
    ] {
        one(&of_module(text), word);
    }
}

#[test]
fn a_guard_splits_as_a_branch_does() {
    let barrier = "\tsetp.ne.b32 %p1, %r1, 0;\n\t@%p1 barrier.sync 0;\n\t@!%p1 barrier.sync 0;";
    assert_eq!(of(barrier).len(), 2, "{:?}", of(barrier));
    none(&of(&barrier.replace("%r1, 0", "%rd1, 0")));
    none(&of("\tsetp.ne.b32 %p1, %r1, 0;\n\t@%p1 trap;\n\tbarrier.sync 0;"));
    one(&of("\tsetp.ne.b32 %p1, %r1, 0;\n\t@%p1 exit;\n\tbarrier.sync 0;"), "against");
    // What a guarded statement does not write keeps its value.
    let body = "\tmov.b32 %r3, 1;\n\tsetp.ne.b32 %p1, %r1, 0;\n\t@%p1 mov.b32 %r3, 2;\n\tsetp.eq.b32 %p2, %r3, 2;\n\t\
                @%p2 bra $END;\n\tbarrier.sync 0;\n$END:";
    one(&of(body), "between lanes");
    none(&of(&body.replace("mov.b32 %r3, 2", "mov.b32 %r3, 1")));
}

#[test]
fn an_answer_that_is_one_in_both_arms_is_none() {
    let text = include_str!("divergence/inputs/answer_by_arm.ptx");
    none(&of_module(&text.replace("mov.b32 %r3, 2", "mov.b32 %r3, 1")));
}

#[test]
fn only_a_shuffle_that_all_lanes_read_one_lane_by_is_alike() {
    let body = "\tSHUFFLE;\n\tsetp.eq.b32 %p1, %r3, 0;\n\t@%p1 bra $END;\n\tbar.warp.sync 0xffffffff;\n$END:";
    let by = |shuffle: &str| of(&body.replace("SHUFFLE", shuffle));
    none(&by("shfl.sync.idx.b32 %r3, %r1, 5, 31, 0xffffffff"));
    none(&by("shfl.sync.bfly.b32 %r3, 7, 1, 31, 0xffffffff"));
    for other in [
        "shfl.sync.idx.b32 %r3, %r1, %r2, 31, 0xffffffff",
        "shfl.sync.idx.b32 %r3, %r1, 5, 4127, 0xffffffff",
        "shfl.sync.bfly.b32 %r3, %r1, 1, 31, 0xffffffff",
        "shfl.sync.down.b32 %r3|%p1, %r1, 1, 31, 0xffffffff",
    ] {
        one(&by(other), "between lanes");
    }
}

#[test]
fn a_special_register_that_is_not_listed_may_be_anything() {
    let body =
        "\tmov.u32 %r3, SPECIAL;\n\tsetp.eq.b32 %p1, %r3, 0;\n\t@%p1 bra $END;\n\tbarrier.sync 0;\n$END:";
    let by = |special: &str| of(&body.replace("SPECIAL", special));
    one(&by("%new_in_the_next_isa"), "between lanes");
    one(&by("%warpid"), "between warps");
    none(&by("%ctaid.x"));
}

#[test]
fn masks_tell_operations_of_a_warp_apart() {
    let body = "\tsetp.ne.b32 %p1, %r2, 0;\n\t@%p1 bra $OTHERS;\n\tbar.warp.sync 0xffffffff;\n\tbra.uni $JOIN;\n\
         $OTHERS:\n\tbar.warp.sync 0xffffffff;\n$JOIN:";
    none(&of(body));
    one(&of(&body.replacen("0xffffffff", "0xffff", 1)), "between lanes");
}

#[test]
fn a_wide_load_is_alike_only_where_the_list_says_so() {
    let text = |name: &str| {
        format!(
            ".visible .entry {name}(\n\t.param .u64 k_param_0\n)\n{{\n\tld.param.b64 %rd1, [k_param_0];\n\t\
             ld.relaxed.sys.global.v2.b64 {{%rd2, %rd3}}, [%rd1];\n\tsetp.eq.b64 %p1, %rd2, 0;\n\t@%p1 bra $END;\n\t\
             barrier.sync 0;\n$END:\n\tret;\n}}\n"
        )
    };
    one(&of_module(&text("k")), "between lanes");
    none(&of_module(&text("shunt_kernel_moe_normal_dispatch_warp")));
}
