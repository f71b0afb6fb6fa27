//! What kernels ask of a GPU that Rust has no word for: all of their assembly. `moe::number` has the same in bits, for
//! what cannot do it.

/// Two E4M3, `low` in the lower byte: to the nearest, ties to even, what is too large becomes the largest.
///
/// A product of this GPU that is no number is the positive one, which becomes 0x7f.
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_89"))]
#[inline(always)]
pub fn two_fp8(low: f32, high: f32) -> u16 {
    let both;
    // SAFETY: registers alone.
    unsafe {
        core::arch::asm!("cvt.rn.satfinite.e4m3x2.f32 {}, {}, {};",
            out(reg16) both, in(reg32) high, in(reg32) low, options(pure, nomem, nostack))
    };
    both
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
