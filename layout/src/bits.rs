//! Bit fields of big-endian structures, written the way the PRM prints them.
//!
//! The PRM names a field by the byte offset of its 32-bit word and a bit range inside that word, with bit 31
//! the most significant. [`Field`] is exactly that; [`fields!`](crate::fields) makes a table of them and
//! refuses, at compile time, two fields that overlap or a field that lies outside its structure.

/// A field of at most 32 bits inside one big-endian dword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Byte offset of the dword, a multiple of four.
    pub offset: usize,
    /// Most significant bit, 0 to 31.
    pub msb: u32,
    /// Least significant bit, 0 to `msb`.
    pub lsb: u32,
}

impl Field {
    /// A field at byte `offset`, bits `msb` down to `lsb`.
    pub const fn new(offset: usize, msb: u32, lsb: u32) -> Self {
        assert!(offset.is_multiple_of(4), "the PRM counts fields inside aligned dwords");
        assert!(msb < 32 && lsb <= msb, "bits are written msb..lsb inside one dword");
        Self { offset, msb, lsb }
    }

    /// The same field inside a structure that starts `base` bytes into a larger one.
    pub const fn within(self, base: usize) -> Self {
        Self { offset: self.offset + base, ..self }
    }

    /// The field's bits, in place.
    pub const fn mask(self) -> u32 {
        (u32::MAX >> (31 - (self.msb - self.lsb))) << self.lsb
    }

    /// Reads the field.
    ///
    /// # Panics
    /// If `bytes` is too short; callers check a mailbox's length once, before looking inside.
    pub fn get(self, bytes: &[u8]) -> u32 {
        (read_be32(bytes, self.offset) & self.mask()) >> self.lsb
    }

    /// Writes the field and leaves its neighbours alone.
    ///
    /// # Panics
    /// If `bytes` is too short, or if `value` does not fit: a value silently cut is a wrong mailbox.
    pub fn set(self, bytes: &mut [u8], value: u32) {
        let width_mask = self.mask() >> self.lsb;
        assert!(value & !width_mask == 0, "{value:#x} does not fit bits [{}:{}]", self.msb, self.lsb);
        let word = read_be32(bytes, self.offset) & !self.mask() | value << self.lsb;
        bytes[self.offset..self.offset + 4].copy_from_slice(&word.to_be_bytes());
    }
}

/// A 64-bit big-endian field, eight bytes at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field64 {
    /// Byte offset, a multiple of four.
    pub offset: usize,
}

impl Field64 {
    /// A 64-bit field at byte `offset`.
    pub const fn new(offset: usize) -> Self {
        assert!(offset.is_multiple_of(4));
        Self { offset }
    }

    /// The same field inside a structure that starts `base` bytes into a larger one.
    pub const fn within(self, base: usize) -> Self {
        Self { offset: self.offset + base }
    }

    /// Reads the field. Panics if `bytes` is too short.
    pub fn get(self, bytes: &[u8]) -> u64 {
        (read_be32(bytes, self.offset) as u64) << 32 | read_be32(bytes, self.offset + 4) as u64
    }

    /// Writes the field. Panics if `bytes` is too short.
    pub fn set(self, bytes: &mut [u8], value: u64) {
        bytes[self.offset..self.offset + 8].copy_from_slice(&value.to_be_bytes());
    }
}

fn read_be32(bytes: &[u8], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_be_bytes(word)
}

/// True if no two fields share a bit and all lie below `bytes`.
pub const fn disjoint(fields: &[Field], wide: &[Field64], bytes: usize) -> bool {
    let mut i = 0;
    while i < fields.len() {
        if fields[i].offset + 4 > bytes {
            return false;
        }
        let mut j = i + 1;
        while j < fields.len() {
            if fields[i].offset == fields[j].offset && fields[i].mask() & fields[j].mask() != 0 {
                return false;
            }
            j += 1;
        }
        let mut j = 0;
        while j < wide.len() {
            if fields[i].offset >= wide[j].offset && fields[i].offset < wide[j].offset + 8 {
                return false;
            }
            j += 1;
        }
        i += 1;
    }
    let mut i = 0;
    while i < wide.len() {
        if wide[i].offset + 8 > bytes {
            return false;
        }
        let mut j = i + 1;
        while j < wide.len() {
            if wide[i].offset < wide[j].offset + 8 && wide[j].offset < wide[i].offset + 8 {
                return false;
            }
            j += 1;
        }
        i += 1;
    }
    true
}

/// A table of fields of one structure: `NAME: byte offset [msb:lsb]`, 64-bit fields behind `wide`.
///
/// Makes one constant a field, `BYTES`, and `ALL` / `ALL_WIDE` for tools that walk a structure.
#[macro_export]
macro_rules! fields {
    ($bytes:expr; $($(#[$doc:meta])* $name:ident: $offset:literal [$msb:literal : $lsb:literal];)*
     $(@wide $($(#[$wdoc:meta])* $wname:ident: $woffset:literal;)*)?) => {
        /// Size of the structure in bytes.
        pub const BYTES: usize = $bytes;
        $($(#[$doc])* pub const $name: $crate::bits::Field = $crate::bits::Field::new($offset, $msb, $lsb);)*
        $($($(#[$wdoc])* pub const $wname: $crate::bits::Field64 = $crate::bits::Field64::new($woffset);)*)?
        /// Every field of up to 32 bits, by name.
        pub const ALL: &[(&str, $crate::bits::Field)] = &[$((stringify!($name), $name)),*];
        /// Every 64-bit field, by name.
        pub const ALL_WIDE: &[(&str, $crate::bits::Field64)] = &[$($((stringify!($wname), $wname)),*)?];
        const _: () = assert!(
            $crate::bits::disjoint(&[$($name),*], &[$($($wname),*)?], $bytes),
            "fields overlap or lie outside the structure"
        );
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_leaves_neighbours_alone() {
        let mut bytes = [0xa5; 8];
        Field::new(4, 23, 8).set(&mut bytes, 0x1234);
        assert_eq!(bytes, [0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0x12, 0x34, 0xa5]);
        assert_eq!(Field::new(4, 23, 8).get(&bytes), 0x1234);
        assert_eq!(Field::new(4, 31, 24).get(&bytes), 0xa5);
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_value_that_does_not_fit_is_refused() {
        Field::new(0, 3, 0).set(&mut [0; 4], 16);
    }

    #[test]
    fn overlap_is_seen() {
        assert!(!disjoint(&[Field::new(0, 7, 0), Field::new(0, 9, 7)], &[], 4));
        assert!(disjoint(&[Field::new(0, 7, 0), Field::new(0, 9, 8)], &[Field64::new(4)], 12));
        assert!(!disjoint(&[Field::new(8, 7, 0)], &[Field64::new(4)], 12));
    }
}
