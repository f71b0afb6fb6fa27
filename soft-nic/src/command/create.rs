//! Commands that make and destroy objects.

use super::Refusal;
use super::transition::LOG_MAX_MESSAGE;
use crate::arm::Arming;
use crate::fault::FaultKind;
use crate::memory::{Mkey, Span};
use crate::nic::{FIRST_CQN, FIRST_QPN, SoftNic};
use crate::object::Cq;
use crate::qp::{Qp, Remote, Requester, Responder, Service};
use crate::receive::ReceiveQueue;
use shunt_layout::bits::{Field, Field64};
use shunt_layout::mlx5::cqe::{CQE_BYTES, OPCODE_QPN_OFFSET, TAIL_OFFSET, opcode};
use shunt_layout::mlx5::doorbell::{ARM_WORD_OFFSET, RECORD_BYTES};
use shunt_layout::mlx5::prm::cmd::output;
use shunt_layout::mlx5::prm::qp::{self, QPC_OFFSET, State, qpc};
use shunt_layout::mlx5::prm::{cq, mkey};
use shunt_layout::mlx5::wqe::{SEGMENT_BYTES, WQEBB_BYTES};

/// Largest CQ, log2 of entries.
pub(super) const LOG_MAX_CQ: u32 = 22;
/// Largest send queue, log2 of blocks.
pub(super) const LOG_MAX_SQ: u32 = 15;

/// A queue pair's receive queue, if it has one, and the bytes it takes.
type Receiving = (Option<Box<ReceiveQueue>>, u64);

/// Where a queue lies: fields of umem and offset, page offset, bytes, alignment.
pub(super) struct Place {
    pub(super) umem: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) align: u64,
}

impl SoftNic {
    pub(super) fn locate(&self, place: Place) -> Result<Span, Refusal> {
        self.memory.span(place.umem, 0, 0).ok_or(Refusal::NoSuchUmem)?;
        let span = self.memory.span(place.umem, place.offset, place.bytes).ok_or(Refusal::OutsideUmem)?;
        if span.address().is_multiple_of(place.align) { Ok(span) } else { Err(Refusal::Unaligned) }
    }

    /// Where a queue starts in its umem: a multiple of the page size that firmware deduces, and 64-byte units in it.
    fn queue_offset(&self, umem_offset: u64, page_offset: u32) -> Result<u64, Refusal> {
        if !umem_offset.is_multiple_of(self.config.profile.umem_align) {
            return Err(Refusal::UmemPage);
        }
        umem_offset.checked_add(page_offset as u64 * 64).ok_or(Refusal::OutsideUmem)
    }

    fn has_uar(&self, id: u32) -> bool {
        self.uars.get((id as usize).wrapping_sub(1)).is_some_and(|slot| slot.used)
    }

    pub(super) fn has_pd(&self, pd: u32) -> bool {
        self.pds.get((pd as usize).wrapping_sub(1)).copied().unwrap_or(false)
    }

    pub(super) fn alloc_pd(&mut self, out: &mut [u8]) -> Result<(), Refusal> {
        self.pds.push(true);
        output::OBJECT.set(out, self.pds.len() as u32);
        Ok(())
    }

    pub(super) fn dealloc_pd(&mut self, pd: u32) -> Result<(), Refusal> {
        if !self.has_pd(pd) {
            return Err(Refusal::NoSuchPd);
        }
        let pools = self.pools.iter().flatten().any(|pool| pool.pd == pd);
        if pools || self.memory.uses_pd(pd) || self.qps.iter().flatten().any(|qp| qp.pd == pd) {
            return Err(Refusal::PdBusy);
        }
        self.pds[pd as usize - 1] = false;
        Ok(())
    }

