//! Loads NVSHMEM's own IBGDA transport and calls the one function it exports, on whatever devices there are.
//!
//! `cargo xtask transport` runs it under `shunt soft-rdma run`; by hand:
//! `shunt soft-rdma run --nics 2 --log trace -- nvshmem_transport nvshmem_transport_ibgda.so.7 [--stub]`
//!
//! There is no CUDA here. The table of its functions that a host library would give is a **stub**: each entry says its
//! number and arguments, and answers "done" without doing anything. With `--stub`, the one that is asked for attribute
//! 124 of a device (dma-buf is there) says yes: without that the transport ends before it looks at a device. What it
//! takes from the CUDA runtime inside of itself finds no driver, and nothing here pretends one.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The transport interface of NVSHMEM 3.8: major 7, as `major * 10000 + minor * 100 + patch`.
const API: c_int = 70_000;
/// "Is dma-buf there", of a device.
const DMA_BUF_SUPPORTED: usize = 124;
/// More than the table has: what is beyond is never called.
const ENTRIES: usize = 128;

type Entry = extern "C" fn(usize, usize, usize, usize) -> c_int;
type Init = unsafe extern "C" fn(*mut *mut c_void, *const Entry, c_int) -> c_int;

static STUB: AtomicBool = AtomicBool::new(false);

extern "C" fn entry<const N: usize>(a: usize, b: usize, c: usize, d: usize) -> c_int {
    // What the others mean is not written in a public header, so arguments are shown as they are.
    if b == DMA_BUF_SUPPORTED && STUB.load(Ordering::Relaxed) {
        // SAFETY: the query of an attribute has the place for an int first, and the caller made it.
        unsafe { *(a as *mut c_int) = 1 };
        eprintln!("probe: stub of CUDA, entry {N}: attribute {b} of a device: yes");
    } else {
        eprintln!("probe: stub of CUDA, entry {N} ({a:#x}, {b:#x}, {c:#x}, {d:#x}): nothing done");
    }
    0
}

/// `table![[..] ..]`: an entry for each pair of digits.
macro_rules! table {
    ($($n:literal)*) => { [$(entry::<{ $n }>, entry::<{ $n + 32 }>, entry::<{ $n + 64 }>, entry::<{ $n + 96 }>,)*] };
}

fn table() -> [Entry; ENTRIES] {
    let mixed: [Entry; ENTRIES] =
        table![0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31];
    std::array::from_fn(|n| mixed[n % 32 * 4 + n / 32])
}

fn said(by: *const c_char) -> String {
    if by.is_null() {
        return "nothing".into();
    }
    // SAFETY: the loader gives a string that ends.
    unsafe { CStr::from_ptr(by) }.to_string_lossy().into_owned()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path = match &args[..] {
        [path] => path,
        [path, stub] if stub == "--stub" => {
            STUB.store(true, Ordering::Relaxed);
            path
        }
        _ => {
            eprintln!("the transport's library is to be named, and --stub behind it if wanted");
            std::process::exit(2);
        }
    };
    let path = CString::new(path.as_str()).expect("an argument has no zero byte");
    // SAFETY: a string that ends; what the library does when it is loaded is its own.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        // SAFETY: asked for right after the failure.
        eprintln!("probe: not loaded: {}", said(unsafe { libc::dlerror() }));
        std::process::exit(1);
    }
    // SAFETY: the library is open, the name ends.
    let init = unsafe { libc::dlsym(library, c"nvshmemt_init".as_ptr()) };
    if init.is_null() {
        eprintln!("probe: no nvshmemt_init in it");
        std::process::exit(1);
    }
    // SAFETY: the one entry of a transport has this signature.
    let init: Init = unsafe { std::mem::transmute::<*mut c_void, Init>(init) };
    let (mut transport, table) = (ptr::null_mut(), table());
    // SAFETY: a place for the answer, and a table with more entries than are called.
    let status = unsafe { init(&raw mut transport, table.as_ptr(), API) };
    eprintln!("probe: nvshmemt_init ended with {status}, a transport: {}", !transport.is_null());
}
