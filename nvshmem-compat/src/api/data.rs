//! Variables that NVSHMEM's host library exports, for programs that ask the loader for them: what was linked with
//! NVIDIA's device library does not load without. Nothing here reads or writes them, so it does not matter whose
//! variable a process takes where both libraries are mapped. Sizes are those of the wheel of 3.8.0.

use std::sync::atomic::{AtomicI32, AtomicU64};

macro_rules! variables {
    ($($name:ident: $type:ty = $value:expr;)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)] // the names are NVSHMEM's
        static $name: $type = $value;
    )* };
}

variables! {
    nvshmem_debug_file: AtomicU64 = AtomicU64::new(0);
    nvshmem_debug_level: AtomicI32 = AtomicI32::new(0);
    nvshmem_debug_mask: AtomicU64 = AtomicU64::new(1);
    nvshmem_debug_output_lock: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
    nvshmem_error: AtomicU64 = AtomicU64::new(0);
    nvshmem_nvtx_options: AtomicI32 = AtomicI32::new(0);
    nvshmem_options: AtomicI32 = AtomicI32::new(0);
    nvshmem_selected_device_transport: AtomicI32 = AtomicI32::new(0);
}
