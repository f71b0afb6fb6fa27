//! NVIDIA GPUs: memory, kernels, streams and graphs through CUDA's driver, which is loaded when it is asked for.
//!
//! | module | what it is |
//! | --- | --- |
//! | `driver` | the library, one GPU's context; a call's answer as an error |
//! | `memory` | a heap of the GPU's memory, or of the host's that kernels reach, as a [`GpuMemory`] |
//! | `split_heap`, `adjacent` | a heap on both, at addresses one behind the other |
//! | `gdr` | GDRCopy: a GPU's memory mapped into the process |
//! | `copies` | copies that wait for nothing but themselves |
//! | `kernels` | modules of kernels, launches, streams, graphs |
//!
//! The crate alone calls CUDA and GDRCopy. It knows memory that NICs reach, and the root of the device state that a
//! kernel is given; it knows no PE, no path and no agent. Without a driver it is an error that says what is missing.
//!
//! [`GpuMemory`]: shunt_mlx5::memory::GpuMemory

mod adjacent;
mod copies;
mod driver;
mod error;
mod gdr;
mod kernels;
mod memory;
mod split_heap;

pub use copies::Copies;
pub use driver::{Cuda, LIBRARY};
pub use error::CudaError;
pub use gdr::Gdr;
pub use kernels::{Graph, Launch, Module, Stream, candidates, read_first};
pub use memory::{CudaMemory, Home, Mover, home_of};

#[cfg(test)]
mod tests {
    use super::*;

    /// Where there is a driver, it opens its first GPU and has no thousandth.
    #[test]
    fn without_a_driver_the_refusal_names_what_was_looked_for() {
        match Cuda::open(1000) {
            Err(error @ CudaError::NoDriver { .. }) => {
                let text = error.to_string();
                assert!(text.contains(LIBRARY) && text.contains("--device cpu"), "{text}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(cuda) => panic!("a thousand and one GPUs, the last a {}", cuda.name()),
        }
    }
}
