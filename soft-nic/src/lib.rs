//! A ConnectX in software.
//!
//! The NICs of a job, and what is between them:
//!
//! | module | what it is |
//! | --- | --- |
//! | [`fabric`], `network` | all NICs of a job and the plan of faults; what carries packets between them |
//! | `link`, `scheduler` | packets on their way, and what faults of ports do to them; who has something due |
//! | `uplink_gateway` | frames to and from NICs of other processes |
//! | [`engine`] | real time: one thread that steps a fabric |
//! | `srd` | a soft EFA behind the port of a NIC |
//! | `capture` | what crosses a fabric, as a pcap file |
//!
//! It stands on four crates, whose modules have names here as well:
//!
//! | crate | what it is | modules here |
//! | --- | --- | --- |
//! | [`shunt_soft_hca`] | one NIC, sans-IO | [`nic`], [`command`], [`config`], [`profile`], [`trace`] |
//! | [`shunt_soft_wire`] | what NICs exchange, and the way out of a process | [`packet`], [`wire`], [`uplink`] |
//! | [`shunt_soft_srd`] | one soft EFA, sans-IO | [`soft_srd`] |
//! | [`shunt_soft_fault`] | faults and sabotage: the list, its grammar, plans, hits | [`fault`] |
//!
//! They know the wire and the PRM, nothing of hosts or devices. A NIC knows no other one and no plan: the fabric hands
//! it packets and puts faults on it. Arrows between modules point one way: `engine`, `fabric`, `network`, and what
//! those stand on.
//!
//! # What is modelled
//!
//! | part | supported |
//! | --- | --- |
//! | queue pairs | RC and UD; RST, INIT, RTR, RTS, ERR; all transitions between them, with `opt_param_mask` |
//! | DC | initiators and targets; work as of RC, behind a full address vector; one path at a time |
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
//! * UC, XRC, raw Ethernet; of DC: streams, half address vectors, DRAIN_DCT, the event of a wrong key.
//! * Cyclic pools; SEND with invalidate, memory windows, UMR; multicast.
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

mod capture;
pub mod engine;
pub mod fabric;
mod link;
mod network;
mod scheduler;
mod srd;
mod uplink_gateway;

pub use capture::CaptureReport;
pub use engine::{Clock, Engine, SharedFabric};
pub use fabric::{Fabric, FabricConfig, NicId};
pub use shunt_soft_fault as fault;
pub use shunt_soft_fault::{
    Fault, FaultInfo, FaultKind, FaultReport, Injection, ParseFaultError, ParseInjectionError, PeFault,
    RailAt,
};
pub use shunt_soft_hca::command::CommandId;
pub use shunt_soft_hca::config::{AtomicCount, LinkLayer, NicConfig, Quirks};
pub use shunt_soft_hca::nic::{NicError, SoftNic};
pub use shunt_soft_hca::profile::Profile;
pub use shunt_soft_hca::step_context::WordWatch;
pub use shunt_soft_hca::{Counters, Uar, command, config, nic, profile, trace};
pub use shunt_soft_srd as soft_srd;
pub use shunt_soft_wire::frame as wire;
pub use shunt_soft_wire::uplink::{RoceOptions, RoceUplink, UnixUplink, Uplink, UplinkCounters, UplinkError};
pub use shunt_soft_wire::{packet, uplink};
pub use srd::SrdConfig;
