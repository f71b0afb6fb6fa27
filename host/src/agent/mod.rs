//! The agent: the host thread that fences, revives and informs. Never on the no-fault data path.
//!
//! * `driver`: [`Agent`] joins all the others. One step looks at everything once.
//! * The model, pure: what a pair is and what follows from what is known of it. [`health`], [`verdict`], [`pair`],
//!   [`message`], `fence_patience`, `options`, `age`.
//! * Machines: `port_table`, `fault_localizer`, `path_pool` with `path_slots` and `path_ranking`, `path_proof`,
//!   `atomic_owner`, `destroy_queue`, `slot_release`, `datagram_renewal`. Each owns its state. Time and facts are
//!   arguments, decisions are values. None holds another's state or knows the driver.
//! * Executors: [`command_queue`], [`worker`] and `nic_dispatch` command the NICs, [`rails`] talks to the other agents,
//!   [`words`] and [`reader`] view the device state, `reporter` and `status_page` tell of it.
//! * `checkpoint` is what outlives an agent that fails, [`supervisor`] starts the one that follows.
//!
//! Arrows point one way: the driver uses machines and executors, and both use the model.

mod age;
mod agreement;
mod atomic_owner;
mod channels;
pub(crate) mod checkpoint;
pub mod command_queue;
mod datagram_renewal;
mod destroy_queue;
mod driver;
pub mod endpoint;
mod engine;
mod fault_localizer;
mod fence_patience;
mod half;
pub mod health;
pub mod message;
mod nic_dispatch;
pub mod nic_job;
mod options;
mod owner;
pub mod path;
mod path_pool;
mod path_proof;
mod path_ranking;
mod path_slots;
mod peer_silence;
mod port_table;
pub mod rails;
pub mod reader;
mod recovery;
mod reporter;
mod seen;
mod slot_release;
mod status_page;
pub mod supervisor;
pub mod verdict;
pub mod words;
pub mod worker;

pub use driver::{Agent, Inputs};
pub use options::AgentOptions;
