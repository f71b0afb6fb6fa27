//! Reliable connection queue pairs, with a receive queue or without. PRM: "CREATE_QP", "QUERY_QP", transitions.

use super::caps::Link;
use super::order;
use super::{destroy, execute, short_in};
use crate::devx::Devx;
use crate::error::{DevxError, NicError};
use shunt_layout::mlx5::prm::cmd::{self, Opcode, Status};
use shunt_layout::mlx5::prm::qp::{
    ADS_OFFSET, ATOMIC_MODE_UP_TO_8, CONTEXT_COMMAND_BYTES, PM_STATE_MIGRATED, QPC_OFFSET, QUERY_OUT_BYTES,
    RQ_TYPE_REGULAR, RQ_TYPE_SHARED, RQ_TYPE_ZERO_SIZE, SERVICE_RC, State, ads, answer, change,
    create as fields, ece::TRIGGER, qpc, queried,
};
use shunt_layout::mutant::Mutant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Mailbox of CREATE_QP and of the transitions.
pub type ContextMailbox = [u8; CONTEXT_COMMAND_BYTES];

/// Mask of a 24-bit PSN or QPN.
pub const MASK_24: u32 = 0xff_ffff;
const LOG_MSG_MAX: u32 = 30;
const HOP_LIMIT: u32 = 255;
const ECE_CURE: &str = "set SHUNT_ECE=0";

/// Timers and retries of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpTuning {
    /// Local ACK timeout: 4.096 us << value; 1 to 31.
    pub ack_timeout: u32,
    /// Transport retries, 0 to 7.
    pub retry: u32,
    /// RNR retries, 7 for ever.
    pub rnr_retry: u32,
    /// RNR NAK timer code.
    pub min_rnr: u32,
    /// Outstanding READs and atomics, log2.
    pub log_ra: u32,
    /// Writes may be placed in any order.
    pub unordered: bool,
    /// The NIC keeps the order whatever the administrator set (`dp_ordering_force`; the capability is there).
    pub force_order: bool,
}

impl QpTuning {
    /// 67 ms per try, half a second in all: a suspicion of the device comes long before.
    pub const DEFAULT: Self = Self {
        ack_timeout: 14,
        retry: 7,
        rnr_retry: 7,
        min_rnr: 12,
        log_ra: 4,
        unordered: false,
        force_order: false,
    };
}

impl Default for QpTuning {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Arguments of CREATE_QP.
#[derive(Clone, Copy, Debug)]
pub struct QpShape {
    /// Protection domain.
    pub pd: u32,
    /// UAR page of the doorbell.
    pub uar: u32,
    /// CQ of both queues.
    pub cqn: u32,
    /// log2 of the send queue's blocks.
    pub log_depth: u32,
    /// Number a CQE carries.
    pub user_index: u32,
    /// Umem of send queue and doorbell record.
    pub umem: u32,
    /// Offset of the send queue, a multiple of [`QUEUE_ALIGN`](super::umem::QUEUE_ALIGN).
    pub queue_offset: u64,
    /// Offset of the doorbell record.
    pub record_offset: u64,
    /// Format of time stamps.
    pub ts_format: u32,
    /// It is asked which options it can have ([`ece`](super::ece)).
    pub ece: bool,
    /// Its receive queue; none of a queue pair that nobody sends to.
    pub receive: Option<ReceiveShape>,
}

/// The receive queue of a queue pair: requests of one segment each, in front of the send queue.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveShape {
    /// CQ of what arrives.
    pub cqn: u32,
    /// log2 of its requests. The send queue begins behind them.
    pub log_requests: u32,
    /// Number of the receive memory pool that it takes from: it has no requests of its own then.
    pub pool: Option<u32>,
}

/// Where a connection leads: what INIT2RTR needs of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Link layer of both ends.
    pub link: Link,
    /// The other end's GID.
    pub gid: [u8; 16],
    /// The other end's MAC (RoCE).
    pub mac: [u8; 6],
    /// The other end's LID (InfiniBand).
    pub lid: u16,
    /// Index of our own GID.
    pub gid_index: u32,
    /// Path MTU code, the smaller of both ends.
    pub mtu: u32,
    /// UDP source port (RoCE): spreads connections over equal-cost links.
    pub udp_sport: u16,
    /// Traffic class.
    pub traffic_class: u8,
    /// Service level, or Ethernet priority.
    pub service_level: u8,
    /// Index of the partition key (InfiniBand).
    pub pkey_index: u16,
    /// The other end is in another subnet (InfiniBand), so that a GRH is needed.
    pub global: bool,
    /// Both ends are this port: packets turn round inside the NIC, port up or down.
    pub loopback: bool,
    /// Options that both ends use ([`common`](super::ece::common)); 0: none, and nothing is said of them.
    pub ece: u32,
}

