//! Bindings of libfabric, loaded when asked for: everything builds where libfabric is not.
//!
//! [`load`] opens the library once and gives its functions; [`types`] holds what the headers declare; [`inline`] has
//! the functions that the headers define themselves. The first two are generated from the headers
//! (`cargo xtask bindings`) and committed.
//!
//! Names, signatures and contracts are those of the C library: `man fi_getinfo` tells. Every call is unsafe, and what
//! its manual asks of the caller is what the caller vouches for.

#[allow(missing_docs, non_snake_case, non_camel_case_types, non_upper_case_globals, unsafe_op_in_unsafe_fn)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks, unnecessary_transmutes, unused_imports)]
mod generated;
pub mod inline;
mod library;
mod load;
mod signals;

pub use generated::LIBFABRIC;
pub use generated::functions::Fabric;
pub use generated::types;
pub use inline::*;
pub use library::LoadError;
pub use load::load;
pub use types::*;
