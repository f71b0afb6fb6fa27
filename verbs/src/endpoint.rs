//! Queue pairs as the recovery engine sees them: the program's own, and those that stand in for it.

use crate::hooks::batch;
use crate::objects::At;
use crate::queue_pair::QueuePair;
use crate::real;
use crate::spare::{PROBES, Place, Spare};
use shunt_device::platform::host::World;
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_layout::mlx5::prm::qp::QUERY_OUT_BYTES;
use shunt_mlx5::descriptor::HalfCard;
use shunt_mlx5::error::NicError;
use shunt_mlx5::nic::qp::{MASK_24, QpTruth};
use shunt_mlx5::nic::short_in;
use shunt_mlx5::rail::Rail;
use shunt_mlx5_sys::{
    IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, ibv_ah_attr, ibv_qp, ibv_qp_attr,
};
use shunt_recovery::endpoint::{Endpoint, Half, Maker, Prober};
use std::sync::{Arc, PoisonError, Weak};

const PORT: u8 = 1;
const HOP_LIMIT: u8 = 64;
/// Local ACK timeout, 4.096 us << this, of a queue pair that stands in, at most; and retries of one that the program
/// gave none. What a probe loses is sent again after that time: one that took a program's 20 (4 s) kept its path in
/// doubt long after the network had come back.
const TIMEOUT: u8 = 14;
const RETRIES: u8 = 7;

fn refused(nic: &str, qpn: u32, what: &'static str, errno: i32) -> NicError {
    let met = std::io::Error::from_raw_os_error(errno).to_string();
    let (want, cure) = ("done", "look at what the program connected it with");
    NicError::Qp { nic: nic.to_owned(), qpn, what, met, want, cure }
}

/// Moves a queue pair. It is alive.
unsafe fn modify(
    nic: &str,
    qp: At<ibv_qp>,
    what: &'static str,
    attr: &mut ibv_qp_attr,
    mask: u32,
) -> Result<(), NicError> {
    // SAFETY: alive, by the caller; the attributes are ours.
    let (errno, qpn) = unsafe { (real::ibv_modify_qp(qp.0, attr, mask as i32), (*qp.0).qp_num) };
    if errno == 0 { Ok(()) } else { Err(refused(nic, qpn, what, errno)) }
}

/// 2ERR. It is alive.
unsafe fn to_error(nic: &str, qp: At<ibv_qp>) -> Result<(), NicError> {
    let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    // SAFETY: forwarded to the caller.
    unsafe { modify(nic, qp, "2ERR", &mut attr, IBV_QP_STATE) }
}

/// QUERY_QP. It is alive.
unsafe fn query(nic: &str, qp: At<ibv_qp>) -> Result<QpTruth, NicError> {
    let lacks = |met: String| NicError::Unfit {
        nic: nic.to_owned(),
        what: "QUERY_QP of a verbs queue pair",
        met,
        want: "an answer through DEVX",
        cure: "use libmlx5 of rdma-core 22 or later, and a kernel that lets the process use DEVX",
    };
    // SAFETY: alive, by the caller.
    let qpn = unsafe { (*qp.0).qp_num };
    let input = short_in(Opcode::QueryQp, qpn);
    let mut output = [0; QUERY_OUT_BYTES];
    // SAFETY: alive, by the caller.
    let errno = unsafe { real::query_qp_by_devx(qp.0, &input, &mut output) }.map_err(lacks)?;
    if errno == 0 { Ok(QpTruth::read(&output)) } else { Err(lacks(format!("error {errno}"))) }
}

/// The program's own queue pair: the first incarnation of its first path, and none after that.
pub struct Own {
    /// The queue pair.
    pub pair: Weak<QueuePair>,
    /// Its rail.
    pub rail: Arc<Rail>,
    /// Its number.
    pub qpn: u32,
    /// The first PSN that it sent.
    pub psn: u32,
}

impl Own {
    /// Does something with it, unless the program has destroyed it.
    fn with<R>(
        &self,
        act: impl FnOnce(&QueuePair, At<ibv_qp>) -> Result<R, NicError>,
    ) -> Result<Option<R>, NicError> {
        let Some(pair) = self.pair.upgrade() else { return Ok(None) };
        let raw = pair.raw.read().unwrap_or_else(PoisonError::into_inner);
        raw.map(|raw| act(&pair, raw)).transpose()
    }
}

impl Endpoint for Own {
    fn rail(&self) -> u32 {
        self.rail.index
    }

    fn incarnation(&self) -> u32 {
        1
    }

    fn variant(&self) -> u32 {
        1
    }

    fn psn(&self) -> u32 {
        self.psn
    }

    fn card(&self) -> HalfCard {
        HalfCard { qpn: self.qpn, psn: self.psn, incarnation: 1, ece: 0, rail: self.rail.card() }
    }

    fn init(&self) -> Result<(), NicError> {
        Ok(())
    }

    fn connect(&self, _remote: &HalfCard) -> Result<(), NicError> {
        Ok(())
    }

