//! From a frame to a packet. Bytes are a stranger's until the last check.

use super::opcode::Shape;
use super::parts::{Addresses, BTH_BYTES, ICRC_BYTES, MESSAGE_MAX, PARTITION};
use super::{Frame, Outer, WireError, icrc};
use crate::packet::{
    AtomicOp, AtomicRequest, Body, Datagram, DcSetup, DcStep, ELSEWHERE, MTU_MAX, Packet, Payload, Pool, Reth,
};
use crate::psn;

/// The bit of a partition key that tells full members from limited ones.
const FULL_MEMBER: u16 = 0x8000;

/// Bytes not read yet. The caller made sure that there are enough.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, tail) = self.0.split_first_chunk().expect("lengths were checked for the opcode");
        self.0 = tail;
        *head
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }

    fn reth(&mut self) -> Result<Reth, WireError> {
        let reth = Reth { address: self.u64(), rkey: self.u32(), bytes: self.u32() };
        if reth.bytes > MESSAGE_MAX { Err(WireError::MessageLength(reth.bytes)) } else { Ok(reth) }
    }

    /// Syndrome and message number.
    fn aeth(&mut self) -> (u8, u32) {
        let word = self.u32();
        ((word >> 24) as u8, word & psn::MASK)
    }

    /// Message number of a positive acknowledgement.
    fn ack(&mut self) -> Result<u32, WireError> {
        let (syndrome, msn) = self.aeth();
        if syndrome >> 5 == 0 { Ok(msn) } else { Err(WireError::Syndrome(syndrome)) }
    }

    fn dc(&mut self) -> Result<DcSetup, WireError> {
        let step = match self.u32() {
            0 => DcStep::Connect,
            1 => DcStep::Accept,
            2 => DcStep::Refuse,
            other => return Err(WireError::DcStep(other)),
        };
        let (number, qpn, mtu) = (self.u32(), self.u32() & 0xff_ffff, self.u32());
        Ok(DcSetup { step, number, qpn, mtu, key: self.u64(), mac: self.u64() })
    }

    fn atomic(&mut self, shape: Shape) -> Result<AtomicRequest, WireError> {
        let (address, rkey) = (self.u64(), self.u32());
        let plain = matches!(shape, Shape::CompareSwap | Shape::FetchAdd);
        let bytes = if plain { 8 } else { self.u32() };
        if !matches!(bytes, 4 | 8) {
            return Err(WireError::AtomicBytes(bytes));
        }
        let op = match shape {
            Shape::CompareSwap => {
                let (swap, compare) = (self.u64(), self.u64());
                AtomicOp::CompareSwap { compare, swap, compare_mask: u64::MAX, swap_mask: u64::MAX }
            }
            Shape::MaskedCompareSwap => AtomicOp::CompareSwap {
                compare: self.u64(),
                swap: self.u64(),
                compare_mask: self.u64(),
                swap_mask: self.u64(),
            },
            Shape::FetchAdd => AtomicOp::FetchAdd { add: self.u64(), boundary: 0 },
            _ => AtomicOp::FetchAdd { add: self.u64(), boundary: self.u64() },
        };
        Ok(AtomicRequest { address, rkey, bytes, op })
    }
}

/// Reads a frame. Whatever the bytes are, the answer is a frame or an error.
pub fn decode(frame: &[u8]) -> Result<Frame, WireError> {
    decode_into(frame, &mut Pool::default())
}

