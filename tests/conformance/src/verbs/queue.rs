//! A reliable connection: queue pair, completion queues, completion channel.

use super::completion::Completion;
use super::sge::list_of;
use super::{Device, Sge, VerbsError, done, made};
use crate::cqe;
use shunt_mlx5_sys as sys;
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longer than any answer takes, retries included.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a queue pair is made and connected.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Requests in flight, each way.
    pub depth: u32,
    /// Buffers of a request.
    pub sges: u32,
    /// Inline bytes of a request.
    pub inline: u32,
    /// Retries of a receiver that is not ready; 7 for ever.
    pub rnr_retry: u8,
    /// Local ACK timeout: 4.096 us << this.
    pub timeout: u8,
    /// Retries of the transport.
    pub retry: u8,
}

impl Default for Shape {
    fn default() -> Self {
        Self { depth: 128, sges: 8, inline: 220, rnr_retry: 7, timeout: 14, retry: 7 }
    }
}

/// Which of its completion queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Of requests sent.
    Send,
    /// Of requests received.
    Receive,
}

/// Whom it is connected with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Number of the queue pair.
    pub qpn: u32,
    /// Address.
    pub gid: [u8; 16],
}

/// One completion queue, and where it lies.
struct Completions {
    cq: *mut sys::ibv_cq,
    entries: *const u8,
    count: u64,
    taken: u64,
}

/// A queue pair.
pub struct Queue {
    device: Rc<Device>,
    channel: *mut sys::ibv_comp_channel,
    completions: [Completions; 2],
    qp: *mut sys::ibv_qp,
    shape: Shape,
    inline: u32,
}

const ALL_OPERATIONS: u32 = sys::IBV_QP_EX_WITH_RDMA_WRITE
    | sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | sys::IBV_QP_EX_WITH_SEND
    | sys::IBV_QP_EX_WITH_SEND_WITH_IMM
    | sys::IBV_QP_EX_WITH_RDMA_READ
    | sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

impl Queue {
    /// Makes it; it is in RESET.
    pub fn new(device: &Rc<Device>, shape: Shape) -> Result<Self, VerbsError> {
        let verbs = &device.rdma.verbs;
        // SAFETY: the context is open.
        let channel =
            made("ibv_create_comp_channel", unsafe { verbs.ibv_create_comp_channel(device.context) })?;
        let completions = [
            Completions::new(device, channel, shape.depth)?,
            Completions::new(device, channel, shape.depth)?,
        ];
        // SAFETY: a plain C structure: numbers and null pointers.
        let mut attr: sys::ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        attr.send_cq = completions[0].cq;
        attr.recv_cq = completions[1].cq;
        attr.qp_type = sys::IBV_QPT_RC;
        attr.cap = sys::ibv_qp_cap {
            max_send_wr: shape.depth,
            max_recv_wr: shape.depth,
            max_send_sge: shape.sges,
            max_recv_sge: shape.sges,
            max_inline_data: shape.inline,
        };
        attr.comp_mask = sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.pd = device.pd;
        attr.send_ops_flags = ALL_OPERATIONS.into();
        let mut raw = sys::mlx5dv_qp_init_attr {
            comp_mask: sys::MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS.into(),
            send_ops_flags: sys::MLX5DV_QP_EX_WITH_RAW_WQE.into(),
            // SAFETY: as above.
            ..unsafe { std::mem::zeroed() }
        };
        // SAFETY: the context is open, and the attributes name live objects.
        let qp = unsafe { device.rdma.mlx5.mlx5dv_create_qp(device.context, &mut attr, &mut raw) };
        let qp = made("mlx5dv_create_qp", qp)?;
        Ok(Self { device: device.clone(), channel, completions, qp, shape, inline: attr.cap.max_inline_data })
    }

    /// Its own end.
    pub fn ends(&self) -> Ends {
        // SAFETY: alive until drop.
        Ends { qpn: unsafe { (*self.qp).qp_num }, gid: self.device.gid() }
    }

