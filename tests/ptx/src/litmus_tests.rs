//! A few lines of PTX each: what the machine must do, and what it must refuse.

use crate::block::{Block, Failure, Progress, World};
use crate::code::Module;
use crate::memory::Gpu;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const REGISTERS: &str = "\t.reg .pred %p<9>;\n\t.reg .b32 %r<9>;\n\t.reg .b64 %rd<9>;\n";

struct Clock(Cell<u64>);

impl World for Clock {
    fn now_ns(&self) -> u64 {
        self.0.set(self.0.get() + 10);
        self.0.get()
    }
    fn doorbell(&self, _: u64) {}
}

/// A kernel with an address as its argument, run by one block; what a look at memory finds after each turn.
fn play(
    body: &str,
    threads: u32,
    relaxed: bool,
    seed: u64,
    mut look: impl FnMut(&[u64], u64),
) -> Result<Vec<u64>, Failure> {
    let text = format!(
        ".visible .entry k(\n\t.param .b64 k_param_0\n)\n{{\n{REGISTERS}\tld.param.b64 %rd1, [k_param_0];\n\t\
         mov.u32 %r1, %tid.x;\n{body}\n\tret;\n}}\n"
    );
    let module = Rc::new(Module::read(&text).expect("PTX that is known"));
    let words = vec![0u64; 64];
    let at = words.as_ptr() as u64;
    let reach = move |address: u64, bytes: u32| at <= address && address + u64::from(bytes) <= at + 512;
    // SAFETY: the words live until the block has ended, and nobody else has them.
    let gpu = unsafe {
        Gpu::new((Box::new(reach), Box::new(|_, _| false), Box::new(|_| None)), Vec::new(), relaxed, seed)
    };
    let params = vec![at.to_le_bytes().to_vec()];
    let mut block = Block::new(module, Rc::new(RefCell::new(gpu)), (0, &params), threads, (0, 1), seed);
    let now = || (0..64).map(|word| shunt_tests::oracle::load(at + 8 * word)).collect::<Vec<u64>>();
    let clock = Clock(Cell::new(0));
    loop {
        let progress = block.run(&clock, 1)?;
        look(&now(), at);
        if progress == Progress::Ended {
            return Ok(now());
        }
    }
}

fn ends(body: &str, threads: u32) -> Result<Vec<u64>, Failure> {
    play(body, threads, false, 1, |_, _| {})
}

const ONE_STORES: &str = "\tsetp.ne.u32 %p1, %r1, 0;\n\t@%p1 bra $END;\n";

#[test]
fn a_barrier_in_one_arm_is_a_deadlock_that_names_the_line() {
    let failure = ends(&format!("{ONE_STORES}\tbarrier.sync 0;\n$END:\n\tbarrier.sync 0;"), 64).unwrap_err();
    assert!(failure.function == "k" && failure.what.contains("they returned"), "{failure}");
    let both = "\tbarrier.sync 0;\n\tbra.uni $OUT;\n$END:\n\tbarrier.sync 0;\n$OUT:";
    assert!(ends(&format!("{ONE_STORES}{both}"), 64).is_ok());
}

#[test]
fn an_aligned_barrier_in_two_copies_is_refused() {
    let copies = format!("{ONE_STORES}\tbar.sync 0;\n\tbra.uni $OUT;\n$END:\n\tbar.sync 0;\n$OUT:");
    let failure = ends(&copies, 64).unwrap_err();
    assert!(failure.what.contains("aligned"), "{failure}");
    assert!(ends("\tbar.sync 0;", 64).is_ok());
}

#[test]
fn a_shuffle_hands_the_value_of_its_lane_on() {
    let body = "\tshfl.sync.idx.b32 %r2, %r1, 5, 31, 0xffffffff;\n\tcvt.u64.u32 %rd2, %r2;\n\t\
                mul.wide.u32 %rd3, %r1, 8;\n\tadd.s64 %rd4, %rd1, %rd3;\n\tst.global.b64 [%rd4], %rd2;";
    assert_eq!(ends(body, 32).unwrap()[..32], [5; 32]);
}

