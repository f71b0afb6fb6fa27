//! Messages between hosts: little-endian fields behind a magic and [`ABI_VERSION`], read with bounds.

use shunt_layout::ABI_VERSION;
use thiserror::Error;

/// A card that cannot be understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CardError {
    /// Too few bytes.
    #[error("card ends after {got} bytes, in field {field} that ends at byte {want}")]
    Short {
        /// Field that was being read.
        field: &'static str,
        /// Bytes there are.
        got: usize,
        /// Bytes needed.
        want: usize,
    },
    /// Bytes behind the end.
    #[error("card has {extra} bytes behind its end")]
    Long {
        /// Bytes left over.
        extra: usize,
    },
    /// Not a card of this kind.
    #[error("card begins with {met:#010x}, a {kind} begins with {want:#010x}")]
    Magic {
        /// Kind that was expected.
        kind: &'static str,
        /// What it begins with.
        met: u32,
        /// What it should begin with.
        want: u32,
    },
    /// Made by another version.
    #[error("card has ABI version {met}, this build has {want}; run one build on all PEs")]
    Abi {
        /// Version of the card.
        met: u32,
        /// This version.
        want: u32,
    },
    /// A field has a value it cannot have.
    #[error("card field {field}: expected {want}, got {met}")]
    Value {
        /// Field.
        field: &'static str,
        /// What it holds.
        met: u64,
        /// What it may hold.
        want: &'static str,
    },
}

/// Appends little-endian fields.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A message that begins with its magic and the version.
    pub fn header(magic: u32) -> Self {
        let mut writer = Self::default();
        writer.u32(magic);
        writer.u32(ABI_VERSION);
        writer
    }

    /// The message.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }
    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }
    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }
}

/// Reads them back, and says which field the bytes end in.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Magic and version come first, so that a card of another build is refused before it is read.
    ///
    /// # Errors
    /// [`CardError`], as from every method below.
    pub fn header(bytes: &'a [u8], kind: &'static str, magic: u32) -> Result<Self, CardError> {
        let mut reader = Self { bytes, at: 0 };
        let met = reader.u32("magic")?;
        if met != magic {
            return Err(CardError::Magic { kind, met, want: magic });
        }
        let met = reader.u32("abi_version")?;
        if met != ABI_VERSION {
            return Err(CardError::Abi { met, want: ABI_VERSION });
        }
        Ok(reader)
    }
    /// The next `N` bytes.
    pub fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], CardError> {
        let want = self.at + N;
        let slice = self.bytes.get(self.at..want);
        let slice = slice.ok_or(CardError::Short { field, got: self.bytes.len(), want })?;
        self.at = want;
        Ok(slice.try_into().expect("N bytes"))
    }
    /// One byte.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, CardError> {
        Ok(self.take::<1>(field)?[0])
    }
    /// Two bytes.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, CardError> {
        Ok(u16::from_le_bytes(self.take(field)?))
    }
    /// Four bytes.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, CardError> {
        Ok(u32::from_le_bytes(self.take(field)?))
    }
    /// Eight bytes.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, CardError> {
        Ok(u64::from_le_bytes(self.take(field)?))
    }
    /// A count of items that follow: never trusted beyond the bytes there are.
    pub fn count(&mut self, field: &'static str, item_bytes: usize) -> Result<usize, CardError> {
        let count = self.u32(field)? as usize;
        let want = count.saturating_mul(item_bytes).saturating_add(self.at);
        if want > self.bytes.len() {
            return Err(CardError::Short { field, got: self.bytes.len(), want });
        }
        Ok(count)
    }
    /// Refuses bytes behind the last field.
    pub fn end(self) -> Result<(), CardError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            extra => Err(CardError::Long { extra }),
        }
    }
}

/// A QPN or PSN: 24 bits.
///
/// # Errors
/// A greater number.
pub fn number(field: &'static str, value: u32) -> Result<u32, CardError> {
    if value >> 24 == 0 {
        Ok(value)
    } else {
        Err(CardError::Value { field, met: value.into(), want: "24 bits" })
    }
}
