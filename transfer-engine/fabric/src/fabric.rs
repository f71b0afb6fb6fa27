//! A provider's domain, opened as a rail.

use crate::error::{FabricError, checked};
use shunt_libfabric_sys::{self as sys, Fabric, fi_info, fid};
use std::ffi::{CStr, CString, c_char};
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// The newest interface that is asked for. A libfabric of an earlier one is asked for its own.
const NEWEST: u32 = sys::version(1, 18);
/// Modes of registration that regions here can do with.
const MODES: u32 = sys::FI_MR_LOCAL | sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY;
/// Two questions: a provider that need not have virtual addresses drops them from the first one, and not from the
/// second, whose mode means virtual addresses and keys of the provider's choice.
const QUESTIONS: [u32; 2] = [MODES, sys::FI_MR_BASIC];

/// The layer that makes an endpoint of connections. Its own protocol reads through a null pointer where an endpoint is
/// closed while a peer writes through it: seen with 1.17. It is used with the one that passes operations to tcp as they
/// are, which libfabric has where a variable says so.
const LAYER: &str = ";ofi_rxm";
const PASSES: u32 = sys::FI_PROTO_RXM_TCP;
const PASSTHRU: (&str, &str) = ("FI_OFI_RXM_ENABLE_PASSTHRU", "1");
/// The layer over datagrams. With it bytes were seen to land at an end that had cut its peer off.
const DATAGRAMS: &str = ";ofi_rxd";
/// The provider whose domains are NICs, and what keeps it from reaching processes of this machine by shared memory:
/// there it goes on to use an endpoint of the same process that is closed, which crashed with 1.17.
const NICS: &str = "efa";
const BY_NIC: u64 = sys::FI_REMOTE_COMM;
/// What tcp without the first layer is called before libfabric 1.18.
const OWN_TCP: &str = "net";

const fn is_virtual(mode: u32) -> bool {
    mode == sys::FI_MR_BASIC || mode & sys::FI_MR_VIRT_ADDR != 0
}

/// What is wanted of a rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The provider's name: `tcp`, `shm`, `efa`. Before libfabric 1.18 `tcp` is its provider `net`.
    pub provider: &'a str,
    /// A domain of it: for tcp a network interface.
    pub domain: Option<&'a str>,
    /// An address of this machine that its endpoints have, in numbers.
    pub address: Option<&'a str>,
}

/// An open object of libfabric, closed when dropped. `T` begins with its descriptor.
pub(crate) struct Open<T>(NonNull<T>);

// SAFETY: objects are opened with FI_THREAD_SAFE: any thread may use them, one call at a time or several.
unsafe impl<T> Send for Open<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Open<T> {}

impl<T> Open<T> {
    /// Takes what `open` opens.
    ///
    /// # Errors
    /// As the provider answers.
    pub fn by(
        call: &'static str,
        provider: &str,
        open: impl FnOnce(*mut *mut T) -> i32,
    ) -> Result<Self, FabricError> {
        let mut object = null_mut();
        checked(call, provider, open(&raw mut object) as isize)?;
        NonNull::new(object).map(Self).ok_or_else(|| FabricError::Unfit {
            what: call,
            want: "an object",
            met: format!("none, of provider {provider}"),
        })
    }

