//! A rail's datagram queue pair that ended is made anew, and a rail's address that changed is told: the other agents
//! know both by value only.

use super::super::Agent;
use super::super::message::Message;
use super::super::ports::is_told_again;
use super::super::worker::{Job, Urgency};
use super::Reach;
use crate::connect::card::HalfCard;
use crate::error::NicError;
use crate::events::Event;
use shunt_device::health::backoff_ns;

/// First pause after a queue pair that could not be made, doubled with each failure.
const PAUSE_NS: u64 = 20_000_000;
/// An address is not asked for more often.
const ADDRESS_NS: u64 = 20_000_000;

/// What is being done about one rail.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::agent) struct Renewal {
    /// The end of its queue pair was told.
    ended: bool,
    /// A new one is being made.
    making: bool,
    failures: u32,
    next_ns: u64,
    /// When its address was asked for last.
    address_ns: u64,
    /// What the peers were told last; none: they know it from the start.
    told: Option<HalfCard>,
    /// When that was told first, and when it is told once more.
    told_ns: u64,
    /// See `told_ns`.
    again_ns: u64,
}

impl Agent {
    /// Looks after the queue pairs that the agents' datagrams go by.
    pub(in crate::agent) fn mind_datagrams(&mut self) {
        let now = self.now();
        for rail in 0..self.rails.len() {
            let why = self.rails[rail].datagrams().as_ref().and_then(|one| one.broken());
            let Some((syndrome, vendor)) = why else { continue };
            let renewal = &mut self.renewals[rail];
            if !std::mem::replace(&mut renewal.ended, true) {
                self.note(format!(
                    "the agents' datagrams on rail {rail} ended: syndrome {syndrome:#x}, vendor {vendor:#x}"
                ));
            }
            let renewal = &mut self.renewals[rail];
            if !renewal.making && now >= renewal.next_ns {
                renewal.making = true;
                let qkey = self.links.own_qkey();
                self.submit(rail as u32, Urgency::Idle, rail, Job::Datagrams(qkey));
            }
        }
    }

    /// A queue pair was made anew, or could not be.
    pub(in crate::agent) fn datagrams_made(&mut self, rail: usize, result: Result<u32, NicError>) {
        let now = self.now();
        let renewal = &mut self.renewals[rail];
        renewal.making = false;
        match result {
            Ok(qpn) => {
                (renewal.ended, renewal.failures) = (false, 0);
                self.report(Event::AgentRailRenewed { rail: rail as u32, qpn });
                self.tell_rail(rail, Reach::Both);
            }
            Err(error) => {
                renewal.next_ns = now.saturating_add(backoff_ns(PAUSE_NS, renewal.failures));
                renewal.failures += 1;
                self.note(format!("the agents' datagrams on rail {rail} cannot be made anew: {error}"));
            }
        }
    }

    /// Something went wrong on a rail: its address may be another one.
    pub(in crate::agent) fn ask_address(&mut self, rail: u32) {
        let now = self.now();
        let Some(renewal) = self.renewals.get_mut(rail as usize) else { return };
        if renewal.address_ns == 0 || now >= renewal.address_ns.saturating_add(ADDRESS_NS) {
            renewal.address_ns = now;
            self.submit(rail, Urgency::Idle, rail as usize, Job::AskAddress);
        }
    }

    /// The NIC was asked; the peers know what they were told last.
    pub(in crate::agent) fn address_asked(&mut self, rail: usize, result: Result<(), NicError>) {
        // A NIC that says nothing is asked again when the next thing goes wrong.
        if result.is_ok() && self.renewals[rail].told != Some(self.rail_card(rail)) {
            self.tell_rail(rail, Reach::Both);
        }
    }

    fn rail_card(&self, rail: usize) -> HalfCard {
        let one = &self.rails[rail];
        HalfCard { qpn: one.datagram_qpn(), psn: 0, incarnation: 0, rail: one.card() }
    }

    /// Tells every peer where this rail's datagrams are taken, unless it always was there.
    pub(in crate::agent) fn tell_rail(&mut self, rail: usize, reach: Reach) {
        let (card, at_ns) = (self.rail_card(rail), self.now());
        if self.renewals[rail].told.is_none() && self.links.is_as_at_start(&card) {
            return;
        }
        let renewal = &mut self.renewals[rail];
        if renewal.told.replace(card) != Some(card) {
            (renewal.told_ns, renewal.again_ns) = (at_ns, at_ns);
        }
        let (pes, me) = (self.words.root().pe_count, self.words.root().my_pe);
        for peer in (0..pes).filter(|pe| *pe != me) {
            self.links.send(peer, Message::Rail { card, at_ns }.to_bytes(), reach, &self.ports);
        }
    }

    /// Tells it once more, as seldom as an old word of a port.
    pub(in crate::agent) fn tell_rail_again(&mut self, rail: usize) {
        let (now, first_ns) = (self.now(), self.options.port_poll_ns);
        let renewal = &mut self.renewals[rail];
        if renewal.told.is_some() && is_told_again(renewal.told_ns, &mut renewal.again_ns, now, first_ns) {
            self.tell_rail(rail, Reach::Link);
        }
    }

    /// A peer's rail is somewhere else: the way there is resolved as for a path.
    pub(in crate::agent) fn peer_rail(&mut self, from: u32, card: HalfCard, at_ns: u64) {
        if !self.links.renewed(from, &card, at_ns) {
            return;
        }
        for rail in 0..self.rails.len() {
            if self.rails[rail].caps.link == card.rail.link {
                self.submit(rail as u32, Urgency::Idle, rail, Job::Resolve(Box::new(card.rail)));
            }
        }
    }
}