    /// Inline bytes that a request may have.
    pub fn inline_max(&self) -> u32 {
        self.inline
    }

    /// Buffers that a request may have.
    pub fn sges_max(&self) -> u32 {
        self.shape.sges
    }

    /// What is posted to.
    pub(super) fn qp(&self) -> *mut sys::ibv_qp {
        self.qp
    }

    /// The same for the new calls.
    pub(super) fn extended(&self) -> *mut sys::ibv_qp_ex {
        // SAFETY: alive until drop.
        unsafe { self.device.rdma.verbs.ibv_qp_to_qp_ex(self.qp) }
    }

    /// Posts a raw WQE, as it is to lie in the queue.
    pub fn post_raw(&mut self, segments: &[[u32; 4]], id: u64) -> Result<(), VerbsError> {
        let qp = self.extended();
        // SAFETY: the queue was made for raw WQEs; the WQE is as long as it says, and is copied.
        unsafe {
            let raw = self.device.rdma.mlx5.mlx5dv_qp_ex_from_ibv_qp_ex(qp);
            sys::ibv_wr_start(qp);
            (*qp).wr_id = id;
            (*qp).wr_flags = sys::IBV_SEND_SIGNALED;
            sys::mlx5dv_wr_raw_wqe(raw, segments.as_ptr().cast());
            done("ibv_wr_complete", sys::ibv_wr_complete(qp))
        }
    }

    /// Where libmlx5 has the queue.
    pub fn layout(&self) -> Result<sys::mlx5dv_qp, VerbsError> {
        // SAFETY: plain C structures; the queue pair is alive.
        unsafe {
            let (mut qp, mut object): (sys::mlx5dv_qp, sys::mlx5dv_obj) = std::mem::zeroed();
            object.qp = sys::mlx5dv_obj__bindgen_ty_1 { in_: self.qp, out: &mut qp };
            let code = self.device.rdma.mlx5.mlx5dv_init_obj(&mut object, sys::MLX5DV_OBJ_QP.into());
            done("mlx5dv_init_obj", code).map(|()| qp)
        }
    }

    fn modify(&self, mut attr: sys::ibv_qp_attr, mask: u32) -> Result<(), VerbsError> {
        // SAFETY: the queue pair is alive, the attributes are a local.
        let code = unsafe { self.device.rdma.verbs.ibv_modify_qp(self.qp, &mut attr, mask as i32) };
        done("ibv_modify_qp", code)
    }

    /// Options of connections (enhanced connection establishment) that it can have, or once it was told which, has.
    pub fn options(&self) -> Result<(u32, u32), VerbsError> {
        let mut ece = sys::ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
        // SAFETY: the queue pair is alive, the answer goes to a local.
        done("ibv_query_ece", unsafe { self.device.rdma.verbs.ibv_query_ece(self.qp, &mut ece) })?;
        Ok((ece.vendor_id, ece.options))
    }

    /// Has it told which options are wanted, with its next transition.
    pub fn want_options(&self, vendor_id: u32, options: u32) -> Result<(), VerbsError> {
        let mut ece = sys::ibv_ece { vendor_id, options, comp_mask: 0 };
        // SAFETY: the queue pair is alive, the options are a local.
        done("ibv_set_ece", unsafe { self.device.rdma.verbs.ibv_set_ece(self.qp, &mut ece) })
    }

