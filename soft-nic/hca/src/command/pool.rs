//! Commands about receive memory pools.

use super::create::{Place, check_pd, locate, record};
use super::limits::LOG_MAX_POOL;
use crate::hca::Hca;
use crate::shared_receive::SharedReceive;
use crate::status::Refusal;
use crate::units::Units;
use shunt_layout::bits::Field;
use shunt_layout::mlx5::prm::cmd::output;
use shunt_layout::mlx5::prm::rmp::{self, RMPC_OFFSET, modify, rmpc};
use shunt_layout::mlx5::wqe::WQEBB_BYTES;

/// WQEs of 32 bytes, one place to scatter to, up to 2 KiB; log2.
const LOG_STRIDE: std::ops::RangeInclusive<u32> = 5..=11;
/// MODIFY_RMP changes the limit.
const CHANGES_LIMIT: u32 = 1;

pub(super) fn create_rmp(hca: &mut Hca, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    let mut context = [0; rmpc::BYTES];
    context.copy_from_slice(&mailbox[RMPC_OFFSET..RMPC_OFFSET + rmpc::BYTES]);
    let get = |field: Field| field.get(&context);
    let (log_depth, log_stride) = (get(rmpc::LOG_WQ_SZ), get(rmpc::LOG_WQ_STRIDE));
    let linked = get(rmpc::WQ_TYPE) == rmp::WQ_TYPE_LINKED_LIST && get(rmpc::DBR_UMEM_VALID) == 1;
    if !linked || log_depth > LOG_MAX_POOL || !LOG_STRIDE.contains(&log_stride) {
        return Err(Refusal::RmpShape);
    }
    let pd = get(rmpc::PD);
    check_pd(hca, pd)?;
    hca.units.pools.next_number().ok_or(Refusal::NumbersUsedUp)?;
    let umems = [get(rmpc::WQ_UMEM_ID), get(rmpc::DBR_UMEM_ID)];
    let offset = rmpc::WQ_UMEM_OFFSET
        .get(&context)
        .checked_add(get(rmpc::PAGE_OFFSET) as u64 * WQEBB_BYTES as u64)
        .ok_or(Refusal::OutsideUmem)?;
    let stride = 1u64 << log_stride;
    let ring =
        locate(&hca.units.memory, Place { umem: umems[0], offset, bytes: stride << log_depth, align: 32 })?;
    let record = record(&hca.units.memory, umems[1], rmpc::DBR_ADDR, &context)?;
    hca.units.memory.hold(&umems);
    let pool = SharedReceive::new(pd, ring, log_depth, stride, record, umems, context);
    output::OBJECT.set(out, hca.units.pools.add(pool));
    Ok(())
}

pub(super) fn modify_rmp(units: &mut Units, now: u64, mailbox: &[u8]) -> Result<(), Refusal> {
    let rmpn = modify::RMPN.get(mailbox);
    let pool = units.pools.get_mut(rmpn).ok_or(Refusal::NoSuchRmp)?;
    if modify::BITMASK_LOW.get(mailbox) & CHANGES_LIMIT != 0 {
        pool.limit = rmpc::LWM.within(RMPC_OFFSET).get(mailbox);
        units.look_at_limit(rmpn, now);
    }
    Ok(())
}

pub(super) fn query_rmp(units: &Units, rmpn: u32, out: &mut [u8]) -> Result<(), Refusal> {
    let pool = units.pools.get(rmpn).ok_or(Refusal::NoSuchRmp)?;
    let context = &mut out[RMPC_OFFSET..RMPC_OFFSET + rmpc::BYTES];
    context.copy_from_slice(&pool.context);
    rmpc::STATE.set(context, rmp::STATE_READY);
    rmpc::LWM.set(context, pool.limit);
    Ok(())
}

pub(super) fn destroy_rmp(units: &mut Units, rmpn: u32) -> Result<(), Refusal> {
    let pool = units.pools.get(rmpn).ok_or(Refusal::NoSuchRmp)?;
    if pool.users > 0 {
        return Err(Refusal::RmpBusy);
    }
    let umems = pool.umems;
    units.memory.release(&umems);
    units.pools.remove(rmpn);
    Ok(())
}
