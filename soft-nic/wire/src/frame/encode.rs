//! From a packet to a frame.

use super::opcode::Shape;
use super::outer::OUTER_MAX;
use super::parts::{Addresses, BTH_BYTES, EXTENDED_MAX, ICRC_BYTES, PARTITION};
use super::{Outer, icrc};
use crate::packet::{AtomicOp, AtomicRequest, Body, DcSetup, Packet, Reth, aeth};
use crate::psn;

/// Migration state: migrated.
const MIGRATED: u8 = 0x40;
/// Solicited event.
const SOLICITED: u8 = 0x80;

/// The transport headers of one frame while they are written.
struct Head {
    bytes: [u8; BTH_BYTES + EXTENDED_MAX],
    len: usize,
}

impl Head {
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.len..self.len + N].copy_from_slice(&bytes);
        self.len += N;
    }

    fn aeth(&mut self, syndrome: u8, msn: u32) {
        self.put(((syndrome as u32) << 24 | msn & psn::MASK).to_be_bytes());
    }

    fn reth(&mut self, reth: &Reth) {
        self.put(reth.address.to_be_bytes());
        self.put(reth.rkey.to_be_bytes());
        self.put(reth.bytes.to_be_bytes());
    }

    fn operands<const N: usize>(&mut self, operands: [u64; N]) {
        for operand in operands {
            self.put(operand.to_be_bytes());
        }
    }

    fn atomic(&mut self, request: &AtomicRequest, shape: Shape) {
        self.put(request.address.to_be_bytes());
        self.put(request.rkey.to_be_bytes());
        match (shape, request.op) {
            (Shape::CompareSwap, AtomicOp::CompareSwap { compare, swap, .. }) => {
                self.put(swap.to_be_bytes());
                self.put(compare.to_be_bytes());
            }
            (_, AtomicOp::CompareSwap { compare, swap, compare_mask, swap_mask }) => {
                self.put(request.bytes.to_be_bytes());
                self.operands([compare, swap, compare_mask, swap_mask]);
            }
            (Shape::FetchAdd, AtomicOp::FetchAdd { add, .. }) => {
                self.put(add.to_be_bytes());
                self.put([0; 8]);
            }
            (_, AtomicOp::FetchAdd { add, boundary }) => {
                self.put(request.bytes.to_be_bytes());
                self.operands([add, boundary]);
            }
        }
    }

    fn dc(&mut self, setup: &DcSetup) {
        for word in [setup.step as u32, setup.number, setup.qpn & 0xff_ffff, setup.mtu] {
            self.put(word.to_be_bytes());
        }
        self.operands([setup.key, setup.mac]);
    }

    /// The base transport header of a packet with `pad` bytes of padding.
    fn base(&mut self, packet: &Packet, shape: Shape, pad: usize) {
        let solicited = if packet.solicited { SOLICITED } else { 0 };
        self.put([shape.code(), solicited | MIGRATED | (pad as u8) << 4]);
        self.put(PARTITION.to_be_bytes());
        self.put((packet.qpn & 0xff_ffff).to_be_bytes());
        self.put(((packet.ack_request as u32) << 31 | packet.psn & psn::MASK).to_be_bytes());
    }

    /// The extended headers.
    fn extended(&mut self, body: &Body, shape: Shape) {
        match body {
            Body::Write { part, reth, .. } if part.starts() => self.reth(reth),
            Body::Write { .. } => {}
            Body::WriteImm { part, reth, imm, .. } => {
                if part.starts() {
                    self.reth(reth);
                }
                self.put(imm.to_be_bytes());
            }
            Body::Send { imm, .. } => {
                if let (Some(imm), Shape::Send { imm: true, .. }) = (imm, shape) {
                    self.put(imm.to_be_bytes());
                }
            }
            Body::Datagram(datagram) => {
                self.put(datagram.qkey.to_be_bytes());
                self.put((datagram.source_qpn & 0xff_ffff).to_be_bytes());
                if let Some(imm) = datagram.imm {
                    self.put(imm.to_be_bytes());
                }
            }
            Body::Dc(setup) => self.dc(setup),
            Body::ReadRequest(reth) => self.reth(reth),
            Body::Atomic(request) => self.atomic(request, shape),
            Body::ReadResponse { .. } if shape.header_bytes() == 0 => {}
            Body::ReadResponse { msn, .. } => self.aeth(aeth::ACK, *msn),
            Body::Ack { syndrome, msn } => self.aeth(*syndrome, *msn),
            Body::AtomicAck { msn, original } => {
                self.aeth(aeth::ACK, *msn);
                self.put(original.to_be_bytes());
            }
        }
    }
}

/// Appends a packet as a frame. Numbers wider than their field lose their upper bits, as on a wire.
pub fn encode(packet: &Packet, addresses: &Addresses, outer: Outer, out: &mut Vec<u8>) {
    let shape = Shape::of(&packet.body);
    let payload = packet.body.payload().map_or(&[][..], |payload| payload.bytes());
    let pad = payload.len().wrapping_neg() & 3;
    let behind = BTH_BYTES + shape.header_bytes() + payload.len() + pad + ICRC_BYTES;
    let mut head = Head { bytes: [0; _], len: 0 };
    head.base(packet, shape, pad);
    head.extended(&packet.body, shape);
    let start = out.len();
    out.reserve(OUTER_MAX + behind);
    out.extend_from_slice(&outer.write(addresses, behind)[..outer.bytes()]);
    out.extend_from_slice(&head.bytes[..head.len]);
    out.extend_from_slice(payload);
    out.extend_from_slice(&[0; 3 + ICRC_BYTES][..pad + ICRC_BYTES]);
    let icrc = icrc::of_frame(&out[start..], outer);
    let end = out.len();
    out[end - ICRC_BYTES..].copy_from_slice(&icrc);
}
