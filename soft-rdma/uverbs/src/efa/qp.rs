//! Queue pairs: rings and doorbells that the program maps.

use super::cq::{Cq, shared};
use super::device::{RECEIVE_PIECES, RECEIVES, SENDS};
use super::kept::refused;
use super::pd::Pd;
use super::transition::{allowed, state_of};
use crate::abi::Plain;
use crate::abi::efa::{CreateQp, CreateQpResponse, QP_SRD};
use crate::abi::ids::{DESTROY_RESPONSE, HANDLE, UHW_IN, UHW_OUT, attribute as a, create_qp};
use crate::abi::uverbs::{ModifyQp, QpCap, QueryQp, QueryQpResponse};
use crate::ioctl::{Call, Context, Page, Resource};
use crate::verbs::ModifyQpEx;
use crate::verbs::address::PORT;
use crate::verbs::events::Notices;
use crate::verbs::invocation::Core;
use rustix::io::Errno;
use shunt_soft_nic::soft_srd::format::{INLINE_BYTES, RECEIVE_BYTES, SEND_PIECES, WQE_BYTES};
use shunt_soft_nic::soft_srd::qp::{Change, Parts, Service, State};
use shunt_soft_nic::soft_srd::queues::{ReceiveQueue, Ring, SendQueue};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Attributes of create.
pub use crate::verbs::CREATE_QP as CREATE;

/// Entries of a ring at most.
const DEEPEST: u32 = 1 << 15;

/// A ring, and the page of its doorbell.
#[derive(Clone, Copy)]
struct Rows {
    ring: Page,
    doorbell: Page,
    depth: u32,
}

impl Rows {
    /// A ring of so many bytes; none if those are zero.
    fn alloc(context: &Context, bytes: u32, entry: usize) -> Result<Option<Self>, Errno> {
        let entry = entry as u32;
        let depth = bytes / entry;
        if bytes == 0 {
            return Ok(None);
        }
        if !bytes.is_multiple_of(entry) || !depth.is_power_of_two() || depth > DEEPEST {
            return Err(Errno::INVAL);
        }
        let ring = context.alloc_row(bytes.into())?;
        let doorbell = context.alloc_page().inspect_err(|_| context.free_page(ring))?;
        Ok(Some(Self { ring, doorbell, depth }))
    }

    fn free(self, context: &Context) {
        context.free_page(self.ring);
        context.free_page(self.doorbell);
    }

    fn ring(self) -> Ring {
        Ring { entries: shared(self.ring), page: shared(self.doorbell), register: 0, depth: self.depth }
    }
}

/// What changes told it, and nobody else keeps.
#[derive(Clone, Copy, Default)]
struct Told {
    send_psn: u32,
    retries: u8,
}

/// A queue pair.
pub struct Qp {
    number: u16,
    service: Service,
    cap: QpCap,
    signal_all: bool,
    send: Option<Rows>,
    receive: Option<Rows>,
    /// Changes come one after the other.
    told: Mutex<Told>,
    /// Events its program read, once it is gone.
    read: AtomicU32,
}

impl Qp {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resource for Qp {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        context.nic().with_srd(|device| device.remove_qp(self.number))?.map_err(refused)?;
        self.send.into_iter().chain(self.receive).for_each(|rows| rows.free(context));
        self.read.store(context.events().remove_qp(self.number.into()), Ordering::Release);
        Ok(())
    }
}

