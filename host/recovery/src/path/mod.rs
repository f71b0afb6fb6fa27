//! The machine of one path, this end of it: sans-IO. Rules 10, 17, 18.
//!
//! [`PathMachine`] is told what happens and decides; [`io`] has what goes in and out. A phase looks at the path and
//! says what it saw, the table in `health` says what follows, and `PathMachine::observe` carries it out. Two others set
//! a phase: [`hearing::adopt`], of an incarnation that this end has missed, and [`takeover`], which finds one.
//!
//! * `pair`: what outlives the phases. `fence_record`: the truths of both halves.
//! * `phase`: which there are. `ready`, `fencing`, `reviving`: what each does.
//! * What comes in: [`hearing`], what the other end says; [`orders`], of operators; [`outcomes`], of NICs;
//!   [`takeover`], after an agent that failed.
//! * `wire`: what ends say to each other, as numbers.

mod fence_record;
mod fencing;
pub mod hearing;
pub mod io;
mod machine;
pub mod orders;
pub mod outcomes;
mod pair;
mod phase;
mod ready;
mod reviving;
pub mod takeover;
mod wire;

pub use crate::fenced::{Fenced, Urgency};
pub use hearing::Adopted;
pub use io::{Command, Facts, Handle, Notice, Offer, Output, Polled, Step, Task, Timing, Word};
pub use machine::PathMachine;
pub use phase::{PathStart, Standing};
pub use reviving::is_stuck;
pub use wire::WordParts;
