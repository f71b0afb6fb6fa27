//! Memory that transfers read and write: what is checked before anything is posted. Pure.

use crate::error::TransferError;
use crate::shard::LEN_MAX;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Version of what [`MrDesc::to_bytes`] writes.
const VERSION: u8 = 1;
/// Most rails of an end.
pub const RAILS_MAX: usize = 64;

/// What others may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rights {
    /// Nothing: it is memory of this end's own transfers.
    Local,
    /// Peers write into it.
    Write,
    /// Peers read it.
    Read,
    /// Peers do both.
    ReadWrite,
}

impl Rights {
    /// What for, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local use",
            Self::Write => "writes",
            Self::Read => "reads",
            Self::ReadWrite => "reads and writes",
        }
    }
}

/// A region of this end, registered on every rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mr {
    base: u64,
    len: u64,
    keys: Arc<[u32]>,
}

/// A region of a peer: what it tells of one that others write into or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MrDesc {
    inner: Mr,
    rights: Rights,
}

/// As it is sent.
#[derive(Serialize, Deserialize)]
struct Wire {
    version: u8,
    base: u64,
    len: u64,
    rights: Rights,
    keys: Vec<u32>,
}

impl Mr {
    /// A region that was registered under one key for each rail. Keys are as its NICs read them.
    ///
    /// # Errors
    /// No bytes, too many, an end beyond the last address, or a number of keys that no end has rails.
    pub fn new(base: u64, len: u64, keys: &[u32]) -> Result<Self, TransferError> {
        let refused = |what, want, met: String| Err(TransferError::Refused { what, want, met });
        if len == 0 || len > LEN_MAX || base.checked_add(len).is_none() {
            return refused("a region", "1 to 2^48 bytes below 2^64", format!("{len} bytes at {base:#x}"));
        }
        if keys.is_empty() || keys.len() > RAILS_MAX {
            return refused("a region's keys", "1 to 64, one for each rail", keys.len().to_string());
        }
        Ok(Self { base, len, keys: keys.into() })
    }

    /// Where so many bytes at an offset lie.
    ///
    /// # Errors
    /// They do not lie in the region.
    pub fn part(&self, what: &'static str, offset: u64, bytes: u64) -> Result<u64, TransferError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.len => Ok(self.base + offset),
            _ => Err(TransferError::OutOfRegion { what, offset, bytes, len: self.len }),
        }
    }

    /// Bytes.
    pub const fn bytes(&self) -> u64 {
        self.len
    }

    /// Keys, by rail.
    pub const fn keys(&self) -> &Arc<[u32]> {
        &self.keys
    }

    /// What a peer must know of it.
    pub fn describe(&self, rights: Rights) -> MrDesc {
        MrDesc { inner: self.clone(), rights }
    }
}

impl MrDesc {
    /// Where so many bytes at an offset lie at the peer.
    ///
    /// # Errors
    /// They do not lie in the region, or it is not for peers to write.
    pub fn writable(&self, what: &'static str, offset: u64, bytes: u64) -> Result<u64, TransferError> {
        self.allowed(what, "writes", &[Rights::Write, Rights::ReadWrite])?;
        self.inner.part(what, offset, bytes)
    }

    /// The same of bytes that are read.
    ///
    /// # Errors
    /// They do not lie in the region, or it is not for peers to read.
    pub fn readable(&self, what: &'static str, offset: u64, bytes: u64) -> Result<u64, TransferError> {
        self.allowed(what, "reads", &[Rights::Read, Rights::ReadWrite])?;
        self.inner.part(what, offset, bytes)
    }

    fn allowed(&self, what: &'static str, want: &'static str, by: &[Rights]) -> Result<(), TransferError> {
        if by.contains(&self.rights) {
            return Ok(());
        }
        Err(TransferError::Rights { what, want, met: self.rights.name() })
    }

    /// Keys, by the peer's rail.
    pub const fn keys(&self) -> &Arc<[u32]> {
        &self.inner.keys
    }