/// Reads a frame; its payload lies in a buffer of the pool.
pub fn decode_into(frame: &[u8], pool: &mut Pool) -> Result<Frame, WireError> {
    let (outer, addresses) = Outer::read(frame)?;
    judge_checksum(frame, outer)?;
    let mut rest = Rest(&frame[outer.bytes()..]);
    let [code, flags] = rest.take();
    let partition = u16::from_be_bytes(rest.take());
    let (qpn, sequence) = (rest.u32() & 0xff_ffff, rest.u32());
    if flags & 0x0f != 0 {
        return Err(WireError::TransportVersion(flags & 0x0f));
    }
    if partition | FULL_MEMBER != PARTITION {
        return Err(WireError::PartitionKey(partition));
    }
    let shape = Shape::from_code(code).ok_or(WireError::Opcode(code))?;
    let least = outer.bytes() + BTH_BYTES + shape.header_bytes() + ICRC_BYTES;
    if frame.len() < least {
        return Err(WireError::Short { met: frame.len(), least });
    }
    let (bytes, pad) = (frame.len() - least, (flags >> 4 & 3) as usize);
    judge_length(shape, bytes, pad)?;
    let payload = &frame[frame.len() - ICRC_BYTES - bytes..][..bytes - pad];
    let packet = Packet {
        from: ELSEWHERE,
        to: ELSEWHERE,
        source: addresses.source,
        qpn,
        psn: sequence & psn::MASK,
        ack_request: sequence >> 31 == 1,
        solicited: flags >> 7 == 1,
        body: body(shape, &mut rest, payload, &addresses, pool)?,
    };
    Ok(Frame { addresses, outer, packet })
}

fn judge_checksum(frame: &[u8], outer: Outer) -> Result<(), WireError> {
    let (right, tail) = (icrc::of_frame(frame, outer), &frame[frame.len() - ICRC_BYTES..]);
    if tail != right {
        let met = tail.iter().fold(0, |met, byte| met << 8 | *byte as u32);
        return Err(WireError::Icrc { met, right: u32::from_be_bytes(right) });
    }
    Ok(())
}

/// Judges the bytes between the extended headers and the checksum.
fn judge_length(shape: Shape, bytes: usize, pad: usize) -> Result<(), WireError> {
    let opcode = shape.code();
    if pad > bytes {
        return Err(WireError::Padding { opcode, pad, bytes });
    }
    if !shape.has_payload() && bytes > 0 {
        return Err(WireError::Unwanted { opcode, bytes });
    }
    if bytes - pad > MTU_MAX || !bytes.is_multiple_of(4) {
        return Err(WireError::Payload(bytes));
    }
    Ok(())
}

fn body(
    shape: Shape,
    rest: &mut Rest<'_>,
    bytes: &[u8],
    addresses: &Addresses,
    pool: &mut Pool,
) -> Result<Body, WireError> {
    let mut fill = || -> Payload {
        let mut payload = pool.take(bytes.len());
        payload.bytes_mut().copy_from_slice(bytes);
        payload
    };
    Ok(match shape {
        Shape::Write { part, imm } => {
            let reth = if part.starts() { rest.reth()? } else { Reth::default() };
            match imm {
                false => Body::Write { part, reth, payload: fill() },
                true => Body::WriteImm { part, reth, imm: rest.u32(), payload: fill() },
            }
        }
        Shape::Send { part, imm } => Body::Send { part, imm: imm.then(|| rest.u32()), payload: fill() },
        Shape::Datagram { imm } => {
            let (qkey, source_qpn) = (rest.u32(), rest.u32() & 0xff_ffff);
            let imm = imm.then(|| rest.u32());
            let destination = addresses.destination;
            Body::Datagram(Box::new(Datagram { destination, source_qpn, qkey, imm, payload: fill() }))
        }
        Shape::Dc => Body::Dc(Box::new(rest.dc()?)),
        Shape::ReadRequest => Body::ReadRequest(rest.reth()?),
        Shape::ReadResponse(part) => {
            let msn = if shape.header_bytes() == 0 { 0 } else { rest.ack()? };
            Body::ReadResponse { part, msn, payload: fill() }
        }
        Shape::Ack => match rest.aeth() {
            (syndrome, msn) if matches!(syndrome >> 5, 0 | 1 | 3) => Body::Ack { syndrome, msn },
            (syndrome, _) => return Err(WireError::Syndrome(syndrome)),
        },
        Shape::AtomicAck => Body::AtomicAck { msn: rest.ack()?, original: rest.u64() },
        _ => Body::Atomic(rest.atomic(shape)?),
    })
}
