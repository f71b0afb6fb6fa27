//! What one process has of RDMA, on soft NICs.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`machine`] | all of it, made at the first look at a device |
//! | [`devices`] | its soft NICs, their commands and events |
//! | [`per_process`] | places of which each process has its own |
//! | [`kind`] | which kind of device they are |
//! | [`port`] | what a port is |
//! | [`settings`] | what the environment says about them |
//! | [`sysfs`] | the tree of files that programs find devices by |
//! | [`control`] | the same devices, seen and broken from outside |
//! | [`mod@log`] | lines to stderr |
//! | [`thread`] | threads in the midst of a program |
//!
//! The crate owns the devices: the fabric, its threads, its files and sockets below the runtime directory, and the
//! settings. It knows no call of the program: what a program asks of the kernel, and how it comes here, is for the
//! crates above it.

pub mod control;
pub mod devices;
pub mod kind;
pub mod log;
pub mod machine;
pub mod per_process;
pub mod port;
pub mod settings;
pub mod sysfs;
pub mod thread;