    /// The object.
    pub const fn get(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Its descriptor.
    pub const fn fid(&self) -> *mut fid {
        self.0.as_ptr().cast()
    }
}

impl<T> Drop for Open<T> {
    fn drop(&mut self) {
        // SAFETY: the object is open, and closed here only. Owners drop what was made of it before it.
        let code = unsafe { sys::fi_close(self.fid()) };
        debug_assert_eq!(code, 0, "an object that others still use was closed");
    }
}

/// Descriptions of domains, freed when dropped.
struct Infos(&'static Fabric, NonNull<fi_info>);

// SAFETY: the list is owned, and written by nobody once it is made.
unsafe impl Send for Infos {}
// SAFETY: as above.
unsafe impl Sync for Infos {}

impl Infos {
    fn mode(&self) -> u32 {
        // SAFETY: a description that fi_getinfo found has all attributes, and the list is alive.
        unsafe { (*self.1.as_ref().domain_attr).mr_mode as u32 }
    }
}

impl Drop for Infos {
    fn drop(&mut self) {
        // SAFETY: the list came from fi_getinfo or fi_dupinfo and is freed here only.
        unsafe { self.0.fi_freeinfo(self.1.as_ptr()) }
    }
}

/// Limits of a rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The provider, as it names itself.
    pub provider: String,
    /// The domain.
    pub domain: String,
    /// Most operations under way on an endpoint.
    pub depth: usize,
    /// Most bytes of an operation.
    pub longest: u64,
    /// Keys are the provider's choice.
    pub chooses_keys: bool,
}

/// An open domain. Regions and endpoints are made on it, and keep it open.
#[derive(Clone)]
pub struct Rail(Arc<Inner>);

struct Inner {
    // Closed in this order.
    domain: Open<sys::fid_domain>,
    _fabric: Open<sys::fid_fabric>,
    infos: Infos,
    limits: Limits,
    next_key: AtomicU32,
    gate: OnceLock<Arc<AtomicBool>>,
}

impl Rail {
    /// Opens the first domain that fits.
    ///
    /// # Errors
    /// libfabric is missing, no domain fits, or the provider refuses.
    pub fn open(wanted: &Wanted<'_>) -> Result<Self, FabricError> {
        let library = sys::load()?;
        let mut wanted = *wanted;
        let mut infos = find(library, &wanted, QUESTIONS[0])?;
        if wanted.provider == "tcp" && limits(&infos).provider.ends_with(LAYER) {
            wanted.provider = OWN_TCP;
            infos = find(library, &wanted, QUESTIONS[0])?;
        }
        if !is_virtual(infos.mode()) {
            infos = find(library, &wanted, QUESTIONS[1])?;
        }
        // SAFETY: the list and all that it points to live as long as `infos`; attributes of a found domain are set.
        let (info, fabric_attr) = unsafe { (infos.1.as_ptr(), (*infos.1.as_ptr()).fabric_attr) };
        let (limits, provider) = (limits(&infos), wanted.provider);
        fits(&infos, &limits)?;
        let fabric = Open::by("fi_fabric", provider, |fabric| {
            // SAFETY: the attributes are those of the domain that was found; the place is this call's.
            unsafe { library.fi_fabric(fabric_attr, fabric, null_mut()) }
        })?;
        let domain = Open::by("fi_domain", provider, |domain| {
            // SAFETY: the fabric is open, and the description is of one of its domains.
            unsafe { sys::fi_domain(fabric.get(), info, domain, null_mut()) }
        })?;
        // Keys of another process on the same machine are not likely to be these.
        let start = std::process::id().wrapping_mul(0x9e37_79b9) ^ (info as usize >> 4) as u32;
        let inner = Inner {
            domain,
            _fabric: fabric,
            infos,
            limits,
            next_key: AtomicU32::new(start),
            gate: OnceLock::new(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Its limits.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// True if closing an endpoint waits for a NIC to answer or give up: seconds, where the wire is dead.
    pub(crate) fn closes_late(&self) -> bool {
        self.0.limits.provider == NICS || self.gate().is_some()
    }

    /// No endpoint of this rail is closed before the gate is open, as on a NIC whose wire is dead: a fault for tests.
    /// The first gate stays.
    pub fn close_behind(&self, gate: Arc<AtomicBool>) {
        self.0.gate.get_or_init(|| gate);
    }

    /// What endpoints are closed behind, if something is.
    pub(crate) fn gate(&self) -> Option<&Arc<AtomicBool>> {
        self.0.gate.get()
    }

    pub(crate) fn domain(&self) -> *mut sys::fid_domain {
        self.0.domain.get()
    }

    pub(crate) fn info(&self) -> *mut fi_info {
        self.0.infos.1.as_ptr()
    }

    /// A key that no region of this rail has had for the last 2^32.
    pub(crate) fn next_key(&self) -> u32 {
        self.0.next_key.fetch_add(1, Ordering::Relaxed)
    }
}

/// The domains of a provider that rails can be opened on, each once: for NICs one a port.
///
/// # Errors
/// libfabric is missing, or the provider has none.
pub fn domains(provider: &str) -> Result<Vec<String>, FabricError> {
    let library = sys::load()?;
    let infos = find(library, &Wanted { provider, ..Wanted::default() }, QUESTIONS[0])?;
    let (mut names, mut at) = (Vec::new(), infos.1.as_ptr());
    while !at.is_null() {
        // SAFETY: the list is alive, ends with null, and what fi_getinfo found has all attributes.
        let (name, next) = unsafe { (owned((*(*at).domain_attr).name), (*at).next) };
        if !names.contains(&name) {
            names.push(name);
        }
        at = next;
    }
    Ok(names)
}

/// What the environment must have before libfabric is loaded for this provider, if something: a name and its value.
pub fn needed_variable(provider: &str) -> Option<(&'static str, &'static str)> {
    provider.ends_with(LAYER).then_some(PASSTHRU)
}

/// Domains that fit, the provider's best one first.
fn find(library: &'static Fabric, wanted: &Wanted<'_>, mode: u32) -> Result<Infos, FabricError> {
    let unfit = |want, met: &str| FabricError::Unfit { what: "a rail", want, met: format!("{met:?}") };
    let c_string = |text: &str| CString::new(text).map_err(|_| unfit("a name without a zero", text));
    let (provider, domain) = (c_string(wanted.provider)?, wanted.domain.map(c_string).transpose()?);
    let node = wanted.address.map(c_string).transpose()?;
    // SAFETY: null asks for an empty description.
    let hints = NonNull::new(unsafe { library.fi_dupinfo(null()) });
    let hints = Infos(library, hints.ok_or_else(|| unfit("memory for hints", "none"))?);
    // SAFETY: an empty description has all attributes; texts are copies on the C heap, which fi_freeinfo frees.
    unsafe {
        let hints = hints.1.as_ptr();
        (*hints).caps =
            u64::from(sys::FI_MSG | sys::FI_RMA) | if wanted.provider == NICS { BY_NIC } else { 0 };
        (*hints).mode = sys::FI_CONTEXT | sys::FI_CONTEXT2;
        (*(*hints).ep_attr).type_ = sys::FI_EP_RDM;
        if wanted.provider.ends_with(LAYER) {
            (*(*hints).ep_attr).protocol = PASSES;
        }
        (*(*hints).tx_attr).op_flags = u64::from(sys::FI_DELIVERY_COMPLETE);
        let attr = (*hints).domain_attr;
        (*attr).threading = sys::FI_THREAD_SAFE;
        (*attr).mr_mode = mode as i32;
        (*attr).resource_mgmt = sys::FI_RM_ENABLED;
        (*(*hints).fabric_attr).prov_name = libc::strdup(provider.as_ptr());
        (*attr).name = domain.as_ref().map_or(null_mut(), |name| libc::strdup(name.as_ptr()));
    }
    let flags = if node.is_some() { sys::FI_SOURCE | sys::FI_NUMERICHOST } else { 0 };
    // SAFETY: the function takes nothing.
    let version = NEWEST.min(unsafe { library.fi_version() });
    let mut list = null_mut();
    let name = node.as_ref().map_or(null(), |node| node.as_ptr());
    // SAFETY: texts end with a zero and outlive the call, as the hints do; the place is this call's.
    let code = unsafe { library.fi_getinfo(version, name, null(), flags, hints.1.as_ptr(), &raw mut list) };
    if let Some((name, value)) = needed_variable(wanted.provider)
        && code == -(sys::FI_ENODATA as i32)
        && std::env::var(name).as_deref() != Ok(value)
    {
        let want =
            "FI_OFI_RXM_ENABLE_PASSTHRU=1 in the environment before libfabric is loaded; or ask for tcp";
        let met = std::env::var(name).map_or_else(|_| "none".to_owned(), |met| format!("{met:?}"));
        return Err(FabricError::Unfit { what: "tcp;ofi_rxm", want, met });
    }
    if code == -(sys::FI_ENODATA as i32) {
        return Err(none_found(library, wanted, mode));
    }
    checked("fi_getinfo", wanted.provider, code as isize)?;
    let list = NonNull::new(list).ok_or_else(|| unfit("a domain of it", wanted.provider))?;
    Ok(Infos(library, list))
}

/// Why no domain fits: the address, if there is one without it.
fn none_found(library: &'static Fabric, wanted: &Wanted<'_>, mode: u32) -> FabricError {
    let provider = wanted.provider.to_owned();
    match wanted.address {
        Some(address) if find(library, &Wanted { address: None, ..*wanted }, mode).is_ok() => {
            FabricError::NoAddress { address: address.to_owned(), provider }
        }
        _ => FabricError::NoDomain { provider },
    }
}

fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: texts of descriptions end with a zero, and their list is alive.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn limits(infos: &Infos) -> Limits {
    // SAFETY: a description that fi_getinfo found has all attributes, and the list is alive.
    unsafe {
        let info = infos.1.as_ref();
        Limits {
            provider: owned((*info.fabric_attr).prov_name),
            domain: owned((*info.domain_attr).name),
            depth: (*info.tx_attr).size.min((*info.rx_attr).size),
            longest: (*info.ep_attr).max_msg_size as u64,
            chooses_keys: infos.mode() & (sys::FI_MR_PROV_KEY | sys::FI_MR_BASIC) != 0,
        }
    }
}

/// Refuses what lanes cannot use.
fn fits(infos: &Infos, limits: &Limits) -> Result<(), FabricError> {
    // SAFETY: as in `limits`.
    let (mr_mode, imm_bytes) = (infos.mode(), unsafe { (*infos.1.as_ref().domain_attr).cq_data_size });
    let unfit = |what, want, met: String| {
        Err(FabricError::Unfit { what, want, met: format!("{met}, of provider {}", limits.provider) })
    };
    if limits.provider.ends_with(DATAGRAMS) {
        let want = "one whose endpoints let nothing land once they are closed: tcp, shm, efa";
        return unfit("a provider", want, format!("the layer {}", &DATAGRAMS[1..]));
    }
    if imm_bytes < 4 {
        return unfit("immediates", "4 bytes or more", imm_bytes.to_string());
    }
    if !is_virtual(mr_mode) {
        return unfit("remote memory", "virtual addresses", "offsets".to_owned());
    }
    if mr_mode & !(MODES | sys::FI_MR_BASIC) != 0 {
        return unfit(
            "a provider's mode of registration",
            "none that is not asked for",
            format!("{mr_mode:#x}"),
        );
    }
    Ok(())
}