pub(super) fn with_context(opcode: Opcode, qpn: u32) -> ContextMailbox {
    let mut mailbox = [0; CONTEXT_COMMAND_BYTES];
    cmd::input::OPCODE.set(&mut mailbox, opcode as u32);
    cmd::input::OBJECT.set(&mut mailbox, qpn);
    mailbox
}

/// CREATE_QP. The ordering bits stay zero, in order; whether that counts against the administrator's setting is said
/// at INIT2RTR ([`QpTuning::force_order`]).
pub fn create_in(shape: &QpShape) -> ContextMailbox {
    let mut mailbox = with_context(Opcode::CreateQp, 0);
    fields::WQ_UMEM_OFFSET.set(&mut mailbox, shape.queue_offset);
    fields::WQ_UMEM_ID.set(&mut mailbox, shape.umem);
    fields::WQ_UMEM_VALID.set(&mut mailbox, 1);
    fields::ECE.set(&mut mailbox, if shape.ece { TRIGGER } else { 0 });
    let context = &mut mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
    qpc::ST.set(context, SERVICE_RC);
    qpc::PM_STATE.set(context, PM_STATE_MIGRATED);
    qpc::DP_ORDERING_0.set(context, 0);
    qpc::DP_ORDERING_1.set(context, 0);
    qpc::PD.set(context, shape.pd);
    qpc::LOG_SQ_SIZE.set(context, shape.log_depth);
    qpc::TS_FORMAT.set(context, shape.ts_format);
    qpc::UAR_PAGE.set(context, shape.uar);
    qpc::USER_INDEX.set(context, shape.user_index);
    qpc::CQN_SND.set(context, shape.cqn);
    qpc::DBR_ADDR.set(context, shape.record_offset);
    match &shape.receive {
        None => {
            qpc::CQN_RCV.set(context, shape.cqn);
            qpc::RQ_TYPE.set(context, RQ_TYPE_ZERO_SIZE);
        }
        Some(ReceiveShape { cqn, pool: Some(pool), .. }) => {
            qpc::CQN_RCV.set(context, *cqn);
            qpc::RQ_TYPE.set(context, RQ_TYPE_SHARED);
            qpc::SRQN_RMPN_XRQN.set(context, *pool);
        }
        Some(receive) => {
            qpc::CQN_RCV.set(context, receive.cqn);
            qpc::RQ_TYPE.set(context, RQ_TYPE_REGULAR);
            qpc::LOG_RQ_SIZE.set(context, receive.log_requests);
            qpc::LOG_RQ_STRIDE.set(context, 0);
        }
    }
    qpc::DBR_UMEM_VALID.set(context, 1);
    qpc::DBR_UMEM_ID.set(context, shape.umem);
    mailbox
}

/// RST2INIT: port 1, its partition, everything remote allowed.
pub fn init_in(qpn: u32, pkey_index: u16) -> ContextMailbox {
    let mut mailbox = with_context(Opcode::Rst2InitQp, qpn);
    let context = &mut mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
    qpc::PM_STATE.set(context, PM_STATE_MIGRATED);
    qpc::ATOMIC_MODE.set(context, ATOMIC_MODE_UP_TO_8);
    qpc::RRE.set(context, 1);
    qpc::RWE.set(context, 1);
    qpc::RAE.set(context, 1);
    let path = &mut context[ADS_OFFSET..];
    ads::PKEY_INDEX.set(path, pkey_index.into());
    ads::VHCA_PORT_NUM.set(path, 1);
    mailbox
}