    fn to_error(&self) -> Result<(), NicError> {
        let act = |pair: &QueuePair, qp: At<ibv_qp>| {
            // SAFETY: alive while `with` holds it.
            match unsafe { batch::fence(pair, qp.0) } {
                0 => {
                    pair.state().own_stopped = true;
                    Ok(())
                }
                errno => Err(refused(&self.rail.name, self.qpn, "2ERR", errno)),
            }
        };
        self.with(act).map(|_| ())
    }

    fn query(&self) -> Result<QpTruth, NicError> {
        // SAFETY: alive while `with` holds it.
        let truth = self.with(|_, qp| unsafe { query(&self.rail.name, qp) })?;
        truth.ok_or_else(|| refused(&self.rail.name, self.qpn, "QUERY_QP", gone_errno()))
    }

    /// It stays in ERR, where nothing reaches it, because the program may name it.
    fn destroy(&self) -> Result<(), NicError> {
        self.to_error()
    }

    fn query_and_destroy(&self) -> Result<Option<u32>, NicError> {
        self.to_error()?;
        // SAFETY: alive while `with` holds it.
        let truth = self.with(|_, qp| unsafe { query(&self.rail.name, qp) })?;
        Ok(truth.map(|truth| truth.next_send_psn))
    }

    unsafe fn prober(&self) -> Box<dyn Prober> {
        // It is not made again, so nobody probes it.
        Box::new(Nothing)
    }
}

/// The errno of what is not there.
const fn gone_errno() -> i32 {
    libc::ENOENT
}

struct Nothing;

impl Prober for Nothing {
    fn post(&mut self, _world: &dyn World) {}

    fn poll(&mut self, _world: &dyn World) -> Option<Result<(), NicError>> {
        None
    }

    fn has_room(&self) -> bool {
        false
    }

    fn next_index(&self) -> u64 {
        0
    }
}

/// A queue pair that stands in.
struct StandIn {
    spare: Arc<Spare>,
    pair: Weak<QueuePair>,
    rail: Arc<Rail>,
    incarnation: u32,
    psn: u32,
}

impl StandIn {
    fn with<R>(&self, act: impl FnOnce(At<ibv_qp>) -> Result<R, NicError>) -> Result<Option<R>, NicError> {
        self.spare.parts().map(|parts| act(parts.qp)).transpose()
    }

    fn rtr(&self, remote: &HalfCard, like: &ibv_qp_attr) -> (ibv_qp_attr, u32) {
        let address = self.rail.address();
        let mut av = ibv_ah_attr { is_global: 1, port_num: PORT, ..ibv_ah_attr::default() };
        av.grh.dgid.raw = remote.rail.gid;
        av.grh.sgid_index = address.gid_index as u8;
        av.grh.hop_limit = HOP_LIMIT;
        av.grh.traffic_class = like.ah_attr.grh.traffic_class;
        av.dlid = remote.rail.lid;
        av.sl = like.ah_attr.sl;
        let attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            ah_attr: av,
            path_mtu: like.path_mtu.min(remote.rail.mtu).min(address.mtu),
            dest_qp_num: remote.qpn,
            rq_psn: remote.psn,
            max_dest_rd_atomic: like.max_dest_rd_atomic,
            min_rnr_timer: like.min_rnr_timer,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        (attr, mask)
    }

    fn rts(&self, like: &ibv_qp_attr) -> (ibv_qp_attr, u32) {
        let attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            sq_psn: self.psn,
            timeout: if like.timeout == 0 { TIMEOUT } else { like.timeout.min(TIMEOUT) },
            retry_cnt: like.retry_cnt,
            rnr_retry: like.rnr_retry,
            max_rd_atomic: like.max_rd_atomic,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_SQ_PSN
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_MAX_QP_RD_ATOMIC;
        (attr, mask)
    }

    /// What the program's was connected with; where it only receives, with what probes need.
    fn like(&self) -> ibv_qp_attr {
        let connection = self.pair.upgrade().map(|pair| pair.state().connection).unwrap_or_default();
        match connection.sends {
            true => connection.attr,
            false => ibv_qp_attr {
                timeout: TIMEOUT,
                retry_cnt: RETRIES,
                rnr_retry: RETRIES,
                max_rd_atomic: 1,
                ..connection.attr
            },
        }
    }
}

impl Endpoint for StandIn {
    fn rail(&self) -> u32 {
        self.rail.index
    }

    fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Each has memory of its own.
    fn variant(&self) -> u32 {
        self.incarnation & 1
    }

    fn psn(&self) -> u32 {
        self.psn
    }

    fn card(&self) -> HalfCard {
        let (qpn, psn, incarnation) = (self.spare.qpn, self.psn, self.incarnation);
        HalfCard { qpn, psn, incarnation, ece: 0, rail: self.rail.card() }
    }

