//! What is told of faults, and to whom.
//!
//! | file | what it is |
//! | --- | --- |
//! | `table` | every event, declared once |
//! | `declare` | fields, levels, and the macro behind the table |
//! | `from_records` | records of device code as events |
//! | `log` | the order of the stream: one log an agent |
//! | `summary` | many events in one: bursts of failovers, rails suspected again and again |
//! | `json` | the line of a timeline |
//! | `jsonl` | timelines in a file (`SHUNT_EVENTS`) |
//! | `logging`, `log_writer` | the log for people (`SHUNT_LOG`, `NVSHMEM_DEBUG`), which programs install |
//! | `metrics`, `endpoint`, `classic` | counters, gauges and stage times for Prometheus (`SHUNT_METRICS`); a feature |
//! | `transfers` | the same of the ends of a transfer engine |
//! | [`page`] | the status page in shared memory, written and read |
//! | [`control`] | an operator's orders to a running agent |
//! | `setup` | what the environment asks for |
//! | `notice` | warnings to the user who runs the program |
//!
//! Nothing here is on the data path: the agent tells what it notices, sinks hand it on without waiting.

#[cfg(feature = "metrics")]
mod classic;
pub mod control;
mod declare;
#[cfg(feature = "metrics")]
mod endpoint;
mod from_records;
mod json;
mod jsonl;
mod log;
mod log_writer;
mod logging;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
mod no_metrics;
mod notice;
pub mod page;
mod setup;
mod summary;
mod table;
#[cfg(feature = "metrics")]
mod transfers;

pub use declare::{Declaration, Kind, Level, Place, Route, Value};
#[cfg(feature = "metrics")]
pub use endpoint::{Endpoint, EndpointError};
pub use from_records::{of_step, of_switch};
pub use json::{SCHEMA, line};
pub use jsonl::{BYTES_MAX, FileSink};
pub use log::{Log, Sink, Told};
pub use logging::{Logging, flush_log};
#[cfg(feature = "metrics")]
pub use metrics::{Metrics, PEERS_NAMED, PeMetrics};
#[cfg(not(feature = "metrics"))]
pub use no_metrics::{EndMetrics, Endpoint, Metrics, PeMetrics};
pub use notice::say;
pub use setup::{Watching, file_of, timelines};
pub use table::{EVENTS, Event, markdown};
#[cfg(feature = "metrics")]
pub use transfers::EndMetrics;
