//! The agents' two links: their own, out of band, and the rails, for when that one is cut (H16).
//!
//! The rails cost nothing while the other link is good: one look at a completion entry a rail and step. A message goes
//! over the rails as well when its peer has been asked in vain, when the other link is known to be broken, or when it
//! tells of a port. Copies go over several pairs of rails; the receiver takes the first.

pub mod address;
pub mod arrival;
pub mod envelope;

use super::port_table::PortTable;
use crate::nanos::Nanos;
use crate::slots::RailPair;
use address::Address;
use arrival::{Arrival, Datagram};
use envelope::{Header, Kind, Seal, Taken};
use shunt_bootstrap::Oob;
use shunt_device::platform::host::World;
use shunt_layout::mlx5::wqe::AddressVector;
use shunt_layout::mutant::Mutant;
use shunt_mlx5::descriptor::{HalfCard, RailCard};
use shunt_mlx5::nic::caps::Link;
use shunt_mlx5::nic::datagram::MESSAGE_MAX;
use shunt_mlx5::rail::Rail;
use std::collections::VecDeque;
use std::sync::Arc;

/// Copies of one message: more pairs than these are tried in turn, as messages are repeated.
const COPIES: usize = 8;
/// A peer asked in vain is written to over the rails, too, for this long.
const DOUBT_NS: Nanos = Nanos::secs(10);
/// A peer heard over a rail so lately lives.
const LIFE_NS: Nanos = Nanos::millis(100);
/// Pause between two questions whether a peer lives, and how many unanswered ones say that it does not.
const PING_NS: Nanos = Nanos::millis(5);
/// See [`PING_NS`].
const PINGS: u32 = 4;
/// Pause between two such questions, once that is concluded: the longer, the longer it is so.
const LOST_PING_NS: Nanos = Nanos::millis(50);
/// Datagrams of one rail that are looked at, and are neither message nor answer, in one call.
const LOOKS: usize = 64;
const HOP_LIMIT: u8 = 255;
/// UDP source ports of RoCE v2 begin here.
const PORT_BASE: u16 = 0xc000;

/// How far a message is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Over the agents' own link, and over the rails where that may not do.
    Link,
    /// Over both in any case.
    Both,
}

/// What it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message of the agent of a PE.
    Message(u32, Vec<u8>),
    /// A ping was answered.
    Pong(Pong),
}

/// An answered ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// Who answers.
    pub peer: u32,
    /// The rail here that the answer came on.
    pub local: u32,
    /// The rail there.
    pub remote: u32,
    /// The ping's number.
    pub number: u64,
}

/// Where another agent is reached over the rails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// Its rails, by rank.
    pub rails: Vec<RailCard>,
    /// QPNs of their datagram queue pairs; 0 where there is none.
    pub datagrams: Vec<u32>,
    /// Key that its datagram queue pairs want to see.
    pub qkey: u32,
}

/// What both links are made of.
pub struct LinkParts {
    /// The number of this end.
    pub me: u32,
    /// Its clock.
    pub world: Arc<dyn World>,
    /// The link of their own.
    pub oob: Box<dyn Oob>,
    /// Its rails.
    pub rails: Vec<Arc<Rail>>,
    /// Every end, by number, this one among them.
    pub peers: Vec<PeerAddress>,
    /// The job's key.
    pub seal: Seal,
}

/// Another agent, as the rails reach it.
struct Peer {
    rails: Vec<RailCard>,
    datagrams: Vec<u32>,
    /// When the peer said so, on its clock.
    said_ns: Vec<Nanos>,
    qkey: u32,
    /// What was taken from it; nothing yet, mostly.
    taken: Option<Taken>,
    /// When it was last heard over a rail.
    heard_ns: Option<Nanos>,
    /// Pings since then, and when the last one went.
    pings: u32,
    pinged_ns: Nanos,
    /// Until when it is doubted that the other link reaches it.
    doubted_ns: Nanos,
    /// Until when it is taken to doubt that the other link reaches us.
    doubts_us_ns: Nanos,
    /// Messages sent to it over the rails.
    sent: usize,
}

impl From<PeerAddress> for Peer {
    fn from(known: PeerAddress) -> Self {
        let PeerAddress { rails, datagrams, qkey } = known;
        Self {
            said_ns: vec![Nanos::ZERO; rails.len()],
            rails,
            datagrams,
            qkey,
            taken: None,
            heard_ns: None,
            pings: 0,
            pinged_ns: Nanos::ZERO,
            doubted_ns: Nanos::ZERO,
            doubts_us_ns: Nanos::ZERO,
            sent: 0,
        }
    }
}

/// The link of an agent that is gone.
struct Nobody;

impl Oob for Nobody {
    fn send(&self, _to_pe: u32, _bytes: Vec<u8>) {}

