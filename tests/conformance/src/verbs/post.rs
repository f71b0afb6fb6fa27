//! Work requests, posted the old way (`ibv_post_send`) and the new one (`ibv_wr_*`).

use super::sge::{Sge, list_of};
use super::{Queue, VerbsError, done};
use shunt_mlx5_sys as sys;

/// How requests are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `ibv_post_send`.
    Old,
    /// `ibv_wr_start` to `ibv_wr_complete`.
    New,
}

impl Api {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Old, Self::New];
}

/// A far address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Where it starts.
    pub address: u64,
    /// Its key.
    pub rkey: u32,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data, a number.
    WriteImm(u32),
    /// SEND.
    Send,
    /// SEND with immediate data, a number.
    SendImm(u32),
    /// RDMA READ.
    Read,
    /// Fetch and add.
    FetchAdd(u64),
    /// Compare and swap.
    CompareSwap {
        /// What must be there.
        compare: u64,
        /// What is there then.
        swap: u64,
    },
}

impl Op {
    /// The opcode of `ibv_send_wr`.
    fn opcode(self) -> sys::ibv_wr_opcode {
        match self {
            Self::Write => sys::IBV_WR_RDMA_WRITE,
            Self::WriteImm(_) => sys::IBV_WR_RDMA_WRITE_WITH_IMM,
            Self::Send => sys::IBV_WR_SEND,
            Self::SendImm(_) => sys::IBV_WR_SEND_WITH_IMM,
            Self::Read => sys::IBV_WR_RDMA_READ,
            Self::FetchAdd(_) => sys::IBV_WR_ATOMIC_FETCH_AND_ADD,
            Self::CompareSwap { .. } => sys::IBV_WR_ATOMIC_CMP_AND_SWP,
        }
    }

    /// The opcode of its completion.
    pub fn completes_as(self) -> sys::ibv_wc_opcode {
        match self {
            Self::Write | Self::WriteImm(_) => sys::IBV_WC_RDMA_WRITE,
            Self::Send | Self::SendImm(_) => sys::IBV_WC_SEND,
            Self::Read => sys::IBV_WC_RDMA_READ,
            Self::FetchAdd(_) => sys::IBV_WC_FETCH_ADD,
            Self::CompareSwap { .. } => sys::IBV_WC_COMP_SWAP,
        }
    }

    /// Its immediate data.
    pub fn immediate(self) -> Option<u32> {
        match self {
            Self::WriteImm(imm) | Self::SendImm(imm) => Some(imm),
            _ => None,
        }
    }
}

/// A work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub op: Op,
    /// From where, or, for a READ or an atomic, into what.
    pub local: Vec<Sge>,
    /// Where to, unless it is a SEND.
    pub remote: Remote,
    /// The data travels in the request.
    pub inline: bool,
    /// Its completion is told.
    pub signaled: bool,
    /// The far side's completion is a solicited event.
    pub solicited: bool,
    /// It waits for READs and atomics before it.
    pub fence: bool,
    /// What its completion is known by.
    pub id: u64,
}

impl Request {
    /// A signaled request.
    pub fn new(op: Op, local: Vec<Sge>, remote: Remote) -> Self {
        Self { op, local, remote, inline: false, signaled: true, solicited: false, fence: false, id: 0 }
    }

    /// Bytes of its local buffers.
    pub fn bytes(&self) -> usize {
        self.local.iter().map(|sge| sge.bytes as usize).sum()
    }

    fn flags(&self) -> u32 {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        flag(self.signaled, sys::IBV_SEND_SIGNALED)
            | flag(self.solicited, sys::IBV_SEND_SOLICITED)
            | flag(self.fence, sys::IBV_SEND_FENCE)
            | flag(self.inline, sys::IBV_SEND_INLINE)
    }
}

impl Queue {
    /// Posts requests in one go.
    pub fn post(&mut self, requests: &[Request], api: Api) -> Result<(), VerbsError> {
        match api {
            Api::Old => self.post_old(requests),
            Api::New => self.post_new(requests),
        }
    }

