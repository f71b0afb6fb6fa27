//! Commands that move queue pairs from state to state.

use super::limits::{LOG_MAX_MESSAGE, LOG_MAX_READS};
use crate::config::{AtomicCount, LinkLayer, NicConfig};
use crate::endpoint::{Endpoint, Remote, Service};
use crate::hca::Hca;
use crate::qp::{Qp, QpTable};
use crate::responder::Rights;
use crate::retry::Retries;
use crate::status::Refusal;
use shunt_layout::bits::Field;
use shunt_layout::mlx5::prm::qp::{
    ADS_OFFSET, PM_STATE_MIGRATED, QPC_OFFSET, State, ads, answer, change, optional, qpc,
};

/// Local ACK timeout of a field value: 4.096 us << value, 0 for never.
fn timeout_ns(value: u32) -> u64 {
    if value == 0 { 0 } else { 4096 << value }
}

/// The queue pair context inside a mailbox.
fn context(mailbox: &[u8]) -> &[u8] {
    &mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES]
}

/// The address path inside a context.
fn path(context: &[u8]) -> &[u8] {
    &context[ADS_OFFSET..ADS_OFFSET + ads::BYTES]
}

/// Takes fields over into the context that QUERY_QP shows.
fn adopt(qp: &mut Endpoint, from: &[u8], fields: &[Field]) {
    for field in fields {
        field.set(&mut qp.context, field.get(from));
    }
}

/// Changes the fields that bits of `opt_param_mask` name. The rest of the mask names what this NIC has not, or takes
/// with the transition anyway.
fn change_optional(qp: &mut Qp, new: &[u8], mask: u32) {
    let fields = [
        (optional::RRE, qpc::RRE),
        (optional::RAE, qpc::RAE),
        (optional::RAE, qpc::ATOMIC_MODE),
        (optional::RWE, qpc::RWE),
        (optional::PKEY_INDEX, ads::PKEY_INDEX.within(ADS_OFFSET)),
        (optional::RNR_TIMEOUT, qpc::MIN_RNR_NAK),
    ];
    let endpoint = &mut qp.endpoint;
    for (bit, field) in fields {
        if mask & bit != 0 {
            adopt(endpoint, new, &[field]);
        }
    }
    if mask & optional::Q_KEY != 0 && endpoint.service == Service::Datagram {
        adopt(endpoint, new, &[qpc::Q_KEY]);
        endpoint.qkey = qpc::Q_KEY.get(new);
    }
    let now = &endpoint.context;
    let rights = Rights {
        read: qpc::RRE.get(now) == 1,
        write: qpc::RWE.get(now) == 1,
        atomic: qpc::RAE.get(now) == 1 && qpc::ATOMIC_MODE.get(now) != 0,
    };
    qp.responder.allow(rights, qpc::MIN_RNR_NAK.get(now) as u8);
}

/// The queue pair, if it is in `from`.
fn in_state(qps: &mut QpTable, qpn: u32, from: State) -> Result<&mut Qp, Refusal> {
    let qp = qps.get_mut(qpn).ok_or(Refusal::NoSuchQp)?;
    if qp.endpoint.state == from { Ok(qp) } else { Err(Refusal::QpState) }
}

/// The options of ECE that are in force after a transition: what was settled stays, and a queue pair that is connected
/// settles nothing.
fn check_ece(config: &NicConfig, qp: &Endpoint, mailbox: &[u8]) -> Result<u32, Refusal> {
    let (wanted, ece) = (change::ECE.get(mailbox), config.profile.ece);
    if wanted == 0 {
        return Ok(qp.ece);
    }
    if !ece.is_there() {
        return Err(Refusal::NoEce);
    }
    let met = ece.reduced(wanted).ok_or(Refusal::NoSuchEce)?;
    let open = qp.ece == 0 && matches!(qp.state, State::Rst | State::Init);
    if open || met == qp.ece { Ok(met) } else { Err(Refusal::EceSettled) }
}

/// Puts them in force, and says so.
fn settle_ece(qp: &mut Endpoint, options: u32, out: &mut [u8]) {
    qp.ece = options;
    answer::ECE.set(out, options);
}

