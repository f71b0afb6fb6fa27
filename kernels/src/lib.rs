//! Kernels over Shunt's device code, one a file: each unpacks its [`Call`], calls `shunt-device`, ends with an
//! [`Outcome`].
//!
//! Built for `nvptx64-nvidia-cuda` by `cargo xtask gpu`, where each is an entry point for one or more groups of lanes:
//! `shunt_kernel_NAME_thread` runs one thread a block, `_warp` one warp that acts as one, `_block` all threads of a
//! block, which are whole warps. Other threads leave at once. Parameters of each: a [`Call`] by value, the device
//! address of one [`Outcome`] a block, all zero before the launch.
//!
//! The device state is the one whose root the host copied to the module's constant `shunt_root`. A caller that did
//! launches `attach` first, which says whether host and module mean the same version; no other kernel looks again.
//!
//! With the feature `library` it is no kernels but functions that programs in other languages link: `library.rs`, with
//! their header in `kernels/include/`. On the host the same functions are for programs whose kernels are made to run as
//! functions of the processor ([`native`]).
//!
//! On the host the same bodies are called by name (`run`), by tests that hold them against a model.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(asm_experimental_arch))]
#![cfg_attr(all(target_arch = "nvptx64", not(feature = "library")), feature(abi_ptx))]
// The library is made without the kernels' entry points.
#![cfg_attr(all(target_arch = "nvptx64", feature = "library"), allow(dead_code))]

mod all_to_all;
mod amo;
mod answer;
mod attach;
mod call;
mod drill;
mod entries;
mod get;
#[cfg(not(all(target_arch = "nvptx64", feature = "library")))]
pub mod moe;
#[cfg(not(all(target_arch = "nvptx64", feature = "library")))]
mod nvptx_math;
mod outcome;
mod p;
mod put;
mod put_bw;
mod put_latency;
mod put_signal;
mod quiet;
#[cfg(not(target_arch = "nvptx64"))]
pub mod scenarios;
mod signal;
mod wait;

#[cfg(all(target_arch = "nvptx64", not(feature = "library")))]
mod launch;
#[cfg(feature = "library")]
pub mod library;
#[cfg(all(not(target_arch = "nvptx64"), feature = "library"))]
pub mod native;
#[cfg(target_arch = "nvptx64")]
mod panic;

#[cfg(target_arch = "nvptx64")]
shunt_device::block_word_in_shared_memory!();
#[cfg(all(target_arch = "nvptx64", feature = "library"))]
shunt_device::root_in_the_program!();
#[cfg(all(target_arch = "nvptx64", not(feature = "library")))]
shunt_device::root_in_constant_memory!();

pub use answer::{Answer, Quieted, Sent};
pub use call::Call;
#[cfg(not(target_arch = "nvptx64"))]
pub use entries::{KERNELS, run};
pub use outcome::{Outcome, STATUS_ABI_MISMATCH, STATUS_OK};
