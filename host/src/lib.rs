//! The host side: rails, keys, paths, device state, agent.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`devx`] | the hardware seam, and its body on the soft NIC |
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
//! | [`doctor`] | what is missing on a machine, and what to do |
//! | [`topology`] | pure: rails ranked for each GPU |
//! | [`world`] | real time on threads |

pub mod agent;
pub mod config;
pub mod connect;
pub mod devx;
pub mod discover;
pub mod doctor;
mod duration;
pub mod error;
pub mod events;
pub mod gpu;
pub mod job;
pub mod keys;
mod lock;
pub mod nic;
pub mod pe;
pub mod plan;
pub mod rail;
pub mod ranks;
pub mod silence;
pub mod slots;
#[cfg(test)]
mod step_world;
pub mod topology;
pub mod upload;
pub mod world;
