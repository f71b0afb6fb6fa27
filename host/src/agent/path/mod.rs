//! The machine of one path, this end of it: sans-IO. Rules 10, 17, 18.
//!
//! [`PathMachine`] is told what happens and decides; [`io`] has what goes in and out. A phase looks at the path and
//! answers with what it saw, the table in `health` says what follows, and `PathMachine::observe` alone carries it out.
//!
//! * `pair`: what outlives the phases. `fence_record`: the truths of both halves.
//! * `ready`, `fencing`, `reviving`: the phases.

mod fence_record;
mod fencing;
pub mod io;
mod machine;
mod pair;
mod ready;
mod reviving;

pub use super::nic_job::{Fenced, Urgency};
pub use io::{Command, Endpoint, Facts, Notice, Output, Polled, Step, Timing, Word};
pub use machine::{Adopted, PathMachine, PathStart};
pub use pair::{Offer, Task};
pub use reviving::is_stuck;
