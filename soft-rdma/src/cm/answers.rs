//! What the program is told, as bytes: structures of `<rdma/rdma_user_cm.h>` and `<rdma/ib_user_verbs.h>`.

use super::address::{IB, IB_BYTES, Name};
use super::core::{Core, NicInfo, REJECT_PRIVATE, REPLY_PRIVATE, REQUEST_PRIVATE};
use super::id::{Event, EventKind, Id, State};
use rustix::io::Errno;
use std::net::Ipv4Addr;

/// Every device has one port, and every port one key.
const PORT: u8 = 1;
const PKEY: [u8; 2] = 0xffffu16.to_be_bytes();
/// Bytes of an address of any kind.
const STORAGE: usize = 128;
/// Hops of a packet.
const HOPS: u8 = 64;
/// 10 Gb/s, as routes number it; no more is made of it.
const RATE: u8 = 3;
/// Exponent of a packet's life, and of the time an acknowledgement may take: a busy machine is slow.
const PACKET_LIFE: u8 = 16;
const ACK_TIMEOUT: u8 = 18;
/// A route of both directions, the first choice.
const ROUTE_FLAGS: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;
/// Bytes of an event without what later kernels added.
pub const EVENT_LEAST: usize = 324;

/// Bytes that are filled from the front.
struct Filler(Vec<u8>);

impl Filler {
    fn put(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn byte(self, value: u8) -> Self {
        self.put(&[value])
    }

    fn word(self, value: u32) -> Self {
        self.put(&value.to_ne_bytes())
    }

    /// Zeros up to here.
    fn to(mut self, at: usize) -> Self {
        debug_assert!(self.0.len() <= at, "{} bytes, not {at} at most", self.0.len());
        self.0.resize(at, 0);
        self
    }
}

fn filler() -> Filler {
    Filler(Vec::new())
}

fn gid(ip: Ipv4Addr) -> [u8; 16] {
    ip.to_ipv6_mapped().octets()
}

/// MTU as verbs number it.
fn mtu_number(bytes: u16) -> u8 {
    match bytes {
        ..512 => 1,
        512..1024 => 2,
        1024..2048 => 3,
        2048..4096 => 4,
        4096.. => 5,
    }
}

impl Core {
    fn nic_of_id(&self, id: &Id) -> Option<NicInfo> {
        id.nic.map(|nic| self.nics[nic])
    }

    /// QUERY_ROUTE.
    pub fn route(&self, id: &Id) -> Vec<u8> {
        let nic = self.nic_of_id(id);
        let guid = nic.map_or(0, |nic| nic.guid).to_be_bytes();
        let ends = self.ends(id);
        let has_route = has_route(id);
        let mut to = filler().put(&guid);
        if let Some((from, there)) = ends {
            to = to.put(&gid(there)).put(&gid(from));
            // Neither has an identifier of InfiniBand, nor has the route a label.
            to = to.to(8 + 44).word(has_route.into()).word(self.mtu(id).into());
            to = to.put(&PKEY).byte(HOPS).byte(0).byte(1).byte(0);
            to = to.byte(2).byte(2).byte(RATE).byte(2).byte(PACKET_LIFE);
        }
        let [source, target] = names(id);
        to = to.to(136).put(&source).to(164).put(&target).to(192);
        to.word(has_route.into())
            .byte(if nic.is_some() { PORT } else { 0 })
            .to(200)
            .word(nic.map_or(0, |nic| nic.index))
            .to(208)
            .0
    }

    /// QUERY of addresses.
    pub fn addresses(&self, id: &Id) -> Vec<u8> {
        let nic = self.nic_of_id(id);
        let [source, target] = names(id);
        let sizes = [source.len() as u16, target.len() as u16].map(u16::to_ne_bytes).concat();
        let mut to = filler().put(&nic.map_or(0, |nic| nic.guid).to_be_bytes());
        if nic.is_some() {
            to = to.byte(PORT).byte(0).put(&PKEY);
        }
        to.to(12)
            .put(&sizes)
            .put(&source)
            .to(16 + STORAGE)
            .put(&target)
            .to(16 + 2 * STORAGE)
            .word(nic.map_or(0, |nic| nic.index))
            .to(280)
            .0
    }

    /// QUERY of GIDs.
    pub fn gids(&self, id: &Id, space: u16) -> Vec<u8> {
        let nic = self.nic_of_id(id);
        let ends = [nic.map(|nic| nic.ip), id.peer];
        let ports = [id.source, id.target].map(|name| name.map_or(0, |name| name.port));
        let address = |at: usize| {
            let mut to = filler().put(&IB.to_ne_bytes()).put(&PKEY).to(8);
            to = to.put(&ends[at].map_or([0; 16], gid));
            let service = (u64::from(space) << 16) | u64::from(ports[at]);
            to.put(&service.to_be_bytes()).put(&u64::MAX.to_be_bytes()).to(IB_BYTES).0
        };
        let size = (IB_BYTES as u16).to_ne_bytes();
        filler()
            .put(&nic.map_or(0, |nic| nic.guid).to_be_bytes())
            .byte(if nic.is_some() { PORT } else { 0 })
            .byte(0)
            .put(&PKEY)
            .put(&size)
            .put(&size)
            .put(&address(0))
            .to(16 + STORAGE)
            .put(&address(1))
            .to(16 + 2 * STORAGE)
            .word(nic.map_or(0, |nic| nic.index))
            .to(280)
            .0
    }