    /// Connects it: INIT, RTR, RTS.
    pub fn connect(&self, far: Ends) -> Result<(), VerbsError> {
        // SAFETY: a plain C structure of numbers.
        let blank: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
        let init = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_INIT,
            port_num: 1,
            qp_access_flags: sys::IBV_ACCESS_REMOTE_READ
                | sys::IBV_ACCESS_REMOTE_WRITE
                | sys::IBV_ACCESS_REMOTE_ATOMIC,
            ..blank
        };
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS;
        self.modify(init, mask)?;
        let mut rtr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTR,
            path_mtu: self.device.mtu,
            dest_qp_num: far.qpn,
            rq_psn: first_psn(far.qpn),
            max_dest_rd_atomic: 16,
            min_rnr_timer: 1,
            ..blank
        };
        rtr.ah_attr.is_global = 1;
        rtr.ah_attr.port_num = 1;
        rtr.ah_attr.grh.dgid.raw = far.gid;
        rtr.ah_attr.grh.sgid_index = self.device.gid_index;
        rtr.ah_attr.grh.hop_limit = 64;
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_AV
            | sys::IBV_QP_PATH_MTU
            | sys::IBV_QP_DEST_QPN
            | sys::IBV_QP_RQ_PSN
            | sys::IBV_QP_MAX_DEST_RD_ATOMIC
            | sys::IBV_QP_MIN_RNR_TIMER;
        self.modify(rtr, mask)?;
        let rts = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTS,
            sq_psn: first_psn(self.ends().qpn),
            max_rd_atomic: 16,
            timeout: self.shape.timeout,
            retry_cnt: self.shape.retry,
            rnr_retry: self.shape.rnr_retry,
            ..blank
        };
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_SQ_PSN
            | sys::IBV_QP_MAX_QP_RD_ATOMIC
            | sys::IBV_QP_TIMEOUT
            | sys::IBV_QP_RETRY_CNT
            | sys::IBV_QP_RNR_RETRY;
        self.modify(rts, mask)
    }

    /// Posts a buffer to receive into.
    pub fn receive(&mut self, id: u64, local: &[Sge]) -> Result<(), VerbsError> {
        let mut list = list_of(local);
        let mut wr = sys::ibv_recv_wr {
            wr_id: id,
            next: null_mut(),
            sg_list: list.as_mut_ptr(),
            num_sge: list.len() as i32,
        };
        let mut bad = null_mut();
        // SAFETY: request and list live until the call is over; what they name lives in regions of the caller's.
        done("ibv_post_recv", unsafe { sys::ibv_post_recv(self.qp, &mut wr, &mut bad) })
    }

    /// The next completion, if there is one. It is compared with the entry it was read from.
    pub fn poll(&mut self, side: Side) -> Result<Option<Completion>, VerbsError> {
        self.completions[side as usize].poll()
    }

    /// Waits for the next completion by looking.
    pub fn wait(&mut self, side: Side) -> Result<Completion, VerbsError> {
        let since = Instant::now();
        let mut looks = 0u32;
        loop {
            if let Some(completion) = self.poll(side)? {
                return Ok(completion);
            }
            if since.elapsed() > PATIENCE {
                return Err(VerbsError::Silence { what: "completion", seconds: PATIENCE.as_secs() });
            }
            looks += 1;
            // The NIC may need this very core.
            if looks < 100 { std::thread::yield_now() } else { std::thread::sleep(Duration::from_micros(20)) }
        }
    }

    /// Asks for an event of the next completion, of the next solicited one if that is wanted.
    pub fn arm(&mut self, side: Side, solicited_only: bool) -> Result<(), VerbsError> {
        // SAFETY: alive until drop.
        let code =
            unsafe { sys::ibv_req_notify_cq(self.completions[side as usize].cq, solicited_only.into()) };
        done("ibv_req_notify_cq", code)
    }

    /// Waits until the channel tells of an event, and says which queue's it is.
    pub fn event(&mut self, patience: Duration) -> Result<Option<Side>, VerbsError> {
        // SAFETY: alive until drop; the pointers are to locals.
        unsafe {
            let mut ready = libc::pollfd { fd: (*self.channel).fd, events: libc::POLLIN, revents: 0 };
            match libc::poll(&mut ready, 1, patience.as_millis() as i32) {
                0 => return Ok(None),
                1 => {}
                _ => return Err(VerbsError::last("poll")),
            }
            let verbs = &self.device.rdma.verbs;
            let (mut cq, mut user) = (null_mut(), null_mut());
            done("ibv_get_cq_event", verbs.ibv_get_cq_event(self.channel, &mut cq, &mut user))?;
            verbs.ibv_ack_cq_events(cq, 1);
            Ok(Some(if cq == self.completions[0].cq { Side::Send } else { Side::Receive }))
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let verbs = &self.device.rdma.verbs;
        // SAFETY: each was made once; a queue pair goes before its completion queues, they before their channel.
        let codes = unsafe {
            [
                verbs.ibv_destroy_qp(self.qp),
                verbs.ibv_destroy_cq(self.completions[0].cq),
                verbs.ibv_destroy_cq(self.completions[1].cq),
                verbs.ibv_destroy_comp_channel(self.channel),
            ]
        };
        for code in codes {
            if let Err(error) = done("a destructor of the library", code) {
                eprintln!("{error}");
            }
        }
    }
}

