//! The host side: rails, keys, paths, device state, agent.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`devx`] | the hardware seam |
//! | [`gpu`] | memory that device and NICs reach, and its body on the host's heap |
//! | [`nic`] | objects on a NIC, one a file: mailbox, create, query, destroy on drop |
//! | [`rail`] | one NIC port with all that is made once on it: keys, placement flush, start-up proof |
//! | [`slots`], [`keys`], [`plan`], [`config`] | pure: ranking of paths, key tables, memory plan, settings |
//! | [`agent`] | fences, revives, informs; never on the no-fault data path |
//! | [`connect`] | cards, bootstrap, the agents' own channel; all that over TCP, between processes |
//! | [`job`] | who this process is in its job: environment and flags |
//! | [`pe`] | a PE, brought up: open, register, connect, upload |
//! | [`upload`] | the device state: written, read back, compared |
//! | [`discover`] | what the machine has, from sysfs |
//! | [`events`] | what is told of faults, and to whom |
//! | [`topology`] | pure: rails ranked for each GPU |
//! | [`clock`] | real time on threads |
//! | [`nanos`] | pure: time as a type |

pub mod agent;
pub mod config;
pub mod connect;
/// The hardware seam.
pub mod devx {
    pub use shunt_mlx5::devx::*;
    #[cfg(feature = "mlx5")]
    pub use shunt_mlx5::ibverbs::{self, IbverbsDevx};
}
pub mod error;
/// Memory that device and NICs reach.
pub mod gpu {
    #[cfg(feature = "cuda")]
    pub use shunt_cuda as cuda;
    pub use shunt_mlx5::memory::*;
}
pub mod keys;
pub mod pe;
pub mod plan;
/// Which ranks go on together.
pub mod ranks {
    pub use shunt_membership::*;
    pub use shunt_membership::{paxos as machine, rank_set as set, reachability as clique};
}
pub mod silence;
pub mod upload;

pub use shunt_bootstrap::job;
pub use shunt_mlx5::{clock, rail};
pub use shunt_recovery::{nanos, slots};
pub use shunt_settings::complain;
pub use shunt_telemetry as events;
pub use shunt_topology::{discover, topology};

/// Objects on a NIC.
pub mod nic {
    pub use shunt_mlx5::endpoint as half;
    pub use shunt_mlx5::nic::*;
}