    fn init(&self) -> Result<(), NicError> {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            pkey_index: self.rail.address().pkey_index,
            port_num: PORT,
            // Probes are WRITEs of nothing. What they reach is still said by keys.
            qp_access_flags: self.like().qp_access_flags | IBV_ACCESS_REMOTE_WRITE,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        // SAFETY: alive while `with` holds it.
        self.with(|qp| unsafe { modify(&self.rail.name, qp, "RST2INIT", &mut attr, mask) }).map(|_| ())
    }

    fn connect(&self, remote: &HalfCard) -> Result<(), NicError> {
        let like = self.like();
        let (mut rtr, rtr_mask) = self.rtr(remote, &like);
        let (mut rts, rts_mask) = self.rts(&like);
        let nic = &self.rail.name;
        // SAFETY: alive while `with` holds it.
        let act = |qp| unsafe {
            modify(nic, qp, "INIT2RTR", &mut rtr, rtr_mask)?;
            modify(nic, qp, "RTR2RTS", &mut rts, rts_mask)
        };
        self.with(act).map(|_| ())
    }

    fn to_error(&self) -> Result<(), NicError> {
        // SAFETY: alive while `with` holds it.
        self.with(|qp| unsafe { to_error(&self.rail.name, qp) }).map(|_| ())
    }

    fn query(&self) -> Result<QpTruth, NicError> {
        // SAFETY: alive while `with` holds it.
        let truth = self.with(|qp| unsafe { query(&self.rail.name, qp) })?;
        truth.ok_or_else(|| refused(&self.rail.name, self.spare.qpn, "QUERY_QP", gone_errno()))
    }

    fn destroy(&self) -> Result<(), NicError> {
        self.spare.destroy();
        if let Some(pair) = self.pair.upgrade() {
            let mut spares = pair.spares.lock().unwrap_or_else(PoisonError::into_inner);
            spares.retain(|one| !Arc::ptr_eq(one, &self.spare));
        }
        Ok(())
    }

    fn query_and_destroy(&self) -> Result<Option<u32>, NicError> {
        // SAFETY: alive while `with` holds it.
        let truth = self.with(|qp| unsafe { query(&self.rail.name, qp) })?;
        self.destroy()?;
        Ok(truth.map(|truth| truth.next_send_psn))
    }

    unsafe fn prober(&self) -> Box<dyn Prober> {
        Box::new(Probes { spare: self.spare.clone(), posted: 0, polled: 0, answered: 0, failed: false })
    }
}

struct Probes {
    spare: Arc<Spare>,
    posted: u64,
    polled: u64,
    /// Executed, and not looked at.
    answered: u64,
    failed: bool,
}

impl Prober for Probes {
    fn post(&mut self, _world: &dyn World) {
        let posted = self.spare.post_probe();
        self.posted += u64::from(posted);
        self.failed |= !posted;
    }

    fn poll(&mut self, _world: &dyn World) -> Option<Result<(), NicError>> {
        let Self { spare, polled, answered, failed, .. } = self;
        spare.poll_probes(|executed| {
            *failed |= !executed;
            *polled += 1;
            *answered += u64::from(executed);
        });
        if std::mem::take(failed) {
            let (nic, qpn, index) = (spare.name().to_owned(), spare.qpn, spare.sent());
            return Some(Err(NicError::Completion { nic, qpn, index, syndrome: 0, vendor: 0 }));
        }
        (*answered > 0).then(|| {
            *answered -= 1;
            Ok(())
        })
    }

    fn has_room(&self) -> bool {
        self.posted - self.polled < PROBES.into()
    }

    fn next_index(&self) -> u64 {
        self.spare.sent()
    }
}

/// Where a queue pair is made on a rail; none if it cannot be.
pub type Where = dyn Fn(&Rail) -> Option<Place> + Send + Sync;

/// Makes the queue pairs that stand in, of one path.
pub struct SpareMaker {
    /// For whom.
    pub pair: Weak<QueuePair>,
    /// The path's key.
    pub key: usize,
    /// Where on each rail.
    pub place: Box<Where>,
}

impl Maker for SpareMaker {
    fn make(&self, rail: &Arc<Rail>, (incarnation, _): (u32, u32), psn: u32) -> Result<Half, NicError> {
        let gone = || refused(&rail.name, 0, "queue pair of the program", gone_errno());
        let pair = self.pair.upgrade().ok_or_else(gone)?;
        // Held until the new one is known: a program that destroys its own destroys this one with it.
        let raw = pair.raw.read().unwrap_or_else(PoisonError::into_inner);
        let place = (self.place)(rail).filter(|_| raw.is_some()).ok_or_else(gone)?;
        let spare = Arc::new(Spare::make(&place, pair.cap, (self.key, incarnation))?);
        pair.spares.lock().unwrap_or_else(PoisonError::into_inner).push(spare.clone());
        let (pair, rail, psn) = (self.pair.clone(), rail.clone(), psn & MASK_24);
        Ok(Arc::new(StandIn { spare, pair, rail, incarnation, psn }))
    }
}
