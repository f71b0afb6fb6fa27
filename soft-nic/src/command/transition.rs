//! Commands that move queue pairs from state to state.

use super::Refusal;
use crate::config::{AtomicCount, LinkLayer};
use crate::nic::SoftNic;
use crate::psn;
use crate::qp::{Qp, Remote, Service};
use shunt_layout::bits::Field;
use shunt_layout::mlx5::prm::qp::{
    ADS_OFFSET, PM_STATE_MIGRATED, QPC_OFFSET, State, ads, change, optional, qpc,
};

/// Outstanding READs and atomics, log2.
pub(super) const LOG_MAX_READS: u32 = 4;
/// Largest message, log2.
pub(super) const LOG_MAX_MESSAGE: u32 = 30;

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
fn adopt(qp: &mut Qp, from: &[u8], fields: &[Field]) {
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
    for (bit, field) in fields {
        if mask & bit != 0 {
            adopt(qp, new, &[field]);
        }
    }
    if mask & optional::Q_KEY != 0 && qp.service == Service::Datagram {
        adopt(qp, new, &[qpc::Q_KEY]);
        qp.qkey = qpc::Q_KEY.get(new);
    }
    let now = qp.context;
    qp.responder.allows_read = qpc::RRE.get(&now) == 1;
    qp.responder.allows_write = qpc::RWE.get(&now) == 1;
    qp.responder.allows_atomic = qpc::RAE.get(&now) == 1 && qpc::ATOMIC_MODE.get(&now) != 0;
    qp.responder.min_rnr = qpc::MIN_RNR_NAK.get(&now) as u8;
}

impl SoftNic {
    /// Runs `change` on a queue pair that is in `from`.
    fn transition(
        &mut self,
        qpn: u32,
        from: State,
        change: impl FnOnce(&mut Self, &mut Qp) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut qp = self.take_qp(qpn).ok_or(Refusal::NoSuchQp)?;
        let result = if qp.state == from { change(self, &mut qp) } else { Err(Refusal::QpState) };
        self.put_qp(qp);
        result
    }

    pub(super) fn rst2init(&mut self, qpn: u32, mailbox: &[u8]) -> Result<(), Refusal> {
        self.transition(qpn, State::Rst, |nic, qp| {
            let new = context(mailbox);
            if qpc::PM_STATE.get(new) != PM_STATE_MIGRATED {
                return Err(Refusal::PathMigration);
            }
            adopt(qp, new, &[qpc::PM_STATE]);
            adopt(qp, new, &[ads::VHCA_PORT_NUM.within(ADS_OFFSET)]);
            qp.responder.msn = nic.config.quirks.first_msn & psn::MASK;
            let required =
                optional::RRE | optional::RAE | optional::RWE | optional::PKEY_INDEX | optional::Q_KEY;
            change_optional(qp, new, required);
            qp.state = State::Init;
            Ok(())
        })
    }

    /// INIT2INIT and RTS2RTS: changes what `opt_param_mask` names, and leaves the state.
    pub(super) fn same_state(&mut self, qpn: u32, state: State, mailbox: &[u8]) -> Result<(), Refusal> {
        self.transition(qpn, state, |_, qp| {
            change_optional(qp, context(mailbox), change::OPT_PARAM_MASK.get(mailbox));
            Ok(())
        })
    }

    pub(super) fn init2rtr(&mut self, qpn: u32, mailbox: &[u8]) -> Result<(), Refusal> {
        self.transition(qpn, State::Init, |nic, qp| {
            let new = context(mailbox);
            let code = qpc::MTU.get(new);
            if !(1..=5).contains(&code) || 128 << code > nic.config.mtu {
                return Err(Refusal::PathMtu);
            }
            if qpc::LOG_MSG_MAX.get(new) > LOG_MAX_MESSAGE {
                return Err(Refusal::MessageSize);
            }
            let profile = &nic.config.profile;
            if ads::FL.get(path(new)) == 1 && !profile.may_force_loopback(nic.config.link_layer) {
                return Err(Refusal::NoForceLoopback);
            }
            nic.check_pkey(ads::PKEY_INDEX.within(ADS_OFFSET).get(&qp.context))?;
            // Out of order: READs and WRITEs (1), or all (2), which no profile has.
            match (qpc::DP_ORDERING_1.get(new), qpc::DP_ORDERING_0.get(new)) {
                (0, 0) => {}
                (0, 1) if profile.order.out_of_order => {}
                _ => return Err(Refusal::NoSuchOrder),
            }
            if qpc::LOG_RRA_MAX.get(new) > LOG_MAX_READS {
                return Err(Refusal::ReadDepth);
            }
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
            adopt(qp, new, &fields);
            let (port, pkey) = (ads::VHCA_PORT_NUM.within(ADS_OFFSET), ads::PKEY_INDEX.within(ADS_OFFSET));
            let kept = (port.get(&qp.context), pkey.get(&qp.context));
            qp.context[ADS_OFFSET..ADS_OFFSET + ads::BYTES].copy_from_slice(path(new));
            port.set(&mut qp.context, kept.0);
            pkey.set(&mut qp.context, kept.1);
            qp.mtu = 128 << code;
            qp.log_max_message = qpc::LOG_MSG_MAX.get(new);
            qp.responder.expected = qpc::NEXT_RCV_PSN.get(new);
            qp.responder.min_rnr = qpc::MIN_RNR_NAK.get(new) as u8;
            qp.responder.max_remembered = 1 << qpc::LOG_RRA_MAX.get(new);
            if qp.service == Service::Reliable {
                qp.remote = nic.remote_of(new);
            }
            change_optional(qp, new, change::OPT_PARAM_MASK.get(mailbox) & !optional::RNR_TIMEOUT);
            qp.state = State::Rtr;
            Ok(())
        })
    }

