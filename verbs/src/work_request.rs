//! A request of the journal as libibverbs' work request.

use crate::request::Kind;
use shunt_mlx5_sys::{
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_send_wr,
};

/// Writes what a request does, and the address and key at the other end.
pub fn fill(wr: &mut ibv_send_wr, kind: Kind, remote: u64, rkey: u32) {
    let (opcode, immediate) = match kind {
        Kind::Send(None) => (IBV_WR_SEND, 0),
        Kind::Send(Some(immediate)) => (IBV_WR_SEND_WITH_IMM, immediate),
        Kind::Write(None) => (IBV_WR_RDMA_WRITE, 0),
        Kind::Write(Some(immediate)) => (IBV_WR_RDMA_WRITE_WITH_IMM, immediate),
        Kind::Read => (IBV_WR_RDMA_READ, 0),
        Kind::FetchAdd(_) => (IBV_WR_ATOMIC_FETCH_AND_ADD, 0),
        Kind::CompareSwap(..) => (IBV_WR_ATOMIC_CMP_AND_SWP, 0),
    };
    wr.opcode = opcode;
    wr.__bindgen_anon_1.imm_data = immediate;
    match kind {
        Kind::Send(_) => {}
        Kind::Write(_) | Kind::Read => {
            wr.wr.rdma.remote_addr = remote;
            wr.wr.rdma.rkey = rkey;
        }
        Kind::FetchAdd(compare_add) | Kind::CompareSwap(compare_add, _) => {
            let swap = if let Kind::CompareSwap(_, swap) = kind { swap } else { 0 };
            wr.wr.atomic.remote_addr = remote;
            wr.wr.atomic.compare_add = compare_add;
            wr.wr.atomic.swap = swap;
            wr.wr.atomic.rkey = rkey;
        }
    }
}
