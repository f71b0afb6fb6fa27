//! Connections as librdmacm makes them: the kernel's side of `/dev/infiniband/rdma_cm`.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`address`] | addresses as programs give them |
//! | [`id`] | an identifier, its states and events |
//! | [`message`] | what processes say to each other |
//! | [`core`] | what commands do to identifiers; no system call |
//! | `connections` | what messages, ends and time do to them; no system call |
//! | `answers` | what the program is told, as bytes |
//! | [`commands`] | what the program writes, as bytes |
//! | `links` | sockets between processes |
//! | [`file`](mod@file) | open files |

pub mod address;
mod answers;
pub mod commands;
mod connections;
pub mod core;
pub mod file;
pub mod id;
mod links;
pub mod message;
#[cfg(test)]
mod tests;

pub use connections::Refusal;
