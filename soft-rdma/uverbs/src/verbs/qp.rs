//! Queue pairs: made, destroyed and asked.

use super::cq::Cq;
use super::dct::{self, Dct};
use super::events::Notices;
use super::firmware::{self, Umem};
use super::invocation::Core;
use super::pd::Pd;
use super::srq::Srq;
use super::transition::{self, Service};
use crate::abi::Plain;
use crate::abi::ids::{DESTROY_RESPONSE, HANDLE, UHW_IN, UHW_OUT, access, create_qp};
use crate::abi::mlx5::{
    CreateQp, CreateQpResponse, QP_ALLOW_SCATTER_CQE, QP_NO_BFREG, QP_SCATTER_CQE, QP_TYPE_DCI, QP_TYPE_DCT,
    QP_UAR_PAGE_INDEX,
};
use crate::abi::uverbs::{Destination, QpCap, QueryQp, QueryQpResponse};
use crate::ioctl::{Call, Context, Resource};
use rustix::io::Errno;
use shunt_layout::mlx5::doorbell::RECORD_BYTES;
use shunt_layout::mlx5::prm::cmd::{Opcode, input, output};
use shunt_layout::mlx5::prm::qp::{
    ADS_OFFSET, CONTEXT_COMMAND_BYTES, PM_STATE_MIGRATED, QPC_OFFSET, QUERY_OUT_BYTES, RQ_TYPE_REGULAR,
    RQ_TYPE_SHARED, RQ_TYPE_ZERO_SIZE, SERVICE_DC_INITIATOR, SERVICE_RC, SERVICE_UD, State, ads,
    answer as made, create as fields, qpc,
};
use shunt_layout::mlx5::wqe::WQEBB_BYTES;
use shunt_soft_machine::log::Level;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Attributes of create.
pub const CREATE: &[u16] = &[
    HANDLE,
    create_qp::XRCD,
    create_qp::PD,
    create_qp::SRQ,
    create_qp::SEND_CQ,
    create_qp::RECEIVE_CQ,
    create_qp::TABLE,
    create_qp::USER_HANDLE,
    create_qp::CAP,
    create_qp::TYPE,
    create_qp::FLAGS,
    create_qp::SOURCE_QPN,
    create_qp::EVENT_FD,
    create_qp::RESPONSE_CAP,
    create_qp::RESPONSE_QPN,
    UHW_IN,
    UHW_OUT,
];

/// What a queue pair was set to, for changes to come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tuned {
    /// State, as verbs number it.
    pub(super) state: u8,
    /// What peers may do.
    pub(super) access: u32,
    /// READs and atomics that peers may have under way.
    pub(super) reads_in: u8,
}

/// A queue pair.
pub struct Qp {
    pub(super) number: u32,
    pub(super) service: Service,
    cap: QpCap,
    signal_all: bool,
    umems: [Umem; 2],
    /// What it was set to; changes come one after the other.
    tuned: Mutex<Tuned>,
    /// Events its program read, once it is gone.
    read: AtomicU32,
}

impl Qp {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn tuned(&self) -> MutexGuard<'_, Tuned> {
        self.tuned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resource for Qp {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        firmware::command(context.nic(), Opcode::DestroyQp, self.number)?;
        self.umems.iter().for_each(Umem::release);
        self.read.store(context.events().remove_qp(self.number), Ordering::Release);
        Ok(())
    }
}

/// What a program asks for.
struct Wanted {
    request: CreateQp,
    service: Service,
    pd: u32,
    send_cq: u32,
    receive_cq: u32,
    /// Where it receives, if others do, too.
    pool: Option<u32>,
}

impl Wanted {
    fn read(context: &Context, call: &Call, request: CreateQp) -> Result<Self, Errno> {
        let others = [create_qp::XRCD, create_qp::TABLE, create_qp::SOURCE_QPN];
        if others.iter().any(|id| call.has(*id)) {
            return Err(Errno::OPNOTSUPP);
        }
        let service = match call.input::<u8>(create_qp::TYPE)? {
            create_qp::RC => Service::Rc,
            create_qp::UD => Service::Ud,
            create_qp::DRIVER if request.flags & QP_TYPE_DCI != 0 => Service::DcInitiator,
            _ => return Err(Errno::OPNOTSUPP),
        };
        if call.input_or(create_qp::FLAGS, 0u32)? & !create_qp::SIGNAL_ALL != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // Not to scatter into CQEs is always right.
        let initiator = if service == Service::DcInitiator { QP_TYPE_DCI } else { 0 };
        let known = QP_SCATTER_CQE | QP_ALLOW_SCATTER_CQE | QP_UAR_PAGE_INDEX | initiator;
        let streams = request.streams != 0;
        if request.flags & !known != 0 || request.flags & QP_UAR_PAGE_INDEX == 0 || streams {
            shunt_soft_machine::log!(
                Level::Warn,
                "a queue pair with flags {:#x}, which are not supported",
                request.flags
            );
            return Err(Errno::OPNOTSUPP);
        }
        let pd = context.get::<Pd>(call.handle(create_qp::PD)?)?.number();
        let cq = |id| context.get::<Cq>(call.handle(id)?).map(|cq| cq.number());
        let send_cq = cq(create_qp::SEND_CQ)?;
        // An initiator receives nothing, and may have no queue for that.
        let receives = service != Service::DcInitiator || call.has(create_qp::RECEIVE_CQ);
        let receive_cq = if receives { cq(create_qp::RECEIVE_CQ)? } else { send_cq };
        let pool = if call.has(create_qp::SRQ) {
            Some(context.get::<Srq>(call.handle(create_qp::SRQ)?)?.number())
        } else {
            None
        };
        let wanted = Self { request, service, pd, send_cq, receive_cq, pool };
        wanted.check()?;
        Ok(wanted)
    }

