//! Commands that make and destroy protection domains, keys and completion queues.

use super::limits::LOG_MAX_CQ;
use crate::completion_queue::{CompletionQueue, Shape};
use crate::hca::Hca;
use crate::memory::{Memory, Mkey, Span};
use crate::status::Refusal;
use shunt_layout::bits::{Field, Field64};
use shunt_layout::mlx5::cqe::{CQE_BYTES, OPCODE_QPN_OFFSET, TAIL_OFFSET, opcode};
use shunt_layout::mlx5::doorbell::RECORD_BYTES;
use shunt_layout::mlx5::prm::cmd::output;
use shunt_layout::mlx5::prm::{cq, mkey};
use shunt_soft_fault::FaultKind;

/// Where a queue lies: umem, offset, bytes, alignment.
pub(super) struct Place {
    pub(super) umem: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) align: u64,
}

/// The memory of a place, if it lies in its umem.
pub(super) fn locate(memory: &Memory, place: Place) -> Result<Span, Refusal> {
    memory.span(place.umem, 0, 0).ok_or(Refusal::NoSuchUmem)?;
    let span = memory.span(place.umem, place.offset, place.bytes).ok_or(Refusal::OutsideUmem)?;
    if span.address().is_multiple_of(place.align) { Ok(span) } else { Err(Refusal::Unaligned) }
}

/// A doorbell record.
pub(super) fn record(memory: &Memory, umem: u32, address: Field64, context: &[u8]) -> Result<Span, Refusal> {
    let offset = address.get(context);
    locate(memory, Place { umem, offset, bytes: RECORD_BYTES as u64, align: RECORD_BYTES as u64 })
}

/// Where a queue starts in its umem: a multiple of the page size that firmware deduces, and 64-byte units in it.
pub(super) fn queue_offset(page_bytes: u64, umem_offset: u64, page_offset: u32) -> Result<u64, Refusal> {
    if !umem_offset.is_multiple_of(page_bytes) {
        return Err(Refusal::UmemPage);
    }
    umem_offset.checked_add(page_offset as u64 * 64).ok_or(Refusal::OutsideUmem)
}

/// Refuses a protection domain that is none.
pub(super) fn check_pd(hca: &Hca, pd: u32) -> Result<(), Refusal> {
    hca.pds.get(pd).copied().ok_or(Refusal::NoSuchPd)
}

/// Refuses a doorbell page that is none.
pub(super) fn check_uar(hca: &Hca, uar: u32) -> Result<(), Refusal> {
    if hca.pages.is_used(uar) { Ok(()) } else { Err(Refusal::NoSuchUar) }
}

pub(super) fn alloc_pd(hca: &mut Hca, out: &mut [u8]) -> Result<(), Refusal> {
    hca.pds.next_number().ok_or(Refusal::NumbersUsedUp)?;
    output::OBJECT.set(out, hca.pds.add(()));
    Ok(())
}

pub(super) fn dealloc_pd(hca: &mut Hca, pd: u32) -> Result<(), Refusal> {
    check_pd(hca, pd)?;
    let units = &hca.units;
    let pools = units.pools.iter().any(|pool| pool.pd == pd);
    if pools || units.memory.uses_pd(pd) || hca.qps.iter().any(|qp| qp.endpoint.pd == pd) {
        return Err(Refusal::PdBusy);
    }
    hca.pds.remove(pd);
    Ok(())
}

