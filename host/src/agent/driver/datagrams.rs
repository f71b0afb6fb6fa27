//! The agents' datagram queue pairs: made again when they end, and where they are is told.

use super::Agent;
use crate::agent::message::Message;
use crate::agent::nic_job::{Job, Urgency};
use crate::agent::rails::Reach;
use crate::connect::card::HalfCard;
use crate::error::NicError;
use crate::events::Event;
use crate::nanos::Nanos;

impl Agent {
    /// Looks after the queue pairs that the agents' datagrams go by.
    pub(in crate::agent) fn mind_datagrams(&mut self, now: Nanos) {
        for rail in 0..self.rails.len() {
            let why = self.rails[rail].datagrams().as_ref().and_then(|one| one.broken());
            let Some((syndrome, vendor)) = why else { continue };
            if self.renewals[rail].ended() {
                self.note(now, format!(
                    "the agents' datagrams on rail {rail} ended: syndrome {syndrome:#x}, vendor {vendor:#x}"
                ));
            }
            if self.renewals[rail].begin(now) {
                let qkey = self.links.own_qkey();
                self.nics.submit(rail as u32, Urgency::Idle, rail, Job::Datagrams(qkey));
            }
        }
    }

    /// A queue pair was made anew, or could not be.
    pub(in crate::agent) fn datagrams_made(
        &mut self,
        now: Nanos,
        rail: usize,
        result: Result<u32, NicError>,
    ) {
        match result {
            Ok(qpn) => {
                self.renewals[rail].made();
                self.report(now, Event::AgentRailRenewed { rail: rail as u32, qpn });
                self.tell_rail(now, rail, Reach::Both);
            }
            Err(error) => {
                self.renewals[rail].failed(now);
                self.note(now, format!("the agents' datagrams on rail {rail} cannot be made anew: {error}"));
            }
        }
    }

    /// Something went wrong on a rail: its address may be another one.
    pub(in crate::agent) fn ask_address(&mut self, now: Nanos, rail: u32) {
        let Some(renewal) = self.renewals.get_mut(rail as usize) else { return };
        if renewal.asks_address(now) {
            self.nics.submit(rail, Urgency::Idle, rail as usize, Job::AskAddress);
        }
    }

    /// The NIC was asked; the peers know what they were told last.
    pub(in crate::agent) fn address_asked(&mut self, now: Nanos, rail: usize, result: Result<(), NicError>) {
        // A NIC that says nothing is asked again when the next thing goes wrong.
        if result.is_ok() && self.renewals[rail].told() != Some(self.rail_card(rail)) {
            self.tell_rail(now, rail, Reach::Both);
        }
    }

    fn rail_card(&self, rail: usize) -> HalfCard {
        let one = &self.rails[rail];
        HalfCard { qpn: one.datagram_qpn(), psn: 0, incarnation: 0, rail: one.card() }
    }

    /// Tells every peer where this rail's datagrams are taken, unless it always was there.
    pub(in crate::agent) fn tell_rail(&mut self, now: Nanos, rail: usize, reach: Reach) {
        let card = self.rail_card(rail);
        if self.renewals[rail].told().is_none() && self.links.is_as_at_start(&card) {
            return;
        }
        self.renewals[rail].tell(now, card);
        let (pes, me) = (self.words.root().pe_count, self.words.root().my_pe);
        for peer in (0..pes).filter(|pe| *pe != me) {
            self.links.send(
                now,
                peer,
                Message::Rail { card, at_ns: now.get() }.to_bytes(),
                reach,
                &self.ports,
            );
        }
    }

    /// Tells it once more, as seldom as an old word of a port.
    pub(in crate::agent) fn tell_rail_again(&mut self, now: Nanos, rail: usize) {
        if self.renewals[rail].is_told_again(now, self.options.port_poll_ns) {
            self.tell_rail(now, rail, Reach::Link);
        }
    }

    /// A peer's rail is somewhere else: the way there is resolved as for a path.
    pub(in crate::agent) fn peer_rail(&mut self, from: u32, card: HalfCard, at_ns: Nanos) {
        if !self.links.renewed(from, &card, at_ns) {
            return;
        }
        for rail in 0..self.rails.len() {
            if self.rails[rail].caps.link == card.rail.link {
                self.nics.submit(rail as u32, Urgency::Idle, rail, Job::Resolve(Box::new(card.rail)));
            }
        }
    }
}
