//! Faults and sabotage: the list, its grammar, and what is at work on a NIC.
//!
//! A fault is part of the world the library promises to survive; a sabotage breaks the promises on purpose,
//! so that a test can show that its oracle notices. Faults of the link act on packets through one port, in
//! both directions unless their name says otherwise. Loopback traffic of a NIC does not cross its port: only
//! `nic-gone` reaches it.
//!
//! The crate is pure: text and times in, faults and steps out. It knows no NIC, no packet and no clock. Who drives
//! NICs asks the [`Plan`] what starts and ends, and keeps it in the [`Faults`] of a NIC, which the part that a fault
//! concerns asks whether it struck.

mod active;
mod injection;
mod kind;
mod parse;
mod pe;
mod plan;
mod time;

pub use active::Faults;
pub use injection::{Fault, Injection, ParseInjectionError, list};
pub use kind::{FaultInfo, FaultKind};
pub use parse::ParseFaultError;
pub use pe::PeFault;
pub use plan::{FaultReport, RailAt};
pub use plan::{Plan, Planned, Step, WAITS};
pub use time::{format_time, parse_time};
