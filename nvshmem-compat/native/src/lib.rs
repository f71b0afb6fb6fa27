//! Shunt's device functions as a library for programs whose kernels are compiled for the processor: what
//! `libnvshmem_device.a` is on a GPU. `host.cc` is the host's part of it, `include/` stands in CUDA's place.

pub use shunt_kernels::{library, native};
