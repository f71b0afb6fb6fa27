//! The facade: everything that a program needs to bring PEs up and to keep them alive.
//!
//! | module | what it is |
//! | --- | --- |
//! | `runtime` | [`Runtime`]: one PE of this process, from its NICs to its agent's thread |
//! | [`nics`] | [`Nics`]: where NICs come from |
//! | `mlx5` | devices of libibverbs (feature `mlx5`) |
//! | `soft` | NICs in software, and the thread that steps them (feature `soft`) |
//! | `member` | [`Member`]: a PE's place among the others, in one process or over TCP |
//! | `agent_thread` | [`AgentThread`]: the thread that looks after a PE's paths |
//!
//! `examples/put.rs` is a whole program.

mod agent_thread;
mod member;
#[cfg(feature = "mlx5")]
mod mlx5;
pub mod nics;
mod runtime;
#[cfg(feature = "soft")]
mod soft;

pub use agent_thread::{AgentThread, NoAgent, Turn};
pub use member::{Member, Members, NoMember};
#[cfg(feature = "mlx5")]
pub use mlx5::Mlx5Nics;
pub use nics::{Nics, NoNic};
pub use runtime::{Builder, Error, Runtime, Settings, start_together};
#[cfg(feature = "soft")]
pub use soft::{LINK_NS, SoftNics};

pub use shunt_device as device;
pub use shunt_host as host;
#[cfg(feature = "soft")]
pub use shunt_soft_nic as soft_nic;
