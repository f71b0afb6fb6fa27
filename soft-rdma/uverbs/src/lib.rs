//! The kernel's side of verbs for soft devices: the one ioctl of uverbs and the mlx5 user ABI.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`abi`] | structures and numbers of the uverbs and mlx5 user ABI |
//! | [`ioctl`] | the ioctl: calls, open files and their objects |
//! | [`methods`] | the table of methods, and the way of a call to its method |
//! | [`verbs`] | verbs objects and queries, by firmware mailboxes |
//! | [`devx`] | objects of the mlx5 provider: doorbell pages and what goes past verbs |
//! | [`efa`] | verbs objects and queries of soft EFAs |
//! | [`user`] | the program's memory, looked at with checks |
//!
//! A call comes in as an address in the program and an open file; what it changes are the objects of that file and, by
//! firmware mailboxes, the soft NIC behind it. The crate touches memory of the program only by [`user`], or by umems
//! that the program registered. It knows no path, no descriptor of the program's and no symbol of the C library: who
//! calls, and what else is called, is for the crate above it.

pub mod abi;
pub mod devx;
pub mod efa;
pub mod ioctl;
pub mod methods;
pub mod user;
pub mod verbs;
