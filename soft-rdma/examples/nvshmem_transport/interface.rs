//! NVSHMEM's interface between its host library and its transports, of majors 4 to 7: what a transport is given and
//! what it fills in. Names, orders and sizes are those of NVSHMEM's published header of transports.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// `NVSHMEMX_QP_HOST`: the queue pair that host functions use.
pub const QP_HOST: c_int = 0;
/// What a transport says that it moves in one operation at most, bytes.
pub const LONGEST: u64 = 1 << 30;

/// Operations of [`RmaVerb`].
pub const PUT: c_int = 1;
pub const P: c_int = 2;
pub const GET: c_int = 4;
/// Operations of [`AmoVerb`].
pub const SIGNAL_SET: c_int = 9;
pub const SIGNAL_ADD: c_int = 10;

/// What a PE knows of memory of another; the transport makes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemHandle(pub [u8; 512]);

type Exchange = extern "C" fn(*const u8, *mut u8, c_int, *mut BootstrapHandle) -> c_int;

/// How PEs exchange words while they connect.
#[repr(C)]
pub struct BootstrapHandle {
    pub version: c_int,
    pub pe: c_int,
    pub pes: c_int,
    pub pe_on_node: c_int,
    pub pes_on_node: c_int,
    pub allgather: Exchange,
    pub alltoall: Exchange,
    pub barrier: extern "C" fn(*mut BootstrapHandle) -> c_int,
    pub unused: [*const c_void; 5],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmaVerb {
    pub operation: c_int,
    pub not_blocking: c_int,
    pub on_stream: c_int,
    pub stream: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmaMemory {
    pub address: u64,
    pub offset: u64,
    pub handle: *mut MemHandle,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmaBytes {
    pub count: usize,
    pub element: c_int,
    pub source_stride: isize,
    pub destination_stride: isize,
}

/// Of major 5 and before. Major 7 has one word more, and takes it elsewhere.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AmoVerb {
    pub operation: c_int,
    pub fetches: c_int,
    pub by_value: c_int,
    pub compares: c_int,
}

#[repr(C)]
pub struct AmoMemory {
    pub remote: RmaMemory,
    pub return_flag: u64,
    pub places: [*mut c_void; 3],
    pub value: u64,
    pub compare: u64,
    pub return_handle: *mut MemHandle,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AmoBytes {
    pub kind: c_int,
    pub element: c_int,
}

/// A `std::vector` of one element, which whoever is given it reads only.
#[repr(C)]
pub struct One<T>([*const T; 3]);

impl<T> One<T> {
    pub fn of(element: &T) -> Self {
        let start = ptr::from_ref(element);
        let end = start.wrapping_add(1);
        Self([start, end, end])
    }
}

/// An empty `std::unordered_map` of libstdc++: a transport looks addresses of kinds of memory up in it.
#[repr(C)]
pub struct EmptyMap {
    buckets: *const *const c_void,
    bucket_count: usize,
    first: *const c_void,
    elements: usize,
    load: f32,
    next_resize: usize,
    bucket: *const c_void,
}

impl EmptyMap {
    /// It refers to itself, so it stays where it is.
    pub fn leaked() -> *mut Self {
        let map = Box::leak(Box::new(Self {
            buckets: ptr::null(),
            bucket_count: 1,
            first: ptr::null(),
            elements: 0,
            load: 1.0,
            next_resize: 0,
            bucket: ptr::null(),
        }));
        map.buckets = &raw const map.bucket;
        map
    }
}

type Plain = Option<unsafe extern "C" fn(*mut Transport) -> c_int>;
type Connect = unsafe extern "C" fn(*mut Transport, *mut c_int, c_int, *mut c_int, c_int) -> c_int;
type Register = unsafe extern "C" fn(*mut MemHandle, *mut c_void, usize, *mut Transport, bool) -> c_int;
type Rma = unsafe extern "C" fn(
    *mut Transport,
    c_int,
    RmaVerb,
    *mut RmaMemory,
    *mut RmaMemory,
    RmaBytes,
    c_int,
) -> c_int;
type Amo = unsafe extern "C" fn(
    *mut Transport,
    c_int,
    *mut c_void,
    AmoVerb,
    *mut AmoMemory,
    AmoBytes,
    c_int,
) -> c_int;
type PutSignal = unsafe extern "C" fn(
    *mut Transport,
    c_int,
    RmaVerb,
    *const One<RmaMemory>,
    *const One<RmaMemory>,
    *const One<RmaBytes>,
    AmoVerb,
    *mut AmoMemory,
    AmoBytes,
    c_int,
) -> c_int;

/// What a transport does for the host library.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ops {
    pub can_reach_peer: Option<unsafe extern "C" fn(*mut c_int, *mut c_void, *mut Transport) -> c_int>,
    pub connect: Option<Connect>,
    pub register: Option<Register>,
    pub release: Option<unsafe extern "C" fn(*mut MemHandle, *mut Transport) -> c_int>,
    pub finalize: Plain,
    pub show_info: *const c_void,
    pub progress: Plain,
    pub rma: Option<Rma>,
    pub amo: Option<Amo>,
    pub fence: Option<unsafe extern "C" fn(*mut Transport, c_int, c_int, c_int) -> c_int>,
    pub quiet: Option<unsafe extern "C" fn(*mut Transport, c_int, c_int) -> c_int>,
    pub put_signal: Option<PutSignal>,
    pub enforce_cst: Plain,
    pub enforce_cst_at_target: Plain,
    pub add_device_remote_mem_handles: *const c_void,
}

#[repr(C)]
pub struct Transport {
    pub api_version: c_int,
    pub kind: c_int,
    pub capabilities: *mut c_int,
    pub bootstrap: *mut BootstrapHandle,
    pub state: *mut c_void,
    pub shared_state: *mut c_void,
    pub cache: *mut c_void,
    pub pci_paths: *mut *mut c_char,
    pub attributes: c_int,
    pub devices: c_int,
    pub atomics_complete_on_quiet: bool,
    pub initialized: bool,
    pub no_proxy: bool,
    pub heap: *mut c_void,
    pub log2_chunk: usize,
    pub longest: u64,
    pub endian_from: u32,
    pub index: c_int,
    pub pe: c_int,
    pub pes: c_int,
    pub alias_map: *mut EmptyMap,
    pub egm_map: *mut EmptyMap,
    pub ops: Ops,
}
