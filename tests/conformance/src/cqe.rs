//! What libmlx5 made of a completion entry, against what our layout reads in it.

use crate::verbs::Completion;
use shunt_layout::mlx5::cqe::{
    BYTE_COUNT_OFFSET, IMMEDIATE_OFFSET, OPCODE_QPN_OFFSET, SYNDROME_OFFSET, TAIL_OFFSET, Tail,
    VENDOR_SYNDROME_OFFSET, opcode,
};
use shunt_mlx5_sys as sys;

/// `ibv_wc_status` of a syndrome (mlx5dv.h names the one, verbs.h the other).
fn status_of(syndrome: u8) -> u32 {
    match syndrome {
        0x01 => sys::IBV_WC_LOC_LEN_ERR,
        0x02 => sys::IBV_WC_LOC_QP_OP_ERR,
        0x04 => sys::IBV_WC_LOC_PROT_ERR,
        0x05 => sys::IBV_WC_WR_FLUSH_ERR,
        0x06 => sys::IBV_WC_MW_BIND_ERR,
        0x10 => sys::IBV_WC_BAD_RESP_ERR,
        0x11 => sys::IBV_WC_LOC_ACCESS_ERR,
        0x12 => sys::IBV_WC_REM_INV_REQ_ERR,
        0x13 => sys::IBV_WC_REM_ACCESS_ERR,
        0x14 => sys::IBV_WC_REM_OP_ERR,
        0x15 => sys::IBV_WC_RETRY_EXC_ERR,
        0x16 => sys::IBV_WC_RNR_RETRY_EXC_ERR,
        0x22 => sys::IBV_WC_REM_ABORT_ERR,
        _ => sys::IBV_WC_GENERAL_ERR,
    }
}

/// `ibv_wc_opcode` of a good completion: of a requester by the opcode of its WQE.
fn opcode_of(tail: Tail, wqe_opcode: u8) -> Option<u32> {
    Some(match (tail.opcode, wqe_opcode) {
        (opcode::REQ, 0x08 | 0x09) => sys::IBV_WC_RDMA_WRITE,
        (opcode::REQ, 0x0a | 0x0b) => sys::IBV_WC_SEND,
        (opcode::REQ, 0x10) => sys::IBV_WC_RDMA_READ,
        (opcode::REQ, 0x11) => sys::IBV_WC_COMP_SWAP,
        (opcode::REQ, 0x12) => sys::IBV_WC_FETCH_ADD,
        (opcode::RESP_WRITE_IMM, _) => sys::IBV_WC_RECV_RDMA_WITH_IMM,
        (opcode::RESP_SEND | opcode::RESP_SEND_IMM, _) => sys::IBV_WC_RECV,
        _ => return None,
    })
}

/// Compares a completion with the entry it came from. `pass` is the owner bit that the entry must have.
pub fn agree(entry: &[u8; 64], completion: &Completion, qpn: u32, pass: bool) -> Result<(), String> {
    let word = |at: usize| u32::from_be_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
    let tail = Tail::from_memory(word(TAIL_OFFSET).to_be());
    let mut differences = Vec::new();
    let mut same = |what: &str, entry: u64, reported: u64| {
        if entry != reported {
            differences.push(format!("{what} {entry:#x} in the entry, {reported:#x} reported"));
        }
    };
    same("owner bit", tail.owner.into(), pass.into());
    same("queue pair", (word(OPCODE_QPN_OFFSET) & 0xff_ffff).into(), qpn.into());
    if matches!(tail.opcode, opcode::REQ_ERR | opcode::RESP_ERR) {
        same("status", status_of(entry[SYNDROME_OFFSET]).into(), completion.status.into());
        same("vendor's syndrome", entry[VENDOR_SYNDROME_OFFSET].into(), completion.vendor.into());
    } else {
        same("status", 0, completion.status.into());
        if let Some(opcode) = opcode_of(tail, entry[OPCODE_QPN_OFFSET]) {
            same("opcode", opcode.into(), completion.opcode.into());
        }
        // Of requests sent, libmlx5 reports a length for READs only; atomics are always 8.
        if tail.opcode != opcode::REQ || completion.opcode == sys::IBV_WC_RDMA_READ {
            same("length", word(BYTE_COUNT_OFFSET).into(), completion.bytes.into());
        }
        let with_imm = matches!(tail.opcode, opcode::RESP_WRITE_IMM | opcode::RESP_SEND_IMM);
        let reported = completion.imm.map_or(u64::MAX, u64::from);
        if tail.opcode != opcode::REQ {
            same("immediate", if with_imm { word(IMMEDIATE_OFFSET).into() } else { u64::MAX }, reported);
        }
    }
    if differences.is_empty() { Ok(()) } else { Err(format!("{}: {entry:02x?}", differences.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(bytes: u32) -> (Completion, [u8; 64]) {
        let mut entry = [0; 64];
        entry[BYTE_COUNT_OFFSET..BYTE_COUNT_OFFSET + 4].copy_from_slice(&bytes.to_be_bytes());
        entry[OPCODE_QPN_OFFSET..OPCODE_QPN_OFFSET + 4].copy_from_slice(&0x1000_0abcu32.to_be_bytes());
        let opcode = sys::IBV_WC_RDMA_READ;
        (Completion { id: 1, status: 0, opcode, vendor: 0, bytes, imm: None }, entry)
    }

    #[test]
    fn a_completion_that_says_what_its_entry_says() {
        let (completion, entry) = good(4096);
        assert_eq!(agree(&entry, &completion, 0xabc, false), Ok(()));
    }

    #[test]
    fn each_difference_is_told() {
        let (completion, entry) = good(4096);
        assert!(agree(&entry, &Completion { bytes: 1, ..completion }, 0xabc, false).is_err());
        assert!(agree(&entry, &Completion { status: 12, ..completion }, 0xabc, false).is_err());
        assert!(agree(&entry, &completion, 0xabd, false).is_err());
        assert!(agree(&entry, &completion, 0xabc, true).is_err());
        let mut failed = entry;
        failed[TAIL_OFFSET + 3] = opcode::REQ_ERR << 4;
        (failed[VENDOR_SYNDROME_OFFSET], failed[SYNDROME_OFFSET]) = (0x81, 0x15);
        let retries = Completion { status: 12, vendor: 0x81, ..completion };
        assert_eq!(agree(&failed, &retries, 0xabc, false), Ok(()));
        assert!(agree(&failed, &Completion { vendor: 0x88, ..retries }, 0xabc, false).is_err());
        assert!(agree(&failed, &Completion { status: 10, ..retries }, 0xabc, false).is_err());
    }
}
