//! RDMA devices for unmodified programs: uverbs, sysfs and the mlx5 user ABI on soft NICs.
//!
//! The library that is preloaded (`soft-rdma/preload`) holds only the exported symbols; everything they do is here.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`machine`] | what this process has of RDMA, made at the first look at a device |
//! | [`devices`] | its soft NICs, their commands and events |
//! | [`port`] | what a port is |
//! | [`settings`] | what the environment says about them |
//! | [`sysfs`] | the tree of files that programs find devices by |
//! | [`control`] | the same devices, seen and broken from outside |
//! | [`log`] | lines to stderr |
//! | [`hooks`] | what the preloaded symbols do |
//! | [`ioctl`] | the one ioctl of verbs: calls, open files and their objects |
//! | [`methods`] | the table of methods, and the way of a call to its method |
//! | [`verbs`] | verbs objects and queries, by firmware mailboxes |
//! | [`devx`] | objects of the mlx5 provider: doorbell pages and what goes past verbs |
//! | [`netlink`] | devices and ports as `NETLINK_RDMA` tells them |
//! | [`abi`] | structures and numbers of the uverbs and mlx5 user ABI |
//! | [`user`] | the program's memory, looked at with checks |

pub mod abi;
pub mod control;
pub mod devices;
pub mod devx;
pub mod hooks;
pub mod ioctl;
pub mod log;
pub mod machine;
pub mod methods;
pub mod netlink;
pub mod port;
pub mod settings;
pub mod sysfs;
mod thread;
pub mod user;
pub mod verbs;