    /// Bytes.
    pub const fn bytes(&self) -> u64 {
        self.inner.len
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Mr { base, len, keys } = &self.inner;
        let wire =
            Wire { version: VERSION, base: *base, len: *len, rights: self.rights, keys: keys.to_vec() };
        postcard::to_allocvec(&wire).unwrap_or_default()
    }

    /// Reads one.
    ///
    /// # Errors
    /// The bytes are none of this version, or say what cannot be.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TransferError> {
        let wrong = |want, met| Err(TransferError::Description { want, met });
        match bytes.first() {
            Some(&VERSION) => {}
            version => return wrong("version 1", format!("{version:?}")),
        }
        let (wire, rest) = match postcard::take_from_bytes::<Wire>(bytes) {
            Ok(read) => read,
            Err(error) => return wrong("base, length, rights and keys", error.to_string()),
        };
        if !rest.is_empty() {
            return wrong("nothing behind the keys", format!("{} bytes", rest.len()));
        }
        Ok(Mr::new(wire.base, wire.len, &wire.keys)?.describe(wire.rights))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region() -> Mr {
        Mr::new(0x1000, 0x100, &[7, 8]).expect("a region")
    }

    #[test]
    fn bounds_and_rights_are_checked_to_the_byte() {
        let (mr, desc) = (region(), region().describe(Rights::Write));
        assert_eq!(mr.part("source", 0xff, 1), Ok(0x10ff));
        assert_eq!(desc.writable("target", 0x100, 0), Ok(0x1100));
        for (offset, bytes) in [(0x100, 1), (0, 0x101), (u64::MAX, 2), (u64::MAX, 0)] {
            let beyond = Err(TransferError::OutOfRegion { what: "target", offset, bytes, len: 0x100 });
            assert_eq!(desc.writable("target", offset, bytes), beyond);
        }
        let local = mr.describe(Rights::Local);
        let refused = |want| Err(TransferError::Rights { what: "target", want, met: "local use" });
        assert_eq!(local.writable("target", 0, 1), refused("writes"));
        assert_eq!(local.readable("target", 0, 1), refused("reads"));
        for (rights, writes, reads) in
            [(Rights::Write, true, false), (Rights::Read, false, true), (Rights::ReadWrite, true, true)]
        {
            let desc = mr.describe(rights);
            let may = (desc.writable("target", 0, 1).is_ok(), desc.readable("target", 0, 1).is_ok());
            assert_eq!(may, (writes, reads), "{rights:?}");
        }
    }

    #[test]
    fn what_is_no_region_is_refused() {
        for (base, len, keys) in [
            (0, 0, &[1][..]),
            (u64::MAX, 2, &[1]),
            (0, LEN_MAX + 1, &[1]),
            (0, 1, &[]),
            (0, 1, &[0; RAILS_MAX + 1]),
        ] {
            assert!(Mr::new(base, len, keys).is_err(), "{len} bytes at {base:#x}, {} keys", keys.len());
        }
    }

    #[test]
    fn a_description_is_read_whole_or_not_at_all() {
        let desc = region().describe(Rights::Write);
        let bytes = desc.to_bytes();
        assert_eq!(MrDesc::from_bytes(&bytes), Ok(desc));
        for cut in 0..bytes.len() {
            assert!(MrDesc::from_bytes(&bytes[..cut]).is_err(), "cut to {cut} bytes");
        }
        assert!(MrDesc::from_bytes(&[&bytes[..], &[0]].concat()).is_err(), "too long");
        let mut other = bytes;
        other[0] = 2;
        assert!(MrDesc::from_bytes(&other).is_err(), "another version");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [&[VERSION], &bytes[..]].concat();
            if let Ok(desc) = MrDesc::from_bytes(&bytes) {
                prop_assert_eq!(MrDesc::from_bytes(&desc.to_bytes()), Ok(desc));
            }
        }
    }
}
