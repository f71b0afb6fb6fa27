//! NVIDIA GPUs: memory, kernels, streams and graphs through CUDA's driver, which is loaded when it is asked for.

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