    fn post_old(&mut self, requests: &[Request]) -> Result<(), VerbsError> {
        let mut lists: Vec<Vec<sys::ibv_sge>> =
            requests.iter().map(|request| list_of(&request.local)).collect();
        let mut chain: Vec<sys::ibv_send_wr> =
            requests.iter().zip(&mut lists).map(|(request, list)| work_request(request, list)).collect();
        for n in (1..chain.len()).rev() {
            let next: *mut _ = &mut chain[n];
            chain[n - 1].next = next;
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: chain and lists live until the call is over; what they name lives in regions of the caller's.
        let code = unsafe { sys::ibv_post_send(self.qp(), chain.as_mut_ptr(), &mut bad) };
        done("ibv_post_send", code)
    }

    fn post_new(&mut self, requests: &[Request]) -> Result<(), VerbsError> {
        let qp = self.extended();
        // SAFETY: the queue was made for all of these operations; what is named lives in regions of the caller's.
        unsafe {
            sys::ibv_wr_start(qp);
            for request in requests {
                (*qp).wr_id = request.id;
                (*qp).wr_flags = request.flags() & !sys::IBV_SEND_INLINE;
                begin(qp, request);
                if request.inline {
                    attach_inline(qp, request);
                } else if let [one] = request.local[..] {
                    sys::ibv_wr_set_sge(qp, one.lkey, one.address, one.bytes);
                } else {
                    let list = list_of(&request.local);
                    sys::ibv_wr_set_sge_list(qp, list.len(), list.as_ptr());
                }
            }
            done("ibv_wr_complete", sys::ibv_wr_complete(qp))
        }
    }
}

fn work_request(request: &Request, list: &mut [sys::ibv_sge]) -> sys::ibv_send_wr {
    // SAFETY: a plain C structure: numbers and null pointers.
    let mut wr: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
    wr.wr_id = request.id;
    wr.sg_list = list.as_mut_ptr();
    wr.num_sge = list.len() as i32;
    wr.opcode = request.op.opcode();
    wr.send_flags = request.flags();
    if let Some(imm) = request.op.immediate() {
        wr.__bindgen_anon_1.imm_data = imm.to_be();
    }
    let Remote { address, rkey } = request.remote;
    let atomic = |add, swap| sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
        remote_addr: address,
        compare_add: add,
        swap,
        rkey,
    };
    match request.op {
        Op::FetchAdd(add) => wr.wr.atomic = atomic(add, 0),
        Op::CompareSwap { compare, swap } => wr.wr.atomic = atomic(compare, swap),
        _ => wr.wr.rdma = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: address, rkey },
    }
    wr
}

/// The first call of a request.
///
/// # Safety
/// The queue pair is alive, was made for the operation, and a batch is begun.
unsafe fn begin(qp: *mut sys::ibv_qp_ex, request: &Request) {
    let Remote { address, rkey } = request.remote;
    // SAFETY: as the caller vouches.
    unsafe {
        match request.op {
            Op::Write => sys::ibv_wr_rdma_write(qp, rkey, address),
            Op::WriteImm(imm) => sys::ibv_wr_rdma_write_imm(qp, rkey, address, imm.to_be()),
            Op::Send => sys::ibv_wr_send(qp),
            Op::SendImm(imm) => sys::ibv_wr_send_imm(qp, imm.to_be()),
            Op::Read => sys::ibv_wr_rdma_read(qp, rkey, address),
            Op::FetchAdd(add) => sys::ibv_wr_atomic_fetch_add(qp, rkey, address, add),
            Op::CompareSwap { compare, swap } => sys::ibv_wr_atomic_cmp_swp(qp, rkey, address, compare, swap),
        }
    }
}

/// Attaches inline data to the request begun last.
///
/// # Safety
/// As for [`begin`], and the buffers can be read.
unsafe fn attach_inline(qp: *mut sys::ibv_qp_ex, request: &Request) {
    let pointer = |sge: &Sge| std::ptr::with_exposed_provenance_mut(sge.address as usize);
    // SAFETY: as the caller vouches.
    unsafe {
        if let [one] = &request.local[..] {
            sys::ibv_wr_set_inline_data(qp, pointer(one), one.bytes as usize);
        } else {
            let buffer = |sge: &Sge| sys::ibv_data_buf { addr: pointer(sge), length: sge.bytes as usize };
            let list: Vec<sys::ibv_data_buf> = request.local.iter().map(buffer).collect();
            sys::ibv_wr_set_inline_data_list(qp, list.len(), list.as_ptr());
        }
    }
}
