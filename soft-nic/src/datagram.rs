//! Unreliable datagrams, both halves: sent once and complete at once; landed whole, or lost in silence.

use crate::cx::Cx;
use crate::event;
use crate::nic::SoftNic;
use crate::packet::{Body, Datagram, Packet};
use crate::psn;
use crate::qp::{Letter, Qp, Task};
use crate::receive::Received;
use crate::requester::LOCAL_KEY;
use crate::wire::{self, HOP_LIMIT};
use shunt_layout::mlx5::cqe::{GRH_FLAG, Syndrome, opcode};
use shunt_layout::mlx5::eqe::event as events;
use shunt_layout::mlx5::wqe::AddressVector;
use std::net::Ipv4Addr;

/// Bytes in front of the data of every received datagram.
const GRH_BYTES: usize = 40;
/// BTH, DETH and ICRC.
const TRANSPORT_BYTES: usize = 12 + 8 + 4;

impl SoftNic {
    /// Sends the datagram of entry `at`, and completes it. False if its data cannot be read: the entry then
    /// carries the error.
    pub(crate) fn send_datagram(&mut self, qp: &mut Qp, at: usize, cx: &mut Cx) -> bool {
        let work = &qp.requester.work[at];
        let Task::Datagram(letter) = &work.task else { unreachable!("judged by the caller") };
        let Some(payload) = self.gather_message(qp, &letter.data, 0, work.bytes, cx) else {
            qp.requester.work[at].error = Some(LOCAL_KEY);
            return false;
        };
        let Letter { to, imm, .. } = **letter;
        let destination = self.destination(&to);
        let mac = to.rmac.iter().fold(0, |mac, byte| mac << 8 | *byte as u64);
        // A key with its top bit set stands for the sender's own.
        let qkey = if to.qkey >> 31 != 0 { qp.qkey } else { to.qkey };
        let datagram = Datagram { destination, source_qpn: qp.qpn, qkey, imm, payload };
        self.hand_over(Packet {
            from: self.number,
            to: cx.route(destination, mac),
            source: self.source_address(destination),
            qpn: to.qpn,
            psn: qp.requester.send_psn,
            ack_request: false,
            solicited: work.solicited,
            body: Body::Datagram(Box::new(datagram)),
        });
        let requester = &mut qp.requester;
        requester.send_psn = psn::add(requester.send_psn, 1);
        requester.oldest = requester.send_psn;
        requester.cursor += 1;
        self.retire(qp, cx);
        true
    }

    /// The address an address vector names.
    fn destination(&self, to: &AddressVector) -> u128 {
        let by_lid = self.config.link_layer == crate::LinkLayer::InfiniBand && !to.grh;
        if by_lid { to.rlid as u128 } else { u128::from_be_bytes(to.rgid) }
    }

    /// Something reached a datagram queue pair.
    pub(crate) fn datagram_arrived(&mut self, qp: &mut Qp, packet: Packet, cx: &mut Cx) {
        let wanted = match &packet.body {
            Body::Datagram(datagram) => {
                datagram.qkey == qp.qkey && datagram.payload.bytes().len() <= qp.mtu as usize
            }
            _ => false,
        };
        if !wanted {
            return self.drop_packet(packet, cx);
        }
        match self.open_receive(qp, cx.now) {
            Ok(true) => {}
            Ok(false) => return self.drop_packet(packet, cx),
            Err(error) => {
                packet.recycle(&mut cx.pool);
                return self.datagram_failed(qp, error, cx);
            }
        }
        let (source, solicited) = (packet.source, packet.solicited);
        let Body::Datagram(datagram) = packet.body else { unreachable!("judged above") };
        let Datagram { destination, source_qpn, imm, payload, .. } = *datagram;
        let bytes = payload.bytes().len();
        let mut header = cx.pool.take(GRH_BYTES);
        let sent = TRANSPORT_BYTES + 4 * imm.is_some() as usize + bytes.next_multiple_of(4);
        header.bytes_mut().copy_from_slice(&route_header(source, destination, sent));
        let landed = self
            .land_received(qp, 0, header, cx)
            .and_then(|()| self.land_received(qp, GRH_BYTES as u64, payload, cx));
        if let Err(error) = landed {
            return self.datagram_failed(qp, error, cx);
        }
        self.counters.messages += 1;
        let by_lid = destination >> 16 == 0;
        let received = Received {
            opcode: if imm.is_some() { opcode::RESP_SEND_IMM } else { opcode::RESP_SEND },
            imm: imm.unwrap_or(0),
            bytes: (GRH_BYTES + bytes) as u32,
            solicited,
            origin: source_qpn | if by_lid { 0 } else { GRH_FLAG },
            source_lid: if by_lid { source as u16 } else { 0 },
        };
        self.received(qp, received, cx);
    }

    /// A datagram did not fit its buffer, or no key allows the buffer: a local error, nobody else is told.
    fn datagram_failed(&mut self, qp: &mut Qp, error: (Syndrome, u8), cx: &mut Cx) {
        self.receive_failed(qp, error, cx);
        self.enter_error(qp, cx.now);
        self.raise(cx.now, event::object(events::WQ_CATASTROPHIC, qp.qpn));
    }
}

/// What lies in front of a datagram of `sent` bytes: a GRH; between IPv4-mapped addresses 20 bytes of nothing and an
/// IPv4 header; nothing at all where LIDs were enough.
fn route_header(source: u128, destination: u128, sent: usize) -> [u8; GRH_BYTES] {
    let mut header = [0; GRH_BYTES];
    if destination >> 16 == 0 {
        return header;
    }
    let mapped = |address: u128| address >> 32 == 0xffff;
    if mapped(source) && mapped(destination) {
        let [source, destination] = [source, destination].map(|gid| Ipv4Addr::from_bits(gid as u32));
        header[20..].copy_from_slice(&wire::ipv4_header(source, destination, 8 + sent));
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
