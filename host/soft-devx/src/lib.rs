//! The soft NIC as a device of the driver: nothing that runs on hardware alone depends on this crate.

mod clock;
mod devx;
mod file_mapping;
mod proof;

pub use clock::SoftClock;
pub use devx::SoftDevx;
pub use proof::{FenceProof, prove_on_soft_nic};