    /// QUERY of paths.
    pub fn paths(&self, id: &Id) -> Vec<u8> {
        let Some((from, there)) = self.ends(id).filter(|_| has_route(id)) else { return vec![0; 8] };
        let to = filler().word(1).to(8).word(ROUTE_FLAGS).to(16).to(16 + 8);
        let to = to.put(&gid(there)).put(&gid(from)).to(16 + 44).put(&u32::from(HOPS).to_be_bytes());
        // Exactly these: the two bits above a value say so.
        let exact = |value: u8| 2 << 6 | value;
        to.byte(0)
            .byte(1 << 7 | 1)
            .put(&PKEY)
            .put(&[0, 0])
            .byte(exact(self.mtu(id)))
            .byte(exact(RATE))
            .byte(exact(PACKET_LIFE))
            .to(8 + 72)
            .0
    }

    /// Addresses of the NICs at both ends.
    fn ends(&self, id: &Id) -> Option<(Ipv4Addr, Ipv4Addr)> {
        Some((self.nic_of_id(id)?.ip, id.peer?))
    }

    /// The packets that both ends can take.
    fn mtu(&self, id: &Id) -> u8 {
        let own = self.nic_of_id(id).map_or(0, |nic| nic.mtu);
        mtu_number(if id.others.mtu == 0 { own } else { own.min(id.others.mtu) })
    }

    /// INIT_QP_ATTR: what a queue pair is to be given for its way to this state.
    pub fn attributes(&self, id: &Id, state: u32) -> Result<Vec<u8>, Errno> {
        const INIT: u32 = 1;
        const RTR: u32 = 2;
        const RTS: u32 = 3;
        self.nic_of_id(id).ok_or(Errno::INVAL)?;
        let known =
            matches!(id.state, State::Requested | State::Answered | State::Accepted | State::Connected);
        // STATE, and: ACCESS_FLAGS PKEY_INDEX PORT; AV PATH_MTU RQ_PSN MIN_RNR_TIMER MAX_DEST_RD_ATOMIC DEST_QPN;
        // TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC SQ_PSN.
        let mask: u32 = match state {
            INIT => 0b11_1001,
            RTR if known => 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20,
            RTS if known => 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16,
            _ => return Err(Errno::INVAL),
        };
        let (resources, depth) = (id.others.responder_resources, id.others.initiator_depth);
        // Nothing before the other end is known; then writes, and, where they are answered, READs and atomics.
        let access = match (known, resources) {
            (false, _) => 0,
            (true, 0) => 1 << 1,
            (true, _) => 1 << 1 | 1 << 2 | 1 << 3,
        };
        let to = filler().word(mask).word(state).word(0).word(self.mtu(id).into()).to(24);
        let to = to.word(id.others.psn).word(id.own.psn).word(id.others.qp_num).word(access);
        let to = to.put(&id.peer.map_or([0; 16], gid)).to(61).byte(HOPS).to(69).byte(1).byte(PORT);
        let retries = [id.others.retry_count.max(id.own.retry_count), id.others.rnr_retry_count];
        Ok(to
            .to(124 + 4 + 2)
            .byte(depth)
            .byte(resources)
            .byte(0)
            .byte(PORT)
            .byte(id.ack_timeout.unwrap_or(ACK_TIMEOUT))
            .put(&retries)
            .to(144)
            .0)
    }
}

/// A route is known.
fn has_route(id: &Id) -> bool {
    id.peer.is_some()
        && !matches!(id.state, State::Idle | State::Bound | State::Resolving(_) | State::Resolved)
}

/// Its address and the other end's, each as long as its kind is.
fn names(id: &Id) -> [Vec<u8>; 2] {
    [id.source, id.target].map(|name| name.map_or(Vec::new(), Name::write))
}

impl Event {
    /// GET_EVENT.
    pub fn write(&self) -> Vec<u8> {
        // Always as many private bytes as the message has room for.
        let room = match self.kind {
            EventKind::ConnectRequest => REQUEST_PRIVATE,
            EventKind::ConnectResponse => REPLY_PRIVATE,
            EventKind::Rejected => REJECT_PRIVATE,
            _ => 0,
        };
        let terms = &self.terms;
        let private = &terms.private[..terms.private.len().min(room)];
        filler()
            .put(&self.uid.to_ne_bytes())
            .word(self.id)
            .word(self.kind as u32)
            .word(self.status as u32)
            .word(terms.qp_num)
            .word(0)
            .put(private)
            .to(28 + 256)
            .byte(room as u8)
            .byte(terms.has_srq.into())
            .byte(terms.responder_resources)
            .byte(terms.initiator_depth)
            .byte(terms.flow_control)
            .byte(terms.retry_count)
            .byte(terms.rnr_retry_count)
            .to(EVENT_LEAST + 4)
            .word(terms.ece[0])
            .word(terms.ece[1])
            .0
    }
}
