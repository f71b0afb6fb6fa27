//! Commands that make and destroy queue pairs.

use super::create::{Place, check_pd, check_uar, locate, queue_offset, record};
use super::limits::{LOG_MAX_MESSAGE, LOG_MAX_SQ};
use crate::endpoint::{Endpoint, Service};
use crate::fetch::SendRing;
use crate::hca::Hca;
use crate::memory::Span;
use crate::qp::Qp;
use crate::receive_queue::ReceiveQueue;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::status::Refusal;
use crate::units::Units;
use shunt_layout::bits::Field;
use shunt_layout::mlx5::prm::cmd::output;
use shunt_layout::mlx5::prm::qp::{self, QPC_OFFSET, qpc};
use shunt_layout::mlx5::wqe::{SEGMENT_BYTES, WQEBB_BYTES};

/// A queue pair's receive queue, if it has one, and the bytes it takes.
type Receiving = (Option<Box<ReceiveQueue>>, u64);

pub(super) fn create_qp(hca: &mut Hca, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    let mut context = [0; qpc::BYTES];
    context.copy_from_slice(&mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES]);
    let get = |field: Field| field.get(&context);
    let service = match get(qpc::ST) {
        qp::SERVICE_RC => Service::Reliable,
        qp::SERVICE_UD => Service::Datagram,
        qp::SERVICE_DC_INITIATOR => Service::DcInitiator,
        _ => return Err(Refusal::QpService),
    };
    let log_depth = get(qpc::LOG_SQ_SIZE);
    if log_depth > LOG_MAX_SQ || get(qpc::NO_SQ) == 1 || get(qpc::DBR_UMEM_VALID) == 0 {
        return Err(Refusal::QpShape);
    }
    let (cqn, uar) = (get(qpc::CQN_SND), get(qpc::UAR_PAGE));
    check_pd(hca, get(qpc::PD))?;
    check_uar(hca, uar)?;
    let umems = [qp::create::WQ_UMEM_ID.get(mailbox), get(qpc::DBR_UMEM_ID)];
    let profile = &hca.units.config.profile;
    if !profile.has_clock(get(qpc::TS_FORMAT)) {
        return Err(Refusal::NoSuchClock);
    }
    let asks_ece = qp::create::ECE.get(mailbox) != 0;
    if asks_ece && !profile.ece.is_there() {
        return Err(Refusal::NoEce);
    }
    // Options are of connections, and a queue pair that is not asked for them has none.
    let ece = if asks_ece && service == Service::Reliable { profile.ece.0 } else { 0 };
    let umem_offset = qp::create::WQ_UMEM_OFFSET.get(mailbox);
    let offset = queue_offset(profile.umem_align, umem_offset, get(qpc::PAGE_OFFSET))?;
    let units = &mut hca.units;
    let (receive, receive_bytes) = receive_queue(units, umems, offset, &context)?;
    let offset = offset.checked_add(receive_bytes).ok_or(Refusal::OutsideUmem)?;
    let bytes = (WQEBB_BYTES as u64) << log_depth;
    let ring = locate(&units.memory, Place { umem: umems[0], offset, bytes, align: WQEBB_BYTES as u64 })?;
    let record = record(&units.memory, umems[1], qpc::DBR_ADDR, &context)?;
    let (qpn, next_ticket) = hca.qps.next_number().ok_or(Refusal::NumbersUsedUp)?;
    units.cqs.get(cqn).ok_or(Refusal::NoSuchCq)?;
    units.cqs.hold(cqn);
    if let Some(queue) = &receive {
        units.cqs.hold(queue.cqn);
        if let Some(pool) = queue.pool().and_then(|rmpn| units.pools.get_mut(rmpn)) {
            pool.users += 1;
        }
    }
    units.memory.hold(&umems);
    hca.pages.set_rings(uar, qpn, true);
    hca.qps.add(Qp {
        endpoint: Endpoint::new(qpn, service, receive.is_some(), LOG_MAX_MESSAGE, context),
        requester: Requester::new(
            cqn,
            SendRing::new(ring, log_depth),
            record,
            service == Service::DcInitiator,
        ),
        responder: Responder::new(receive, next_ticket),
        uar,
        umems,
        target: None,
    });
    output::OBJECT.set(out, qpn);
    qp::answer::ECE.set(out, ece);
    Ok(())
}

/// The receive queue a context describes, and its bytes: it lies in front of the send queue.
fn receive_queue(units: &Units, umems: [u32; 2], offset: u64, context: &[u8]) -> Result<Receiving, Refusal> {
    let kind = qpc::RQ_TYPE.get(context);
    if kind == qp::RQ_TYPE_ZERO_SIZE {
        return Ok((None, 0));
    }
    let cqn = qpc::CQN_RCV.get(context);
    units.cqs.get(cqn).ok_or(Refusal::NoSuchCq)?;
    match kind {
        qp::RQ_TYPE_REGULAR => {}
        qp::RQ_TYPE_SHARED => {
            let rmpn = qpc::SRQN_RMPN_XRQN.get(context);
            let pool = units.pools.get(rmpn).ok_or(Refusal::NoSuchRmp)?;
            if pool.pd != qpc::PD.get(context) {
                return Err(Refusal::PoolDomain);
            }
            return Ok((Some(Box::new(ReceiveQueue::shared(cqn, rmpn))), 0));
        }
        _ => return Err(Refusal::QpReceiveQueue),
    }
    let log_depth = qpc::LOG_RQ_SIZE.get(context);
    let stride = (SEGMENT_BYTES as u64) << qpc::LOG_RQ_STRIDE.get(context);
    let bytes = stride << log_depth;
    let place = Place { umem: umems[0], offset, bytes, align: WQEBB_BYTES as u64 };
    let ring: Span = locate(&units.memory, place)?;
    let record = record(&units.memory, umems[1], qpc::DBR_ADDR, context)?;
    Ok((Some(Box::new(ReceiveQueue::new(cqn, ring, record, log_depth, stride))), bytes))
}

pub(super) fn destroy_qp(hca: &mut Hca, qpn: u32) -> Result<(), Refusal> {
    let units = &mut hca.units;
    let mut qp = hca.qps.remove(qpn, units.config.quirks.qpn_reused).ok_or(Refusal::NoSuchQp)?;
    qp.leave(units);
    hca.pages.set_rings(qp.uar, qpn, false);
    units.memory.release(&qp.umems);
    units.cqs.release(qp.requester.cqn);
    if let Some(queue) = &qp.responder.receive {
        units.cqs.release(queue.cqn);
        if let Some(pool) = queue.pool().and_then(|rmpn| units.pools.get_mut(rmpn)) {
            pool.users -= 1;
        }
    }
    Ok(())
}