    pub(super) fn create_mkey(&mut self, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
        let context = &mailbox[mkey::MKC_OFFSET..mkey::MKC_OFFSET + mkey::mkc::BYTES];
        let get = |field: Field| field.get(context);
        let mtt = get(mkey::mkc::ACCESS_MODE_1_0) == mkey::ACCESS_MODE_MTT;
        let umem_valid = mkey::create::MKEY_UMEM_VALID.get(mailbox) == 1;
        if !mtt || !umem_valid || get(mkey::mkc::FREE) == 1 || get(mkey::mkc::LENGTH64) == 1 {
            return Err(Refusal::MkeyAccessMode);
        }
        let pd = get(mkey::mkc::PD);
        if !self.has_pd(pd) {
            return Err(Refusal::NoSuchPd);
        }
        let umem = mkey::create::MKEY_UMEM_ID.get(mailbox);
        let offset = mkey::create::MKEY_UMEM_OFFSET.get(mailbox);
        let bytes = mkey::mkc::LEN.get(context);
        let start = mkey::mkc::START_ADDR.get(context);
        if bytes == 0 || start.checked_add(bytes).is_none() {
            return Err(Refusal::EmptyMkey);
        }
        let octwords = mkey::translation_octwords(start, bytes, get(mkey::mkc::LOG_PAGE_SIZE));
        let given = [
            get(mkey::mkc::TRANSLATIONS_OCTWORD_SIZE),
            mkey::create::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.get(mailbox),
        ];
        if get(mkey::mkc::LOG_PAGE_SIZE) < 12 || given[0] != given[1] || given[0] < octwords {
            return Err(Refusal::MkeyTranslations);
        }
        let span = self.locate(Place { umem, offset, bytes, align: 1 })?;
        let rights = [mkey::mkc::LR, mkey::mkc::LW, mkey::mkc::RR, mkey::mkc::RW, mkey::mkc::A]
            .map(|field| get(field) as u8);
        let allows = rights.iter().enumerate().fold(0, |bits, (n, right)| bits | right << n);
        let low_byte = get(mkey::mkc::MKEY_7_0) as u8;
        let qpn = get(mkey::mkc::QPN);
        let relaxed = get(mkey::mkc::RELAXED_ORDERING_WRITE) == 1;
        number(0, self.memory.mkeys_made())?;
        let index =
            self.memory.add_mkey(low_byte, Mkey { key: 0, pd, qpn, start, span, allows, relaxed, umem });
        output::OBJECT.set(out, index);
        Ok(())
    }

    pub(super) fn destroy_mkey(&mut self, index: u32) -> Result<(), Refusal> {
        if self.memory.remove_mkey(index) { Ok(()) } else { Err(Refusal::NoSuchMkey) }
    }

    pub(super) fn create_cq(&mut self, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
        let mut context = [0; cq::cqc::BYTES];
        context.copy_from_slice(&mailbox[cq::CQC_OFFSET..cq::CQC_OFFSET + cq::cqc::BYTES]);
        let get = |field: Field| field.get(&context);
        let log_size = get(cq::cqc::LOG_CQ_SIZE);
        let plain = get(cq::cqc::CQE_SZ) == 0 && get(cq::cqc::CQE_COMP_EN) == 0;
        if !plain || log_size > LOG_MAX_CQ || get(cq::cqc::DBR_UMEM_VALID) == 0 {
            return Err(Refusal::CqShape);
        }
        if !self.has_uar(get(cq::cqc::UAR_PAGE)) {
            return Err(Refusal::NoSuchUar);
        }
        let umems = [cq::create::CQ_UMEM_ID.get(mailbox), get(cq::cqc::DBR_UMEM_ID)];
        let offset = self.queue_offset(cq::create::CQ_UMEM_OFFSET.get(mailbox), get(cq::cqc::PAGE_OFFSET))?;
        let bytes = (CQE_BYTES as u64) << log_size;
        let ring = self.locate(Place { umem: umems[0], offset, bytes, align: CQE_BYTES as u64 })?;
        let record = self.record(umems[1], cq::cqc::DBR_ADDR, &context)?;
        if self.faults.any() && self.faults.strikes(|kind| matches!(kind, FaultKind::CqeGarbageInit { .. })) {
            leave_remains(ring, if get(cq::cqc::CC) == 1 { 1 } else { 1 << log_size });
        }
        let cqn = number(FIRST_CQN, self.cqs.len())?;
        self.uars[get(cq::cqc::UAR_PAGE) as usize - 1].cqns.push(cqn);
        umems.iter().for_each(|umem| self.memory.hold(*umem));
        self.cqs.push(Some(Cq {
            ring,
            log_size,
            collapsed: get(cq::cqc::CC) == 1,
            overrun_ignore: get(cq::cqc::OI) == 1,
            record,
            produced: 0,
            failed: false,
            users: 0,
            umems,
            uar: get(cq::cqc::UAR_PAGE),
            arming: Arming::starting(record.load32(ARM_WORD_OFFSET as u64)),
            context,
        }));
        output::OBJECT.set(out, cqn);
        Ok(())
    }

