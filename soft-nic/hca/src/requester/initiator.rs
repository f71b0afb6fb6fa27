//! The requester of an initiator of dynamically connected transport: its path to the target of the next WQE.

use super::{EXHAUSTED, Requester};
use crate::dc::Asked;
use crate::endpoint::Endpoint;
use crate::step_context::StepContext;
use crate::units::Units;
use shunt_layout::mlx5::cqe::{Syndrome, vendor};
use shunt_soft_wire::packet::{DcSetup, DcStep};

impl Requester {
    /// True if an initiator is connected to the target of its next WQE. If not it asks for a path, once all that went
    /// elsewhere was acknowledged.
    pub(super) fn has_path(&mut self, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) -> bool {
        let Some(initiator) = &mut self.initiator else { return true };
        let Some(to) = self.flight.to_send().to.as_deref() else { return false };
        match initiator.wants(to, self.flight.any_under_way(), cx.now) {
            Asked::There => return true,
            Asked::Wait => {}
            Asked::Now => {
                if cx.remote_nics.is_windowed() {
                    self.share.settle(0, qp, cx);
                }
                initiator.ask(to, self.flight.send_psn(), qp, units, cx);
                if let Some(patience) = self.retries.patience_ns() {
                    qp.set_clock(&mut units.timers, cx.now + patience);
                }
            }
        }
        false
    }

    /// A target answered.
    pub(crate) fn dc_answered(
        &mut self,
        setup: DcSetup,
        qp: &mut Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) {
        let Some(initiator) = self.initiator.as_mut().filter(|initiator| initiator.awaits(setup.number))
        else {
            return; // Of a path that was given up, or told before.
        };
        if setup.step == DcStep::Refuse {
            initiator.forget();
            return self.fail((Syndrome::REMOTE_ACCESS, vendor::REMOTE_ACCESS), qp, units, cx.now);
        }
        let Some(to) = self.flight.front().and_then(|work| work.to.as_deref()) else { return };
        initiator.connected(*to);
        qp.remote.qpn = setup.qpn;
        self.retries.restore();
        qp.stop_clock();
        qp.want_turn(units, cx);
    }

    /// No target answered in time: asks again, or gives up.
    pub(super) fn ask_again(&mut self, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) {
        units.counters.timeouts += 1;
        if !self.retries.take() {
            return self.fail(EXHAUSTED, qp, units, cx.now);
        }
        let (Some(initiator), Some(work)) = (&mut self.initiator, self.flight.front()) else { return };
        let Some(to) = work.to.as_deref() else { return };
        initiator.ask(to, self.flight.send_psn(), qp, units, cx);
        units.counters.retransmits += 1;
        if let Some(patience) = self.retries.patience_ns() {
            qp.set_clock(&mut units.timers, cx.now + patience);
        }
    }
}
