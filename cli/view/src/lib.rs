//! A run to look at: a page of HTML without a network, and a trace for Perfetto. Pure: values in, text out.
//!
//! `shunt view` makes a [`Run`] from event files ([`events::read`]), `shmem_put_bw --report` from its own report.

pub mod events;
mod lanes;
mod page;
mod trace;

pub use page::html;
pub use trace::trace;

/// What a page shows. Times are milliseconds from the start of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Heading of the page.
    pub title: String,
    /// The verdict, and whether it is good. None where the source has none.
    pub verdict: Option<(String, bool)>,
    /// Names and values: counts, options, machine.
    pub facts: Vec<(String, String)>,
    /// Length of the run.
    pub length_ms: f64,
    /// Rails that are known, as PE and rank; others come with their marks.
    pub rails: Vec<(u32, u32)>,
    /// Delivered bytes over time.
    pub rates: Vec<Rate>,
    /// Every switch, by time.
    pub switches: Vec<Switch>,
    /// What happened at rails and PEs, by time.
    pub marks: Vec<Mark>,
}

/// Delivered in one bin.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// Start of the bin.
    pub at_ms: f64,
    /// Decimal GB/s.
    pub gb_s: f64,
}

/// A channel, by its ends and its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Channel {
    /// The PE whose channel it is.
    pub pe: u32,
    /// The PE at its other end.
    pub peer: u32,
    /// Its index.
    pub index: u32,
}

/// How a switch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Open on another path, because of a fault.
    Failover,
    /// Back on a better path.
    Back,
    /// The channel ended.
    Dead,
}

/// One switch of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// The channel.
    pub channel: Channel,
    /// Path left, `0.0>1.0`.
    pub from: String,
    /// Path entered; empty if the channel ended.
    pub to: String,
    /// Why.
    pub cause: String,
    /// How it ended.
    pub outcome: Outcome,
    /// When it was noticed.
    pub noticed_ms: f64,
    /// Stages in order, with microseconds.
    pub stages: Vec<(String, f64)>,
    /// Operations sent again.
    pub replayed: u64,
}

impl Switch {
    /// When its last stage ended.
    pub fn ended_ms(&self) -> f64 {
        self.noticed_ms + self.stages.iter().map(|(_, us)| us).sum::<f64>() / 1e3
    }
}

/// Something that happened at a rail or a PE.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// When.
    pub at_ms: f64,
    /// PE.
    pub pe: u32,
    /// Rail; none for the PE as a whole.
    pub rail: Option<u32>,
    /// What, in a few words.
    pub text: String,
    /// What it does to the rail's port.
    pub port: Option<Port>,
}

/// A port after a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// It carries nothing.
    Down,
    /// It works.
    Up,
}
