//! Where everything lies in a PE's control memory: pure arithmetic over its shape.

use crate::nic::queue::{At, RingSpan, RingVariant};
use crate::nic::umem::QUEUE_ALIGN;
use shunt_layout::mlx5::cqe::CQE_BYTES;
use shunt_layout::mlx5::wqe::WQEBB_BYTES;
use shunt_layout::state::{
    Channel, DeviceState, HintWord, HomeWord, Mailbox, Mirror, PathRow, RECORDS, SCRATCH_EXTRA, STEP_RECORDS,
    StepRecord, SwitchRecord, Tally,
};
use std::ops::Range;

const PAGE: u64 = 4096;
const LINE: u64 = 128;
/// Doorbell records of one variant: the QP's and the CQ's, a line of 64 bytes each.
const RECORD_LINES: u64 = 128;

/// Counts that the sizes follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// PEs.
    pub pes: u32,
    /// This PE: it has no rings to itself.
    pub me: u32,
    /// Channels to each peer.
    pub channels_per_pe: u32,
    /// Path slots of each channel.
    pub slots: u32,
    /// Rails of a row.
    pub rails: u32,
    /// Chunks of the heap.
    pub chunks: u32,
    /// log2 of the rings' depth.
    pub log_depth: u32,
}

/// Which path slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    /// Peer.
    pub peer: u32,
    /// Channel at that peer.
    pub channel: u32,
    /// Slot of that channel.
    pub slot: u32,
}

impl Shape {
    /// Number of a channel's row.
    pub fn channel_row(&self, peer: u32, channel: u32) -> u32 {
        peer * self.channels_per_pe + channel
    }

    /// Number of a path's row.
    pub fn path_row(&self, id: SlotId) -> u32 {
        self.channel_row(id.peer, id.channel) * self.slots + id.slot
    }

    /// Channels, those to this PE itself included.
    pub fn rows(&self) -> u64 {
        u64::from(self.pes) * u64::from(self.channels_per_pe)
    }

    /// Ring sets: one for each slot of each channel to another PE.
    fn ring_sets(&self) -> u64 {
        u64::from(self.pes - 1) * u64::from(self.channels_per_pe) * u64::from(self.slots)
    }

    /// Offsets of everything.
    pub fn plan(&self) -> Plan {
        let mut end = 0;
        let mut take = |bytes: u64, align: u64| {
            let start = u64::next_multiple_of(end, align);
            end = start + bytes;
            start..end
        };
        let count = |n: u64, bytes: usize| n * bytes as u64;
        let paths = self.rows() * u64::from(self.slots);
        let keys = u64::from(self.rails) * u64::from(self.chunks);
        let hints = u64::from(1 + self.pes) * u64::from(self.rails);
        let depth = 1u64 << self.log_depth;
        let ring = (depth * WQEBB_BYTES as u64).next_multiple_of(QUEUE_ALIGN);
        Plan {
            shape: *self,
            ring,
            state: take(size_of::<DeviceState>() as u64, LINE),
            peer_heap: take(count(u64::from(self.pes), 8), LINE),
            lkeys: take(count(keys, 4), LINE),
            // That of the data of puts behind the other.
            rkeys: take(count(2 * keys * u64::from(self.pes), 4), LINE),
            scratch_lkeys: take(count(u64::from(self.rails), 4), LINE),
            channels: take(count(self.rows(), size_of::<Channel>()), LINE),
            paths: take(count(paths, size_of::<PathRow>()), LINE),
            mailboxes: take(count(self.rows(), size_of::<Mailbox>()), LINE),
            mirrors: take(count(self.rows(), size_of::<Mirror>()), LINE),
            homes: take(count(self.rows(), size_of::<HomeWord>()), LINE),
            hints: take(count(hints, size_of::<HintWord>()), LINE),
            wake: take(8, LINE),
            records: take(count(RECORDS as u64, size_of::<SwitchRecord>()), LINE),
            records_head: take(8, LINE),
            tallies: take(count(self.rows(), size_of::<Tally>()), LINE),
            steps: take(count(STEP_RECORDS as u64, size_of::<StepRecord>()), LINE),
            steps_head: take(8, LINE),
            scratch: take(self.rows() * (depth + u64::from(SCRATCH_EXTRA)) * 8, PAGE),
            doorbells: take(self.ring_sets() * 2 * RECORD_LINES, PAGE),
            rings: take(self.ring_sets() * 3 * ring, QUEUE_ALIGN),
            spares: take(u64::from(self.pes - 1) * u64::from(self.channels_per_pe) * ring, QUEUE_ALIGN),
            bytes: u64::next_multiple_of(end, PAGE),
        }
    }
}

/// Offsets in the control memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as the tables of `DeviceState`
pub struct Plan {
    pub shape: Shape,
    /// Bytes of one ring.
    pub ring: u64,
    pub state: Range<u64>,
    pub peer_heap: Range<u64>,
    pub lkeys: Range<u64>,
    pub rkeys: Range<u64>,
    pub scratch_lkeys: Range<u64>,
    pub channels: Range<u64>,
    pub paths: Range<u64>,
    pub mailboxes: Range<u64>,
    pub mirrors: Range<u64>,
    pub homes: Range<u64>,
    pub hints: Range<u64>,
    pub wake: Range<u64>,
    pub records: Range<u64>,
    pub records_head: Range<u64>,
    pub tallies: Range<u64>,
    pub steps: Range<u64>,
    pub steps_head: Range<u64>,
    pub scratch: Range<u64>,
    /// Doorbell records of all rings.
    pub doorbells: Range<u64>,
    /// Send queue and two CQs of each path.
    pub rings: Range<u64>,
    /// One more send queue a channel: a path may be recreated while its old ring is still the journal.
    pub spares: Range<u64>,
    /// Bytes in all.
    pub bytes: u64,
}