    /// True to its word if the port's partition table has such an entry.
    fn check_pkey(&self, index: u32) -> Result<(), Refusal> {
        let entry = self.config.pkeys.get(index as usize);
        if entry.is_some_and(|pkey| pkey & 0x7fff != 0) { Ok(()) } else { Err(Refusal::BadPkeyIndex) }
    }

    /// The other end that a context names.
    fn remote_of(&self, context: &[u8]) -> Remote {
        let path = path(context);
        let by_lid = self.config.link_layer == LinkLayer::InfiniBand && ads::GRH.get(path) == 0;
        let address = if by_lid { ads::RLID.get(path) as u128 } else { u128::from_be_bytes(ads::rgid(path)) };
        let mac = (ads::RMAC_47_32.get(path) as u64) << 32 | ads::RMAC_31_0.get(path) as u64;
        Remote { qpn: qpc::REMOTE_QPN.get(context), address, mac, ..Remote::none() }
    }

    pub(super) fn rtr2rts(&mut self, qpn: u32, mailbox: &[u8]) -> Result<(), Refusal> {
        self.transition(qpn, State::Rtr, |nic, qp| {
            let new = context(mailbox);
            if qpc::LOG_SRA_MAX.get(new) > LOG_MAX_READS {
                return Err(Refusal::ReadDepth);
            }
            let ack_timeout = ads::ACK_TIMEOUT.within(ADS_OFFSET);
            let fields = [
                qpc::RETRY_COUNT,
                qpc::RNR_RETRY,
                qpc::NEXT_SEND_PSN,
                qpc::LOG_SRA_MAX,
                qpc::LOG_ACK_REQ_FREQ,
                ack_timeout,
            ];
            adopt(qp, new, &fields);
            let psn = qpc::NEXT_SEND_PSN.get(new);
            let requester = &mut qp.requester;
            (requester.next_psn, requester.send_psn, requester.oldest) = (psn, psn, psn);
            requester.max_answers = 1 << qpc::LOG_SRA_MAX.get(new);
            requester.retry_count = qpc::RETRY_COUNT.get(new);
            requester.retries_left = requester.retry_count;
            requester.rnr_retry = qpc::RNR_RETRY.get(new);
            requester.rnr_left = requester.rnr_retry;
            requester.timeout_ns = timeout_ns(ack_timeout.get(new));
            requester.adaptive = nic.config.quirks.adaptive_retransmission;
            change_optional(qp, new, change::OPT_PARAM_MASK.get(mailbox));
            qp.state = State::Rts;
            // Doorbells that came before are good now.
            nic.recheck.push(qp.qpn);
            Ok(())
        })
    }

    pub(super) fn err_qp(&mut self, now: u64, qpn: u32) -> Result<(), Refusal> {
        let mut qp = self.take_qp(qpn).ok_or(Refusal::NoSuchQp)?;
        if qp.state == State::Rst {
            self.put_qp(qp);
            return Err(Refusal::QpState);
        }
        if qp.state != State::Err {
            self.enter_error(&mut qp, now);
            self.let_go(&mut qp);
        }
        if self.config.quirks.rmsn_cleared_by_2err {
            qp.responder.msn = 0;
        }
        if self.config.quirks.atomic_count == AtomicCount::Accepted {
            self.placement.drop_atomics(qpn);
        }
        self.put_qp(qp);
        Ok(())
    }

    pub(super) fn reset_qp(&mut self, qpn: u32) -> Result<(), Refusal> {
        let mut qp = self.take_qp(qpn).ok_or(Refusal::NoSuchQp)?;
        self.let_go(&mut qp);
        qp.reset();
        self.port.forget(qpn);
        qp.queued = false;
        self.put_qp(qp);
        Ok(())
    }
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