/// What kind of queue pair is asked for.
fn service(call: &Call, request: &CreateQp) -> Result<Service, Errno> {
    let others = [create_qp::XRCD, create_qp::SRQ, create_qp::TABLE, create_qp::SOURCE_QPN];
    if others.iter().any(|id| call.has(*id)) || request.comp_mask != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    match call.input::<u8>(create_qp::TYPE)? {
        create_qp::UD => Ok(Service::Unreliable),
        create_qp::DRIVER if request.driver_type == QP_SRD => Ok(Service::Reliable),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Refuses what no ring holds.
fn check(cap: &QpCap) -> Result<(), Errno> {
    let fits = cap.max_send_wr <= SENDS
        && cap.max_recv_wr <= RECEIVES.max(DEEPEST)
        && cap.max_send_sge <= SEND_PIECES as u32
        && cap.max_recv_sge <= RECEIVE_PIECES.into()
        && cap.max_inline <= INLINE_BYTES as u32;
    if fits { Ok(()) } else { Err(Errno::INVAL) }
}

/// Create.
pub fn create(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let (cap, request): (QpCap, CreateQp) = (call.input(create_qp::CAP)?, call.input_grown(UHW_IN)?);
    let service = service(call, &request)?;
    check(&cap)?;
    let flags = call.input_or(create_qp::FLAGS, 0u32)?;
    if flags & !create_qp::SIGNAL_ALL != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let pd = context.get::<Pd>(call.handle(create_qp::PD)?)?.number();
    let cq = |id| context.get::<Cq>(call.handle(id)?).map(|cq| cq.number());
    let (send_cq, receive_cq) = (cq(create_qp::SEND_CQ)?, cq(create_qp::RECEIVE_CQ)?);
    let user_handle: u64 = call.input(create_qp::USER_HANDLE)?;
    let asynchronous = context.channel(call, create_qp::EVENT_FD)?;
    let send = Rows::alloc(context, request.send_bytes, WQE_BYTES)?;
    let free = |rows: Option<Rows>| rows.into_iter().for_each(|rows| rows.free(context));
    let receive = Rows::alloc(context, request.receive_bytes, RECEIVE_BYTES).inspect_err(|_| free(send))?;
    let parts = Parts {
        service,
        pd,
        send_cq,
        receive_cq,
        send: send.map(|rows| SendQueue::new(rows.ring())),
        receive: receive.map(|rows| ReceiveQueue::new(rows.ring())),
    };
    let added = context.nic().with_srd(|device| device.add_qp(parts)).and_then(|qp| qp.ok_or(Errno::NOMEM));
    let number = added.inspect_err(|_| {
        free(send);
        free(receive);
    })?;
    context.events().add_qp(number.into(), Notices::new(user_handle, None, asynchronous));
    let signal_all = flags & create_qp::SIGNAL_ALL != 0;
    let (told, read) = (Mutex::default(), AtomicU32::new(0));
    let qp = Qp { number, service, cap, signal_all, send, receive, told, read };
    let response = response(&qp);
    let handle = context.insert(Arc::new(qp));
    answer(call, handle, number, &cap, &response).inspect_err(|_| {
        // The program cannot know it.
        let _ = context.destroy::<Qp>(handle);
    })
}

/// Where the program maps what.
fn response(qp: &Qp) -> CreateQpResponse {
    let mut response = CreateQpResponse::default();
    if let Some(Rows { ring, doorbell, .. }) = qp.send {
        (response.send, response.send_doorbell) = (ring.offset, doorbell.offset);
    }
    if let Some(Rows { ring, doorbell, .. }) = qp.receive {
        (response.receive, response.receive_bytes) = (ring.offset, ring.bytes);
        response.receive_doorbell = doorbell.offset;
    }
    response
}

fn answer(
    call: &mut Call,
    handle: u32,
    number: u16,
    cap: &QpCap,
    response: &CreateQpResponse,
) -> Result<(), Errno> {
    call.output(create_qp::RESPONSE_CAP, cap.bytes())?;
    call.output(create_qp::RESPONSE_QPN, u32::from(number).bytes())?;
    call.output(UHW_OUT, response.bytes())?;
    call.set_handle(HANDLE, handle)
}

/// Destroy.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let qp = context.destroy::<Qp>(call.handle(HANDLE)?)?;
    call.output(DESTROY_RESPONSE, qp.read.load(Ordering::Acquire).bytes())
}

/// MODIFY_QP.
pub fn modify(context: &Context, core: &mut Core) -> Result<(), Errno> {
    change(context, &core.request()?)
}

/// MODIFY_QP, the extended command.
pub fn modify_ex(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let request: ModifyQpEx = core.request()?;
    if request.rate_limit != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    change(context, &request.base)?;
    if core.room() > 0 { core.reply_grown(&[0u32, 8]) } else { Ok(()) }
}

fn change(context: &Context, request: &ModifyQp) -> Result<(), Errno> {
    let qp = context.get::<Qp>(request.handle)?;
    let has = |attribute| request.mask & attribute != 0;
    let mut told = qp.told();
    let (now, _) = state(context, &qp)?;
    let to = if has(a::STATE) { state_of(request.state).ok_or(Errno::INVAL)? } else { now };
    let thought = !has(a::CURRENT_STATE) || request.current_state == now as u8;
    let values = (!has(a::PORT) || request.port == PORT)
        && (!has(a::PKEY_INDEX) || request.pkey_index == 0)
        && (!has(a::RNR_RETRIES) || request.rnr_retries <= 7);
    if !thought || !values || !allowed(qp.service, now, to, request.mask) {
        return Err(Errno::INVAL);
    }
    let change = Change {
        state: has(a::STATE).then_some(to),
        qkey: has(a::QKEY).then_some(request.qkey),
        retries: has(a::RNR_RETRIES).then_some(request.rnr_retries),
    };
    context.nic().with_srd(|device| device.change_qp(qp.number, change))?.map_err(refused)?;
    if has(a::SEND_PSN) {
        told.send_psn = request.sq_psn;
    }
    if has(a::RNR_RETRIES) {
        told.retries = request.rnr_retries;
    }
    Ok(())
}

/// The state and the key.
fn state(context: &Context, qp: &Qp) -> Result<(State, u32), Errno> {
    context.nic().with_srd(|device| device.qp(qp.number))?.ok_or(Errno::INVAL)
}

/// QUERY_QP.
pub fn query(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let request: QueryQp = core.request()?;
    core.check_room::<QueryQpResponse>()?;
    let qp = context.get::<Qp>(request.handle)?;
    let told = *qp.told();
    let (state, qkey) = state(context, &qp)?;
    core.reply(&QueryQpResponse {
        cap: qp.cap,
        qkey,
        sq_psn: told.send_psn,
        rnr_retries: told.retries,
        state: state as u8,
        current_state: state as u8,
        port: PORT,
        signal_all: qp.signal_all.into(),
        ..QueryQpResponse::default()
    })
}
