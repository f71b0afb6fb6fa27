//! A soft EFA behind the port of a NIC: its segments travel as datagrams, through the same faults, captures and
//! uplinks as packets of the NIC do.

use shunt_soft_hca::Counters;
use shunt_soft_hca::nic::SoftNic;
use shunt_soft_hca::step_context::StepContext;
use shunt_soft_srd::answering::Incoming;
use shunt_soft_srd::device::{Config, Device, Event};
use shunt_soft_srd::path::Outgoing;
use shunt_soft_srd::queues::Notice;
use shunt_soft_srd::segment::HEADER_BYTES;
use shunt_soft_wire::packet::{Body, Datagram, Packet};

/// The event of a completion queue that was asked for, as the NIC's host reads it.
const COMPLETION: u8 = 0;
/// The event of one that overran.
const CQ_ERROR: u8 = 4;

/// What the NIC does not say of the soft EFA behind its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrdConfig {
    /// Draws the path of each segment.
    pub seed: u64,
    /// By how many nanoseconds paths differ.
    pub spread_ns: u64,
    /// Larger than that of any earlier device of this address.
    pub epoch: u64,
}

/// Bytes of the program's in a segment.
fn data_bytes(segment: &[u8]) -> u64 {
    segment.len().saturating_sub(HEADER_BYTES) as u64
}

/// A soft EFA, and what its NIC counted for it.
pub(crate) struct Srd {
    device: Device,
    counted: shunt_soft_srd::device::Counters,
    packets: u32,
}

impl Srd {
    pub(crate) fn new(nic: &SoftNic, config: SrdConfig) -> Self {
        let port = nic.config();
        let device = Device::new(Config {
            mac: port.mac_number(),
            packet_bytes: port.mtu,
            seed: config.seed ^ port.mac_number(),
            spread_ns: config.spread_ns,
            rate_gbps: port.rail_gbps,
            epoch: config.epoch,
        });
        Self { device, counted: Default::default(), packets: 0 }
    }

    pub(crate) fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    /// When it has something to do, doorbells aside.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.device.next_due()
    }

    /// Does what is due, and puts what it sends into the NIC's outbox. True if there was anything.
    pub(crate) fn run(&mut self, nic: &mut SoftNic, cx: &mut StepContext) -> bool {
        let mut any = self.device.run(cx.now);
        let mut outbox = nic.take_outbox();
        let number = outbox.len();
        while let Some(outgoing) = self.device.take_outgoing(cx.now) {
            let packet = self.packet(outgoing, nic, cx);
            outbox.push(packet);
        }
        any |= outbox.len() > number;
        nic.put_outbox(outbox);
        for Event { cq, notice } in self.device.take_events() {
            match notice {
                Notice::Completion => nic.raise(cx.now, COMPLETION, cq.into()),
                Notice::Overrun => nic.raise(cx.now, CQ_ERROR, cq.into()),
            }
        }
        self.count(nic.counters_mut());
        any
    }

    /// A segment as a packet.
    fn packet(&mut self, outgoing: Outgoing, nic: &mut SoftNic, cx: &mut StepContext) -> Packet {
        let Outgoing { destination, mac, qpn, qkey, source_qpn, segment } = outgoing;
        let mut payload = cx.pool.take(segment.len());
        payload.bytes_mut().copy_from_slice(&segment);
        let (from, to) = (nic.number(), cx.route(destination, mac));
        let counters = nic.counters_mut();
        counters.packets_tx += 1;
        counters.packets_looped += u64::from(to == from);
        counters.bytes_tx += data_bytes(&segment);
        self.packets = self.packets.wrapping_add(1) & 0xff_ffff;
        Packet {
            from,
            to,
            source: u128::from_be_bytes(nic.config().gid),
            qpn: qpn.into(),
            psn: self.packets,
            ack_request: false,
            solicited: false,
            body: Body::Datagram(Box::new(Datagram {
                destination,
                source_qpn: source_qpn.into(),
                qkey,
                imm: None,
                payload,
            })),
        }
    }

    /// A packet reached the port.
    pub(crate) fn receive(&mut self, packet: Packet, nic: &mut SoftNic, cx: &mut StepContext) {
        nic.counters_mut().packets_rx += 1;
        let Body::Datagram(datagram) = &packet.body else { return nic.drop_packet(packet, cx) };
        let segment = datagram.payload.bytes();
        nic.counters_mut().bytes_rx += data_bytes(segment);
        let (source_qpn, qpn) = (datagram.source_qpn as u16, packet.qpn as u16);
        let (source, qkey) = (packet.source, datagram.qkey);
        self.device.receive(Incoming { source, source_qpn, qpn, qkey, segment }, cx.now);
        packet.recycle(&mut cx.pool);
    }

    /// Adds what was counted since the last time to the NIC's counters.
    fn count(&mut self, counters: &mut Counters) {
        let (now, before) = (self.device.counters(), self.counted);
        self.counted = now;
        counters.wqes += now.wqes - before.wqes;
        counters.cqes += now.cqes - before.cqes;
        counters.messages += now.messages - before.messages;
        counters.reordered += now.reordered - before.reordered;
        counters.retransmits += now.retransmits - before.retransmits;
        counters.duplicates += now.duplicates - before.duplicates;
        counters.rnr_naks += now.not_ready - before.not_ready;
        counters.dropped += now.dropped - before.dropped;
    }
}
