//! Why a provider cannot be used.

use shunt_libfabric_sys::LoadError;
use std::ffi::CStr;
use thiserror::Error;

/// What went wrong, with what was met and what was expected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FabricError {
    /// libfabric is not there.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A call of libfabric failed.
    #[error("{call} of provider {provider}: expected success, got {code} ({text})")]
    Call {
        /// The function.
        call: &'static str,
        /// Of which provider.
        provider: String,
        /// Number of fi_errno.h.
        code: i32,
        /// In libfabric's words.
        text: String,
    },
    /// No domain of a provider can carry rails, or there is no such provider.
    #[error(
        "provider {provider} of libfabric: expected a domain with FI_EP_RDM, FI_MSG and FI_RMA, got none; fi_info -p \
         '{provider}' shows what it has here, fi_info -l which providers there are"
    )]
    NoDomain {
        /// As it was asked for.
        provider: String,
    },
    /// A provider has domains, and none at an address.
    #[error(
        "address {address}: expected one of this machine, in numbers, where provider {provider} of libfabric has a \
         domain, got another; fi_info -p '{provider}' shows its addresses"
    )]
    NoAddress {
        /// As it was asked for.
        address: String,
        /// See [`FabricError::NoDomain`].
        provider: String,
    },
    /// A provider or a call does not fit.
    #[error("{what}: expected {want}, got {met}")]
    Unfit {
        /// What.
        what: &'static str,
        /// What would be.
        want: &'static str,
        /// What was there.
        met: String,
    },
}

/// Success, or why not, by what a call of libfabric returned: 0 or more is success.
pub(crate) fn checked(call: &'static str, provider: &str, code: isize) -> Result<usize, FabricError> {
    usize::try_from(code).map_err(|_| {
        let code = (-code) as i32;
        FabricError::Call { call, provider: provider.to_owned(), code, text: text(code) }
    })
}

/// An error number in libfabric's words.
pub fn text(code: i32) -> String {
    let Ok(library) = shunt_libfabric_sys::load() else { return String::new() };
    // SAFETY: the function takes a number and gives a static text.
    let text = unsafe { library.fi_strerror(code) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the text is not null, and libfabric ends its texts with a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
