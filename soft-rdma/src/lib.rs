//! RDMA devices for unmodified programs: uverbs, sysfs and the mlx5 user ABI on soft NICs.
//!
//! The library that is preloaded (`soft-rdma/preload`) holds only the exported symbols; what they do is here:
//!
//! | module | what it is |
//! | --- | --- |
//! | [`hooks`] | what the preloaded symbols do |
//! | [`netlink`] | devices and ports as `NETLINK_RDMA` tells them |
//!
//! and in two crates below, whose modules have names here as well:
//!
//! | crate | what it is | modules here |
//! | --- | --- | --- |
//! | [`shunt_soft_uverbs`] | the kernel's side | [`abi`], [`ioctl`], [`methods`], [`verbs`], [`devx`], [`user`] |
//! | [`shunt_soft_machine`] | what the process has of RDMA | [`machine`], [`devices`], [`port`], [`settings`], |
//! | | | [`sysfs`], [`control`], [`mod@log`] |

pub mod hooks;
pub mod netlink;

pub use shunt_soft_machine::{control, devices, log, machine, port, settings, sysfs};
pub use shunt_soft_uverbs::{abi, devx, ioctl, methods, user, verbs};
