//! What a program that measures reads, says and draws.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`units`] | sizes, durations, rates and switches as people write them |
//! | [`timeline`] | bytes delivered per 10 ms, and the figures read off them |
//! | [`lines`] | a bin and a fault, as reports have them |
//! | [`rail_stats`] | how payload was spread over rails |
//! | [`switch_table`] | switch records as an operator reads them |
//! | [`plot`] | the timeline as a picture and as a line of blocks |
//! | [`outputs`] | files that are written at the end of a run, tried before it |
//! | [`stdout`] | lines on stdout, and what became of them |
//!
//! The crate is given figures and gives text. It brings up no PE and no NIC, and knows no workload: what is measured is
//! for the programs above it. It touches stdout and the files that it was given.

pub mod lines;
pub mod outputs;
pub mod plot;
pub mod rail_stats;
pub mod stdout;
pub mod switch_table;
pub mod timeline;
pub mod units;
