//! The table of CUDA's driver functions that a host library gives its transports. It is a **stub**: there is no CUDA.

use std::ffi::c_int;

/// "Is dma-buf there", of a device.
const DMA_BUF_SUPPORTED: usize = 124;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 801;
/// The first entry of the table: which device is current.
const CURRENT: usize = 0;
/// More than the table has: what is beyond is never called.
const ENTRIES: usize = 64;

pub type Entry = extern "C" fn(usize, usize, usize, usize) -> c_int;

/// The current device is 0, and it says that dma-buf is there: without that a transport ends before it looks at a NIC.
/// Nothing is exported as dma-buf: memory here is the host's. All else is not supported.
extern "C" fn entry<const N: usize>(place: usize, what: usize, _: usize, _: usize) -> c_int {
    let answer = match (N, what) {
        (_, DMA_BUF_SUPPORTED) => 1,
        (CURRENT, _) => 0,
        _ => {
            eprintln!("probe: stub of CUDA, entry {N}: not supported");
            return NOT_SUPPORTED;
        }
    };
    eprintln!("probe: stub of CUDA, entry {N}: {answer}");
    // SAFETY: both functions have the place for an int first, and the caller made it.
    unsafe { *(place as *mut c_int) = answer };
    0
}

macro_rules! table {
    ($($n:literal)*) => { [$(entry::<{ $n }>, entry::<{ $n + 32 }>,)*] };
}

pub fn table() -> [Entry; ENTRIES] {
    let mixed: [Entry; ENTRIES] =
        table![0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31];
    std::array::from_fn(|n| mixed[n % 32 * 2 + n / 32])
}
