//! Init and finalize, unique ids, who and how many, versions, the end of the job.

use super::{SESSION, session, status_of};
use crate::attr::{
    InitAttr, InitStatus, NAME, SPEC_VERSION, THREAD_SERIALIZED, UniqueIdBytes, VENDOR_VERSION, Version,
};
use crate::bootstrap::{joining, remember, same_place};
use crate::duplicate_library;
use crate::failure::{Failure, InitError};
use crate::kernels::Kernels;
use crate::report::{end_process, fail};
use crate::session::Session;
use crate::session::source::Source;
use shunt_host::connect::tcp::UniqueId;
use shunt_host::events::flush_log;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Inits that came while the library was up: each has a finalize of its own. Changed by who has [`SESSION`] alone.
static FURTHER: AtomicU64 = AtomicU64::new(0);

/// Brings the PE of this process up, or counts one init more.
fn init(flags: u32, attr: *const InitAttr) -> Result<(), InitError> {
    // Nobody else begins or ends meanwhile.
    let mut place = SESSION.write().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: null, or the caller's structure.
    let attr = unsafe { attr.as_ref() };
    if let Some(session) = &*place {
        same_place(flags, attr, session.me(), session.pes())?;
        FURTHER.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    duplicate_library::check()?;
    let settings = crate::env::Settings::from_lookup(&variable)?;
    let says_version = settings.says_version;
    settings.logging.clone().install();
    let source = Source::find(&settings, &variable)?;
    let session = Session::start(settings, joining(flags, attr, &variable)?, Kernels::of_program()?, source)?;
    if says_version && session.me() == 0 {
        let nics = session.nics().describe();
        shunt_host::complain!("shunt: {NAME}: {} PEs on {nics}, heap in host memory", session.pes());
    }
    *place = Some(Arc::new(session));
    Ok(())
}

fn init_status(name: &str, flags: u32, attr: *const InitAttr) -> c_int {
    init(flags, attr).err().map_or(0, |error| status_of(name, None, &Failure::Init(error)))
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemi_init_thread(
    _requested: c_int,
    provided: *mut c_int,
    flags: u32,
    attr: *mut InitAttr,
    compiled: Version,
) -> c_int {
    if compiled.major != VENDOR_VERSION[0] {
        let error = InitError::Attribute {
            what: "major version that the program was compiled against",
            met: compiled.major.into(),
            want: VENDOR_VERSION[0].to_string(),
        };
        return status_of("nvshmem_init", None, &Failure::Init(error));
    }
    if !provided.is_null() {
        // SAFETY: the caller's word.
        unsafe { provided.write(THREAD_SERIALIZED) };
    }
    init_status("nvshmem_init", flags, attr)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_hostlib_init_attr(flags: u32, attr: *mut InitAttr) -> c_int {
    init_status("nvshmemx_hostlib_init_attr", flags, attr)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemi_finalize() {
    let mut place = SESSION.write().unwrap_or_else(PoisonError::into_inner);
    if place.is_some() && FURTHER.load(Ordering::Relaxed) > 0 {
        FURTHER.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let Some(session) = place.take() else { return };
    drop(place);
    if let Err(failure) = session.leave() {
        fail("nvshmem_finalize", Some(session.me()), &failure);
        // Kernels still use all of it.
        std::mem::forget(session);
    }
    flush_log();
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_hostlib_finalize() {
    nvshmemi_finalize();
}

/// What NVIDIA's device library calls in its `nvshmemi_init_thread`, with a function that says where its state lies.
/// Nothing of this library would be found there.
#[unsafe(no_mangle)]
extern "C" fn nvshmemid_hostlib_init_attr(
    requested: c_int,
    provided: *mut c_int,
    flags: u32,
    attr: *mut InitAttr,
    compiled: Version,
    device_state: Option<extern "C" fn(*mut *mut c_void, *mut *mut c_void) -> c_int>,
) -> c_int {
    if device_state.is_some() {
        let error = InitError::Unsupported(
            "this program was linked with NVIDIA's libnvshmem_device.a, whose kernels find nothing here: link the one \
             of the prefix",
        );
        return status_of("nvshmem_init", None, &Failure::Init(error));
    }
    nvshmemi_init_thread(requested, provided, flags, attr, compiled)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemid_hostlib_finalize(_device_state: *mut c_void, _transport_state: *mut c_void) {
    nvshmemi_finalize();
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemid_init_status() -> c_int {
    nvshmemx_init_status()
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_init_status() -> c_int {
    session().map_or(InitStatus::Not, |_| InitStatus::Initialized) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_query_thread(provided: *mut c_int) {
    if !provided.is_null() {
        // SAFETY: the caller's word.
        unsafe { provided.write(THREAD_SERIALIZED) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_global_exit(status: c_int) {
    if let Some(session) = session() {
        session.control().exit(status);
    }
    end_process(status)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_my_pe() -> c_int {
    session().map_or(-1, |session| session.me() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_n_pes() -> c_int {
    session().map_or(-1, |session| session.pes() as c_int)
}

/// Writes numbers where the caller wants them.
fn write<const N: usize>(to: [*mut c_int; N], values: [c_int; N]) {
    for (to, value) in to.into_iter().zip(values) {
        if !to.is_null() {
            // SAFETY: the caller's word.
            unsafe { to.write(value) };
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_info_get_version(major: *mut c_int, minor: *mut c_int) {
    write([major, minor], SPEC_VERSION);
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_vendor_get_version_info(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) {
    write([major, minor, patch], VENDOR_VERSION);
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_info_get_name(name: *mut c_char) {
    if !name.is_null() {
        // SAFETY: the caller has room for NVSHMEM_MAX_NAME_LEN bytes, and the name is shorter.
        unsafe {
            name.copy_from_nonoverlapping(NAME.as_ptr().cast(), NAME.len());
            name.add(NAME.len()).write(0);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_get_uniqueid(id: *mut UniqueIdBytes) -> c_int {
    let made = || -> Result<[u8; 128], InitError> {
        let spec = variable("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME");
        let spec = spec.map(|text| text.parse()).transpose();
        let spec =
            spec.map_err(|_| InitError::Unsupported("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME is not understood"))?;
        let (made, listener) = UniqueId::create(spec.as_ref())?;
        let bytes = made.to_bytes();
        remember(bytes, listener);
        Ok(bytes)
    };
    match made() {
        Ok(bytes) if !id.is_null() => {
            // SAFETY: the caller's structure, of as many bytes.
            unsafe { id.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            0
        }
        Ok(_) => 2,
        Err(error) => status_of("nvshmemx_get_uniqueid", None, &Failure::Init(error)),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_set_attr_uniqueid_args(
    rank: c_int,
    ranks: c_int,
    id: *const UniqueIdBytes,
    attr: *mut InitAttr,
) -> c_int {
    if attr.is_null() || id.is_null() {
        return 2;
    }
    // SAFETY: the caller's structure; nothing of what lies there is read.
    unsafe { attr.write(InitAttr::with_unique_id(rank, ranks, id.cast_mut())) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_set_attr_mpi_comm_args(communicator: *mut c_void, attr: *mut InitAttr) -> c_int {
    if attr.is_null() || communicator.is_null() {
        return 2;
    }
    // SAFETY: the caller's structure; nothing of what lies there is read.
    unsafe { attr.write(InitAttr::with_mpi_comm(communicator)) };
    0
}

/// So that a C program can pass the address of a handler that keeps errors: see `shunt_nvshmem_on_error`.
#[unsafe(no_mangle)]
extern "C" fn shunt_nvshmem_keep_error(_: *const crate::report::ErrorReport, _: *mut c_void) {}