/// Both ends work out first PSNs from numbers that both know; near the wrap for some.
fn first_psn(qpn: u32) -> u32 {
    (qpn.wrapping_mul(0x9e37_79b1) | 0xff_0000) & 0xff_ffff
}

impl Completions {
    fn new(device: &Rc<Device>, channel: *mut sys::ibv_comp_channel, depth: u32) -> Result<Self, VerbsError> {
        // SAFETY: the context is open, the channel alive.
        unsafe {
            let cq = device.rdma.verbs.ibv_create_cq(device.context, depth as i32, null_mut(), channel, 0);
            let cq = made("ibv_create_cq", cq)?;
            let (mut layout, mut object): (sys::mlx5dv_cq, sys::mlx5dv_obj) = std::mem::zeroed();
            object.cq = sys::mlx5dv_obj__bindgen_ty_2 { in_: cq, out: &mut layout };
            done(
                "mlx5dv_init_obj",
                device.rdma.mlx5.mlx5dv_init_obj(&mut object, sys::MLX5DV_OBJ_CQ.into()),
            )?;
            if layout.cqe_size != 64 {
                let text = format!("completion entries have {} bytes, not 64", layout.cqe_size);
                return Err(VerbsError::Disagreement(text));
            }
            let entries = layout.buf.cast_const().cast::<u8>();
            Ok(Self { cq, entries, count: layout.cqe_cnt.into(), taken: 0 })
        }
    }

    fn poll(&mut self) -> Result<Option<Completion>, VerbsError> {
        // SAFETY: a plain C structure of numbers.
        let mut wc: sys::ibv_wc = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is alive, and there is room for one.
        match unsafe { sys::ibv_poll_cq(self.cq, 1, &mut wc) } {
            0 => return Ok(None),
            1 => {}
            code => return Err(VerbsError::code("ibv_poll_cq", -code)),
        }
        let at = (self.taken % self.count) as usize * 64;
        // SAFETY: inside the ring; the NIC does not write to the entry until the ring came round.
        let entry: [u8; 64] = unsafe { self.entries.add(at).cast::<[u8; 64]>().read_volatile() };
        // SAFETY: both members are numbers of 32 bits.
        let imm = unsafe { u32::from_be(wc.__bindgen_anon_1.imm_data) };
        let completion = Completion {
            id: wc.wr_id,
            status: wc.status,
            opcode: wc.opcode,
            vendor: wc.vendor_err,
            bytes: wc.byte_len,
            imm: (wc.status == 0 && wc.wc_flags & sys::IBV_WC_WITH_IMM != 0).then_some(imm),
        };
        let pass = self.taken / self.count % 2 == 1;
        cqe::agree(&entry, &completion, wc.qp_num, pass).map_err(VerbsError::Disagreement)?;
        self.taken += 1;
        Ok(Some(completion))
    }
}
