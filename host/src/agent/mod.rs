//! The agent: the host thread that fences, revives and informs. Never on the no-fault data path.
//!
//! | module | what it is |
//! | --- | --- |
//! | `driver` | [`Agent`]: joins all the others; one step looks at everything once |
//! | [`health`], [`verdict`], [`pair`], [`message`], `options` | the model: what a pair is, and what follows from what is known. Pure |
//! | `port_table`, `fault_localizer`, `path_pool`, `path_ranking`, `path_proof`, `atomic_owner`, `destroy_queue`, `slot_release`, `datagram_renewal`, `age` | machines: each owns its state; time and facts are arguments, decisions are values. None knows another |
//! | [`command_queue`], [`worker`], `nic_dispatch` | commands to NICs, and what comes of them |
//! | [`rails`], [`words`], [`reader`], `reporter`, `status_page` | the other agents, the device state, and what is told |
//! | `checkpoint`, [`supervisor`] | what outlives an agent that fails, and who follows it |
//!
//! Arrows point up this table: the driver uses machines and those who carry their decisions out; machines use the model.

mod age;
mod atomic_owner;
pub(crate) mod checkpoint;
pub mod command_queue;
mod datagram_renewal;
mod destroy_queue;
mod driver;
mod fault_localizer;
pub mod health;
pub mod message;
mod nic_dispatch;
mod options;
pub mod pair;
mod path_pool;
mod path_proof;
mod path_ranking;
mod port_table;
pub mod rails;
pub mod reader;
mod reporter;
mod slot_release;
mod status_page;
pub mod supervisor;
pub mod verdict;
pub mod words;
pub mod worker;

pub use driver::{Agent, Inputs};
pub use options::AgentOptions;
