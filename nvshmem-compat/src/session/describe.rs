//! A channel's fault in words: peer, path, syndrome, unfinished tickets, and how each of its paths stands.

use super::Session;
use crate::failure::{Broken, Failure};
use shunt_device::{Fault, FaultKind};
use shunt_host::agent::words::Place;
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::state::{CauseKind, PathState};
use std::fmt::Write;

fn syndrome_text(raw: u32) -> String {
    let syndrome = Syndrome(raw as u8);
    match raw >> 8 & 0xff {
        0 => format!("syndrome {:#04x} {}", syndrome.0, syndrome.meaning()),
        vendor => format!("syndrome {:#04x} {}, vendor {vendor:#04x}", syndrome.0, syndrome.meaning()),
    }
}

const fn what(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Completion => "an error completion",
        FaultKind::Overdue => "no completion in time",
        FaultKind::PeerLost => "every path to the peer is dead",
        FaultKind::BadAddress => "an address outside the heap",
        FaultKind::FenceUnproven => "an old path could not be fenced",
        FaultKind::Uncertain => "it is not known whether an atomic was applied, see shunt_nvshmem_resolve",
        FaultKind::BadResolution => "an answer about an operation that nobody asked about",
    }
}

/// What would have helped a job whose fault tolerance was turned off.
const OFF: &str = "; fault tolerance is off, NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE=1 goes on by another path \
                   where there is one";

impl Session {
    /// The failure that a fault of a channel is.
    pub(crate) fn channel_failure(&self, fault: &Fault) -> Failure {
        let (me, peer, channel) = (self.me(), fault.peer, fault.channel);
        let active = self.words().read_row(Place { peer, channel, slot: fault.slot });
        let (local, remote) = (active.identity.local_rail, active.identity.remote_rail);
        let mut text = format!(
            "peer {peer} on channel {channel}, path {me}.{local}>{peer}.{remote}: {}; ticket {}, {} operations \
             unfinished; first cause {}, {}",
            what(fault.kind),
            fault.at.0,
            fault.unfinished,
            fault.cause.name(),
            syndrome_text(fault.syndrome)
        );
        if fault.kind == FaultKind::Uncertain {
            let _ = write!(text, "; {:?} at heap offset {:#x}", fault.operation(), fault.address);
        }
        if self.words().root().policy.fault_tolerance == 0 {
            text.push_str(OFF);
        }
        if let Some(gone) = self.control().describe(peer) {
            let _ = write!(text, "; {gone}");
        }
        for slot in 0..self.words().root().slots {
            let row = self.words().read_row(Place { peer, channel, slot });
            let state = PathState::from_raw(row.state);
            if state != PathState::Absent {
                let cause = CauseKind::from_raw(row.first_cause >> 16);
                let (local, remote) = (row.identity.local_rail, row.identity.remote_rail);
                let syndrome = syndrome_text(row.first_cause & 0xffff);
                let _ = write!(
                    text,
                    "\n    {me}.{local}>{peer}.{remote}  {state:?}  cause {}  {syndrome}",
                    cause.name()
                );
            }
        }
        Failure::Channel(Box::new(Broken {
            peer,
            channel,
            rails: (local, remote),
            ticket: fault.at.0,
            unfinished: fault.unfinished,
            syndrome: fault.syndrome,
            uncertain: fault.kind == FaultKind::Uncertain,
            text,
        }))
    }

    /// Peers whose channels carry nothing any more.
    pub(crate) fn lost_peers(&self) -> Vec<u32> {
        (0..self.pes()).filter(|pe| *pe != self.me() && self.channel(*pe).alive().is_err()).collect()
    }

    /// A wait that was over.
    pub(crate) fn overdue(&self, what: String, waited_ns: u64) -> Failure {
        let lost = match self.lost_peers() {
            lost if lost.is_empty() => String::new(),
            lost => format!("; peers that are lost: {lost:?}"),
        };
        Failure::Overdue { what, waited_ms: waited_ns / 1_000_000, lost }
    }
}
