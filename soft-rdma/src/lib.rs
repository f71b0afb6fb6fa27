//! RDMA devices for unmodified programs: uverbs, sysfs and the mlx5 user ABI on soft NICs.
//!
//! The library that is preloaded (`soft-rdma/preload`) holds only the exported symbols; what they do is here:
//!
//! | module | what it is |
//! | --- | --- |
//! | [`hooks`] | what the preloaded symbols do |
//! | [`cm`] | connections of librdmacm |
//! | [`netlink`] | devices and ports as `NETLINK_RDMA` tells them |
//!
//! and in two crates below:
//!
//! | crate | what it is |
//! | --- | --- |
//! | [`shunt_soft_uverbs`] | the kernel's side |
//! | [`shunt_soft_machine`] | what the process has of RDMA |

pub mod cm;
pub mod hooks;
pub mod netlink;
