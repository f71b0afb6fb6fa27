//! Weights of trainers, written straight into the memory of servers.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`param`] | parameters: who holds which bytes, who wants which; pure |
//! | [`schedule`] | [`Schedule`]: which trainer writes which bytes to which server; pure |
//! | [`share`] | how holders of the same bytes share the work; pure |
//! | [`audit`] | whether a schedule writes each byte once; pure |
//! | [`staging`] | memory between fetch and write, never more than its watermark |
//! | [`pipeline`] | fetch, transform, write and wait, side by side |
//! | [`stages`] | the first two on a processor: copies, and rounding to bf16 |

pub mod audit;
pub mod param;
pub mod pipeline;
pub mod schedule;
pub mod share;
pub mod stages;
pub mod staging;

pub use param::{Held, Param, Wanted};
pub use schedule::{PlanError, Rules, Schedule, Task};