    pub(super) fn record(&self, umem: u32, address: Field64, context: &[u8]) -> Result<Span, Refusal> {
        let offset = address.get(context);
        self.locate(Place { umem, offset, bytes: RECORD_BYTES as u64, align: RECORD_BYTES as u64 })
    }

    pub(super) fn destroy_cq(&mut self, cqn: u32) -> Result<(), Refusal> {
        let cq = self.cq_mut(cqn).ok_or(Refusal::NoSuchCq)?;
        if cq.users > 0 {
            return Err(Refusal::CqBusy);
        }
        let (umems, failed, uar) = (cq.umems, cq.failed, cq.uar);
        self.uars[uar as usize - 1].cqns.retain(|other| *other != cqn);
        self.failed_cqs -= failed as u32;
        umems.iter().for_each(|umem| self.memory.release(*umem));
        self.cqs[(cqn - FIRST_CQN) as usize] = None;
        Ok(())
    }

    pub(super) fn create_qp(&mut self, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
        let mut context = [0; qpc::BYTES];
        context.copy_from_slice(&mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES]);
        let get = |field: Field| field.get(&context);
        let service = match get(qpc::ST) {
            qp::SERVICE_RC => Service::Reliable,
            qp::SERVICE_UD => Service::Datagram,
            _ => return Err(Refusal::QpService),
        };
        let log_depth = get(qpc::LOG_SQ_SIZE);
        if log_depth > LOG_MAX_SQ || get(qpc::NO_SQ) == 1 || get(qpc::DBR_UMEM_VALID) == 0 {
            return Err(Refusal::QpShape);
        }
        let (pd, cqn, uar) = (get(qpc::PD), get(qpc::CQN_SND), get(qpc::UAR_PAGE));
        if !self.has_pd(pd) {
            return Err(Refusal::NoSuchPd);
        }
        if !self.has_uar(uar) {
            return Err(Refusal::NoSuchUar);
        }
        let umems = [qp::create::WQ_UMEM_ID.get(mailbox), get(qpc::DBR_UMEM_ID)];
        if !self.config.profile.has_clock(get(qpc::TS_FORMAT)) {
            return Err(Refusal::NoSuchClock);
        }
        let offset = self.queue_offset(qp::create::WQ_UMEM_OFFSET.get(mailbox), get(qpc::PAGE_OFFSET))?;
        let (receive, receive_bytes) = self.receive_queue(umems[0], offset, &context)?;
        let offset = offset.checked_add(receive_bytes).ok_or(Refusal::OutsideUmem)?;
        let bytes = (WQEBB_BYTES as u64) << log_depth;
        let ring = self.locate(Place { umem: umems[0], offset, bytes, align: WQEBB_BYTES as u64 })?;
        let record = self.record(umems[1], qpc::DBR_ADDR, &context)?;
        let next = (number(FIRST_QPN, self.qps.len())?, 0);
        self.cq_mut(cqn).ok_or(Refusal::NoSuchCq)?.users += 1;
        if let Some(cq) = receive.as_ref().and_then(|queue| self.cq_mut(queue.cqn)) {
            cq.users += 1;
        }
        if let Some(pool) = receive.as_ref().and_then(|queue| self.pool_mut(queue.pool()?)) {
            pool.users += 1;
        }
        umems.iter().for_each(|umem| self.memory.hold(*umem));
        let (qpn, next_ticket) = self.free_qpns.pop().unwrap_or(next);
        self.uars[uar as usize - 1].qpns.push(qpn);
        let pair = Qp {
            qpn,
            state: State::Rst,
            service,
            qkey: 0,
            pd,
            cqn,
            user_index: get(qpc::USER_INDEX),
            uar,
            ring,
            log_depth,
            receive,
            record,
            umems,
            mtu: 256,
            log_max_message: LOG_MAX_MESSAGE,
            remote: Remote::none(),
            requester: Requester::new(),
            responder: Responder { next_ticket, ..Responder::new() },
            queued: false,
            context,
        };
        if qpn == next.0 {
            self.qps.push(None);
        }
        self.put_qp(Box::new(pair));
        output::OBJECT.set(out, qpn);
        Ok(())
    }

    /// The receive queue a context describes, and its bytes: it lies in front of the send queue.
    fn receive_queue(&mut self, umem: u32, offset: u64, context: &[u8]) -> Result<Receiving, Refusal> {
        let kind = qpc::RQ_TYPE.get(context);
        if kind == qp::RQ_TYPE_ZERO_SIZE {
            return Ok((None, 0));
        }
        let cqn = qpc::CQN_RCV.get(context);
        self.cq_mut(cqn).ok_or(Refusal::NoSuchCq)?;
        match kind {
            qp::RQ_TYPE_REGULAR => {}
            qp::RQ_TYPE_SHARED => {
                let rmpn = qpc::SRQN_RMPN_XRQN.get(context);
                let pool = self.pool_mut(rmpn).ok_or(Refusal::NoSuchRmp)?;
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
        let ring = self.locate(Place { umem, offset, bytes, align: WQEBB_BYTES as u64 })?;
        Ok((Some(Box::new(ReceiveQueue::new(cqn, ring, log_depth, stride))), bytes))
    }

    pub(super) fn destroy_qp(&mut self, qpn: u32) -> Result<(), Refusal> {
        let mut qp = self.take_qp(qpn).ok_or(Refusal::NoSuchQp)?;
        self.let_go(&mut qp);
        self.port.forget(qpn);
        self.uars[qp.uar as usize - 1].qpns.retain(|other| *other != qpn);
        qp.umems.iter().for_each(|umem| self.memory.release(*umem));
        let receives_at = qp.receive.as_ref().map(|queue| queue.cqn);
        if let Some(pool) = qp.receive.as_ref().and_then(|queue| self.pool_mut(queue.pool()?)) {
            pool.users -= 1;
        }
        for cqn in [Some(qp.cqn), receives_at].into_iter().flatten() {
            if let Some(cq) = self.cq_mut(cqn) {
                cq.users -= 1;
            }
        }
        if self.config.quirks.qpn_reused {
            self.free_qpns.push((qpn, qp.responder.next_ticket));
        }
        Ok(())
    }
}

/// The number of the next object: none is used twice, and they are 24 bits wide.
fn number(first: u32, made: usize) -> Result<u32, Refusal> {
    let number = u32::try_from(made).ok().and_then(|made| made.checked_add(first));
    number.filter(|number| *number < 0xff_f000).ok_or(Refusal::NumbersUsedUp)
}

/// Fills completion entries with the remains of an earlier queue, as memory that was one holds them: completions of
/// the very indices that are waited for. Of what software wrote, only the ownership byte stays in every other
/// entry, and the owner bit in all of them.
fn leave_remains(ring: Span, entries: u64) {
    for slot in 0..entries {
        let entry = ring.part(slot * CQE_BYTES as u64, CQE_BYTES as u64);
        let last = entry.load64(CQE_BYTES as u64 - 8).to_ne_bytes();
        let mut cqe = [0xa5; CQE_BYTES];
        cqe[OPCODE_QPN_OFFSET..].copy_from_slice(&last);
        cqe[OPCODE_QPN_OFFSET] = 0x08; // RDMA WRITE
        cqe[TAIL_OFFSET..][..2].copy_from_slice(&(slot as u16).to_be_bytes());
        if slot % 2 == 1 {
            cqe[CQE_BYTES - 1] = last[7] & 1 | opcode::REQ << 4;
        }
        entry.store(&cqe);
    }
}
