//! The uverbs and mlx5 user ABI: what programs and kernels exchange, in host byte order.
//!
//! Structures are written with the offset of each field, and sizes and offsets are checked at compile time.

pub mod efa;
pub mod ids;
pub mod mlx5;
pub mod uverbs;

/// Data that is nothing but its bytes.
///
/// # Safety
/// The type has no padding, and every pattern of bytes is a value of it.
pub unsafe trait Plain: Copy + 'static {
    /// All bytes zero.
    fn zeroed() -> Self {
        // SAFETY: every pattern of bytes is a value, says the implementor.
        unsafe { std::mem::zeroed() }
    }

    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: there is no padding, says the implementor, so every byte is initialised.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    /// Its bytes, to write to.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and whatever is written is a value.
        unsafe { std::slice::from_raw_parts_mut((&raw mut *self).cast(), size_of::<Self>()) }
    }

    /// A value from its first bytes; those that are missing are zero, those too many are left out.
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut value = Self::zeroed();
        let common = bytes.len().min(size_of::<Self>());
        value.bytes_mut()[..common].copy_from_slice(&bytes[..common]);
        value
    }
}

// SAFETY: integers have no padding, and any bytes are one.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: an array adds no padding to its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A structure of the ABI: its size, and the offset of each field.
macro_rules! structure {
    ($($(#[$doc:meta])* $name:ident: $size:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $offset:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        const _: () = {
            const fn plain<T: $crate::abi::Plain>() -> usize {
                size_of::<T>()
            }
            assert!(size_of::<$name>() == $size);
            assert!(0 $(+ plain::<$type>())* == $size, "padding");
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };

        // SAFETY: the fields are plain data, and together as long as the whole: no padding.
        unsafe impl $crate::abi::Plain for $name {}

        impl Default for $name {
            fn default() -> Self {
                $crate::abi::Plain::zeroed()
            }
        }
    )*};
}
pub(crate) use structure;

#[cfg(test)]
mod tests {
    use super::*;

    structure! {
        /// A test.
        Pair: 8 {
            /// One.
            one: u32 = 0,
            /// Two.
            two: [u16; 2] = 4,
        }
    }

    #[test]
    fn bytes_short_and_long_make_values() {
        let pair = Pair { one: 0x0403_0201, two: [0x0605, 0x0807] };
        assert_eq!(pair.bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Pair::from_bytes(&[1, 2, 3, 4, 5]).two, [5, 0]);
        assert_eq!(Pair::from_bytes(&[1, 2, 3, 4, 5, 6, 7, 8, 9]).two, [0x0605, 0x0807]);
        assert_eq!(Pair::default().one, 0);
    }
}
