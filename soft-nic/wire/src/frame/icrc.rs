//! The invariant checksum: CRC-32 of Ethernet over all that no switch changes.

use super::Outer;
use super::outer::OUTER_MAX;
use super::parts::{BTH_BYTES, ETHERNET_BYTES, ICRC_BYTES};

/// CRC-32 of eight bytes of ones, which stand for a local route header that is not there.
const OF_ONES: u32 = 0x2144_df1c;

/// An invariant checksum in the making. It starts with the local route header, eight bytes of ones.
///
/// Fields that may change on the way (traffic class, flow label, hop limit, the BTH's second reserved byte; with IP
/// its type of service, time to live and checksums) are to be given as ones.
#[derive(Clone, Debug)]
pub struct Icrc(crc32fast::Hasher);

impl Default for Icrc {
    fn default() -> Self {
        Self(crc32fast::Hasher::new_with_initial(OF_ONES))
    }
}

impl Icrc {
    /// Takes the next bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum as it stands in the packet.
    pub fn finish(self) -> [u8; 4] {
        self.0.finalize().to_le_bytes()
    }
}

/// The checksum of a frame whose last four bytes are it, or are meant for it. The frame holds all fixed headers.
pub(super) fn of_frame(frame: &[u8], outer: Outer) -> [u8; 4] {
    let mut head = [0; OUTER_MAX - ETHERNET_BYTES + BTH_BYTES];
    let fixed = outer.bytes() + BTH_BYTES;
    let head = &mut head[..fixed - ETHERNET_BYTES];
    head.copy_from_slice(&frame[ETHERNET_BYTES..fixed]);
    match outer {
        Outer::Grh => {
            head[0] |= 0x0f; // The version stays; class and flow label go.
            head[1..4].fill(0xff);
            head[7] = 0xff; // Hop limit.
        }
        Outer::Udp { .. } => {
            head[1] = 0xff; // Type of service.
            head[8] = 0xff; // Time to live.
            head[10..12].fill(0xff); // IP checksum.
            head[26..28].fill(0xff); // UDP checksum.
        }
    }
    head[fixed - ETHERNET_BYTES - BTH_BYTES + 4] = 0xff; // Congestion bits and what is reserved beside them.
    let mut icrc = Icrc::default();
    icrc.update(head);
    icrc.update(&frame[fixed..frame.len() - ICRC_BYTES]);
    icrc.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_eight_ones() {
        assert_eq!(crc32fast::hash(&[0xff; 8]), OF_ONES);
        // The Linux soft RoCE driver starts from the same register, before the final complement.
        assert_eq!(!OF_ONES, 0xdebb_20e3);
    }
}
