//! Memory that transfers read and write: what is checked before anything is posted. Pure.

use crate::error::TransferError;
use crate::shard::{LEN_MAX, Pages};
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
    #[inline]
    pub fn part(&self, what: &'static str, offset: u64, bytes: u64) -> Result<u64, TransferError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.len => Ok(self.base + offset),
            _ => Err(TransferError::OutOfRegion { what, offset, bytes, len: self.len }),
        }
    }

    /// Where pages lie, if they lie in the region.
    pub(crate) fn pages(&self, pages: &Pages, page_len: u64) -> PagesIn {
        let Pages { stride, offset, .. } = *pages;
        let room = offset.checked_add(page_len).and_then(|end| self.len.checked_sub(end));
        let count = match room {
            None => 0,
            Some(room) => room.checked_div(stride).map_or(u64::MAX, |last| last + 1),
        };
        // With an offset that is not in the region there are none.
        PagesIn { first: self.base.wrapping_add(offset), stride, count }
    }

    /// Where it begins.
    pub const fn base(&self) -> u64 {
        self.base
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

/// Where the pages of a region lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagesIn {
    /// The address of page 0.
    first: u64,
    stride: u64,
    /// Pages of a smaller index lie in the region.
    count: u64,
}

impl PagesIn {
    /// True if the page of an index lies in the region.
    #[inline]
    pub const fn hold(self, index: u32) -> bool {
        (index as u64) < self.count
    }

    /// Where it lies then.
    #[inline]
    pub const fn begin(self, index: u32) -> u64 {
        // What lies in the region has an address.
        self.first.wrapping_add((index as u64).wrapping_mul(self.stride))
    }
}

impl MrDesc {
    /// Where so many bytes at an offset lie at the peer.
    ///
    /// # Errors
    /// They do not lie in the region, or it is not for peers to write.
    pub fn writable(&self, what: &'static str, offset: u64, bytes: u64) -> Result<u64, TransferError> {
        self.check_writable(what)?;
        self.part(what, offset, bytes)
    }

    /// Looks whether peers may write it.
    ///
    /// # Errors
    /// They may not.
    #[inline]
    pub fn check_writable(&self, what: &'static str) -> Result<(), TransferError> {
        match self.rights {
            Rights::Write | Rights::ReadWrite => Ok(()),
            _ => Err(self.not_for(what, "writes")),
        }
    }

    /// Where so many bytes at an offset lie at the peer, whatever it is for.
    ///
    /// # Errors
    /// They do not lie in the region.
    #[inline]
    pub fn part(&self, what: &'static str, offset: u64, bytes: u64) -> Result<u64, TransferError> {
        self.inner.part(what, offset, bytes)
    }

    /// The same of pages, whatever it is for.
    pub(crate) fn pages(&self, pages: &Pages, page_len: u64) -> PagesIn {
        self.inner.pages(pages, page_len)
    }

    /// The same of bytes that are read.
    ///
    /// # Errors
    /// They do not lie in the region, or it is not for peers to read.
    pub fn readable(&self, what: &'static str, offset: u64, bytes: u64) -> Result<u64, TransferError> {
        match self.rights {
            Rights::Read | Rights::ReadWrite => self.part(what, offset, bytes),
            _ => Err(self.not_for(what, "reads")),
        }
    }

    #[cold]
    fn not_for(&self, what: &'static str, want: &'static str) -> TransferError {
        TransferError::Rights { what, want, met: self.rights.name() }
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
            Some(version) => return wrong("version 1", format!("version {version}")),
            None => return wrong("version 1", "no bytes".to_owned()),
        }
        let (wire, rest) = match postcard::take_from_bytes::<Wire>(bytes) {
            Ok(read) => read,
            Err(postcard::Error::DeserializeUnexpectedEnd) => {
                return wrong("base, length, rights and keys", "bytes that end early".to_owned());
            }
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
        /// What is quick says the same as what is careful.
        #[test]
        fn pages_lie_in_a_region_or_not(
            base in prop_oneof![Just(0), any::<u64>()],
            len in prop_oneof![1..400u64, any::<u64>()],
            page_len in 0..40u64,
            stride in prop_oneof![0..40u64, any::<u64>()],
            offset in prop_oneof![0..40u64, any::<u64>()],
            index in prop_oneof![0..20u32, any::<u32>()],
        ) {
            let len = (len % LEN_MAX).clamp(1, (u64::MAX - base).max(1));
            let Ok(mr) = Mr::new(base, len, &[1]) else { return Ok(()) };
            let pages = Pages { indices: vec![index], stride, offset };
            let careful = pages.at(0).and_then(|at| mr.part("page", at, page_len).ok());
            let quick = mr.pages(&pages, page_len);
            prop_assert_eq!(quick.hold(index).then(|| quick.begin(index)), careful);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [&[VERSION], &bytes[..]].concat();
            if let Ok(desc) = MrDesc::from_bytes(&bytes) {
                prop_assert_eq!(MrDesc::from_bytes(&desc.to_bytes()), Ok(desc));
            }
        }
    }
}
