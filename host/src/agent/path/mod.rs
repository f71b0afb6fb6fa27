//! The machine of one path, this end of it: sans-IO. Rules 10, 17, 18.
//!
//! [`PathMachine`] is told what happens and decides; [`io`] has what goes in and out. A phase looks at the path and
//! answers with what it saw, the table in `health` says what follows, and `PathMachine::observe` alone carries it out.
//!
//! * `pair`: what outlives the phases. `fence_record`: the truths of both halves.
//! * `phase`: which there are. `ready`, `fencing`, `reviving`: what each does.
//! * What comes in: [`hearing`], what the other end says; [`orders`], of operators; [`outcomes`], of NICs; [`takeover`],
//!   after an agent that failed.

mod fence_record;
mod fencing;
pub(super) mod hearing;
pub mod io;
mod machine;
pub(super) mod orders;
pub(super) mod outcomes;
mod pair;
mod phase;
mod ready;
mod reviving;
pub(super) mod takeover;

pub use super::nic_job::{Fenced, Urgency};
pub use hearing::Adopted;
pub use io::{Command, Facts, Handle, Notice, Output, Polled, Step, Timing, Word};
pub use machine::PathMachine;
pub use pair::{Offer, Task};
pub use phase::{PathStart, Standing};
pub use reviving::is_stuck;
