//! A ConnectX in software.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`config`] | one NIC's identity, latencies and quirks |
//! | [`profile`] | what one kind of device refuses, reports and does otherwise |
//! | [`nic`] | a NIC: how it is driven; sans-IO, time is an argument |
//! | [`command`], `status` | firmware mailboxes: parsed, executed one at a time, answered with status codes |
//! | `hca` | the data path: objects and units, and the steps that move work through them |
//! | `object_table`, `doorbell_page` | objects by number; doorbell registers, and who rings in which page |
//! | `qp`, `endpoint` | a queue pair: two halves, and what they share |
//! | `requester` | the half that sends, of `send_queue`, `fetch`, `in_flight`, `request`, `retry`, `window_share` |
//! | `responder` | the half that answers, of `arriving`, `answers`, `receive_queue`, `datagram` |
//! | `units` | what the queue pairs of a NIC share: memory, placement, completions, events, timers, turns |
//! | `shared_receive`, `scatter_list` | pools of receive WQEs; where a message may land |
//! | `completion_queue`, `cq_arm` | completions, and the events they raise |
//! | `memory`, `dma`, `atomic` | umems and keys; gather and scatter lists; read, change and write |
//! | `placement` | when an executed write becomes visible in memory |
//! | `transmit_scheduler`, `port` | whose turn it is to send, and how fast; the link |
//! | [`fault`] | the list of faults and sabotage, and the plan that schedules them |
//! | [`fabric`], `network` | all NICs of a job and the plan of faults; what carries packets between them |
//! | `link`, `step_context`, `scheduler` | packets on their way; what NICs share in a step; who has something due |
//! | [`engine`] | real time: one thread that steps a fabric |
//! | [`wire`] | packets as frames, for NICs that do not share a process |
//! | [`uplink`], `uplink_gateway`, `remote_nics` | the way to NICs of other processes, and what is known of them |
//! | `congestion` | how much may be under way to a destination that loses what it cannot hold |
//! | `capture` | what crosses a fabric, as a pcap file |
//! | [`trace`] | WQEs, CQEs and mailboxes as text |
//!
//! The crate knows the wire and the PRM, nothing of hosts or devices. Each type owns its state. A queue pair at work
//! has the units of its NIC and nothing of other queue pairs. Arrows between modules point one way: `fabric`,
//! `network`, `nic`, `command`, `hca`, `qp`, its halves, `endpoint`, `units`, and what those stand on.
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

mod answers;
mod arriving;
mod atomic;
mod capture;
pub mod command;
mod completion_queue;
pub mod config;
mod congestion;
mod counters;
mod cq_arm;
mod datagram;
mod dma;
mod doorbell_page;
mod endpoint;
pub mod engine;
mod event;
pub mod fabric;
pub mod fault;
mod fetch;
mod hca;
mod in_flight;
mod link;
mod memory;
mod network;
pub mod nic;
mod object_table;
pub mod packet;
mod placement;
mod port;
pub mod profile;
mod psn;
mod qp;
mod receive_queue;
mod remote_nics;
mod request;
mod requester;
mod responder;
mod retry;
mod scatter_list;
mod scheduler;
mod send_queue;
mod shared_receive;
mod status;
mod step_context;
mod timer;
pub mod trace;
mod transmit_scheduler;
mod units;
pub mod uplink;
mod uplink_gateway;
mod window_share;
pub mod wire;

pub use capture::CaptureReport;
pub use command::CommandId;
pub use config::{AtomicCount, LinkLayer, NicConfig, Quirks};
pub use counters::Counters;
pub use doorbell_page::Uar;
pub use engine::{Clock, Engine, SharedFabric};
pub use fabric::{Fabric, FabricConfig, NicId};
pub use fault::{
    Fault, FaultInfo, FaultKind, FaultReport, Injection, ParseFaultError, ParseInjectionError, PeFault,
    RailAt,
};
pub use nic::{NicError, SoftNic};
pub use profile::Profile;
pub use step_context::WordWatch;
pub use uplink::{RoceOptions, RoceUplink, UnixUplink, Uplink, UplinkCounters, UplinkError};
