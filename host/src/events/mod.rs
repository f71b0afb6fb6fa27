//! What is told of faults, and to whom.
//!
//! | file | what it is |
//! | --- | --- |
//! | `table` | every event, declared once |
//! | `declare` | fields, levels, and the macro behind the table |
//! | `records` | records of device code as events |
//! | `log` | the order of the stream: one log an agent |
//! | `json` | the line of a timeline |
//! | `file` | timelines in a file (`SHUNT_EVENTS`) |
//! | `metrics`, `endpoint` | counters, gauges and stage times for Prometheus (`SHUNT_METRICS`) |
//! | `status`, `page` | the status page in shared memory, written and read |
//!
//! Nothing here is on the data path: the agent tells what it notices, sinks hand it on without waiting.

mod declare;
mod json;
mod log;
mod records;
mod table;

pub use declare::{Declaration, Level, Route, Value};
pub use json::{SCHEMA, line};
pub use log::{Log, Sink, Told};
pub(crate) use records::of_step;
pub use records::of_switch;
pub use table::{EVENTS, Event, markdown};
