//! In place of metrics where they are not built in: types that have no value.

use super::log::{Sink, Told};
use shunt_layout::status::StatusPage;
use std::net::SocketAddr;
use std::sync::Arc;

/// Metrics of a process.
pub enum Metrics {}

impl Metrics {
    /// Those of one end of a transfer engine.
    pub fn of_end(&self, _end: u32) -> EndMetrics {
        match *self {}
    }

    /// Those of one PE.
    pub fn of_pe(self: &Arc<Self>, _pe: u32, _pes: u32) -> PeMetrics {
        match **self {}
    }
}

/// Metrics of one PE.
#[derive(Clone)]
pub enum PeMetrics {}

impl PeMetrics {
    /// Counts what the port of a rail sends and receives.
    pub fn count_traffic(
        &self,
        _rail: u32,
        _device: &str,
        _ask: impl Fn() -> Option<(u64, u64)> + Send + 'static,
    ) {
        match *self {}
    }

    /// So many operations more went out on a rail.
    pub fn count_operations(&self, _rail: u32, _more: u64) {
        match *self {}
    }

    /// Takes the sums and states of a new status page.
    pub fn update(&mut self, _page: &StatusPage) {
        match *self {}
    }
}

impl Sink for PeMetrics {
    fn tell(&mut self, _told: &Told) {
        match *self {}
    }
}

/// Metrics of one end of a transfer engine.
pub enum EndMetrics {}

impl EndMetrics {
    /// The end has counted so much so far.
    pub fn count(&self, _sums: [u64; 4]) {
        match *self {}
    }

    /// So many lanes to a peer may be used now.
    pub fn lanes(&self, _peer: u32, _count: usize) {
        match *self {}
    }
}

/// The endpoint that Prometheus reads.
pub enum Endpoint {}

impl Endpoint {
    /// Refuses: what was asked for is not built in.
    ///
    /// # Errors
    /// Always.
    pub fn of_job(address: SocketAddr, _job: &str) -> Result<Self, String> {
        Err(format!("SHUNT_METRICS: {address}: expected a build with the feature metrics, got one without"))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        match *self {}
    }

    /// What it shows.
    pub fn metrics(&self) -> &Arc<Metrics> {
        match *self {}
    }
}