impl Plan {
    /// The rings of a path, in control memory that starts at `base`.
    ///
    /// # Panics
    /// If the path leads to this PE itself.
    pub fn ring_span(&self, base: u64, id: SlotId) -> RingSpan {
        assert_ne!(id.peer, self.shape.me, "a PE has no path to itself");
        // Peers behind this PE move up by one.
        let peer = id.peer - (id.peer > self.shape.me) as u32;
        let set = u64::from(self.shape.path_row(SlotId { peer, ..id }));
        let at = |offset| At { address: base + offset, offset };
        let first = self.rings.start + set * 3 * self.ring;
        let variant = |which: u64| {
            let record = self.doorbells.start + (set * 2 + which) * RECORD_LINES;
            RingVariant {
                completion_queue: at(first + (1 + which) * self.ring),
                queue_record: at(record),
                completion_record: at(record + RECORD_LINES / 2),
            }
        };
        RingSpan {
            send_queue: at(first),
            variants: [variant(0), variant(1)],
            user_index: self.shape.path_row(id) & 0xff_ffff,
        }
    }

    /// The spare send queue of a channel.
    ///
    /// # Panics
    /// If the channel leads to this PE itself.
    pub fn spare_queue(&self, base: u64, peer: u32, channel: u32) -> At {
        assert_ne!(peer, self.shape.me, "a PE has no path to itself");
        let peer = peer - (peer > self.shape.me) as u32;
        let offset = self.spares.start + u64::from(self.shape.channel_row(peer, channel)) * self.ring;
        At { address: base + offset, offset }
    }

    /// Every table, for checks.
    pub fn tables(&self) -> [(&'static str, &Range<u64>); 21] {
        [
            ("state", &self.state),
            ("peer_heap", &self.peer_heap),
            ("lkeys", &self.lkeys),
            ("rkeys", &self.rkeys),
            ("scratch_lkeys", &self.scratch_lkeys),
            ("channels", &self.channels),
            ("paths", &self.paths),
            ("mailboxes", &self.mailboxes),
            ("mirrors", &self.mirrors),
            ("homes", &self.homes),
            ("hints", &self.hints),
            ("wake", &self.wake),
            ("records", &self.records),
            ("records_head", &self.records_head),
            ("tallies", &self.tallies),
            ("steps", &self.steps),
            ("steps_head", &self.steps_head),
            ("scratch", &self.scratch),
            ("doorbells", &self.doorbells),
            ("rings", &self.rings),
            ("spares", &self.spares),
        ]
    }
}

const _: () = assert!(CQE_BYTES == WQEBB_BYTES, "send queue and CQ of one depth are equally long");

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(me: u32) -> Shape {
        Shape { pes: 3, me, channels_per_pe: 2, slots: 2, rails: 2, chunks: 5, log_depth: 4 }
    }

    #[test]
    fn tables_do_not_touch_and_lines_are_kept() {
        let plan = shape(1).plan();
        let mut end = 0;
        for (name, range) in plan.tables() {
            assert!(range.start >= end && range.start % 128 == 0 && range.end > range.start, "{name}");
            end = range.end;
        }
        assert!(plan.bytes >= end && plan.bytes.is_multiple_of(4096));
        assert_eq!(plan.rkeys.end - plan.rkeys.start, 2 * 3 * 2 * 5 * 4);
        assert_eq!(plan.paths.end - plan.paths.start, 3 * 2 * 2 * 256);
        assert_eq!(plan.scratch.end - plan.scratch.start, 3 * 2 * (16 + 8) * 8);
    }

    #[test]
    fn no_two_rings_overlap() {
        for me in 0..3 {
            let plan = shape(me).plan();
            let mut spans = Vec::new();
            for peer in (0..3).filter(|peer| *peer != me) {
                for channel in 0..2 {
                    spans.push((plan.spare_queue(0, peer, channel).offset, 16 * 64, QUEUE_ALIGN));
                }
                for (channel, slot) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let rings = plan.ring_span(0x10_0000, SlotId { peer, channel, slot });
                    let depth_bytes = 16 * 64;
                    spans.push((rings.send_queue.offset, depth_bytes, QUEUE_ALIGN));
                    for variant in rings.variants {
                        spans.push((variant.completion_queue.offset, depth_bytes, QUEUE_ALIGN));
                        spans.push((variant.queue_record.offset, 8, 64));
                        spans.push((variant.completion_record.offset, 8, 64));
                    }
                    assert_eq!(rings.send_queue.address, 0x10_0000 + rings.send_queue.offset);
                    assert_ne!(rings.variant(1), rings.variant(2));
                    assert_eq!(rings.variant(1), rings.variant(3));
                }
            }
            spans.sort();
            for pair in spans.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?}");
            }
            for (offset, bytes, align) in spans {
                assert_eq!(offset % align, 0);
                assert!(offset >= plan.doorbells.start && offset + bytes <= plan.bytes);
            }
        }
    }
}
