//! Memory of the caller: tensors that nobody else touches while the kernel runs.

/// Element `number` of a tensor.
///
/// # Safety
/// The tensor holds it, at an aligned address; see `MoeCall`.
#[inline(always)]
pub unsafe fn read<T: Copy>(tensor: u64, number: u64) -> T {
    // SAFETY: forwarded to the caller.
    unsafe { (tensor as *const T).add(number as usize).read() }
}

/// Sixteen BF16, two to a word, from `at` on: 32 bytes.
///
/// # Safety
/// The tensor holds them. `at` is a multiple of 16, which a GPU wants, and on a CPU of 8.
#[inline(always)]
pub unsafe fn read_sixteen(at: u64) -> [u32; 8] {
    // SAFETY: forwarded to the caller.
    let [a, b, c, d] = unsafe { crate::nvptx_math::read_four_words::<0>(at) };
    // SAFETY: as above.
    let [e, f, g, h] = unsafe { crate::nvptx_math::read_four_words::<16>(at) };
    [a, b, c, d, e, f, g, h]
}

/// Sets element `number` of a tensor.
///
/// # Safety
/// As for `read`, and no other lane touches the element.
#[inline(always)]
pub unsafe fn write<T: Copy>(tensor: u64, number: u64, value: T) {
    // SAFETY: forwarded to the caller.
    unsafe { (tensor as *mut T).add(number as usize).write(value) }
}
