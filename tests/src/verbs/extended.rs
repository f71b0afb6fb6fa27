//! `ibv_wr_*`: how a program posts by them, and what a provider has for it.

use core::ffi::c_int;

use shunt_mlx5_sys as sys;

/// A request and its buffer.
pub(super) type Built = (sys::ibv_sge, sys::ibv_send_wr);

/// Operations that such a queue pair is made for.
pub(super) const OPERATIONS: u32 = sys::IBV_QP_EX_WITH_RDMA_WRITE
    | sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | sys::IBV_QP_EX_WITH_SEND
    | sys::IBV_QP_EX_WITH_SEND_WITH_IMM
    | sys::IBV_QP_EX_WITH_RDMA_READ
    | sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;

/// The attributes of one, and its domain.
pub(super) fn attributes(plain: &sys::ibv_qp_init_attr, pd: *mut sys::ibv_pd) -> sys::ibv_qp_init_attr_ex {
    sys::ibv_qp_init_attr_ex {
        send_cq: plain.send_cq,
        recv_cq: plain.recv_cq,
        srq: plain.srq,
        cap: plain.cap,
        qp_type: plain.qp_type,
        comp_mask: sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd,
        send_ops_flags: OPERATIONS.into(),
        ..Default::default()
    }
}

/// Posts these together: 0, or an errno.
///
/// # Safety
/// The queue pair is alive, and was made with [`OPERATIONS`]. Each request is as it says.
pub(super) unsafe fn post(qp: *mut sys::ibv_qp, list: &[Built]) -> c_int {
    let ex: *mut sys::ibv_qp_ex = qp.cast();
    // SAFETY: by the caller; the opcode says which words of the unions count.
    unsafe {
        sys::ibv_wr_start(ex);
        for (sge, wr) in list {
            ((*ex).wr_id, (*ex).wr_flags) = (wr.wr_id, wr.send_flags & !sys::IBV_SEND_INLINE);
            let (immediate, rdma, atomic) = (wr.__bindgen_anon_1.imm_data, wr.wr.rdma, wr.wr.atomic);
            match wr.opcode {
                sys::IBV_WR_SEND => sys::ibv_wr_send(ex),
                sys::IBV_WR_SEND_WITH_IMM => sys::ibv_wr_send_imm(ex, immediate),
                sys::IBV_WR_RDMA_WRITE => sys::ibv_wr_rdma_write(ex, rdma.rkey, rdma.remote_addr),
                sys::IBV_WR_RDMA_WRITE_WITH_IMM => {
                    sys::ibv_wr_rdma_write_imm(ex, rdma.rkey, rdma.remote_addr, immediate);
                }
                sys::IBV_WR_RDMA_READ => sys::ibv_wr_rdma_read(ex, rdma.rkey, rdma.remote_addr),
                sys::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                    sys::ibv_wr_atomic_fetch_add(ex, atomic.rkey, atomic.remote_addr, atomic.compare_add);
                }
                _ => {
                    let (compare, swap) = (atomic.compare_add, atomic.swap);
                    sys::ibv_wr_atomic_cmp_swp(ex, atomic.rkey, atomic.remote_addr, compare, swap);
                }
            }
            if wr.send_flags & sys::IBV_SEND_INLINE != 0 {
                let at = std::ptr::with_exposed_provenance_mut(sge.addr as usize);
                sys::ibv_wr_set_inline_data(ex, at, sge.length as usize);
            } else {
                sys::ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
            }
        }
        sys::ibv_wr_complete(ex)
    }
}
