//! Which types each family has, and how values travel.

/// A value that fits a word.
pub trait Value: Copy + Default {
    /// Its bits, in the low bytes.
    fn bits(self) -> u64;
    /// From the low bytes.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! whole {
    ($($type:ty, $unsigned:ty;)*) => { $(
        impl Value for $type {
            fn bits(self) -> u64 {
                self as $unsigned as u64
            }
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
        }
    )* };
}
whole!(i8, u8; i16, u16; i32, u32; i64, u64; u8, u8; u16, u16; u32, u32; u64, u64; usize, usize; isize, usize;);

impl Value for f32 {
    fn bits(self) -> u64 {
        self.to_bits().into()
    }
    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits as u32)
    }
}

impl Value for f64 {
    fn bits(self) -> u64 {
        self.to_bits()
    }
    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }
}

/// The 25 types of transfers and of collective calls that move data. Numbers of 16 bits are passed as their bits: in C
/// they are structures of one 16-bit member, which travel in the same register.
macro_rules! with_rma_types {
    ($make:ident) => {
        $make! {
            "bfloat16" u16; "half" u16; "float" f32; "double" f64; "char" i8; "short" i16; "schar" i8; "int" i32;
            "long" i64; "longlong" i64; "uchar" u8; "ushort" u16; "uint" u32; "ulong" u64; "ulonglong" u64;
            "int8" i8; "int16" i16; "int32" i32; "int64" i64; "uint8" u8; "uint16" u16; "uint32" u32;
            "uint64" u64; "size" usize; "ptrdiff" isize;
        }
    };
}
pub(super) use with_rma_types;

/// Elements of so many bits, and their bytes.
macro_rules! with_sizes {
    ($make:ident) => {
        $make! { "8" 1; "16" 2; "32" 4; "64" 8; "128" 16; }
    };
}
pub(super) use with_sizes;

/// The 12 types of atomics that add and compare.
macro_rules! with_standard_amo_types {
    ($make:ident) => {
        $make! {
            "int" i32; "long" i64; "longlong" i64; "size" usize; "ptrdiff" isize; "uint" u32; "ulong" u64;
            "ulonglong" u64; "int32" i32; "uint32" u32; "int64" i64; "uint64" u64;
        }
    };
}
pub(super) use with_standard_amo_types;

/// The 14 of atomics that read and store.
macro_rules! with_extended_amo_types {
    ($make:ident) => {
        $make! {
            "int" i32; "long" i64; "longlong" i64; "size" usize; "ptrdiff" isize; "uint" u32; "ulong" u64;
            "ulonglong" u64; "int32" i32; "uint32" u32; "int64" i64; "uint64" u64; "float" f32; "double" f64;
        }
    };
}
pub(super) use with_extended_amo_types;

/// The 7 of atomics on bits.
macro_rules! with_bitwise_amo_types {
    ($make:ident) => {
        $make! {
            "uint" u32; "ulong" u64; "ulonglong" u64; "int32" i32; "uint32" u32; "int64" i64; "uint64" u64;
        }
    };
}
pub(super) use with_bitwise_amo_types;

/// The 14 of waits; whether the highest bit is a sign.
macro_rules! with_wait_types {
    ($make:ident) => {
        $make! {
            "short" i16, true; "int" i32, true; "long" i64, true; "longlong" i64, true; "ushort" u16, false;
            "uint" u32, false; "ulong" u64, false; "ulonglong" u64, false; "int32" i32, true; "int64" i64, true;
            "uint32" u32, false; "uint64" u64, false; "size" usize, false; "ptrdiff" isize, true;
        }
    };
}
pub(super) use with_wait_types;

/// The 14 of reductions of bits, and what they are to [`crate::numbers`].
macro_rules! with_bitwise_reduce_types {
    ($make:ident, $($op:tt)*) => {
        $make! { $($op)*
            "uchar" u8, U8; "ushort" u16, U16; "uint" u32, U32; "ulong" u64, U64; "ulonglong" u64, U64; "int8" i8, I8;
            "int16" i16, I16; "int32" i32, I32; "int64" i64, I64; "uint8" u8, U8; "uint16" u16, U16; "uint32" u32, U32;
            "uint64" u64, U64; "size" usize, U64;
        }
    };
}
pub(super) use with_bitwise_reduce_types;

/// The 10 more of reductions of numbers.
macro_rules! with_other_reduce_types {
    ($make:ident, $($op:tt)*) => {
        $make! { $($op)*
            "char" i8, I8; "schar" i8, I8; "short" i16, I16; "int" i32, I32; "long" i64, I64; "longlong" i64, I64;
            "bfloat16" u16, Bf16; "half" u16, F16; "float" f32, F32; "double" f64, F64;
        }
    };
}
pub(super) use with_other_reduce_types;

/// The name of a function, of its parts.
macro_rules! plain_name {
    ($($part:literal)*) => { concat!("nvshmem_", $($part),*) };
}
pub(super) use plain_name;

/// The name of its form on a stream.
macro_rules! stream_name {
    ($($part:literal)*) => { concat!("nvshmemx_", $($part,)* "_on_stream") };
}
pub(super) use stream_name;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        assert_eq!((-1i8).bits(), 0xff);
        assert_eq!(i16::from_bits((-2i16).bits()), -2);
        assert_eq!(f32::from_bits(Value::bits(1.5f32) as u32), 1.5);
        assert_eq!(<f64 as Value>::from_bits(Value::bits(-0.25f64)), -0.25);
        assert_eq!(<isize as Value>::from_bits(isize::MIN.bits()), isize::MIN);
    }
}
