//! Memory, registered on a rail.

use crate::error::FabricError;
use crate::fabric::{Open, Rail};
use shunt_libfabric_sys as sys;
use shunt_mlx5::memory::OwnedSpan;
use std::ffi::c_void;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::Arc;

/// How often a key is chosen again that another region has.
const CHOICES: usize = 8;
/// What peers and this end may do with memory.
const ALL: u32 = sys::FI_SEND | sys::FI_RECV | sys::FI_READ | sys::FI_WRITE;

/// A region on a rail. Once it is dropped nothing lands in it from there.
pub struct Region {
    mr: Open<sys::fid_mr>,
    key: u32,
    memory: Arc<OwnedSpan>,
    _rail: Rail,
}

impl Region {
    /// Registers memory of the host; `remote`: peers read and write it.
    ///
    /// # Errors
    /// The memory is a device's, the provider refuses it, or gives it a key of more than 32 bits.
    pub fn register(rail: &Rail, memory: &Arc<OwnedSpan>, remote: bool) -> Result<Self, FabricError> {
        let unfit = |what, want, met| FabricError::Unfit { what, want, met };
        let (span, owner) = (memory.span(), memory.memory());
        if !owner.host_reaches_heap() || !matches!(owner.dmabuf(span), Ok(None)) {
            let met = format!("{} bytes of a device's", span.bytes);
            return Err(unfit("memory to register", "memory of the host", met));
        }
        let access = if remote { ALL | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE } else { ALL };
        let provider = &rail.limits().provider;
        let mut tries = 0;
        let mr = loop {
            let iov = libc::iovec { iov_base: pointer(span.address), iov_len: span.bytes as usize };
            // SAFETY: attributes of zeros are none: null pointers, no lengths, the host's memory.
            let mut attr: sys::fi_mr_attr = unsafe { zeroed() };
            (attr.mr_iov, attr.iov_count) = (&raw const iov, 1);
            (attr.access, attr.requested_key) = (access.into(), rail.next_key().into());
            let made = Open::by("fi_mr_regattr", provider, |mr| {
                // SAFETY: the domain is open; the span is memory that this object keeps; the attributes outlive the
                // call.
                unsafe { sys::fi_mr_regattr(rail.domain(), &raw const attr, 0, mr) }
            });
            tries += 1;
            match made {
                Err(FabricError::Call { code, .. })
                    if code == sys::FI_ENOKEY as i32 && tries < CHOICES && !rail.limits().chooses_keys => {}
                made => break made?,
            }
        };
        // SAFETY: the region is open.
        let key = unsafe { (*mr.get()).key };
        let key = u32::try_from(key).map_err(|_| {
            unfit("a region's key", "one of 32 bits", format!("{key:#x}, of provider {provider}"))
        })?;
        Ok(Self { mr, key, memory: memory.clone(), _rail: rail.clone() })
    }

    /// By which peers name it.
    pub const fn key(&self) -> u32 {
        self.key
    }

    /// What local operations name it by.
    pub(crate) fn desc(&self) -> *mut c_void {
        // SAFETY: the region is open.
        unsafe { (*self.mr.get()).mem_desc }
    }

    /// Its memory.
    pub(crate) const fn memory(&self) -> &Arc<OwnedSpan> {
        &self.memory
    }

    /// Its memory, if so many bytes at an address lie in it.
    pub(crate) fn holds(&self, address: u64, len: u64) -> Option<&Arc<OwnedSpan>> {
        let span = self.memory.span();
        let offset = address.checked_sub(span.address)?;
        (offset <= span.bytes && len <= span.bytes - offset).then_some(&self.memory)
    }
}

/// An address as a pointer.
pub(crate) fn pointer(address: u64) -> *mut c_void {
    if address == 0 { null_mut() } else { std::ptr::with_exposed_provenance_mut(address as usize) }
}