pub(super) fn rst2init(hca: &mut Hca, qpn: u32, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    let qp = in_state(&mut hca.qps, qpn, State::Rst)?;
    let new = context(mailbox);
    if qpc::PM_STATE.get(new) != PM_STATE_MIGRATED {
        return Err(Refusal::PathMigration);
    }
    let options = check_ece(&hca.units.config, &qp.endpoint, mailbox)?;
    settle_ece(&mut qp.endpoint, options, out);
    adopt(&mut qp.endpoint, new, &[qpc::PM_STATE, ads::VHCA_PORT_NUM.within(ADS_OFFSET)]);
    qp.responder.set_msn(hca.units.config.quirks.first_msn);
    let required = optional::RRE | optional::RAE | optional::RWE | optional::PKEY_INDEX | optional::Q_KEY;
    change_optional(qp, new, required);
    qp.endpoint.state = State::Init;
    Ok(())
}

/// INIT2INIT and RTS2RTS: changes what `opt_param_mask` names, and leaves the state.
pub(super) fn same_state(
    hca: &mut Hca,
    qpn: u32,
    state: State,
    mailbox: &[u8],
    out: &mut [u8],
) -> Result<(), Refusal> {
    let qp = in_state(&mut hca.qps, qpn, state)?;
    let options = check_ece(&hca.units.config, &qp.endpoint, mailbox)?;
    settle_ece(&mut qp.endpoint, options, out);
    change_optional(qp, context(mailbox), change::OPT_PARAM_MASK.get(mailbox));
    Ok(())
}

/// Refuses what INIT2RTR must not ask for on this NIC.
fn check_init2rtr(config: &NicConfig, qp: &Endpoint, new: &[u8]) -> Result<(), Refusal> {
    let code = qpc::MTU.get(new);
    if !(1..=5).contains(&code) || 128 << code > config.mtu {
        return Err(Refusal::PathMtu);
    }
    if qpc::LOG_MSG_MAX.get(new) > LOG_MAX_MESSAGE {
        return Err(Refusal::MessageSize);
    }
    let profile = &config.profile;
    if ads::FL.get(path(new)) == 1 && !profile.may_force_loopback(config.link_layer) {
        return Err(Refusal::NoForceLoopback);
    }
    check_pkey(config, ads::PKEY_INDEX.within(ADS_OFFSET).get(&qp.context))?;
    // Out of order: READs and WRITEs (1), or all (2), which no profile has.
    match (qpc::DP_ORDERING_1.get(new), qpc::DP_ORDERING_0.get(new)) {
        (0, 0) => {}
        (0, 1) if profile.order.out_of_order => {}
        _ => return Err(Refusal::NoSuchOrder),
    }
    if qpc::LOG_RRA_MAX.get(new) > LOG_MAX_READS { Err(Refusal::ReadDepth) } else { Ok(()) }
}

pub(super) fn init2rtr(hca: &mut Hca, qpn: u32, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    let (qp, config) = (in_state(&mut hca.qps, qpn, State::Init)?, &hca.units.config);
    let new = context(mailbox);
    check_init2rtr(config, &qp.endpoint, new)?;
    let options = check_ece(config, &qp.endpoint, mailbox)?;
    settle_ece(&mut qp.endpoint, options, out);
    let fields = [
        qpc::MTU,
        qpc::LOG_MSG_MAX,
        qpc::REMOTE_QPN,
        qpc::NEXT_RCV_PSN,
        qpc::LOG_RRA_MAX,
        qpc::MIN_RNR_NAK,
        qpc::DP_ORDERING_0,
        qpc::DP_ORDERING_1,
        qpc::DP_ORDERING_FORCE,
    ];
    let endpoint = &mut qp.endpoint;
    adopt(endpoint, new, &fields);
    let (port, pkey) = (ads::VHCA_PORT_NUM.within(ADS_OFFSET), ads::PKEY_INDEX.within(ADS_OFFSET));
    let kept = (port.get(&endpoint.context), pkey.get(&endpoint.context));
    endpoint.context[ADS_OFFSET..ADS_OFFSET + ads::BYTES].copy_from_slice(path(new));
    port.set(&mut endpoint.context, kept.0);
    pkey.set(&mut endpoint.context, kept.1);
    endpoint.mtu = 128 << qpc::MTU.get(new);
    endpoint.log_max_message = qpc::LOG_MSG_MAX.get(new);
    if endpoint.service == Service::Reliable {
        endpoint.remote = remote_of(config.link_layer, new);
    }
    qp.responder.start(qpc::NEXT_RCV_PSN.get(new), 1 << qpc::LOG_RRA_MAX.get(new));
    change_optional(qp, new, change::OPT_PARAM_MASK.get(mailbox) & !optional::RNR_TIMEOUT);
    qp.endpoint.state = State::Rtr;
    Ok(())
}

