//! A ConnectX in software.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`config`] | one NIC's identity, latencies and quirks |
//! | [`profile`] | what one kind of device refuses, reports and does otherwise |
//! | [`nic`] | a NIC: objects, doorbells, queues; sans-IO, time is an argument |
//! | [`command`] | firmware mailboxes: parsed, executed one at a time, answered with status codes |
//! | `requester`, `responder` | the two halves of a reliable connection |
//! | `receive`, `shared_receive`, `datagram` | receive queues and what needs one; pools of many; unreliable datagrams |
//! | `complete`, `arm` | completions, and the events they raise |
//! | `placement` | when an executed write becomes visible in memory |
//! | [`fault`] | the list of faults and sabotage, and the plan that schedules them |
//! | [`fabric`] | all NICs of a job and the link between them |
//! | [`engine`] | real time: one thread that steps a fabric |
//! | [`wire`] | packets as frames, for NICs that do not share a process |
//! | [`uplink`], `outside` | the way to NICs of other processes |
//! | `window` | how much may be under way to a destination that loses what it cannot hold |
//! | `capture` | what crosses a fabric, as a pcap file |
//! | [`trace`] | WQEs, CQEs and mailboxes as text |
//!
//! The crate knows the wire and the PRM, nothing of hosts or devices.
//!
//! # What is modelled
//!
//! | part | supported |
//! | --- | --- |
//! | queue pairs | RC and UD; RST, INIT, RTR, RTS, ERR; all transitions between them, with `opt_param_mask` |
//! | RC work | NOP, WRITE, WRITE with immediate, SEND, SEND with immediate, READ, the four atomics |
//! | UD work | NOP, SEND, SEND with immediate, behind a full address vector |
//! | atomics | compare and swap, fetch and add of 8 bytes; masked ones of 4 and 8; atomic within one NIC |
//! | lists | gather and scatter of any length that fits, inline data, WQEs that wrap at any segment; fences |
//! | receive queues | of a queue pair (`rq_type` 0), a linked pool that pairs of one domain share (1), none (3) |
//! | RC transport | PSN, MTU 256 to 4096, ACK, NAK, go-back-N, RNR NAK, replay of READs and atomics |
//! | completions | CQEs of 64 bytes, rings and collapsed, overrun or overrun-ignore, flush of both queues, syndromes |
//! | events | completions (armed, solicited, or asked for by a WQE), CQ errors, queue pair errors, port changes |
//! | addresses | RoCE v2 by GID and MAC, InfiniBand by GID or LID; one GID, one port, one event queue |
//! | memory | umems; MTT keys in one; protection domains, rights, bounds, relaxed ordering |
//!
//! Vendor syndromes, and the syndromes of refused commands, are unpublished: the first are those seen in the field,
//! the second this NIC's own.
//!
//! # What is not
//!
//! * UC, XRC, DC, raw Ethernet; cyclic pools; SEND with invalidate, memory windows, UMR; multicast.
//! * The states SQD, SQER and SUSPENDED with their transitions (SQD2RTS, SQERR2RTS): nothing in
//!   Shunt needs them. A datagram queue pair whose send fails goes to ERR.
//! * Adaptive retransmission and the floor under ACK timeouts that some ConnectX have: the retry clock is IBTA's,
//!   4.096 us << `ack_timeout`, the same at each retry. No congestion control, no end-to-end credits.
//! * Scatter to CQE, CQE compression, CQEs of 128 bytes, resizing; BlueFlame contents (the ring is always read).
//! * WQE signatures, end padding, partition keys, service levels, VLANs. A byte count of zero in a pointer segment
//!   (2^31 to hardware) is refused where it is sent from.
//! * Numbers used again: tables of objects grow by some 100 bytes for each that was ever made, and end at 24 bits.
//! * Physical and indirect keys, on-demand paging. The RNR NAK a real page fault may cause is the fault `rnr`.
//! * RoCE v2 over IPv6, ECN and congestion notifications; a UDP source port for each flow (all packets come from the
//!   port they go to); partition keys other than the default. The vendor's own encoding of masked and 32-bit atomics
//!   is not public: [`wire`] has one of its own, for other soft NICs only.
//! * DMA is by process address: a doorbell record is read when a doorbell, an arm request or a packet gives reason to.
//!
//! # One process or several
//!
//! NICs of one [`Fabric`] exchange packets in memory. Processes each have a fabric with their own NICs and join them
//! with [`Fabric::attach`]; nothing else changes: queue pairs are connected by GID and MAC (or LID) as before, and
//! faults are planned in the process that owns the NIC. Packets then cross
//!
//! * as RoCE v1 frames in Unix datagrams, between processes of one user on one machine ([`UnixUplink`]): lossless;
//! * as RoCE v2, UDP port 4791, between any machines ([`RoceUplink`]): BTH to ICRC as hardware sends them, lost as on
//!   any network, and sent again.
//!
//! [`Fabric::capture`] writes what crosses to a pcap file; `tshark -r FILE --disable-protocol rpcordma` reads it.
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

mod agenda;
mod arm;
mod atomic;
mod capture;
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
pub mod profile;
mod psn;
mod qp;
mod receive;
mod requester;
mod responder;
mod shared_receive;
mod timer;
pub mod trace;
pub mod uplink;
mod window;
pub mod wire;

pub use capture::CaptureReport;
pub use command::CommandId;
pub use config::{AtomicCount, LinkLayer, NicConfig, Quirks};
pub use counters::Counters;
pub use cx::WordWatch;
pub use engine::{Clock, Engine, SharedFabric};
pub use fabric::{Fabric, FabricConfig, NicId, RailAt};
pub use fault::{
    Fault, FaultInfo, FaultKind, FaultReport, Injection, ParseFaultError, ParseInjectionError, PeFault,
};
pub use nic::{NicError, SoftNic};
pub use object::Uar;
pub use profile::Profile;
pub use uplink::{RoceOptions, RoceUplink, UnixUplink, Uplink, UplinkCounters, UplinkError};
