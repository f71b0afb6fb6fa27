//! Unit tests of the library that is tested with: here, so that it is compiled once.

mod draw;
mod justify;
mod kit;
mod oracle;
mod rng;
mod scenario_names;
mod spec;
mod toml;
mod workload;
