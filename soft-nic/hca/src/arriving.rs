//! A message of several packets that has begun to arrive.

use shunt_soft_wire::packet::{Part, Reth};

/// A WRITE that has begun to arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    pub(crate) rkey: u32,
    /// Where the next packet lands.
    pub(crate) address: u64,
    /// Bytes still to come.
    left: u64,
    /// Bytes of the whole message.
    bytes: u32,
}

impl Incoming {
    /// A WRITE with this header.
    #[inline]
    pub(crate) fn of(reth: Reth) -> Self {
        Self { rkey: reth.rkey, address: reth.address, left: reth.bytes as u64, bytes: reth.bytes }
    }

    /// True if a packet of so many bytes may come next.
    #[inline]
    pub(crate) fn fits(&self, part: Part, bytes: u64, mtu: u32) -> bool {
        if part.ends() {
            bytes == self.left && bytes <= mtu as u64
        } else {
            bytes == mtu as u64 && bytes < self.left
        }
    }

    /// What is left behind a packet of so many bytes.
    #[inline]
    pub(crate) fn after(self, bytes: u64) -> Self {
        Self { address: self.address.wrapping_add(bytes), left: self.left - bytes, ..self }
    }
}

/// What has begun to arrive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Arriving {
    #[default]
    Nothing,
    Write(Incoming),
    /// A SEND, and the bytes of it that came.
    Send(u64),
}

impl Arriving {
    /// True between two messages.
    pub(crate) fn is_nothing(self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// The bytes of a SEND that came before this part of it; `None` where it is out of place.
    pub(crate) fn before_send(self, part: Part) -> Option<u64> {
        match (part.starts(), self) {
            (true, Self::Nothing) => Some(0),
            (false, Self::Send(filled)) => Some(filled),
            _ => None,
        }
    }

    /// The bytes of the whole WRITE that ends with this part of so many; `None` where it is out of place.
    pub(crate) fn whole_write(self, part: Part, bytes: u64) -> Option<u64> {
        match (part, self) {
            (Part::Only, Self::Nothing) => Some(bytes),
            (Part::Last, Self::Write(incoming)) => Some(incoming.bytes as u64),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_write_are_whole_but_the_last() {
        let incoming = Incoming::of(Reth { address: 0x1000, rkey: 1, bytes: 300 });
        assert!(incoming.fits(Part::First, 256, 256) && !incoming.fits(Part::First, 255, 256));
        assert!(!incoming.fits(Part::Only, 300, 256), "longer than the path takes");
        let rest = incoming.after(256);
        assert!(rest.fits(Part::Last, 44, 256) && !rest.fits(Part::Last, 43, 256));
        assert!(!rest.fits(Part::Middle, 256, 256), "longer than what is left");
        assert_eq!(rest.address, 0x1100);
        assert_eq!(Arriving::Write(rest).whole_write(Part::Last, 44), Some(300));
    }

    #[test]
    fn messages_do_not_mix() {
        let write = Arriving::Write(Incoming::of(Reth::default()));
        assert_eq!(write.before_send(Part::Last), None);
        assert_eq!(Arriving::Nothing.before_send(Part::Middle), None);
        assert_eq!(Arriving::Send(256).before_send(Part::Last), Some(256));
        assert_eq!(Arriving::Send(256).before_send(Part::First), None);
        assert_eq!(Arriving::Send(256).whole_write(Part::Last, 1), None);
    }
}