#[test]
fn a_funnel_shift_takes_bits_of_both_words() {
    let shifted = |operation: &str| {
        let body = format!(
            "\tmov.b32 %r2, 0x89abcdef;\n\tmov.b32 %r3, 0x01234567;\n\t{operation} %r4, %r2, %r3, 40;\n\t\
             cvt.u64.u32 %rd2, %r4;\n\tst.global.b64 [%rd1], %rd2;"
        );
        ends(&body, 1).unwrap()[0]
    };
    assert_eq!(shifted("shf.l.wrap.b32"), 0x2345_6789);
    assert_eq!(shifted("shf.r.wrap.b32"), 0x6789_abcd);
}

#[test]
fn floats_are_converted_negated_and_compared_as_floats() {
    let made = |value: &str, lines: &str| {
        let body = format!(
            "\tmov.b32 %r2, {value};\n\t{lines};\n\tcvt.u64.u32 %rd2, %r4;\n\tst.global.b64 [%rd1], %rd2;"
        );
        ends(&body, 1).unwrap()[0]
    };
    let bits = |value: f32| u64::from(value.to_bits());
    assert_eq!(made("0xfffffffd", "cvt.rn.f32.s32 %r4, %r2"), bits(-3.0));
    assert_eq!(made("0xffffffff", "cvt.rn.f32.u32 %r4, %r2"), bits(4_294_967_296.0));
    assert_eq!(made("0x40f80000", "cvt.rzi.u32.f32 %r4, %r2"), 7, "of 7.75");
    assert_eq!(made("0xc0f80000", "cvt.rzi.u32.f32 %r4, %r2"), 0, "of -7.75: no number of these is below");
    assert_eq!(made("0x40f80000", "neg.f32 %r4, %r2"), bits(-7.75));
    let below = "mov.b32 %r3, 0x3f800000;\n\tsetp.ltu.f32 %p1, %r2, %r3;\n\tselp.b32 %r4, 1, 0, %p1";
    assert_eq!(["0x3f000000", "0x3f800000", "0x7fc00000"].map(|value| made(value, below)), [1, 0, 1]);
}

#[test]
fn an_address_outside_is_refused() {
    let failure = ends("\tst.global.b64 [%rd1+512], %rd1;", 1).unwrap_err();
    assert!(failure.what.contains("outside of all memory"), "{failure}");
    assert!(ends("\tst.mmio.relaxed.sys.global.b64 [%rd1], %rd1;", 1).unwrap_err().what.contains("doorbell"));
}

/// Data, a fence, a flag: an observer that is not the GPU never sees the flag without the data, and does where the
/// fence is one of the GPU alone.
#[test]
fn a_fence_of_the_gpu_orders_nothing_for_the_nic() {
    let body = |fence: &str| {
        format!(
            "\tmov.b64 %rd2, 1;\n\tst.relaxed.sys.global.b64 [%rd1], %rd2;\n\t{fence};\n\t\
             st.relaxed.sys.global.b64 [%rd1+64], %rd2;\n\tnanosleep.u32 2000;"
        )
    };
    let early = |fence: &str| {
        let is_early = |seed: &u64| {
            let mut seen = false;
            let look = |words: &[u64], _| seen |= words[8] == 1 && words[0] == 0;
            let ended = play(&body(fence), 1, true, *seed, look).unwrap();
            assert_eq!((ended[0], ended[8]), (1, 1));
            seen
        };
        (0..200).filter(is_early).count()
    };
    assert_eq!(early("fence.acq_rel.sys"), 0);
    assert!(early("fence.acq_rel.gpu") > 0);
}

#[test]
fn what_is_not_known_names_its_line() {
    let error = |line: &str| {
        let text = format!(".visible .entry k(\n)\n{{\n{REGISTERS}\t{line};\n}}\n");
        Module::read(&text).expect_err(line)
    };
    for (line, what) in [
        ("tex.1d.v4 %r1", "does not know"),
        ("mov.u32 %r1, %lanemask_lt", "a special register"),
        ("mov.u32 %r9, %tid.x", "a register that is declared"),
        ("ld.volatile.shared.b64 %rd1, [%rd2]", "the one word"),
        ("st.volatile.shared.b64 [shunt_block_word+8], %rd2", "the one word"),
        ("ld.volatile.shared.b32 %r1, [shunt_block_word]", "the one word"),
        ("atom.relaxed.gpu.shared.add.u64 %rd1, [%rd2], %rd3", "global memory"),
        ("st.local.b64 [%rd1], %rd2", "no stack"),
        ("barrier.sync 1", "barrier 0"),
        ("barrier.arrive 0", "does not know"),
        ("fence.proxy.async", "does not know"),
        ("shfl.sync.idx.b32 %r1, %r2, 0, 4127, 0xffffffff", "in parts of a warp"),
    ] {
        let error = error(line);
        assert!(error.line == 7 && error.what.contains(what), "{line}: {error}");
    }
}

