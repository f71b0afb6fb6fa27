//! The recovery engine: what fences a path at both ends, learns what had arrived, and makes it again.
//!
//! It works for an owner of paths ([`owner::Owner`]) on whatever queue pairs they are ([`endpoint::Endpoint`]): the
//! channels of a PE are one owner, and a program that posts verbs can be another. It knows neither of them.
//!
//! * The model, pure: [`ack_watch`], [`health`], [`verdict`], [`truth`], [`slots`], [`nanos`], `age`, `fence_patience`.
//! * Machines: [`path`], one a path; [`port_table`], [`fault_localizer`], [`path_pool`] with [`path_slots`] and
//!   [`path_ranking`], [`path_proof`], [`destroy_queue`], [`datagram_renewal`], [`peer_silence`]. Each owns its state.
//!   Time and facts are arguments, decisions are values. None holds another's state or knows the engine.
//! * Executors: [`command_queue`], [`worker`] and [`nic_dispatch`] command the NICs, [`links`] talks to other engines.
//! * [`engine`] joins them.
//!
//! Arrows point one way: the engine uses machines and executors, and both use the model.

pub mod ack_watch;
pub mod age;
pub mod command_queue;
pub mod datagram_renewal;
pub mod destroy_queue;
pub mod endpoint;
pub mod engine;
pub mod fault_localizer;
mod fence_patience;
pub mod fenced;
pub mod health;
pub mod links;
pub mod nanos;
pub mod nic_dispatch;
pub mod nic_job;
pub mod owner;
mod parts;
pub mod path;
pub mod path_pool;
pub mod path_proof;
pub mod path_ranking;
pub mod path_slots;
pub mod paths;
pub mod peer_silence;
pub mod port_table;
mod seen;
mod slot_release;
pub mod slots;
mod suspicion;
pub mod truth;
pub mod verdict;
pub mod worker;
