//! Netlink messages and their attributes as bytes, both ways. Numbers are in the machine's order.

use rustix::io::Errno;

/// Bytes of a message's header.
pub const HEADER: usize = 16;
/// Bytes of an attribute's header.
const ATTRIBUTE: usize = 4;
/// In an attribute's type, what is not a flag.
const TYPE_MASK: u16 = 0x3fff;

/// Message: an error, or an acknowledgement.
pub const ERROR: u16 = libc::NLMSG_ERROR as u16;
/// Message: the end of a dump.
pub const DONE: u16 = libc::NLMSG_DONE as u16;

/// The next multiple of four.
fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// One message of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is.
    pub kind: u16,
    /// `NLM_F_REQUEST` and others.
    pub flags: u16,
    /// Its number, which answers repeat.
    pub sequence: u32,
    header: &'a [u8],
    attributes: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first message of a datagram, and what follows it. `None` where no whole one is.
    pub fn first(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = u32_at(datagram, 0)? as usize;
        let whole = datagram.get(..length).filter(|whole| whole.len() >= HEADER)?;
        let (header, attributes) = whole.split_at(HEADER);
        let (kind, flags) = (u16_at(header, 4)?, u16_at(header, 6)?);
        let message = Self { kind, flags, sequence: u32_at(header, 8)?, header, attributes };
        Some((message, datagram.get(aligned(length)..).unwrap_or_default()))
    }

    /// The value of an attribute, the last if there are more. EINVAL if the attributes are not what they should be.
    pub fn attribute(&self, kind: u16) -> Result<Option<&'a [u8]>, Errno> {
        let (mut rest, mut found) = (self.attributes, None);
        while !rest.is_empty() {
            let length = u16_at(rest, 0).ok_or(Errno::INVAL)? as usize;
            let this = u16_at(rest, 2).ok_or(Errno::INVAL)?;
            let value = rest.get(ATTRIBUTE..length).ok_or(Errno::INVAL)?;
            if this & TYPE_MASK == kind {
                found = Some(value);
            }
            rest = rest.get(aligned(length)..).unwrap_or_default();
        }
        Ok(found)
    }

    /// The number an attribute holds; EINVAL if it is not there.
    pub fn number(&self, kind: u16) -> Result<u32, Errno> {
        self.attribute(kind)?.and_then(|value| u32_at(value, 0)).ok_or(Errno::INVAL)
    }

    /// The text an attribute holds, up to a zero; EINVAL if it is not there.
    pub fn text(&self, kind: u16) -> Result<&'a [u8], Errno> {
        let value = self.attribute(kind)?.ok_or(Errno::INVAL)?;
        Ok(value.split(|byte| *byte == 0).next().unwrap_or_default())
    }

    /// Its header.
    pub fn header(&self) -> &'a [u8] {
        self.header
    }
}

/// A message that is being written at the end of a datagram. It is whole at any time.
pub struct Writer<'a> {
    datagram: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Begins a message: what it is, its flags, and to whom it goes.
    pub fn new(datagram: &'a mut Vec<u8>, kind: u16, flags: i32, to: To) -> Self {
        let start = datagram.len();
        datagram.extend((HEADER as u32).to_ne_bytes());
        datagram.extend(kind.to_ne_bytes());
        datagram.extend((flags as u16).to_ne_bytes());
        datagram.extend(to.sequence.to_ne_bytes());
        datagram.extend(to.port.to_ne_bytes());
        Self { datagram, start }
    }

    /// Adds bytes that are no attribute.
    pub fn raw(self, bytes: &[u8]) -> Self {
        self.datagram.extend(bytes);
        self.datagram.resize(aligned(self.datagram.len()), 0);
        let length = (self.datagram.len() - self.start) as u32;
        self.datagram[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Adds an attribute.
    pub fn put(self, kind: u16, value: &[u8]) -> Self {
        let length = (ATTRIBUTE + value.len()) as u16;
        self.datagram.extend(length.to_ne_bytes());
        self.datagram.extend(kind.to_ne_bytes());
        self.raw(value)
    }

    /// Adds a text.
    pub fn text(self, kind: u16, text: &str) -> Self {
        let zero_at_end: Vec<u8> = text.bytes().chain([0]).collect();
        self.put(kind, &zero_at_end)
    }

    /// Adds a number of 8 bits.
    pub fn byte(self, kind: u16, value: u8) -> Self {
        self.put(kind, &[value])
    }

    /// Adds a number of 32 bits.
    pub fn word(self, kind: u16, value: u32) -> Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Adds a number of 64 bits.
    pub fn long(self, kind: u16, value: u64) -> Self {
        self.put(kind, &value.to_ne_bytes())
    }
}

/// Whom an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    /// The number of the request.
    pub sequence: u32,
    /// The port of the socket that asked.
    pub port: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: To = To { sequence: 7, port: 9 };

    #[test]
    fn what_is_written_is_what_is_read() {
        let mut datagram = Vec::new();
        Writer::new(&mut datagram, 0x1401, libc::NLM_F_REQUEST, TO).word(1, 5).text(2, "mlx5_0").byte(14, 1);
        Writer::new(&mut datagram, 0x1402, 0, TO);
        let (first, rest) = Message::first(&datagram).unwrap();
        assert_eq!((first.kind, first.flags, first.sequence), (0x1401, 1, 7));
        assert_eq!(first.number(1), Ok(5));
        assert_eq!(first.text(2), Ok(b"mlx5_0".as_slice()));
        assert_eq!(first.attribute(14), Ok(Some([1].as_slice())));
        assert_eq!(first.attribute(3), Ok(None));
        assert_eq!(first.number(14), Err(Errno::INVAL), "it is too short");
        let (second, rest) = Message::first(rest).unwrap();
        assert_eq!((second.kind, second.header()[12], rest.len()), (0x1402, 9, 0));
        assert_eq!(Message::first(rest), None);
    }

    #[test]
    fn bytes_lie_where_the_kernel_has_them() {
        let mut datagram = Vec::new();
        Writer::new(&mut datagram, 0x1401, 2, TO).text(2, "ab").long(6, 0x0102_0304_0506_0708);
        let mut want = Vec::new();
        want.extend(36u32.to_ne_bytes());
        want.extend([0x1401u16, 2].map(u16::to_ne_bytes).concat());
        want.extend([7u32, 9].map(u32::to_ne_bytes).concat());
        want.extend([7u16, 2].map(u16::to_ne_bytes).concat());
        want.extend(b"ab\0\0");
        want.extend([12u16, 6].map(u16::to_ne_bytes).concat());
        want.extend(0x0102_0304_0506_0708u64.to_ne_bytes());
        assert_eq!(datagram, want);
    }

    #[test]
    fn broken_attributes_are_refused() {
        let mut datagram = Vec::new();
        for (length, wrong) in [(0u16, true), (3, true), (9, true), (8, false)] {
            datagram.clear();
            let head = [length, 1].map(u16::to_ne_bytes).concat();
            Writer::new(&mut datagram, 0x1401, 1, TO).raw(&head).raw(&5u32.to_ne_bytes());
            let (message, _) = Message::first(&datagram).unwrap();
            assert_eq!(message.number(1), if wrong { Err(Errno::INVAL) } else { Ok(5) }, "{length}");
        }
        assert_eq!(Message::first(&datagram[..datagram.len() - 1]), None, "it is cut");
    }
}
