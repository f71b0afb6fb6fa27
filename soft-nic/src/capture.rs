//! What crosses a fabric, written down for Wireshark: a pcap file of whole frames, with times in nanoseconds.

use shunt_soft_hca::config::NicConfig;
use shunt_soft_wire::frame::{self, Addresses, Outer, ROCE_PORT};
use shunt_soft_wire::packet::{Body, Packet};
use std::io::{self, Write};

/// pcap, times in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Version 2.4.
const VERSION: u32 = 4 << 16 | 2;
/// Whole packets.
const SNAP_BYTES: u32 = 65_535;
/// Link type: Ethernet.
const ETHERNET: u32 = 1;
/// Bytes in front of each frame.
const RECORD_BYTES: usize = 16;

/// How a capture goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureReport {
    /// Frames written down.
    pub frames: u64,
    /// Frames that were not, after an error.
    pub lost: u64,
    /// The error that ended it: a file is not gone on with behind half a record.
    pub error: Option<String>,
}

/// A capture being written.
pub(crate) struct Capture {
    writer: Box<dyn Write + Send>,
    /// Records of this round, and how many.
    buffer: Vec<u8>,
    pending: u64,
    epoch_ns: u64,
    report: CaptureReport,
}

impl Capture {
    pub(crate) fn new(mut writer: Box<dyn Write + Send>, epoch_ns: u64) -> io::Result<Self> {
        let mut header = Vec::new();
        for word in [MAGIC, VERSION, 0, 0, SNAP_BYTES, ETHERNET] {
            header.extend_from_slice(&word.to_le_bytes());
        }
        writer.write_all(&header)?;
        writer.flush()?;
        let (buffer, report) = (Vec::new(), CaptureReport::default());
        Ok(Self { writer, buffer, pending: 0, epoch_ns, report })
    }

    /// Appends the frame that `write` appends.
    fn record(&mut self, now: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; RECORD_BYTES]);
        write(&mut self.buffer);
        let length = (self.buffer.len() - start - RECORD_BYTES) as u32;
        let at = self.epoch_ns.saturating_add(now);
        let words = [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32, length, length];
        for (word, into) in words.iter().zip(self.buffer[start..start + RECORD_BYTES].chunks_exact_mut(4)) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        self.pending += 1;
    }

    /// Appends a frame.
    pub(crate) fn frame(&mut self, now: u64, frame: &[u8]) {
        self.record(now, |buffer| buffer.extend_from_slice(frame));
    }

    /// Hands over what was appended, so that a process that is killed leaves a whole file.
    pub(crate) fn flush(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        if pending == 0 {
            return;
        }
        if self.report.error.is_none() {
            match self.writer.write_all(&self.buffer).and_then(|()| self.writer.flush()) {
                Ok(()) => self.report.frames += pending,
                Err(cause) => self.report.error = Some(cause.to_string()),
            }
        }
        self.report.lost += if self.report.error.is_some() { pending } else { 0 };
        self.buffer.clear();
    }

    /// Appends a packet on its way from one NIC of the fabric to another, as the RoCE v2 frame it would be.
    pub(crate) fn inside(&mut self, now: u64, packet: &Packet, from: &NicConfig, to: &NicConfig) {
        let destination = match &packet.body {
            Body::Datagram(datagram) => datagram.destination,
            // A LID leads to a LID.
            _ if packet.source >> 16 == 0 => to.lid as u128,
            _ => u128::from_be_bytes(to.gid),
        };
        let (source_mac, destination_mac) = (from.mac_number(), to.mac_number());
        let addresses = Addresses { source: packet.source, destination, source_mac, destination_mac };
        let is_mapped = [packet.source, destination].iter().all(|gid| gid >> 32 == 0xffff);
        let udp = Outer::Udp { source_port: ROCE_PORT, destination_port: ROCE_PORT };
        let outer = if is_mapped { udp } else { Outer::Grh };
        self.record(now, |buffer| frame::encode(packet, &addresses, outer, buffer));
    }

    /// How it goes.
    pub(crate) fn report(&self) -> CaptureReport {
        self.report.clone()
    }
}