/// Refuses an index of the port's partition table that has no valid entry.
fn check_pkey(config: &NicConfig, index: u32) -> Result<(), Refusal> {
    let entry = config.pkeys.get(index as usize);
    if entry.is_some_and(|pkey| pkey & 0x7fff != 0) { Ok(()) } else { Err(Refusal::BadPkeyIndex) }
}

/// The other end that a context names.
fn remote_of(link_layer: LinkLayer, context: &[u8]) -> Remote {
    let path = path(context);
    let by_lid = link_layer == LinkLayer::InfiniBand && ads::GRH.get(path) == 0;
    let address = if by_lid { ads::RLID.get(path) as u128 } else { u128::from_be_bytes(ads::rgid(path)) };
    let mac = (ads::RMAC_47_32.get(path) as u64) << 32 | ads::RMAC_31_0.get(path) as u64;
    Remote::at(qpc::REMOTE_QPN.get(context), address, mac)
}

pub(super) fn rtr2rts(hca: &mut Hca, qpn: u32, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    let qp = in_state(&mut hca.qps, qpn, State::Rtr)?;
    let new = context(mailbox);
    if qpc::LOG_SRA_MAX.get(new) > LOG_MAX_READS {
        return Err(Refusal::ReadDepth);
    }
    let options = check_ece(&hca.units.config, &qp.endpoint, mailbox)?;
    settle_ece(&mut qp.endpoint, options, out);
    let ack_timeout = ads::ACK_TIMEOUT.within(ADS_OFFSET);
    let fields = [
        qpc::RETRY_COUNT,
        qpc::RNR_RETRY,
        qpc::NEXT_SEND_PSN,
        qpc::LOG_SRA_MAX,
        qpc::LOG_ACK_REQ_FREQ,
        ack_timeout,
    ];
    adopt(&mut qp.endpoint, new, &fields);
    let retries = Retries::new(
        qpc::RETRY_COUNT.get(new),
        qpc::RNR_RETRY.get(new),
        timeout_ns(ack_timeout.get(new)),
        hca.units.config.quirks.adaptive_retransmission,
    );
    qp.requester.start(qpc::NEXT_SEND_PSN.get(new), 1 << qpc::LOG_SRA_MAX.get(new), retries);
    change_optional(qp, new, change::OPT_PARAM_MASK.get(mailbox));
    qp.endpoint.state = State::Rts;
    // Doorbells that came before are good now.
    hca.recheck.push(qpn);
    Ok(())
}

pub(super) fn err_qp(hca: &mut Hca, now: u64, qpn: u32) -> Result<(), Refusal> {
    let (qp, units) = (hca.qps.get_mut(qpn).ok_or(Refusal::NoSuchQp)?, &mut hca.units);
    match qp.endpoint.state {
        State::Rst => return Err(Refusal::QpState),
        State::Err => {}
        _ => {
            qp.enter_error(units, now);
            qp.requester.share.let_go(units);
        }
    }
    if units.config.quirks.rmsn_cleared_by_2err {
        qp.responder.set_msn(0);
    }
    if units.config.quirks.atomic_count == AtomicCount::Accepted {
        units.placement.drop_atomics(qpn);
    }
    Ok(())
}

pub(super) fn reset_qp(hca: &mut Hca, qpn: u32) -> Result<(), Refusal> {
    hca.qps.get_mut(qpn).ok_or(Refusal::NoSuchQp)?.reset(&mut hca.units);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_timeouts_are_those_of_ibta() {
        assert_eq!(timeout_ns(0), 0);
        assert_eq!(timeout_ns(8), 1_048_576);
        assert_eq!(timeout_ns(20), 4_294_967_296);
        assert_eq!(timeout_ns(31), 4096 << 31);
    }
}
