//! Lines of a report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A planned fault and how often it hit.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct FaultLine {
    /// Milliseconds since the start of the stream.
    pub at_ms: f64,
    /// `<pe>.<rail>`, or `<pe>`.
    #[serde(rename = "where")]
    pub place: String,
    /// The fault.
    pub kind: String,
    /// How often it did something.
    pub hits: u64,
}

/// One bin of the timeline.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Bin {
    /// Milliseconds since the start of the stream.
    pub t_ms: f64,
    /// Delivered, decimal GB/s, over all streams.
    pub gb_s: f64,
    /// Path of PE 0's first channel at the end of the bin.
    pub path: String,
}