#[test]
fn masks_are_kept_to() {
    let first_four =
        |operation: &str| format!("\tsetp.gt.u32 %p1, %r1, 3;\n\t@%p1 bra $END;\n\t{operation};\n$END:");
    let shuffle = |from: u32| first_four(&format!("shfl.sync.idx.b32 %r2, %r1, {from}, 31, 0xf"));
    assert!(ends(&shuffle(3), 32).is_ok());
    assert!(ends(&shuffle(4), 32).unwrap_err().what.contains("a shuffle from lane 4"));
    let left_out = ends(&first_four("bar.warp.sync 0x7"), 32).unwrap_err();
    assert!(left_out.what.contains("leaves it out") && left_out.threads == [3], "{left_out}");
}

/// What the SM keeps answers plain loads of any width until an acquire; never acquiring ones, and never one behind an
/// atomic of the thread's own.
#[test]
fn a_plain_load_of_any_width_may_find_what_was_there_before() {
    let stale = |load: &str, between: &str| {
        let body = format!(
            "\t{load} %rd2, [%rd1+4];\n\tst.relaxed.sys.global.b64 [%rd1+64], %rd1;\n\tfence.acq_rel.sys;\n\t\
             {load} %rd2, [%rd1+4];\n\tnanosleep.u32 9000;\n{between}\t{load} %rd3, [%rd1+4];\n\t\
             st.relaxed.sys.global.b64 [%rd1+72], %rd3;"
        );
        let is_stale = |seed: &u64| {
            // The NIC writes once the flag is there.
            let look = |words: &[u64], at| {
                if words[8] != 0 {
                    shunt_tests::oracle::store(at, 5 << 32 | 5)
                }
            };
            play(&body, 1, true, *seed, look).unwrap()[9] & 0xff == 0
        };
        (0..100).filter(is_stale).count()
    };
    for load in ["ld.global.b32", "ld.global.b16", "ld.global.b8"] {
        assert!(stale(load, "") > 0, "{load}");
        assert_eq!(stale(load, "\tfence.acq_rel.gpu;\n"), 0, "{load}");
        assert_eq!(stale(load, "\tatom.relaxed.sys.global.add.u32 %r2, [%rd1+4], 0;\n"), 0, "{load}");
    }
    assert_eq!(stale("ld.relaxed.sys.global.b32", ""), 0);
}

#[test]
fn arithmetic_is_that_of_the_isa() {
    use crate::code::{Binary, Type};
    use crate::value::{binary, permute, to_fp8};
    let (i32s, u32s) = (Type::Signed(32), Type::Unsigned(32));
    assert_eq!(binary(Binary::ShiftRight, i32s, 0x8000_0000, 40), 0xffff_ffff);
    assert_eq!(binary(Binary::ShiftLeft, u32s, 1, 32), 0);
    assert_eq!(binary(Binary::MultiplyWide, u32s, 0xffff_ffff, 2), 0x1_ffff_fffe);
    assert_eq!(binary(Binary::MultiplyHigh, Type::Unsigned(64), u64::MAX, 2), 1);
    assert_eq!(permute(0x1122_3344, 0, 0x123), 0x4433_2211);
    for (number, code) in [
        (0.0, 0),
        (1.0, 0x38),
        (-1.0, 0xb8),
        (448.0, 0x7e),
        (500.0, 0x7e),
        (0.001_953_125, 1),
        (1.0625, 0x38),
    ] {
        assert_eq!(to_fp8(u64::from(f32::to_bits(number))), code, "{number}");
    }
}
