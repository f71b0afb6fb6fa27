//! A process's devices, seen and broken from outside: a Unix socket in the directory of the fabric, one JSON object a
//! line each way.
//!
//! ```text
//! {"inject":{"nic":0,"at_ns":0,"fault":"down=300ms"}}    {"ok":{"id":3}}
//! {"faults":{}}                                          {"ok":[{"id":3,"nic":0,"fault":"down=300ms","hits":1, ..}]}
//! {"nics":{}}                                            {"ok":{"pid":17,"nics":[{"name":"mlx5_0", ..}], ..}}
//! {"watch":{"address":4096}}                             {"ok":{"writes":0,"last":0,"not_increasing":0}}
//! {"watched":{"address":4096}}                           {"ok":{"writes":7,"last":7,"not_increasing":0}}
//! {"no such":{}}                                         {"error":"unknown variant ..."}
//! ```
//!
//! `at_ns` counts from the moment the request is read. A request that is not understood is answered and changes
//! nothing; the next one on the same connection is read as if it had not been. Only processes of the same user get in:
//! the directory is theirs alone, and the server asks the kernel who called.

mod client;
mod server;
mod wire;

pub use client::{Client, ControlError, Process, fabrics, own, processes, processes_in, socket_of};
pub(crate) use server::{Server, serve};
pub use wire::{Answer, CounterReport, FaultView, Injected, NicView, ProcessView, Request, Watched};

/// Bytes of a request's line at most.
const LINE_MAX: u64 = 64 << 10;
/// Bytes of an answer's line at most: a long plan of faults is a long answer.
const ANSWER_MAX: u64 = 16 << 20;
/// Names of sockets: this, the process's number, and the end.
const PREFIX: &str = "control-";
const SUFFIX: &str = ".sock";
