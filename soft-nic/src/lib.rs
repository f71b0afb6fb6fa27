//! A ConnectX in software.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`config`] | one NIC's identity, latencies and quirks |
//! | [`nic`] | a NIC: objects, doorbells, queues; sans-IO, time is an argument |
//! | [`command`] | firmware mailboxes: parsed, executed one at a time, answered with status codes |
//! | `requester`, `responder` | the two halves of a reliable connection |
//! | `placement` | when an executed write becomes visible in memory |
//! | [`fault`] | the list of faults and sabotage, and the plan that schedules them |
//! | [`fabric`] | all NICs of a job and the link between them |
//! | [`engine`] | real time: one thread that steps a fabric |
//! | [`wire`] | packets as frames, for NICs that do not share a process |
//! | [`uplink`], `outside` | the way to NICs of other processes |
//! | [`trace`] | WQEs, CQEs and mailboxes as text |
//!
//! The crate knows the wire and the PRM, nothing of hosts or devices.
//!
//! # One process or several
//!
//! NICs of one [`Fabric`] exchange packets in memory. Processes of one machine each have a fabric with their own NICs
//! and join them with [`Fabric::attach`]; packets then cross as RoCE v1 frames in Unix datagrams. Nothing else
//! changes: queue pairs are connected by GID and MAC (or LID) as before, and faults are planned in the process that
//! owns the NIC.
//!
//! ```
//! use shunt_soft_nic::{Clock, Engine, Fabric, FabricConfig, NicConfig, RailAt, SoftNic, UnixUplink};
//! # let runtime = std::env::temp_dir().join(format!("shunt-doc-{}", std::process::id()));
//! let (pe, rail) = (3, 0); // The rank of this process says which NICs are its own.
//! let mut fabric = Fabric::new(FabricConfig::default());
//! fabric.add(SoftNic::new(NicConfig::new("mlx5_0", pe, rail)), RailAt { pe, rail });
//! // `UnixUplink::open` takes the runtime directory of the user instead. NICs added before are reachable by it.
//! let uplink = UnixUplink::open_in(&runtime, "default", &[])?;
//! fabric.attach(Box::new(uplink))?;
//! let engine = Engine::spawn(fabric, Clock::new());
//! # drop(engine);
//! # std::fs::remove_dir_all(runtime).unwrap();
//! # Ok::<(), shunt_soft_nic::UplinkError>(())
//! ```

mod arm;
mod atomic;
pub mod command;
mod complete;
pub mod config;
mod counters;
mod cx;
mod datagram;
mod dma;
pub mod engine;
mod event;
pub mod fabric;
mod failure;
pub mod fault;
mod fetch;
mod link;
mod memory;
pub mod nic;
mod object;
mod outside;
pub mod packet;
mod placement;
mod port;
mod psn;
mod qp;
mod receive;
mod requester;
mod responder;
mod timer;
pub mod trace;
pub mod uplink;
pub mod wire;

pub use command::CommandId;
pub use config::{LinkLayer, NicConfig, Quirks};
pub use counters::Counters;
pub use cx::WordWatch;
pub use engine::{Clock, Engine, SharedFabric};
pub use fabric::{Fabric, FabricConfig, NicId, RailAt};
pub use fault::{
    Fault, FaultInfo, FaultKind, FaultReport, Injection, ParseFaultError, ParseInjectionError, PeFault,
};
pub use nic::{NicError, SoftNic};
pub use object::Uar;
pub use uplink::{UnixUplink, Uplink, UplinkCounters, UplinkError};