/// INIT2RTR: the other end, and the first PSN it sends.
pub fn rtr_in(
    qpn: u32,
    remote_qpn: u32,
    next_rcv_psn: u32,
    route: &Route,
    tuning: &QpTuning,
) -> ContextMailbox {
    let mut mailbox = with_context(Opcode::Init2RtrQp, qpn);
    change::ECE.set(&mut mailbox, route.ece);
    let context = &mut mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
    qpc::DP_ORDERING_FORCE.set(context, tuning.force_order as u32);
    qpc::MTU.set(context, route.mtu);
    qpc::LOG_MSG_MAX.set(context, LOG_MSG_MAX);
    qpc::REMOTE_QPN.set(context, remote_qpn);
    qpc::LOG_RRA_MAX.set(context, tuning.log_ra);
    qpc::MIN_RNR_NAK.set(context, tuning.min_rnr);
    qpc::NEXT_RCV_PSN.set(context, next_rcv_psn);
    let path = &mut context[ADS_OFFSET..ADS_OFFSET + ads::BYTES];
    ads::FL.set(path, route.loopback as u32);
    ads::SRC_ADDR_INDEX.set(path, route.gid_index);
    ads::HOP_LIMIT.set(path, HOP_LIMIT);
    ads::TCLASS.set(path, route.traffic_class as u32);
    ads::set_rgid(path, route.gid);
    ads::VHCA_PORT_NUM.set(path, 1);
    match route.link {
        Link::Ethernet => {
            ads::DSCP.set(path, route.traffic_class as u32 >> 2);
            ads::UDP_SPORT.set(path, route.udp_sport as u32);
            ads::ETH_PRIO.set(path, route.service_level as u32);
            let [a, b, c, d, e, f] = route.mac;
            ads::RMAC_47_32.set(path, u16::from_be_bytes([a, b]) as u32);
            ads::RMAC_31_0.set(path, u32::from_be_bytes([c, d, e, f]));
        }
        Link::InfiniBand => {
            ads::GRH.set(path, route.global as u32);
            ads::PKEY_INDEX.set(path, route.pkey_index.into());
            ads::RLID.set(path, route.lid as u32);
            ads::SL.set(path, route.service_level as u32);
        }
    }
    mailbox
}

/// RTR2RTS: our first PSN, timers and retries.
pub fn rts_in(qpn: u32, next_send_psn: u32, tuning: &QpTuning) -> ContextMailbox {
    let mut mailbox = with_context(Opcode::Rtr2RtsQp, qpn);
    let context = &mut mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
    qpc::LOG_SRA_MAX.set(context, tuning.log_ra);
    qpc::RETRY_COUNT.set(context, tuning.retry);
    qpc::RNR_RETRY.set(context, tuning.rnr_retry);
    qpc::NEXT_SEND_PSN.set(context, next_send_psn);
    ads::ACK_TIMEOUT.set(&mut context[ADS_OFFSET..], tuning.ack_timeout);
    mailbox
}

/// What the NIC says of a QP: the responder truth and its cross-checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpTruth {
    /// State; `None` if the NIC names one that the PRM does not.
    pub state: Option<State>,
    /// Messages executed as responder, modulo 2^24.
    pub rmsn: u32,
    /// PSN the responder expects next.
    pub next_rcv_psn: u32,
    /// PSN the requester sends next.
    pub next_send_psn: u32,
    /// The last PSN that was acknowledged.
    pub last_acked_psn: u32,
    /// `data_in_order`: what arrives is placed in order. Meaningful in RTS, where `qp_data_in_order` is a capability.
    pub in_order: bool,
    /// Options in force.
    pub ece: u32,
}

impl QpTruth {
    /// Reads a QUERY_QP output mailbox.
    pub fn read(output: &[u8; QUERY_OUT_BYTES]) -> Self {
        let context = &output[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
        Self {
            state: State::from_raw(qpc::STATE.get(context)),
            rmsn: qpc::RMSN.get(context),
            next_rcv_psn: qpc::NEXT_RCV_PSN.get(context),
            next_send_psn: qpc::NEXT_SEND_PSN.get(context),
            last_acked_psn: qpc::LAST_ACKED_PSN.get(context),
            in_order: qpc::DATA_IN_ORDER.get(context) == 1,
            ece: queried::ECE.get(output),
        }
    }
}

/// True if a command was refused because the number in it is no queue pair's. A NIC in trouble refuses as well, and
/// still has what it was asked about.
fn names_nothing(status: u8) -> bool {
    [Status::BadParam, Status::BadRes, Status::BadResState, Status::BadIndex]
        .map(|one| one as u8)
        .contains(&status)
}

/// A queue pair.
pub struct Qp {
    devx: Arc<dyn Devx>,
    number: u32,
    /// Options it can have.
    ece: u32,
    /// DESTROY_QP was given.
    tried: AtomicBool,
    gone: AtomicBool,
}

impl Qp {
    /// CREATE_QP: it is in RST.
    pub fn create(devx: &Arc<dyn Devx>, shape: &QpShape) -> Result<Self, NicError> {
        let output = execute::<16>(&**devx, &create_in(shape))?;
        let (number, ece) = (cmd::output::OBJECT.get(&output), answer::ECE.get(&output));
        let (tried, gone) = (AtomicBool::new(false), AtomicBool::new(false));
        // Firmware that was not asked has nothing to say.
        Ok(Self { devx: devx.clone(), number, ece: if shape.ece { ece } else { 0 }, tried, gone })
    }

