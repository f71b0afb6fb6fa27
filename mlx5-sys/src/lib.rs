//! Bindings of libibverbs and libmlx5, loaded when asked for: everything builds where rdma-core is not.
//!
//! [`load`] opens both libraries once and gives their functions; [`types`] holds what the headers declare;
//! [`inline`] has the functions that the headers define themselves. The first two are generated from the headers
//! (`cargo xtask bindings`) and committed.
//!
//! Names, signatures and contracts are those of the C libraries: `man ibv_open_device` tells. Every call is unsafe,
//! and what its manual asks of the caller is what the caller vouches for.

#[allow(missing_docs, non_snake_case, non_camel_case_types, non_upper_case_globals, unsafe_op_in_unsafe_fn)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks, unnecessary_transmutes)]
mod generated;
pub mod inline;
mod library;
mod load;

pub use generated::RDMA_CORE;
pub use generated::functions::{Mlx5, Verbs};
pub use generated::types;
pub use inline::*;
pub use library::{LoadError, look_behind};
pub use load::{Rdma, load};
pub use types::*;