    fn check(&self) -> Result<(), Errno> {
        let CreateQp { send_blocks, receives, receive_shift, user_index, bfreg, .. } = self.request;
        let send = send_blocks.is_power_of_two() && send_blocks <= 1 << 15;
        let receive = receives == 0
            || receives.is_power_of_two() && receives <= 1 << 15 && (4..=11).contains(&receive_shift);
        let numbers = user_index < 1 << 24 && bfreg < 1 << 24;
        let receive = receive && (receives == 0 || self.pool.is_none());
        if send && receive && numbers { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// Bytes of the receive queue.
    fn receive_bytes(&self) -> u64 {
        (self.request.receives as u64) << self.request.receive_shift.min(11)
    }

    /// Bytes of both queues: the receive queue comes first.
    fn bytes(&self) -> u64 {
        self.receive_bytes() + self.request.send_blocks as u64 * WQEBB_BYTES as u64
    }

    fn mailbox(&self, umems: &[Umem; 2]) -> [u8; CONTEXT_COMMAND_BYTES] {
        let mut mailbox = [0; CONTEXT_COMMAND_BYTES];
        input::OPCODE.set(&mut mailbox, Opcode::CreateQp as u32);
        fields::WQ_UMEM_ID.set(&mut mailbox, umems[0].id());
        fields::WQ_UMEM_VALID.set(&mut mailbox, 1);
        fields::ECE.set(&mut mailbox, self.request.ece);
        let context = &mut mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
        let request = &self.request;
        let service = match self.service {
            Service::Rc => SERVICE_RC,
            Service::Ud => SERVICE_UD,
            Service::DcInitiator => SERVICE_DC_INITIATOR,
        };
        qpc::ST.set(context, service);
        qpc::PM_STATE.set(context, PM_STATE_MIGRATED);
        qpc::PD.set(context, self.pd);
        if let Some(pool) = self.pool {
            qpc::RQ_TYPE.set(context, RQ_TYPE_SHARED);
            qpc::SRQN_RMPN_XRQN.set(context, pool);
        } else if request.receives == 0 {
            qpc::RQ_TYPE.set(context, RQ_TYPE_ZERO_SIZE);
        } else {
            qpc::RQ_TYPE.set(context, RQ_TYPE_REGULAR);
            qpc::LOG_RQ_SIZE.set(context, request.receives.ilog2());
            qpc::LOG_RQ_STRIDE.set(context, request.receive_shift - 4);
        }
        qpc::LOG_SQ_SIZE.set(context, request.send_blocks.ilog2());
        qpc::UAR_PAGE.set(context, request.bfreg);
        qpc::USER_INDEX.set(context, request.user_index);
        qpc::CQN_SND.set(context, self.send_cq);
        qpc::CQN_RCV.set(context, self.receive_cq);
        qpc::DBR_UMEM_VALID.set(context, 1);
        qpc::DBR_UMEM_ID.set(context, umems[1].id());
        mailbox
    }
}

/// Create.
pub fn create(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let cap: QpCap = call.input(create_qp::CAP)?;
    let request: CreateQp = call.input_grown(UHW_IN)?;
    if call.input::<u8>(create_qp::TYPE)? == create_qp::DRIVER && request.flags & QP_TYPE_DCT != 0 {
        let handle = dct::create(context, call, &request)?;
        return answer(call, handle, (0, 0), &cap).inspect_err(|_| {
            let _ = context.destroy::<Dct>(handle);
        });
    }
    let wanted = Wanted::read(context, call, request)?;
    let user_handle: u64 = call.input(create_qp::USER_HANDLE)?;
    let signal_all = call.input_or(create_qp::FLAGS, 0u32)? & create_qp::SIGNAL_ALL != 0;
    let asynchronous = context.channel(call, create_qp::EVENT_FD)?;
    let (nic, request) = (context.nic(), &wanted.request);
    let umems = [
        Umem::register(nic, request.buffer, wanted.bytes(), true)?,
        Umem::register(nic, request.record, RECORD_BYTES as u64, true)?,
    ];
    let out = firmware::execute::<16>(nic, &wanted.mailbox(&umems))?;
    let (number, ece) = (output::OBJECT.get(&out), made::ECE.get(&out));
    context.events().add_qp(number, Notices::new(user_handle, None, asynchronous));
    let (tuned, read, service) = (Mutex::default(), AtomicU32::new(0), wanted.service);
    // Asked again, a queue pair tells the receives that it really has room for.
    let has = QpCap { max_recv_wr: request.receives, ..cap };
    let handle = context.insert(Arc::new(Qp { number, service, cap: has, signal_all, umems, tuned, read }));
    answer(call, handle, (number, ece), &cap).inspect_err(|_| {
        // The program cannot know it.
        let _ = context.destroy::<Qp>(handle);
    })
}

fn answer(call: &mut Call, handle: u32, (number, ece): (u32, u32), cap: &QpCap) -> Result<(), Errno> {
    call.output(create_qp::RESPONSE_CAP, cap.bytes())?;
    call.output(create_qp::RESPONSE_QPN, number.bytes())?;
    if call.has(UHW_OUT) {
        let response = CreateQpResponse { bfreg: QP_NO_BFREG, ece, ..CreateQpResponse::default() };
        call.output(UHW_OUT, response.bytes())?;
    }
    call.set_handle(HANDLE, handle)
}

/// Destroy.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let handle = call.handle(HANDLE)?;
    if context.get::<Dct>(handle).is_ok() {
        context.destroy::<Dct>(handle)?;
        return call.output(DESTROY_RESPONSE, 0u32.bytes());
    }
    let qp = context.destroy::<Qp>(handle)?;
    call.output(DESTROY_RESPONSE, qp.read.load(Ordering::Acquire).bytes())
}

/// A state as verbs number it.
fn state_of(raw: u32) -> u8 {
    match State::from_raw(raw) {
        Some(State::Rst) => transition::RESET,
        Some(State::Init) => transition::INIT,
        Some(State::Rtr) => transition::RTR,
        Some(State::Rts) => transition::RTS,
        Some(State::Sqd) => transition::SQD,
        Some(State::Sqer) => transition::SQE,
        Some(State::Err) | None => transition::ERROR,
    }
}

/// QUERY_QP.
pub fn query(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let request: QueryQp = core.request()?;
    core.check_room::<QueryQpResponse>()?;
    let qp = context.get::<Qp>(request.handle)?;
    let mut tuned = qp.tuned();
    let mailbox = firmware::short(Opcode::QueryQp, qp.number);
    let out = firmware::execute::<QUERY_OUT_BYTES>(context.nic(), &mailbox)?;
    let now = &out[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
    tuned.state = state_of(qpc::STATE.get(now));
    core.reply(&described(&qp, tuned.state, now))
}

/// What verbs say of a context.
fn described(qp: &Qp, state: u8, now: &[u8]) -> QueryQpResponse {
    let path = &now[ADS_OFFSET..ADS_OFFSET + ads::BYTES];
    let rights = [
        (qpc::RRE, access::REMOTE_READ),
        (qpc::RWE, access::REMOTE_WRITE),
        (qpc::RAE, access::REMOTE_ATOMIC),
    ];
    let allowed = rights.iter().filter(|(field, _)| field.get(now) == 1).fold(0, |bits, (_, bit)| bits | bit);
    let connected = !matches!(state, transition::RESET | transition::INIT);
    let dest = Destination {
        gid: ads::rgid(path),
        flow_label: ads::FLOW_LABEL.get(path),
        sgid_index: ads::SRC_ADDR_INDEX.get(path) as u8,
        hop_limit: ads::HOP_LIMIT.get(path) as u8,
        traffic_class: ads::TCLASS.get(path) as u8,
        sl: ads::ETH_PRIO.get(path) as u8,
        is_global: connected as u8,
        port: ads::VHCA_PORT_NUM.get(path) as u8,
        ..Destination::default()
    };
    QueryQpResponse {
        dest,
        cap: qp.cap,
        qkey: qpc::Q_KEY.get(now),
        rq_psn: qpc::NEXT_RCV_PSN.get(now),
        sq_psn: qpc::NEXT_SEND_PSN.get(now),
        dest_qpn: qpc::REMOTE_QPN.get(now),
        access: allowed,
        pkey_index: ads::PKEY_INDEX.get(path) as u16,
        state,
        current_state: state,
        path_mtu: qpc::MTU.get(now) as u8,
        reads_out: 1 << qpc::LOG_SRA_MAX.get(now),
        reads_in: 1 << qpc::LOG_RRA_MAX.get(now),
        min_rnr_timer: qpc::MIN_RNR_NAK.get(now) as u8,
        port: ads::VHCA_PORT_NUM.get(path) as u8,
        timeout: ads::ACK_TIMEOUT.get(path) as u8,
        retries: qpc::RETRY_COUNT.get(now) as u8,
        rnr_retries: qpc::RNR_RETRY.get(now) as u8,
        signal_all: qp.signal_all as u8,
        ..QueryQpResponse::default()
    }
}
