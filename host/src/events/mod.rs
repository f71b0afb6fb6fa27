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
//! | [`page`] | the status page in shared memory, written and read |
//! | [`control`] | an operator's orders to a running agent |
//! | `watching` | what the environment asks for |
//!
//! Nothing here is on the data path: the agent tells what it notices, sinks hand it on without waiting.

pub mod control;
mod declare;
mod endpoint;
mod file;
mod json;
mod log;
mod metrics;
pub mod page;
mod records;
mod table;
mod watching;

pub use declare::{Declaration, Level, Route, Value};
pub use endpoint::{Endpoint, EndpointError};
pub use file::{BYTES_MAX, FileSink};
pub use json::{SCHEMA, line};
pub use log::{Log, Sink, Told};
pub use metrics::{Metrics, PEERS_NAMED, PeMetrics};
pub(crate) use records::of_step;
pub use records::of_switch;
pub use table::{EVENTS, Event, markdown};
pub(crate) use watching::say;
pub use watching::{EVENTS_FILE, METRICS_ADDRESS, STATUS, Watching, file_of};
