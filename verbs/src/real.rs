//! The functions of the real libibverbs that are called here, looked up in the library behind this one.

use core::ffi::{CStr, c_int, c_uint, c_void};
use libloading::os::unix::{Library, RTLD_NOW};
use shunt_mlx5_sys::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_gid, ibv_mr, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, ibv_srq, ibv_srq_init_attr,
};
use std::sync::OnceLock;

/// The name by which the library in libibverbs' place needs the real one. It is loaded under that name.
pub const NAME: &str = "libibverbs-system.so.1";

fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    // SAFETY: the library is in the process already; its initialisers have run.
    LIBRARY.get_or_init(|| unsafe { Library::open(Some(NAME), RTLD_NOW) }.ok()).as_ref()
}

/// Where functions are found by name; null for one that is not there.
pub type Lookup = fn(&CStr) -> *mut c_void;

static INSTEAD: OnceLock<Lookup> = OnceLock::new();

/// From now on functions are found here, and not in the library: for a simulator. The first one stays.
///
/// # Safety
/// What is found under a name has that function's type and keeps to its manual.
pub unsafe fn stand_in(lookup: Lookup) {
    INSTEAD.get_or_init(|| lookup);
}

fn find(symbol: &CStr) -> *mut c_void {
    let instead = INSTEAD.get().map(|lookup| lookup(symbol));
    instead.filter(|found| !found.is_null()).unwrap_or_else(|| find_behind(symbol))
}

fn find_behind(symbol: &CStr) -> *mut c_void {
    // SAFETY: the address is only kept; what calls it knows the function's type.
    let found =
        library().and_then(|library| unsafe { library.get::<*mut c_void>(symbol.to_bytes_with_nul()) }.ok());
    let Some(found) = found else {
        shunt_settings::complain!(
            "shunt: verbs: {NAME}: expected {symbol:?} in it, got none; run `shunt verbs install` again"
        );
        std::process::abort();
    };
    found.into_raw()
}

macro_rules! real {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the real library.")]
        ///
        /// # Safety
        /// What its manual asks of the caller.
        pub unsafe fn $name($($arg: $type),*) -> $result {
            static FOUND: OnceLock<usize> = OnceLock::new();
            // SAFETY: the text ends with its only zero.
            let name = unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) };
            let at = *FOUND.get_or_init(|| find(name).expose_provenance());
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            // SAFETY: the function has this type in the library's header, and the library is never closed.
            let function = unsafe {
                core::mem::transmute::<*const c_void, Function>(core::ptr::with_exposed_provenance(at))
            };
            // SAFETY: forwarded to the caller.
            unsafe { function($($arg),*) }
        }
    )*};
}

real! {
    ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    ibv_close_device(context: *mut ibv_context) -> c_int;
    ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list(list: *mut *mut ibv_device) -> ();
    ibv_get_device_name(device: *mut ibv_device) -> *const core::ffi::c_char;
    ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
    ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    ibv_reg_mr(pd: *mut ibv_pd, at: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    ibv_reg_mr_iova(pd: *mut ibv_pd, at: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr;
    ibv_reg_mr_iova2(pd: *mut ibv_pd, at: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr;
    ibv_rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, at: *mut c_void, length: usize, access: c_int)
        -> c_int;
    ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    ibv_create_cq(context: *mut ibv_context, cqe: c_int, of: *mut c_void, channel: *mut ibv_comp_channel,
        vector: c_int) -> *mut ibv_cq;
    ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, of: *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) -> ();
    ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    ibv_ack_async_event(event: *mut ibv_async_event) -> ();
    ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr) -> c_int;
    ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
}

/// `mlx5dv_devx_qp_query` of libmlx5.
///
/// # Errors
/// The library cannot be had, or has no such function.
///
/// # Safety
/// The queue pair is alive.
pub unsafe fn query_qp_by_devx(qp: *mut ibv_qp, input: &[u8], output: &mut [u8]) -> Result<c_int, String> {
    type Query = unsafe extern "C" fn(*mut ibv_qp, *const c_void, usize, *mut c_void, usize) -> c_int;
    let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
    if let Some(lookup) = INSTEAD.get() {
        // SAFETY: it has this type, by the caller of `stand_in`.
        let query = unsafe { core::mem::transmute::<*mut c_void, Query>(lookup(c"mlx5dv_devx_qp_query")) };
        // SAFETY: alive, by the caller; both mailboxes are as long as we say.
        return Ok(unsafe { query(qp, from, input.len(), to, output.len()) });
    }
    let rdma = shunt_mlx5_sys::load().map_err(|error| error.to_string())?;
    // SAFETY: as above.
    Ok(unsafe { rdma.mlx5.mlx5dv_devx_qp_query(qp, from, input.len(), to, output.len()) })
}

/// Where the real library is on this machine: where the loader finds it, or behind one of ours that it finds. None if
/// there is none. Loads it.
pub fn locate() -> Option<std::path::PathBuf> {
    // SAFETY: initialisers of libibverbs only set tables of their own.
    let _loaded = unsafe { Library::open(Some("libibverbs.so.1"), RTLD_NOW) }.ok()?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|line| line.split_once('/').map(|(_, path)| format!("/{path}")));
    let mut found: Vec<std::path::PathBuf> =
        paths.filter(|path| path.contains("/libibverbs")).map(Into::into).collect();
    found.dedup();
    let ours = |path: &std::path::PathBuf| path.with_file_name(NAME).exists();
    found.into_iter().find(|path| !ours(path))
}
