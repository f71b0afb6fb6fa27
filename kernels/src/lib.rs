//! Entry points of Shunt's device code for CUDA: each unpacks its arguments, calls `shunt-device`, stores a
//! status.
//!
//! Built for `nvptx64-nvidia-cuda` by `cargo xtask ptx`. On the host this crate is empty.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]

#[cfg(target_arch = "nvptx64")]
mod panic;
