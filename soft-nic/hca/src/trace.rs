//! WQEs, CQEs and mailboxes as text, for messages of failing tests.

use shunt_layout::mlx5::cqe::{
    BYTE_COUNT_OFFSET, CQE_BYTES, IMMEDIATE_OFFSET, OPCODE_QPN_OFFSET, SYNDROME_OFFSET, Syndrome,
    TAIL_OFFSET, Tail, VENDOR_SYNDROME_OFFSET, opcode,
};
use shunt_layout::mlx5::prm::cmd::{self, input};
use shunt_layout::mlx5::wqe::{Ctrl, DataSegment, Opcode, Segment, remote_address, remote_key};
use std::fmt::Write;

fn opcode_name(raw: u8) -> String {
    Opcode::from_raw(raw).map_or_else(|| format!("opcode {raw:#04x}"), |opcode| format!("{opcode:?}"))
}

/// A WQE, given as its segments in memory order.
pub fn wqe(segments: &[Segment]) -> String {
    let Some(first) = segments.first() else { return "empty WQE".into() };
    let ctrl = Ctrl::read(*first);
    let mut text = format!(
        "{} index {:#06x} qpn {:#x} ds {} flags {:#04x}",
        opcode_name(ctrl.opcode),
        ctrl.index,
        ctrl.qpn,
        ctrl.ds,
        ctrl.fm_ce_se
    );
    let mut rest = segments[1..].iter().take((ctrl.ds as usize).saturating_sub(1));
    let opcode = Opcode::from_raw(ctrl.opcode);
    if matches!(opcode, Some(Opcode::SendImm | Opcode::RdmaWriteImm)) {
        // A String cannot fail to be written to.
        let _ = write!(text, " immediate {:#010x}", ctrl.imm);
    }
    let one_sided = !matches!(opcode, Some(Opcode::Nop | Opcode::Send | Opcode::SendImm | Opcode::SendInval));
    if one_sided && let Some(target) = rest.next() {
        let _ = write!(text, " remote {:#x} key {:#x}", remote_address(*target), remote_key(*target));
    }
    let operands = match opcode {
        Some(Opcode::AtomicMaskedCs) if ctrl.ds == 5 => 2,
        Some(Opcode::AtomicCs | Opcode::AtomicFa | Opcode::AtomicMaskedCs | Opcode::AtomicMaskedFa) => 1,
        _ => 0,
    };
    for words in rest.by_ref().take(operands) {
        let words = words.map(u32::from_be);
        let _ = write!(text, " operands {:08x} {:08x} {:08x} {:08x}", words[0], words[1], words[2], words[3]);
    }
    while let Some(segment) = rest.next() {
        match DataSegment::read(*segment) {
            DataSegment::Pointer { bytes, lkey, address } => {
                let _ = write!(text, " {bytes} bytes at {address:#x} key {lkey:#x}");
            }
            DataSegment::Inline { bytes } => {
                let _ = write!(text, " {bytes} bytes inline");
                let more = (4 + bytes as usize).div_ceil(16).saturating_sub(1);
                rest.by_ref().take(more).for_each(drop);
            }
        }
    }
    text
}

