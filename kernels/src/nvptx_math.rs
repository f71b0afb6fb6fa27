//! What kernels ask of a GPU that Rust has no word for: all of their assembly. `moe::number` has the same in bits, for
//! what cannot do it.

/// Four E4M3, the first in the lowest byte: to the nearest, ties to even, what is too large becomes the largest.
///
/// A product of this GPU that is no number is the positive one, which becomes 0x7f.
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_89"))]
#[inline(always)]
pub fn four_fp8(values: [f32; 4]) -> u32 {
    let [a, b, c, d] = values;
    let (low, high, all): (u16, u16, u32);
    // SAFETY: registers alone.
    unsafe {
        core::arch::asm!("cvt.rn.satfinite.e4m3x2.f32 {}, {}, {};",
            out(reg16) low, in(reg32) b, in(reg32) a, options(pure, nomem, nostack));
        core::arch::asm!("cvt.rn.satfinite.e4m3x2.f32 {}, {}, {};",
            out(reg16) high, in(reg32) d, in(reg32) c, options(pure, nomem, nostack));
        core::arch::asm!("mov.b32 {}, {{{}, {}}};",
            out(reg32) all, in(reg16) low, in(reg16) high, options(pure, nomem, nostack));
    };
    all
}

/// `value` as a compiler cannot know it: a loop up to it stays one, and what is made of it is made where it is needed,
/// not kept from before a loop.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub fn unknown(value: u64) -> u64 {
    let same;
    // SAFETY: registers alone.
    unsafe { core::arch::asm!("mov.b64 {}, {};", out(reg64) same, in(reg64) value, options(nomem, nostack)) };
    same
}

/// On a CPU compilers may know it.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub const fn unknown(value: u64) -> u64 {
    value
}

/// `value` as a compiler cannot know it before it knows `moment`, which is [`unknown`] itself: what is made of it is
/// made behind that, and not at all where nobody needs it.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub fn known_from(value: u64, moment: u64) -> u64 {
    let same;
    // SAFETY: registers alone.
    unsafe {
        core::arch::asm!("mov.b64 {}, {}; // {}",
            out(reg64) same, in(reg64) value, in(reg64) moment, options(pure, nomem, nostack))
    };
    same
}

/// On a CPU compilers may know it.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub const fn known_from(value: u64, _: u64) -> u64 {
    value
}

/// First in a loop's body: the assembler leaves it a loop. Unrolled by thirty-two, as it would, its loads would take
/// all registers that there are.
#[inline(always)]
pub fn rolled() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: a word to the assembler.
    unsafe {
        core::arch::asm!(".pragma \"nounroll\";", options(nomem, nostack))
    };
}

/// Four words, 16 bytes, so many bytes behind `at`, of memory that nobody writes meanwhile.
///
/// # Safety
/// They are there, and at a multiple of 16.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub unsafe fn read_four_words<const BEHIND: u64>(at: u64) -> [u32; 4] {
    let (a, b, c, d);
    // SAFETY: forwarded to the caller.
    unsafe {
        core::arch::asm!("ld.global.v4.b32 {{{}, {}, {}, {}}}, [{}+{}];", out(reg32) a, out(reg32) b, out(reg32) c,
            out(reg32) d, in(reg64) at, const BEHIND, options(nostack, readonly))
    };
    [a, b, c, d]
}

/// On a CPU a multiple of 8 is enough.
///
/// # Safety
/// They are there.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn read_four_words<const BEHIND: u64>(at: u64) -> [u32; 4] {
    // SAFETY: forwarded to the caller.
    let [low, high] = unsafe { ((at + BEHIND) as *const [u64; 2]).read() };
    [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
}

/// The larger magnitude of each of two pairs of BF16, of any sign; what is no number does not count. From sm_86 on.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub fn larger_magnitudes(a: u32, b: u32) -> u32 {
    let larger;
    // SAFETY: registers alone.
    unsafe {
        core::arch::asm!("max.xorsign.abs.bf16x2 {}, {}, {};", out(reg32) larger, in(reg32) a, in(reg32) b,
            options(pure, nomem, nostack))
    };
    larger
}

/// The same in bits: magnitudes are in the order of their bits.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub const fn larger_magnitudes(a: u32, b: u32) -> u32 {
    const fn larger(a: u32, b: u32) -> u32 {
        const NO_NUMBER: u32 = 0x7f81;
        if b < NO_NUMBER && (a >= NO_NUMBER || b > a) { b } else { a }
    }
    let (a, b) = (a & 0x7fff_7fff, b & 0x7fff_7fff);
    larger(a >> 16, b >> 16) << 16 | larger(a & 0xffff, b & 0xffff)
}
