//! PTX as LLVM prints it, cut down, for each thing the audit must see.

use super::*;

const CLEAN: &str = r"
.version 8.3
.target sm_90
.address_size 64
.visible .func _RNvCs_7___rustc17rust_begin_unwind(
	.param .b64 p
)
.noreturn
{
	trap;
}
	// .globl	probe
.visible .entry probe(
	.param .u64 .ptr .align 1 probe_param_0
)
{
	.reg .pred 	%p<4>;
	.reg .b32 	%r<48>;
	ld.param.b64 	%rd1, [probe_param_0];
	// begin inline asm
	atom.acq_rel.sys.global.add.u64 %rd3, [%rd1], %rd4;
	// end inline asm
	.loc	2 59 13
	ld.relaxed.sys.global.b64 %rd21, [%rd1];
$L__BB1_1:
	@%p1 st.relaxed.sys.global.b64 [%rd1], %rd21;
	{ .reg .b32 %t; mov.b32 %t, %r1; trap; }
	ret;
}
";

fn with_body(body: &str) -> Module {
    Module::parse(&format!(".visible .entry k(\n)\n{{\n{body}\n\tret;\n}}\n"))
}

#[test]
fn a_clean_module_is_counted_and_passes() {
    let module = Module::parse(CLEAN);
    assert_eq!(module.faults(), Vec::<String>::new());
    let probe = module.roots().next().unwrap();
    assert_eq!(probe.name, "probe");
    // ld.param, atom, ld, st, mov, trap, ret.
    assert_eq!((probe.instructions, probe.loads, probe.stores, probe.atomics), (7, 1, 1, 1));
    assert!(!module.reachable("_RNvCs_7___rustc17rust_begin_unwind"));
}

#[test]
fn no_kernel_is_a_fault() {
    assert_eq!(Module::parse(".version 8.3\n").faults().len(), 1);
}

#[test]
fn an_external_function_is_a_fault() {
    let text = format!(".extern .func (.param .b64 r) memcpy\n(\n\t.param .b64 a\n)\n;\n{CLEAN}");
    let module = Module::parse(&text);
    assert_eq!(module.external, ["memcpy"]);
    assert!(module.faults()[0].contains("memcpy"), "{:?}", module.faults());
}

#[test]
fn a_stack_is_a_fault() {
    for body in [
        "\t.local .align 8 .b8 \t__local_depot1[16];",
        "\tst.local.b64 [%SPL], %rd1;",
        "\tmov.b64 %SPL, __local_depot0;",
    ] {
        assert!(with_body(body).faults()[0].contains("stack"), "{body}");
    }
}

#[test]
fn a_call_that_panics_is_a_fault() {
    let body = "\t{ // callseq 0, 0\n\t.param .b64 param0;\n\tst.param.b64 [param0], %rd1;\n\tcall.uni\n\t\
                _RNvNtCs_4core9panicking18panic_bounds_check,\n\t(\n\tparam0\n\t);\n\t} // callseq 0";
    let faults = with_body(body).faults();
    assert!(faults[0].contains("can panic"), "{faults:?}");
}

#[test]
fn a_call_inside_the_module_is_followed() {
    let text = ".func (.param .b32 r) helper(\n)\n{\n\t.local .b8 __local_depot0[8];\n\tret;\n}\n\
                .visible .entry k(\n)\n{\n\tcall.uni (retval0), helper, (param0);\n\tret;\n}\n";
    let module = Module::parse(text);
    assert_eq!(module.roots().next().unwrap().calls, ["helper"]);
    assert!(module.reachable("helper"));
    assert_eq!(module.faults(), ["helper: uses a stack (.local)"]);
}

#[test]
fn a_call_out_of_the_module_is_a_fault() {
    assert!(with_body("\tcall.uni elsewhere, ();").faults()[0].contains("does not hold"));
}

#[test]
fn an_atomic_of_core_is_a_fault() {
    let core = "\tatom.global.add.u64 %rd3, [%rd1], %rd4;";
    assert!(with_body(core).faults()[0].contains("none of Platform's"));
    let ours = format!("$L__BB1_1:\n\t// begin inline asm\n{core}\n\t// end inline asm");
    assert_eq!(with_body(&ours).faults(), Vec::<String>::new());
    assert!(!with_body(&format!("{ours}\n{core}")).faults().is_empty());
}

#[test]
fn what_a_library_exports_is_a_root() {
    let text = ".visible .func (.param .b64 r) shunt_put(\n)\n{\n\tcall.uni (retval0), cold, ();\n\tret;\n}\n\
                .visible .func cold(\n)\n{\n\tret;\n}\n.visible .func other(\n)\n{\n\tret;\n}\n";
    let module = Module::parse(text);
    assert_eq!(module.faults(), Vec::<String>::new());
    assert!(module.reachable("shunt_put") && module.reachable("cold") && !module.reachable("other"));
}

#[test]
fn sizes_of_arguments_are_read() {
    let text = ".visible .func (.param .b64 func_retval0) shunt_put(\n\t.param .b32 a,\n\t.param .b64 b\n)\n\
                {\n\tret;\n}\n.visible .func  (.param .b32 r) shunt_none()\n{\n\tret;\n}\n";
    let module = Module::parse(text);
    let signatures: Vec<&str> = module.roots().map(|root| root.signature.as_str()).collect();
    assert_eq!(signatures, ["b32 b64 -> b64", "-> b32"]);
}
