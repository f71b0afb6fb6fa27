//! Commands that make, destroy and read targets of dynamically connected transport.

use super::create::check_pd;
use super::limits::LOG_MAX_MESSAGE;
use crate::dc::Target;
use crate::dc_target;
use crate::endpoint::Service;
use crate::hca::Hca;
use crate::status::Refusal;
use shunt_layout::mlx5::prm::cmd::output;
use shunt_layout::mlx5::prm::dct::{DCTC_OFFSET, STATE_ACTIVE, dctc};
use shunt_layout::mlx5::prm::qp::{self, ATOMIC_MODE_UP_TO_8, qpc};

pub(super) fn create_dct(hca: &mut Hca, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    let asked = &mailbox[DCTC_OFFSET..DCTC_OFFSET + dctc::BYTES];
    let mtu = dctc::MTU.get(asked);
    if !(1..=5).contains(&mtu)
        || 128 << mtu > hca.units.config.mtu
        || dctc::ATOMIC_MODE.get(asked) > ATOMIC_MODE_UP_TO_8
    {
        return Err(Refusal::DctShape);
    }
    check_pd(hca, dctc::PD.get(asked))?;
    let (cqn, rmpn) = (dctc::CQN.get(asked), dctc::SRQN_XRQN.get(asked));
    let units = &mut hca.units;
    units.cqs.get(cqn).ok_or(Refusal::NoSuchCq)?;
    let pool = units.pools.get_mut(rmpn).ok_or(Refusal::NoSuchRmp)?;
    if pool.pd != dctc::PD.get(asked) {
        return Err(Refusal::PoolDomain);
    }
    let (dctn, next_ticket) = hca.qps.next_number().ok_or(Refusal::NumbersUsedUp)?;
    pool.users += 1;
    units.cqs.hold(cqn);
    let mut context = [0; qpc::BYTES];
    let fields = [
        (qpc::PD, dctc::PD.get(asked)),
        (qpc::USER_INDEX, dctc::USER_INDEX.get(asked)),
        (qpc::MTU, mtu),
        (qpc::ATOMIC_MODE, dctc::ATOMIC_MODE.get(asked)),
        (qpc::RRE, dctc::RRE.get(asked)),
        (qpc::RWE, dctc::RWE.get(asked)),
        (qpc::RAE, dctc::RAE.get(asked)),
        (qpc::MIN_RNR_NAK, dctc::MIN_RNR_NAK.get(asked)),
        (qpc::CQN_RCV, cqn),
        (qpc::RQ_TYPE, qp::RQ_TYPE_SHARED),
        (qpc::SRQN_RMPN_XRQN, rmpn),
    ];
    for (field, value) in fields {
        field.set(&mut context, value);
    }
    let mut target = dc_target::silent(dctn, next_ticket, Service::DcTarget, LOG_MAX_MESSAGE, context);
    target.target = Some(Box::new(Target::new(dctc::DC_ACCESS_KEY.get(asked))));
    hca.qps.add(target);
    output::OBJECT.set(out, dctn);
    Ok(())
}

pub(super) fn destroy_dct(hca: &mut Hca, dctn: u32) -> Result<(), Refusal> {
    let units = &mut hca.units;
    let reused = units.config.quirks.qpn_reused;
    let target = dc_target::end(&mut hca.qps, units, dctn, reused).ok_or(Refusal::NoSuchDct)?;
    let context = &target.endpoint.context;
    units.cqs.release(qpc::CQN_RCV.get(context));
    if let Some(pool) = units.pools.get_mut(qpc::SRQN_RMPN_XRQN.get(context)) {
        pool.users -= 1;
    }
    Ok(())
}

pub(super) fn query_dct(hca: &Hca, dctn: u32, out: &mut [u8]) -> Result<(), Refusal> {
    let qp = hca.qps.get(dctn).ok_or(Refusal::NoSuchDct)?;
    let target = qp.target.as_ref().ok_or(Refusal::NoSuchDct)?;
    let (from, told) = (&qp.endpoint.context, &mut out[DCTC_OFFSET..DCTC_OFFSET + dctc::BYTES]);
    let fields = [
        (dctc::STATE, STATE_ACTIVE),
        (dctc::USER_INDEX, qpc::USER_INDEX.get(from)),
        (dctc::CQN, qpc::CQN_RCV.get(from)),
        (dctc::ATOMIC_MODE, qpc::ATOMIC_MODE.get(from)),
        (dctc::RRE, qpc::RRE.get(from)),
        (dctc::RWE, qpc::RWE.get(from)),
        (dctc::RAE, qpc::RAE.get(from)),
        (dctc::MIN_RNR_NAK, qpc::MIN_RNR_NAK.get(from)),
        (dctc::SRQN_XRQN, qpc::SRQN_RMPN_XRQN.get(from)),
        (dctc::PD, qpc::PD.get(from)),
        (dctc::MTU, qpc::MTU.get(from)),
    ];
    for (field, value) in fields {
        field.set(told, value);
    }
    dctc::DC_ACCESS_KEY.set(told, target.key);
    Ok(())
}
