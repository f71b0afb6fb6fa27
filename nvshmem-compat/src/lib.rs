//! The library that programs link instead of NVSHMEM's host library: the same functions, structures and variables, over
//! Shunt's channels.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`env`], [`env_table`] | what the environment asks for, and what becomes of it; pure |
//! | [`place`], [`nodes`] | who this process is, by its launcher's variables; pure |
//! | [`heap`], [`registry`] | what is given away of the symmetric heap, and buffers of the program's own; pure |
//! | [`attr`] | structures of the C interface |
//! | [`twins`] | another library of that name in this process |

pub mod attr;
pub mod env;
pub mod env_table;
pub mod heap;
pub mod nodes;
pub mod place;
pub mod registry;
pub mod twins;
