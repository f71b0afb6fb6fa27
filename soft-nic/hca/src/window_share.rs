//! What one queue pair has under way in the window of its destination, if that has one.

use crate::endpoint::Endpoint;
use crate::step_context::StepContext;
use crate::units::Units;
use shunt_layout::mlx5::prm::qp::State;
use shunt_soft_wire::congestion::Charge;

/// The share of one queue pair.
#[derive(Debug, Default)]
pub(crate) struct WindowShare {
    charge: Charge,
    /// It waits for room.
    held: bool,
}

impl WindowShare {
    /// True if so many packets may be sent. If not, the queue pair is given a turn when they may.
    pub(crate) fn has_room(
        &mut self,
        packets: u32,
        idle: bool,
        qp: &Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) -> bool {
        if cx.remote_nics.window(qp.remote.route).is_none_or(|window| window.admits(packets, idle)) {
            return true;
        }
        if !self.held {
            self.held = true;
            units.transmit.hold(qp.qpn);
        }
        false
    }

    /// The window it waited for opened.
    pub(crate) fn let_in(&mut self) {
        self.held = false;
    }

    /// Takes in that so many packets are under way.
    pub(crate) fn settle(&mut self, under_way: i32, qp: &Endpoint, cx: &mut StepContext) {
        let packets = if qp.state == State::Rts { under_way.max(0) as u32 } else { 0 };
        cx.remote_nics.settle(&mut self.charge, qp.remote.route, packets);
    }

    /// The queue pair starts over or goes: what it has under way is nobody's.
    pub(crate) fn let_go(&mut self, units: &mut Units) {
        units.released.push(std::mem::take(&mut self.charge));
    }
}