    fn try_recv(&self) -> Option<(u32, Vec<u8>)> {
        None
    }
}

/// Both links of one agent.
pub struct Links {
    me: u32,
    world: Arc<dyn World>,
    oob: Box<dyn Oob>,
    rails: Vec<Arc<Rail>>,
    peers: Vec<Peer>,
    seal: Seal,
    number: u64,
    /// Datagrams refused.
    strangers: u64,
}

impl Links {
    /// Of the end `me` among `peers`; `known` is where an earlier engine left the others.
    pub fn new(parts: LinkParts, known: Vec<Address>) -> Self {
        let LinkParts { me, world, oob, rails, peers, seal } = parts;
        let mut peers: Vec<Peer> = peers.into_iter().map(Peer::from).collect();
        for (peer, known) in peers.iter_mut().zip(known) {
            (peer.rails, peer.datagrams) = (known.rails, known.datagrams);
            if !Mutant::WordsForgotten.on() {
                (peer.said_ns, peer.taken) = (known.said_ns, known.taken);
            }
        }
        // An agent that follows another one goes on above its numbers: no agent sends a message a nanosecond.
        let number = world.now_ns();
        Self { me, world, oob, rails, peers, seal, number, strangers: 0 }
    }

    /// One more end: answers with its number.
    pub fn join(&mut self, address: PeerAddress) -> u32 {
        self.peers.push(Peer::from(address));
        self.peers.len() as u32 - 1
    }

    /// An end is gone: nothing is sent to it over the rails any more.
    pub fn leave(&mut self, peer: u32) {
        if let Some(peer) = self.peers.get_mut(peer as usize) {
            peer.datagrams.fill(0);
        }
    }

    /// The end of the agents' own link, and where the others are, for the next agent.
    pub fn give_up(&mut self) -> (Box<dyn Oob>, Vec<Address>) {
        let known = |peer: Peer| {
            let Peer { rails, datagrams, said_ns, taken, .. } = peer;
            Address { rails, datagrams, said_ns, taken }
        };
        let peers = std::mem::take(&mut self.peers).into_iter().map(known).collect();
        (std::mem::replace(&mut self.oob, Box::new(Nobody)), peers)
    }

    /// Sends to the agent of a PE. It may get lost.
    pub fn send(&mut self, now: Nanos, peer: u32, message: Vec<u8>, reach: Reach, ports: &PortTable) {
        let Some(to) = self.peers.get(peer as usize) else { return };
        if Mutant::ControlOnRail.on() {
            self.number += 1;
            return self.post(peer, RailPair { local: 0, remote: 0 }, self.number, Kind::Message, &message);
        }
        let doubted = now < to.doubted_ns || !self.oob.reachable(peer);
        if reach == Reach::Both || doubted || now < to.doubts_us_ns {
            // Who is doubted answers over the rails and does not say that it doubts: two that took each other's answers
            // for doubts would never end.
            let kind = if doubted { Kind::Message } else { Kind::News };
            self.number += 1;
            let pairs = self.pairs(peer, ports);
            let turn = self.turn(peer);
            for i in 0..pairs.len().min(COPIES) {
                self.post(peer, pairs[(turn + i) % pairs.len()], self.number, kind, &message);
            }
        }
        self.oob.send(peer, message);
    }

    /// The first of the pairs that the next message to a peer goes over.
    fn turn(&mut self, peer: u32) -> usize {
        let sent = self.peers.get_mut(peer as usize).map_or(0, |to| {
            to.sent = to.sent.wrapping_add(1);
            to.sent.wrapping_sub(1)
        });
        sent.wrapping_mul(COPIES)
    }

    /// False while the agents' own link to a PE is known to be broken.
    pub fn own_reaches(&self, peer: u32) -> bool {
        self.oob.reachable(peer)
    }

    /// True once a peer's agent has said that it leaves.
    pub fn has_left(&self, peer: u32) -> bool {
        self.oob.has_left(peer)
    }

    /// A peer was asked in vain: the other link may not reach it, whatever it says itself.
    pub fn doubt(&mut self, now: Nanos, peer: u32) {
        let until = now + DOUBT_NS;
        if let Some(peer) = self.peers.get_mut(peer as usize) {
            peer.doubted_ns = until;
        }
    }

    /// Pairs of rails to a peer whose ports are not known to be down; all pairs if every one is. The first ones share
    /// no rail.
    pub fn pairs(&self, peer: u32, ports: &PortTable) -> Vec<RailPair> {
        let Some(to) = self.peers.get(peer as usize).filter(|_| !Mutant::NoSecondLink.on()) else {
            return Vec::new();
        };
        let remotes = to.rails.len().min(to.datagrams.len());
        let mut pairs = Vec::new();
        for shift in 0..remotes {
            for (local, rail) in self.rails.iter().enumerate() {
                let remote = (local + shift) % remotes;
                if to.datagrams[remote] != 0 && to.rails[remote].link == rail.caps.link {
                    pairs.push(RailPair { local: local as u32, remote: remote as u32 });
                }
            }
        }
        let up = |pair: &RailPair| ports.up(pair.local, peer, pair.remote);
        if pairs.iter().any(up) {
            pairs.retain(up);
        }
        pairs
    }

