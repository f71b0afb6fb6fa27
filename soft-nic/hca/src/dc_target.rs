//! The target's end of dynamically connected transport: a responder for each path.

use crate::dc::{Target, TargetPath};
use crate::endpoint::{Endpoint, Remote, Service};
use crate::fetch::SendRing;
use crate::memory::Span;
use crate::qp::{Qp, QpTable};
use crate::receive_queue::ReceiveQueue;
use crate::requester::Requester;
use crate::responder::{Responder, Rights};
use crate::step_context::StepContext;
use crate::units::Units;
use shunt_layout::mlx5::prm::qp::{State, qpc};
use shunt_soft_wire::packet::{Body, DcSetup, DcStep, Packet};

/// READs and atomics that a responder answers at a time.
const MOST_ANSWERS: usize = 16;

/// A queue pair that sends nothing of its own: a target, or its end of a path. `context` says its domain, its rights,
/// its MTU and where it receives.
pub(crate) fn silent(
    qpn: u32,
    next_ticket: u64,
    service: Service,
    log_max_message: u32,
    context: [u8; qpc::BYTES],
) -> Qp {
    let get = |field: shunt_layout::bits::Field| field.get(&context);
    let receive = ReceiveQueue::shared(get(qpc::CQN_RCV), get(qpc::SRQN_RMPN_XRQN));
    let mut endpoint = Endpoint::new(qpn, service, true, log_max_message, context);
    endpoint.state = State::Rtr;
    endpoint.mtu = 128 << get(qpc::MTU);
    let mut responder = Responder::new(Some(Box::new(receive)), next_ticket);
    let rights = Rights {
        read: get(qpc::RRE) == 1,
        write: get(qpc::RWE) == 1,
        atomic: get(qpc::RAE) == 1 && get(qpc::ATOMIC_MODE) != 0,
    };
    responder.allow(rights, get(qpc::MIN_RNR_NAK) as u8);
    let requester = Requester::new(0, SendRing::new(Span::NOTHING, 0), Span::NOTHING, false);
    Qp { endpoint, requester, responder, uar: 0, umems: [0; 2], target: None }
}

/// An initiator's question reached this NIC.
pub(crate) fn connect(qps: &mut QpTable, units: &mut Units, packet: Packet, cx: &mut StepContext) {
    let Body::Dc(setup) = &packet.body else { return units.drop_packet(packet, cx) };
    let setup = **setup;
    let Some(asked) = qps.get(packet.qpn) else { return units.drop_packet(packet, cx) };
    let Some(target) = &asked.target else { return units.drop_packet(packet, cx) };
    if let Some(responder) = target.responder(packet.source, &setup) {
        // Asked again. Once requests came over the path, this is a copy that was late.
        let fresh = qps.get(responder).is_some_and(|qp| qp.responder.counters().0 == packet.psn);
        if fresh {
            answer(DcStep::Accept, responder, &packet, &setup, units, cx);
        }
        return;
    }
    let fits = setup.mtu.is_power_of_two() && (256..=asked.endpoint.mtu).contains(&setup.mtu);
    let takes = setup.key == target.key && fits && asked.endpoint.state == State::Rtr;
    let Some((qpn, next_ticket)) = qps.next_number().filter(|_| takes) else {
        return answer(DcStep::Refuse, packet.qpn, &packet, &setup, units, cx);
    };
    let (context, most) = (asked.endpoint.context, asked.endpoint.log_max_message);
    let mut path = silent(qpn, next_ticket, Service::DcResponder, most, context);
    path.endpoint.mtu = setup.mtu;
    path.endpoint.told = packet.qpn;
    path.endpoint.remote = Remote::at(setup.qpn, packet.source, setup.mac);
    path.responder.start(packet.psn, MOST_ANSWERS);
    qps.add(path);
    let known =
        TargetPath { source: packet.source, initiator: setup.qpn, number: setup.number, responder: qpn };
    let target = qps.get_mut(packet.qpn).and_then(|qp| qp.target.as_mut());
    if let Some(gone) = target.and_then(|target| target.add(known)) {
        remove(qps, units, gone);
    }
    answer(DcStep::Accept, qpn, &packet, &setup, units, cx);
}

/// Answers the question that `packet` carries.
fn answer(step: DcStep, qpn: u32, packet: &Packet, setup: &DcSetup, units: &mut Units, cx: &mut StepContext) {
    let (to, source) = (cx.route(packet.source, setup.mac), units.config.source_address(packet.source));
    let said = DcSetup { step, qpn, mac: units.config.mac_number(), key: 0, ..*setup };
    units.send(Packet {
        from: units.number,
        to,
        source,
        qpn: setup.qpn,
        psn: packet.psn,
        ack_request: false,
        solicited: false,
        body: Body::Dc(Box::new(said)),
    });
}

/// Ends a target's end of a path.
fn remove(qps: &mut QpTable, units: &mut Units, qpn: u32) {
    if let Some(mut path) = qps.remove(qpn, false) {
        path.leave(units);
    }
}

/// Ends a target and all its paths. The target, if there was one.
pub(crate) fn end(qps: &mut QpTable, units: &mut Units, dctn: u32, reused: bool) -> Option<Box<Qp>> {
    let paths: Vec<u32> = qps.get(dctn)?.target.as_deref().map(Target::responders)?.collect();
    for path in paths {
        remove(qps, units, path);
    }
    let mut target = qps.remove(dctn, reused)?;
    target.leave(units);
    Some(target)
}
