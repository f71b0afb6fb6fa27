//! One ConnectX in software.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`config`] | one NIC's identity, latencies and quirks |
//! | [`profile`] | what one kind of device refuses, reports and does otherwise |
//! | [`nic`] | a NIC: how it is driven; sans-IO, time is an argument |
//! | [`step_context`] | what the NICs of a fabric share in a step: routes, buffers, watched words |
//! | [`command`], `status` | firmware mailboxes: parsed, executed one at a time, answered with status codes |
//! | `hca` | the data path: objects and units, and the steps that move work through them |
//! | `object_table`, `doorbell_page` | objects by number; doorbell registers, and who rings in which page |
//! | `qp`, `endpoint` | a queue pair: two halves, and what they share |
//! | `requester` | the half that sends, of `send_queue`, `fetch`, `in_flight`, `request`, `retry`, `window_share` |
//! | `responder` | the half that answers, of `arriving`, `answers`, `receive_queue`, `datagram` |
//! | `units` | what the queue pairs of a NIC share: memory, placement, completions, events, timers, turns |
//! | `shared_receive`, `scatter_list` | pools of receive WQEs; where a message may land |
//! | `completion_queue`, `cq_arm` | completions, and the events they raise |
//! | `memory`, `dma`, `atomic` | umems and keys; gather and scatter lists; read, change and write |
//! | `placement` | when an executed write becomes visible in memory |
//! | `transmit_scheduler`, `port` | whose turn it is to send, and how fast; the link |
//! | [`trace`] | WQEs, CQEs and mailboxes as text |
//!
//! The crate knows the PRM and what packets look like. It knows no other NIC: packets go into an outbox and come in as
//! arguments, as do the time and the surroundings of a step, and faults are put on it and taken off by the one who
//! drives it. It reads no clock, starts no thread and opens no file. What it touches besides itself is memory that was
//! registered with it, and doorbell pages.
//!
//! Each type owns its state. A queue pair at work has the units of its NIC and nothing of other queue pairs. Arrows
//! between modules point one way: `nic`, `command`, `hca`, `qp`, its halves, `endpoint`, `units`, and what those stand
//! on.

mod answers;
mod arriving;
mod atomic;
pub mod command;
mod completion_queue;
pub mod config;
mod counters;
mod cq_arm;
mod datagram;
mod dc;
mod dc_target;
mod dma;
mod doorbell_page;
mod endpoint;
mod event;
mod fetch;
mod hca;
mod in_flight;
mod memory;
pub mod nic;
mod object_table;
mod placement;
mod port;
pub mod profile;
mod qp;
mod receive_queue;
mod request;
mod requester;
mod responder;
mod retry;
mod scatter_list;
mod send_queue;
mod shared_receive;
mod status;
pub mod step_context;
mod timer;
pub mod trace;
mod transmit_scheduler;
mod units;
mod window_share;

pub use counters::Counters;
pub use doorbell_page::{DoorbellLook, Uar};
