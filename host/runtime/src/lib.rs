//! The facade: everything that a program needs to bring PEs up and to keep them alive.
//!
//! | module | what it is |
//! | --- | --- |
//! | `runtime` | [`Runtime`]: one PE of this process, from its NICs to its agent's thread |
//! | [`nics`] | [`Nics`]: where NICs come from |
//! | `mlx5` | devices of libibverbs, by name (feature `mlx5`) |
//! | [`choice`] | what `SHUNT_NIC` comes to; pure (feature `mlx5`) |
//! | [`ports`] | which ports of libibverbs are rails; pure (feature `mlx5`) |
//! | [`machine`] | the ports of this machine, found and opened (feature `mlx5`) |
//! | `control` | the way to make an interposer's soft NICs fail (feature `interposer`) |
//! | [`queues`] | what `SHUNT_QUEUES` comes to; pure |
//! | `open_nics` | `OpenNics`: NICs of this process, whatever they are (feature `interposer`) |
//! | `shared_heap` | [`SharedHeap`]: a heap that other processes of the node map |
//! | `simulated_memory` | [`SimulatedMemory`]: a device's memory in software, which the host reaches by copies alone |
//! | `soft` | NICs in software, and the thread that steps them (feature `soft`) |
//! | `member` | [`Member`]: a PE's place among the others, in one process or over TCP |
//! | `agent_thread` | [`AgentThread`]: the thread that looks after a PE's paths |
//! | `naps` | how long that thread sleeps |
//!
//! `examples/put.rs` is a whole program.

mod agent_thread;
#[cfg(feature = "mlx5")]
pub mod choice;
#[cfg(feature = "interposer")]
pub mod control;
#[cfg(feature = "mlx5")]
pub mod machine;
mod member;
#[cfg(feature = "mlx5")]
mod mlx5;
mod naps;
pub mod nics;
#[cfg(feature = "interposer")]
mod open_nics;
#[cfg(feature = "mlx5")]
pub mod ports;
pub mod queues;
mod runtime;
mod shared_heap;
mod simulated_memory;
#[cfg(feature = "soft")]
mod soft;

pub use agent_thread::{AgentThread, NoAgent, Turn};
pub use member::{Member, Members, NoMember};
#[cfg(feature = "mlx5")]
pub use mlx5::Mlx5Nics;
pub use nics::{Nics, NoNic};
#[cfg(feature = "interposer")]
pub use open_nics::OpenNics;
pub use runtime::{Builder, Error, Runtime, Settings, start_together};
pub use shared_heap::{HeapCard, Mapping, SharedHeap};
pub use simulated_memory::{DeviceHeap, SimulatedMemory};
#[cfg(feature = "soft")]
pub use soft::{LINK_NS, SoftNics, soft_give_up_ns};

pub use shunt_device as device;
pub use shunt_host as host;
#[cfg(feature = "soft")]
pub use shunt_soft_nic as soft_nic;

/// The program of the tutorial.
#[cfg(all(doctest, feature = "soft"))]
#[doc = include_str!("../../../docs/tutorial/rust.md")]
struct Tutorial;