pub(super) fn create_mkey(hca: &mut Hca, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    let context = &mailbox[mkey::MKC_OFFSET..mkey::MKC_OFFSET + mkey::mkc::BYTES];
    let get = |field: Field| field.get(context);
    let mtt = get(mkey::mkc::ACCESS_MODE_1_0) == mkey::ACCESS_MODE_MTT;
    let umem_valid = mkey::create::MKEY_UMEM_VALID.get(mailbox) == 1;
    if !mtt || !umem_valid || get(mkey::mkc::FREE) == 1 || get(mkey::mkc::LENGTH64) == 1 {
        return Err(Refusal::MkeyAccessMode);
    }
    let pd = get(mkey::mkc::PD);
    check_pd(hca, pd)?;
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
    let span = locate(&hca.units.memory, Place { umem, offset, bytes, align: 1 })?;
    let rights = [mkey::mkc::LR, mkey::mkc::LW, mkey::mkc::RR, mkey::mkc::RW, mkey::mkc::A]
        .map(|field| get(field) as u8);
    let allows = rights.iter().enumerate().fold(0, |bits, (n, right)| bits | right << n);
    let low_byte = get(mkey::mkc::MKEY_7_0) as u8;
    let qpn = get(mkey::mkc::QPN);
    let relaxed = get(mkey::mkc::RELAXED_ORDERING_WRITE) == 1;
    let key = Mkey { key: 0, pd, qpn, start, span, allows, relaxed, umem };
    let index = hca.units.memory.add_mkey(low_byte, key).ok_or(Refusal::NumbersUsedUp)?;
    output::OBJECT.set(out, index);
    Ok(())
}

pub(super) fn destroy_mkey(memory: &mut Memory, index: u32) -> Result<(), Refusal> {
    if memory.remove_mkey(index) { Ok(()) } else { Err(Refusal::NoSuchMkey) }
}

pub(super) fn create_cq(hca: &mut Hca, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    let mut context = [0; cq::cqc::BYTES];
    context.copy_from_slice(&mailbox[cq::CQC_OFFSET..cq::CQC_OFFSET + cq::cqc::BYTES]);
    let get = |field: Field| field.get(&context);
    let log_size = get(cq::cqc::LOG_CQ_SIZE);
    let plain = get(cq::cqc::CQE_SZ) == 0 && get(cq::cqc::CQE_COMP_EN) == 0;
    if !plain || log_size > LOG_MAX_CQ || get(cq::cqc::DBR_UMEM_VALID) == 0 {
        return Err(Refusal::CqShape);
    }
    let uar = get(cq::cqc::UAR_PAGE);
    check_uar(hca, uar)?;
    let umems = [cq::create::CQ_UMEM_ID.get(mailbox), get(cq::cqc::DBR_UMEM_ID)];
    let (page_bytes, page_offset) = (hca.units.config.profile.umem_align, get(cq::cqc::PAGE_OFFSET));
    let offset = queue_offset(page_bytes, cq::create::CQ_UMEM_OFFSET.get(mailbox), page_offset)?;
    let bytes = (CQE_BYTES as u64) << log_size;
    let units = &mut hca.units;
    let ring = locate(&units.memory, Place { umem: umems[0], offset, bytes, align: CQE_BYTES as u64 })?;
    let record = record(&units.memory, umems[1], cq::cqc::DBR_ADDR, &context)?;
    let collapsed = get(cq::cqc::CC) == 1;
    let garbage = |kind: &FaultKind| matches!(kind, FaultKind::CqeGarbageInit { .. });
    if units.faults.any() && units.faults.strikes(garbage) {
        leave_remains(ring, if collapsed { 1 } else { 1 << log_size });
    }
    units.cqs.next_number().ok_or(Refusal::NumbersUsedUp)?;
    units.memory.hold(&umems);
    let overrun_ignore = get(cq::cqc::OI) == 1;
    let shape = Shape { ring, record, log_size, collapsed, overrun_ignore, umems, uar, context };
    let cqn = units.cqs.add(CompletionQueue::new(shape));
    hca.pages.set_arms(uar, cqn, true);
    output::OBJECT.set(out, cqn);
    Ok(())
}

pub(super) fn destroy_cq(hca: &mut Hca, cqn: u32) -> Result<(), Refusal> {
    let cqs = &mut hca.units.cqs;
    if cqs.get(cqn).ok_or(Refusal::NoSuchCq)?.users > 0 {
        return Err(Refusal::CqBusy);
    }
    if let Some(queue) = cqs.remove(cqn) {
        hca.pages.set_arms(queue.shape.uar, cqn, false);
        hca.units.memory.release(&queue.shape.umems);
    }
    Ok(())
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
