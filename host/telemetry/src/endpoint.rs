//! The HTTP endpoint that Prometheus scrapes: one thread, `GET /metrics`, nothing else.

use super::classic::classic;
use super::metrics::Metrics;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use thiserror::Error;
use tiny_http::{Header, Method, Response, Server};

/// What the text is, where somebody asks for that.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What it is else.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Why there is no endpoint.
#[derive(Debug, Error)]
#[error("SHUNT_METRICS: {address}: {error}; name a free address of this machine")]
pub struct EndpointError {
    /// What was asked for.
    pub address: SocketAddr,
    /// What the system said.
    pub error: io::Error,
}

/// An endpoint that answers. Dropping it ends it.
pub struct Endpoint {
    metrics: Arc<Metrics>,
    server: Arc<Server>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens at `address`; port 0 is any free one.
    ///
    /// # Errors
    /// [`EndpointError`], where the port is taken above all.
    pub fn start(address: SocketAddr) -> Result<Self, EndpointError> {
        Self::with(address, Metrics::default())
    }

    /// The same with labels that name the job and this machine.
    ///
    /// # Errors
    /// As [`Endpoint::start`].
    pub fn of_job(address: SocketAddr, job: &str) -> Result<Self, EndpointError> {
        Self::with(address, Metrics::of_job(job))
    }

    fn with(address: SocketAddr, metrics: Metrics) -> Result<Self, EndpointError> {
        let bad = |error| EndpointError { address, error };
        let server =
            Arc::new(Server::http(address).map_err(|error| bad(io::Error::other(error.to_string())))?);
        let bound = server.server_addr().to_ip().unwrap_or(address);
        let metrics = Arc::new(metrics);
        let (answering, source) = (server.clone(), metrics.clone());
        let body = move || {
            for request in answering.incoming_requests() {
                // A reader that went away is its own loss.
                let _ = request_answered(request, &source);
            }
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(body).map_err(bad)?;
        Ok(Self { metrics, server, address: bound, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it shows.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}

fn request_answered(request: tiny_http::Request, metrics: &Metrics) -> io::Result<()> {
    let path = request.url().split('?').next().unwrap_or("");
    match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => {
            let asks = |header: &Header| {
                header.field.equiv("Accept") && header.value.as_str().contains("application/openmetrics-text")
            };
            let (kind, text) = match request.headers().iter().any(asks) {
                true => (OPEN_METRICS, metrics.text()),
                false => (CLASSIC, classic(&metrics.text())),
            };
            let kind = Header::from_bytes("Content-Type", kind);
            let answer = Response::from_string(text);
            request.respond(kind.into_iter().fold(answer, Response::with_header))
        }
        (_, "/metrics") => request.respond(Response::from_string("expected GET\n").with_status_code(405)),
        _ => request.respond(Response::from_string("expected /metrics\n").with_status_code(404)),
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
