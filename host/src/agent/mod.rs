//! The agent: the host thread that fences, revives and informs. Never on the no-fault data path.
//!
//! The recovery engine does the work (`shunt_recovery`); here is who it works for, and who joins the two.
//!
//! * `driver`: [`Agent`] joins all the others. One step looks at everything once.
//! * `recovery` holds the engine and `channels`, which own its paths: device code's words ([`words`], [`reader`]), the
//!   memory of rings (`half`), what is told of faults (`reporter`), who takes atomics (`atomic_owner`),
//!   what peers ask to be executed ([`fetch_server`], `fetch_words`).
//! * [`message`]: what agents tell each other. `agreement`: who is left out. `status_page`: what others look at.
//! * [`standing`]: the paths of a channel that has a fault, in words.
//! * `checkpoint` is what outlives an agent that fails, [`supervisor`] starts the one that follows.
//!
//! Arrows point one way: the driver uses all of them, and none uses the driver.

mod agreement;
mod atomic_owner;
mod channels;
pub(crate) mod checkpoint;
mod driver;
pub mod fetch_server;
mod fetch_words;
mod half;
pub mod message;
mod options;
pub mod reader;
mod recovery;
mod reporter;
pub mod standing;
mod status_page;
pub mod supervisor;
pub mod words;

pub use driver::{Agent, Inputs};
pub use options::AgentOptions;
pub use shunt_recovery::{
    age, command_queue, datagram_renewal, destroy_queue, endpoint, engine, fault_localizer, health, links,
    nic_dispatch, nic_job, owner, path, path_pool, path_proof, path_slots, port_table, truth, verdict,
    worker,
};