    /// The next few ends behind a peer, but this one, with a pair of rails to each that begins at a rail of this end.
    pub fn others(
        &self,
        peer: u32,
        local: u32,
        few: usize,
        ports: &PortTable,
    ) -> impl Iterator<Item = (u32, RailPair)> {
        let (me, count) = self.shape();
        let others = (1..count).map(move |step| (peer + step) % count).filter(move |other| *other != me);
        others.filter(move |other| *other != peer).take(few).filter_map(move |other| {
            self.pairs(other, ports).into_iter().find(|pair| pair.local == local).map(|pair| (other, pair))
        })
    }

    /// Puts one datagram on one pair of rails.
    fn post(&self, peer: u32, pair: RailPair, number: u64, kind: Kind, body: &[u8]) {
        let (to, rail) = (&self.peers[peer as usize], &self.rails[pair.local as usize]);
        let Some(card) = to.rails.get(pair.remote as usize) else { return };
        let Some(qpn) = to.datagrams.get(pair.remote as usize).copied() else { return };
        let (from_rail, to_rail) = (pair.local as u16, pair.remote as u16);
        let header = Header { from: self.me, to: peer, from_rail, to_rail, number, kind };
        let mut bytes = [0; MESSAGE_MAX];
        let Some(length) = self.seal.close(&header, body, &mut bytes) else { return };
        let vector = vector(rail, card, qpn, to.qkey);
        if let Some(datagrams) = rail.datagrams().as_mut() {
            // Without room it is lost; what matters is repeated.
            datagrams.send(&*self.world, &vector, &bytes[..length]);
        }
    }

    /// Asks over a pair of rails whether somebody is there; answers with the number that the answer will name.
    pub fn ping(&mut self, peer: u32, pair: RailPair) -> u64 {
        self.number += 1;
        self.post(peer, pair, self.number, Kind::Ping, &[]);
        self.number
    }

    /// This end's number, and how many ends there are.
    pub fn shape(&self) -> (u32, u32) {
        (self.me, self.peers.len() as u32)
    }

    /// The newest number that was given.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Takes what has arrived over either link, up to the next message or answer. True if there was one.
    pub fn receive(&mut self, into: &mut VecDeque<Arrival>) -> bool {
        if let Some((from, bytes)) = self.oob.try_recv() {
            into.push_back(Arrival::Own(from, bytes));
            return true;
        }
        let mut bytes = [0; MESSAGE_MAX];
        for rail in 0..self.rails.len() {
            // What is no message of this job does not hold up the rest.
            for _ in 0..LOOKS {
                let arrived = match self.rails[rail].datagrams().as_mut() {
                    Some(datagrams) => datagrams.receive(&*self.world, &mut bytes),
                    None => None,
                };
                let Some(length) = arrived else { break };
                let Some(datagram) = self.open(rail as u32, &bytes[..length]) else { continue };
                let is_ping = datagram.kind == Kind::Ping;
                into.push_back(Arrival::Datagram(datagram));
                if !is_ping {
                    return true;
                }
            }
        }
        false
    }

    /// A datagram that arrived on a rail, if it is one of this job and was not taken before.
    fn open(&mut self, rail: u32, bytes: &[u8]) -> Option<Datagram> {
        let opened = self.seal.open(bytes, self.me).ok();
        let known = opened.filter(|(header, _)| {
            u32::from(header.to_rail) == rail && (header.from as usize) < self.peers.len()
        });
        let Some((Header { from, from_rail, number, kind, .. }, body)) = known else {
            self.strangers += 1;
            return None;
        };
        let new = self.peers[from as usize].taken.get_or_insert_default().take(number);
        if !new && !Mutant::CopiesTaken.on() {
            return None;
        }
        let pair = RailPair { local: rail, remote: from_rail.into() };
        Some(Datagram { from, pair, number, kind, body: body.to_vec() })
    }

