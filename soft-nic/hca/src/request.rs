//! Request packets: what a WQE asks for, cut into the pieces that the path takes.

use crate::endpoint::Endpoint;
use crate::fetch::{Task, Work};
use crate::memory::Memory;
use shunt_soft_wire::packet::{Body, Part, Payload, Pool, Reth};
use shunt_soft_wire::psn;

/// A request packet in this many asks for an acknowledgement, besides the last of each message.
const ACK_EVERY: u32 = 64;

/// One request packet.
pub(crate) struct Request {
    pub(crate) body: Body,
    /// It asks for an acknowledgement.
    pub(crate) ack: bool,
    pub(crate) solicited: bool,
    /// PSN of the packet behind it.
    pub(crate) next_psn: u32,
    /// The WQE is sent with it.
    pub(crate) whole: bool,
}

impl Request {
    /// Builds the packet of a WQE that has this PSN. `None` if no key allows its data to be read.
    #[inline(always)] // on the way of every packet
    pub(crate) fn build(
        work: &Work,
        at: u32,
        qp: &Endpoint,
        memory: &Memory,
        pool: &mut Pool,
    ) -> Option<Self> {
        let index = psn::distance(at, work.first_psn) as u32;
        let offset = index * qp.mtu;
        let last = index + 1 == work.packets;
        let piece = Self {
            body: Body::ReadRequest(Reth::default()),
            ack: last || at.is_multiple_of(ACK_EVERY),
            solicited: false,
            next_psn: psn::add(at, 1),
            whole: last,
        };
        Some(match &work.task {
            Task::Nothing | Task::Datagram(_) => unreachable!("no request of a connection"),
            Task::Write { address, rkey, data } => {
                let bytes = (work.bytes - offset).min(qp.mtu);
                let payload = qp.owner().gather(memory, data, offset, bytes, pool)?;
                let part = Part::of(index, work.packets);
                let reth = Reth { address: *address, rkey: *rkey, bytes: work.bytes };
                Self { body: Body::Write { part, reth, payload }, ..piece }
            }
            Task::WriteImm { data, .. } | Task::Send { data, .. } => {
                let bytes = (work.bytes - offset).min(qp.mtu);
                let payload = qp.owner().gather_message(memory, data, offset, bytes, pool)?;
                let body = message(work, Part::of(index, work.packets), payload);
                Self { body, solicited: last && work.solicited, ..piece }
            }
            Task::Read { address, rkey, .. } => {
                let address = address.wrapping_add(offset as u64);
                let body = Body::ReadRequest(Reth { address, rkey: *rkey, bytes: work.bytes - offset });
                Self { body, ack: true, next_psn: work.end_psn(), whole: true, ..piece }
            }
            Task::Atomic { request, .. } => {
                Self { body: Body::Atomic(*request), ack: true, whole: true, ..piece }
            }
        })
    }
}

/// A packet of a SEND or of a WRITE with immediate.
fn message(work: &Work, part: Part, payload: Payload) -> Body {
    match work.task {
        Task::Send { imm, .. } => Body::Send { part, imm: imm.filter(|_| part.ends()), payload },
        Task::WriteImm { address, rkey, imm, .. } => {
            let reth = Reth { address, rkey, bytes: work.bytes };
            match part.ends() {
                true => Body::WriteImm { part, reth, imm, payload },
                false => Body::Write { part, reth, payload },
            }
        }
        _ => unreachable!("only these are built here"),
    }
}
