//! Unreliable datagrams, both halves: sent once and complete at once; landed whole, or lost in silence.

use crate::completion_queue::Received;
use crate::endpoint::{Endpoint, Remote};
use crate::event;
use crate::fetch::{Letter, Task, Work};
use crate::receive_queue::ReceiveQueue;
use crate::responder::Responder;
use crate::scatter_list::Refused;
use crate::step_context::StepContext;
use crate::units::Units;
use shunt_layout::mlx5::cqe::{GRH_FLAG, OVER_UDP_IPV4, opcode};
use shunt_layout::mlx5::eqe::event as events;
use shunt_soft_wire::frame::{self, HOP_LIMIT};
use shunt_soft_wire::packet::{Body, Datagram, Packet};
use std::net::Ipv4Addr;

/// Bytes in front of the data of every received datagram.
const GRH_BYTES: usize = 40;
/// BTH, DETH and ICRC.
const TRANSPORT_BYTES: usize = 12 + 8 + 4;

/// The packet of a datagram WQE. `None` if no key allows its data to be read.
pub(crate) fn packet(
    work: &Work,
    psn: u32,
    qp: &Endpoint,
    units: &Units,
    cx: &mut StepContext,
) -> Option<Packet> {
    let Task::Datagram(letter) = &work.task else { unreachable!("judged by the caller") };
    let payload = qp.owner().gather_message(&units.memory, &letter.data, 0, work.bytes, &mut cx.pool)?;
    let Letter { to, imm, .. } = **letter;
    let Remote { qpn, address: destination, mac, .. } = Remote::of(&to, units.config.link_layer);
    // A key with its top bit set stands for the sender's own.
    let qkey = if to.qkey >> 31 != 0 { qp.qkey } else { to.qkey };
    let datagram = Datagram { destination, source_qpn: qp.qpn, qkey, imm, payload };
    Some(Packet {
        from: units.number,
        to: cx.route(destination, mac),
        source: units.config.source_address(destination),
        qpn,
        psn,
        ack_request: false,
        solicited: work.solicited,
        body: Body::Datagram(Box::new(datagram)),
    })
}

/// Something reached a datagram queue pair.
pub(crate) fn arrived(
    packet: Packet,
    responder: &mut Responder,
    qp: &mut Endpoint,
    units: &mut Units,
    cx: &mut StepContext,
) {
    let wanted = match &packet.body {
        Body::Datagram(datagram) => {
            datagram.qkey == qp.qkey && datagram.payload.bytes().len() <= qp.mtu as usize
        }
        _ => false,
    };
    let Some(queue) = responder.receive.as_mut().filter(|_| wanted) else {
        return units.drop_packet(packet, cx);
    };
    match queue.open(units, cx.now) {
        Ok(true) => {}
        Ok(false) => return units.drop_packet(packet, cx),
        Err(error) => {
            packet.recycle(&mut cx.pool);
            return failed(error, responder, qp, units, cx.now);
        }
    }
    match land(packet, queue, qp, units, cx) {
        Ok(received) => {
            units.counters.messages += 1;
            responder.received(received, qp, units, cx);
        }
        Err(error) => failed(error, responder, qp, units, cx.now),
    }
}

/// Puts a datagram and what lies in front of it into the receive WQE that is open.
fn land(
    packet: Packet,
    queue: &mut ReceiveQueue,
    qp: &Endpoint,
    units: &mut Units,
    cx: &mut StepContext,
) -> Result<Received, Refused> {
    let (source, solicited) = (packet.source, packet.solicited);
    let Body::Datagram(datagram) = packet.body else { unreachable!("judged by the caller") };
    let Datagram { destination, source_qpn, imm, payload, .. } = *datagram;
    let bytes = payload.bytes().len();
    let mut header = cx.pool.take(GRH_BYTES);
    let sent = TRANSPORT_BYTES + 4 * imm.is_some() as usize + bytes.next_multiple_of(4);
    header.bytes_mut().copy_from_slice(&route_header(source, destination, sent));
    queue.land(0, header, qp, units, cx)?;
    queue.land(GRH_BYTES as u64, payload, qp, units, cx)?;
    let by_lid = destination >> 16 == 0;
    // A program finds out from these bits how to read what lies in front of the data.
    let header_kind = match (by_lid, are_ipv4(source, destination)) {
        (true, _) => 0,
        (false, true) => GRH_FLAG | OVER_UDP_IPV4,
        (false, false) => GRH_FLAG,
    };
    Ok(Received {
        opcode: if imm.is_some() { opcode::RESP_SEND_IMM } else { opcode::RESP_SEND },
        imm: imm.unwrap_or(0),
        bytes: (GRH_BYTES + bytes) as u32,
        solicited,
        origin: source_qpn | header_kind,
        source_lid: if by_lid { source as u16 } else { 0 },
    })
}

/// A datagram did not fit its buffer, or no key allows the buffer: a local error, nobody else is told.
fn failed(error: Refused, responder: &mut Responder, qp: &mut Endpoint, units: &mut Units, now: u64) {
    if let Some(queue) = &mut responder.receive {
        queue.fail(error, qp, units, now);
    }
    qp.enter_error(units, now);
    responder.silence();
    units.raise(now, event::object(events::WQ_CATASTROPHIC, qp.qpn));
}

/// What lies in front of a datagram of `sent` bytes: a GRH; between IPv4-mapped addresses 20 bytes of nothing and an
/// IPv4 header; nothing at all where LIDs were enough.
fn route_header(source: u128, destination: u128, sent: usize) -> [u8; GRH_BYTES] {
    let mut header = [0; GRH_BYTES];
    if destination >> 16 == 0 {
        return header;
    }
    if are_ipv4(source, destination) {
        let [source, destination] = [source, destination].map(|gid| Ipv4Addr::from_bits(gid as u32));
        header[20..].copy_from_slice(&frame::ipv4_header(source, destination, 8 + sent));
        return header;
    }
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(sent as u16).to_be_bytes());
    header[6] = 0x1b; // InfiniBand transport
    header[7] = HOP_LIMIT;
    header[8..24].copy_from_slice(&source.to_be_bytes());
    header[24..40].copy_from_slice(&destination.to_be_bytes());
    header
}

/// True of IPv4-mapped addresses.
fn are_ipv4(source: u128, destination: u128) -> bool {
    [source, destination].iter().all(|address| address >> 32 == 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_headers() {
        let (a, b) = (0xffff_0a00_0001_u128, 0xffff_0a00_0002_u128);
        let header = route_header(a, b, 36);
        assert_eq!(header[..20], [0; 20]);
        // 20 + 8 + 36 bytes; the sum over a right header is all ones.
        assert_eq!(header[20..30], [0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 17]);
        let sum: u32 =
            header[20..].chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]) as u32).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(header[32..40], [10, 0, 0, 1, 10, 0, 0, 2]);
        let header = route_header(0xfe80 << 112 | 1, 0xfe80 << 112 | 2, 36);
        assert_eq!(header[..9], [0x60, 0, 0, 0, 0, 36, 0x1b, 64, 0xfe]);
        assert_eq!((header[23], header[39]), (1, 2));
        assert_eq!(route_header(3, 4, 36), [0; 40]);
    }
}
