//! Little-endian numbers in a row: how messages between the processes of a job are written and read.

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBytes {
    /// The end came too soon.
    #[error("ends after {met} bytes, in {field}")]
    Short {
        /// Bytes there are.
        met: usize,
        /// What was being read.
        field: &'static str,
    },
    /// Something follows.
    #[error("has {0} bytes behind its end")]
    Long(usize),
    /// A value that cannot be.
    #[error("{field} is {met}")]
    Value {
        /// What was being read.
        field: &'static str,
        /// What it holds.
        met: u64,
    },
    /// Text that is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
}

/// Appends to a message.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// One byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// Yes or no.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(value as u8)
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Many of eight bytes, after their number.
    pub fn u64s(&mut self, values: &[u64]) -> &mut Self {
        self.u32(values.len() as u32);
        values.iter().for_each(|value| {
            self.u64(*value);
        });
        self
    }

    /// Bytes, after their number.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        self
    }
}

/// Reads a message from its start.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    /// Of all these bytes.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Nothing may follow.
    pub fn end(self) -> Result<(), BadBytes> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            more => Err(BadBytes::Long(more)),
        }
    }

    /// True if nothing follows.
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn take(&mut self, count: usize, field: &'static str) -> Result<&'b [u8], BadBytes> {
        let short = BadBytes::Short { met: self.bytes.len(), field };
        let end = self.at.checked_add(count).ok_or(short)?;
        let taken = self.bytes.get(self.at..end).ok_or(short)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], BadBytes> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, field)?);
        Ok(array)
    }

    /// One byte.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, BadBytes> {
        Ok(self.array::<1>(field)?[0])
    }

    /// Yes or no.
    pub fn bool(&mut self, field: &'static str) -> Result<bool, BadBytes> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            met => Err(BadBytes::Value { field, met: met.into() }),
        }
    }

    /// Four bytes.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, BadBytes> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    /// Eight bytes.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, BadBytes> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A number of things of at least `least` bytes each, as many as there can be.
    pub fn count(&mut self, least: usize, field: &'static str) -> Result<usize, BadBytes> {
        let count = self.u32(field)? as usize;
        let left = self.bytes.len() - self.at;
        match count.checked_mul(least) {
            Some(bytes) if bytes <= left => Ok(count),
            _ => Err(BadBytes::Value { field, met: count as u64 }),
        }
    }

    /// Many of eight bytes.
    pub fn u64s(&mut self, field: &'static str) -> Result<Vec<u64>, BadBytes> {
        (0..self.count(8, field)?).map(|_| self.u64(field)).collect()
    }

    /// Bytes.
    pub fn bytes(&mut self, field: &'static str) -> Result<&'b [u8], BadBytes> {
        let count = self.count(1, field)?;
        self.take(count, field)
    }

    /// Text.
    pub fn text(&mut self, field: &'static str) -> Result<String, BadBytes> {
        let bytes = self.bytes(field)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| BadBytes::Text(field))
    }
}