    /// What an arrival says. A ping is answered.
    pub fn hear(&mut self, now: Nanos, arrival: Arrival) -> Option<Heard> {
        let Datagram { from, pair, number, kind, body } = match arrival {
            Arrival::Own(from, bytes) => return Some(Heard::Message(from, bytes)),
            Arrival::Datagram(datagram) => datagram,
        };
        let peer = &mut self.peers[from as usize];
        (peer.heard_ns, peer.pings) = (Some(now), 0);
        match kind {
            Kind::Message => {
                // Who doubts the other link is not answered over it alone: it may be cut one way.
                peer.doubts_us_ns = now + DOUBT_NS;
                Some(Heard::Message(from, body))
            }
            Kind::News => Some(Heard::Message(from, body)),
            Kind::Ping => {
                self.number += 1;
                self.post(from, pair, self.number, Kind::Pong, &number.to_be_bytes());
                None
            }
            Kind::Pong => {
                let number = u64::from_be_bytes(body.try_into().ok()?);
                let RailPair { local, remote } = pair;
                Some(Heard::Pong(Pong { peer: from, local, remote, number }))
            }
        }
    }

    /// False once neither link reaches the agent of a PE: an answer need not be waited for. Where the other link is
    /// broken the rails are asked, a few times.
    pub fn reachable(&mut self, now: Nanos, peer: u32, ports: &PortTable) -> bool {
        if self.oob.reachable(peer) {
            return true;
        }
        let pairs = self.pairs(peer, ports);
        let Some(state) = self.peers.get_mut(peer as usize) else { return false };
        let pause_ns = match state.pings.checked_sub(PINGS + 1) {
            Some(more) => LOST_PING_NS << (more / 4).min(6),
            None => PING_NS,
        };
        let due = now >= state.pinged_ns + pause_ns;
        let heard = state.heard_ns.is_some_and(|heard| now <= heard + LIFE_NS);
        // The last question is given its time, too.
        let patient = state.pings < PINGS || state.pings == PINGS && !due;
        if due && !pairs.is_empty() {
            state.pings = state.pings.saturating_add(1);
            state.pinged_ns = now;
            pairs.into_iter().take(COPIES).for_each(|pair| {
                self.ping(peer, pair);
            });
            return heard || patient;
        }
        heard || patient && !pairs.is_empty()
    }

    /// True while it is not known whether a peer is out of reach: the next look should not be far.
    pub fn in_question(&self, peer: u32) -> bool {
        let state = &self.peers[peer as usize];
        state.pings > 0 && state.pings <= PINGS && !self.oob.reachable(peer)
    }

    /// Where a peer takes datagrams on a rail, by its own word, unless a newer one is known. True if its address is
    /// another one than before.
    pub fn renewed(&mut self, peer: u32, card: &HalfCard, at_ns: Nanos) -> bool {
        let Some(to) = self.peers.get_mut(peer as usize) else { return false };
        let rail = card.rail.index as usize;
        let known = to.rails.get_mut(rail).zip(to.datagrams.get_mut(rail)).zip(to.said_ns.get_mut(rail));
        let Some(((address, qpn), said_ns)) = known.filter(|(_, said_ns)| **said_ns <= at_ns) else {
            return false;
        };
        let before = std::mem::replace(address, card.rail);
        (*qpn, *said_ns) = (card.qpn, at_ns);
        before != card.rail
    }

    /// True if this rail of this PE is where its peers found it at start.
    pub fn is_as_at_start(&self, card: &HalfCard) -> bool {
        let (own, rail) = (&self.peers[self.me as usize], card.rail.index as usize);
        own.rails.get(rail) == Some(&card.rail) && own.datagrams.get(rail) == Some(&card.qpn)
    }

    /// Key that this PE's datagram queue pairs let in.
    pub fn own_qkey(&self) -> u32 {
        self.peers[self.me as usize].qkey
    }

    /// A peer's rail has another address now.
    pub fn moved(&mut self, peer: u32, card: &RailCard) {
        let known = self.peers.get_mut(peer as usize).and_then(|to| to.rails.get_mut(card.index as usize));
        if let Some(known) = known {
            *known = *card;
        }
    }

    /// Datagrams refused since the last call.
    pub fn take_strangers(&mut self) -> u64 {
        std::mem::take(&mut self.strangers)
    }
}

/// Where a datagram goes, as the NIC wants it told.
fn vector(rail: &Rail, card: &RailCard, qpn: u32, qkey: u32) -> AddressVector {
    let address = rail.address();
    let (level, ethernet) = (rail.options.service_level, rail.caps.link == Link::Ethernet);
    let global = ethernet || card.gid[..8] != address.gid[..8];
    AddressVector {
        qkey,
        qpn,
        full: true,
        rlid: if ethernet { PORT_BASE | qpn as u16 & !PORT_BASE } else { card.lid },
        service_level: if ethernet { level << 1 } else { level },
        rmac: if ethernet { rail.known_mac(card) } else { [0; 6] },
        tclass: rail.options.traffic_class,
        hop_limit: HOP_LIMIT,
        grh: global && !ethernet,
        source_gid_index: address.gid_index as u8,
        flow_label: 0,
        rgid: if global { card.gid } else { [0; 16] },
    }
}