    /// RST2INIT.
    pub fn init(&self, pkey_index: u16) -> Result<(), NicError> {
        execute::<16>(&*self.devx, &init_in(self.number, pkey_index))?;
        Ok(())
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Options it can have; 0: none.
    pub fn ece(&self) -> u32 {
        self.ece
    }

    /// INIT2RTR and RTR2RTS, then QUERY_QP: connected, with the options of the route, and in order unless it need not
    /// be, or an error.
    pub fn connect(
        &self,
        remote: RemoteEnd,
        psn: u32,
        route: &Route,
        tuning: &QpTuning,
    ) -> Result<(), NicError> {
        let rtr = rtr_in(self.number, remote.qpn, remote.psn, route, tuning);
        let agreed = answer::ECE.get(&execute::<16>(&*self.devx, &rtr)?);
        let unfit = |what, met: String, want, cure| {
            Err(NicError::Qp { nic: self.devx.name(), qpn: self.number, what, met, want, cure })
        };
        // The other end uses them, too: fewer at this end would not fit.
        if route.ece != 0 && agreed != route.ece {
            let met = format!("{agreed:#x} of {:#x}", route.ece);
            return unfit(
                "options of connection establishment",
                met,
                "what both ends said they have",
                ECE_CURE,
            );
        }
        execute::<16>(&*self.devx, &rts_in(self.number, psn, tuning))?;
        let truth = self.query()?;
        if truth.state != Some(State::Rts) {
            return unfit(
                "state",
                format!("{:?}", truth.state),
                "RTS",
                "look at the kernel's log (mlx5_core)",
            );
        }
        if !truth.in_order && !tuning.unordered && !Mutant::OrderNotChecked.on() {
            return unfit("placement", "data_in_order 0".into(), order::IN_ORDER, order::CURE);
        }
        Ok(())
    }

    /// 2ERR.
    pub fn to_error(&self) -> Result<(), NicError> {
        execute::<16>(&*self.devx, &short_in(Opcode::Qp2Err, self.number))?;
        Ok(())
    }

    /// QUERY_QP.
    pub fn query(&self) -> Result<QpTruth, NicError> {
        let output = execute::<QUERY_OUT_BYTES>(&*self.devx, &short_in(Opcode::QueryQp, self.number))?;
        Ok(QpTruth::read(&output))
    }

    /// QUERY_QP of a QP that may have been destroyed by a command whose answer never came. Its number may be another's
    /// by now, which has another CQ. `None`: it is gone.
    pub fn query_if_there(&self, cqn: u32) -> Result<Option<QpTruth>, NicError> {
        if self.gone.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match execute::<QUERY_OUT_BYTES>(&*self.devx, &short_in(Opcode::QueryQp, self.number)) {
            Ok(output) if qpc::CQN_SND.get(&output[QPC_OFFSET..QPC_OFFSET + qpc::BYTES]) == cqn => {
                Ok(Some(QpTruth::read(&output)))
            }
            Ok(_) => {
                self.gone.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(DevxError::Refused { status, .. }) if names_nothing(status) => {
                self.gone.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// DESTROY_QP: nothing of this QP is on the NIC once this is `Ok`. `cqn` is its CQ, which goes after it.
    pub fn destroy(&self, cqn: u32) -> Result<(), NicError> {
        if self.tried.swap(true, Ordering::Relaxed) && self.query_if_there(cqn)?.is_none() {
            return Ok(());
        }
        if !self.gone.load(Ordering::Relaxed) {
            execute::<16>(&*self.devx, &short_in(Opcode::DestroyQp, self.number))?;
            self.gone.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if !self.gone.load(Ordering::Relaxed) && !self.tried.load(Ordering::Relaxed) {
            destroy(&*self.devx, Opcode::DestroyQp, self.number);
        }
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteEnd {
    /// QPN.
    pub qpn: u32,
    /// The first PSN it sends.
    pub psn: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_in_trouble_still_has_its_queue_pairs() {
        for status in [0x01, 0x02, 0x04, 0x06, 0x07, 0x08, 0x0f, 0x10, 0x50, 0x51, 0xff] {
            assert!(!names_nothing(status), "{}", Status::name(status));
        }
        for status in [0x03, 0x05, 0x09, 0x0a] {
            assert!(names_nothing(status), "{}", Status::name(status));
        }
    }
}
