//! Entry points of Shunt's device code for CUDA: each unpacks its arguments, calls `shunt-device`, stores an
//! [`Outcome`].
//!
//! Built for `nvptx64-nvidia-cuda` by `cargo xtask gpu`; on the host only [`Outcome`] is left, for whoever
//! launches them. Each entry point comes twice: `_lane` for one thread a block, `_warp` for one warp a block
//! that acts as one. Other threads of a block leave at once.
//!
//! | entry | arguments |
//! | --- | --- |
//! | `shunt_put_*` | state, peer, channel, dst, src, bytes, out |
//! | `shunt_put_signal_*` | state, peer, channel, dst, src, bytes, signal, value, out |
//! | `shunt_quiet_*` | state, peer, channel, timeout_ns, out |
//! | `shunt_wait_until_*` | state, word, value, timeout_ns, out |
//! | `shunt_drill_*` | state, peer, drill, out |
//!
//! `state` is the device address of a `DeviceState`, `out` that of one [`Outcome`] a block, `dst`, `src`,
//! `signal` and `word` are heap offsets.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]

mod outcome;

#[cfg(target_arch = "nvptx64")]
mod drill;
#[cfg(target_arch = "nvptx64")]
mod launch;
#[cfg(target_arch = "nvptx64")]
mod panic;
#[cfg(target_arch = "nvptx64")]
mod put;
#[cfg(target_arch = "nvptx64")]
mod wait;

pub use outcome::{Drill, Outcome, STATUS_ABI_MISMATCH, STATUS_OK};