/// A CQE.
pub fn cqe(bytes: &[u8; CQE_BYTES]) -> String {
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let tail = Tail::from_memory(word(TAIL_OFFSET));
    let origin = u32::from_be(word(OPCODE_QPN_OFFSET));
    let owner = tail.owner as u8;
    let head = format!(
        "{} qpn {:#x} counter {:#06x} owner {owner}",
        opcode_name((origin >> 24) as u8),
        origin & 0xff_ffff,
        tail.wqe_counter
    );
    let received = |what: &str| {
        let (bytes, imm) = (u32::from_be(word(BYTE_COUNT_OFFSET)), u32::from_be(word(IMMEDIATE_OFFSET)));
        let (qpn, counter) = (origin & 0xff_ffff, tail.wqe_counter);
        format!(
            "received: {what} qpn {qpn:#x} counter {counter:#06x} owner {owner}: {bytes} bytes, imm {imm:#010x}"
        )
    };
    match tail.opcode {
        opcode::REQ => format!("completed: {head}"),
        opcode::RESP_SEND => received("Send"),
        opcode::RESP_SEND_IMM => received("SendImm"),
        opcode::RESP_WRITE_IMM => received("RdmaWriteImm"),
        opcode::INVALID => format!("never written (owner {owner})"),
        opcode::REQ_ERR | opcode::RESP_ERR => {
            let syndrome = bytes[SYNDROME_OFFSET];
            let meaning = Syndrome(syndrome).meaning();
            let vendor = bytes[VENDOR_SYNDROME_OFFSET];
            format!("failed: {head}: {meaning} (syndrome {syndrome:#04x}, vendor {vendor:#04x})")
        }
        other => format!("CQE opcode {other:#x}: {head}"),
    }
}

/// An input mailbox.
pub fn command(mailbox: &[u8]) -> String {
    if mailbox.len() < input::BYTES {
        return format!("a mailbox of {} bytes", mailbox.len());
    }
    let raw = input::OPCODE.get(mailbox) as u16;
    let name = cmd::Opcode::from_raw(raw).map_or_else(|| format!("command {raw:#x}"), |op| format!("{op:?}"));
    format!(
        "{name} op_mod {:#x} object {:#x}, {} bytes",
        input::OP_MOD.get(mailbox),
        input::OBJECT.get(mailbox),
        mailbox.len()
    )
}

/// An output mailbox: status and syndrome in words.
pub fn answer(mailbox: &[u8]) -> String {
    format!("{}: {}", crate::status::status_name(mailbox), crate::status::syndrome_meaning(mailbox))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_layout::mlx5::wqe::{CqeWhen, ctrl, data, inline8, remote};

    #[test]
    fn a_write_reads_like_one() {
        let flags = CqeWhen::Always as u8;
        let segments = [
            ctrl(Opcode::RdmaWrite, 0x102, 0xabc << 8, 3, flags),
            remote(0x1000, 0x1234u32.to_be()),
            data(0x2000, 0x5678u32.to_be(), 4),
        ];
        let text = wqe(&segments);
        assert_eq!(
            text,
            "RdmaWrite index 0x0102 qpn 0xabc ds 3 flags 0x08 remote 0x1000 key 0x1234 4 bytes at 0x2000 key 0x5678"
        );
        let inline = wqe(&[segments[0], segments[1], inline8(7)]);
        assert!(inline.ends_with("8 bytes inline"), "{inline}");
    }

    #[test]
    fn two_sided_work() {
        let ctrl = shunt_layout::mlx5::wqe::with_immediate(ctrl(Opcode::SendImm, 3, 0x40 << 8, 2, 0), 0x11);
        let text = wqe(&[ctrl, data(0x2000, 0x5678u32.to_be(), 4)]);
        assert_eq!(
            text,
            "SendImm index 0x0003 qpn 0x40 ds 2 flags 0x00 immediate 0x00000011 4 bytes at 0x2000 key 0x5678"
        );
        let mut entry = [0; CQE_BYTES];
        (entry[0x27], entry[0x2f], entry[0x3b], entry[0x3d], entry[0x3f]) = (0x22, 8, 0x40, 5, 0x30);
        assert_eq!(cqe(&entry), "received: SendImm qpn 0x40 counter 0x0005 owner 0: 8 bytes, imm 0x00000022");
    }

    #[test]
    fn cqes_and_mailboxes() {
        assert_eq!(cqe(&[0xff; 64]), "never written (owner 1)");
        assert_eq!(command(&[]), "a mailbox of 0 bytes");
        let mut mailbox = [0; 16];
        input::OPCODE.set(&mut mailbox, 0x800);
        assert_eq!(command(&mailbox), "AllocPd op_mod 0x0 object 0x0, 16 bytes");
    }
}
