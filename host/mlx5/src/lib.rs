//! The mlx5 driver: firmware commands, objects on a NIC, and rails made of them.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`devx`] | the hardware seam: [`devx::Devx`], one NIC function |
//! | [`clock`] | real time on threads |
//! | [`memory`] | memory that device and NICs reach, and its body on the host's heap |
//! | [`nic`] | objects on a NIC, one a file: mailbox, create, query, destroy on drop |
//! | [`rail`] | one NIC port with all that is made once on it: keys, placement flush, self-test |
//! | [`endpoint`] | one end of a path: its queue pair on a rail |
//! | [`descriptor`] | what two ends tell each other to connect |
//! | `ibverbs` | [`devx::Devx`] through libibverbs and libmlx5 (feature `ibverbs`) |
//!
//! It knows nothing of events, of the agent, or of the environment. Time comes from
//! [`World`](shunt_device::platform::host::World).

pub mod clock;
pub mod descriptor;
pub mod devx;
pub mod endpoint;
pub mod error;
#[cfg(feature = "ibverbs")]
pub mod ibverbs;
pub mod memory;
pub mod nic;
pub mod rail;
mod yield_lock;
