//! Where everything lies in a PE's control memory: pure arithmetic over its shape.

use crate::gpu::Region;
use crate::nic::queue::{At, RingSpan, RingVariant};
use crate::nic::umem::QUEUE_ALIGN;
use shunt_layout::mlx5::cqe::CQE_BYTES;
use shunt_layout::mlx5::wqe::WQEBB_BYTES;
use shunt_layout::state::{
    Channel, DeviceState, HintWord, HomeWord, HotPath, Mailbox, Mirror, PathRow, RECORDS, SCRATCH_EXTRA,
    STEP_RECORDS, StepRecord, SwitchRecord, Tally,
};
use std::ops::Range;

const PAGE: u64 = 4096;
const LINE: u64 = 128;
/// Bytes from the counter of one root to that of the other.
pub const COUNTER_LINE: u64 = 64;

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
    /// Those from this one on are kernels', and lie in the device's memory; `None`: all lie in the host's.
    pub kernels_from: Option<u32>,
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

/// First addresses of the regions; that of the device's memory means nothing where nothing lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bases {
    /// Of the host's memory.
    pub host: u64,
    /// Of the device's.
    pub device: u64,
}

impl Bases {
    /// That of a region.
    pub fn of(self, region: Region) -> u64 {
        match region {
            Region::Host => self.host,
            Region::Device => self.device,
        }
    }
}

/// Hands out ranges of one region, one behind the other.
#[derive(Default)]
struct Taker {
    end: u64,
}

impl Taker {
    fn take(&mut self, bytes: u64, align: u64) -> Range<u64> {
        let start = self.end.next_multiple_of(align);
        self.end = start + bytes;
        start..self.end
    }

    fn rows(&mut self, rows: u64, bytes: usize) -> Range<u64> {
        self.take(rows * bytes as u64, LINE)
    }
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

    /// Where a channel of this index lies.
    pub fn region_of(&self, channel: u32) -> Region {
        match self.kernels_from {
            Some(first) if channel >= first => Region::Device,
            _ => Region::Host,
        }
    }

    /// Bytes of one ring.
    fn ring(&self) -> u64 {
        ((WQEBB_BYTES as u64) << self.log_depth).next_multiple_of(QUEUE_ALIGN)
    }

    /// The tables that each root has for itself, before those that both share.
    fn root_tables(&self, region: Region, to: &mut Taker) -> Side {
        let keys = u64::from(self.rails) * u64::from(self.chunks);
        let first = self.kernels_from.unwrap_or(self.channels_per_pe).min(self.channels_per_pe);
        let indices = match region {
            Region::Host => 0..first,
            Region::Device => first..self.channels_per_pe,
        };
        Side {
            region,
            indices,
            state: to.take(size_of::<DeviceState>() as u64, LINE),
            peer_heap: to.rows(self.pes.into(), 8),
            lkeys: to.rows(keys, 4),
            // That of the data of puts behind the other.
            rkeys: to.rows(2 * keys * u64::from(self.pes), 4),
            scratch_lkeys: to.rows(self.rails.into(), 4),
            channels: to.rows(self.rows(), size_of::<Channel>()),
            hot: to.rows(self.rows() * u64::from(self.slots), size_of::<HotPath>()),
            scratch: 0..0,
            doorbells: 0..0,
            rings: 0..0,
            spares: 0..0,
        }
    }

    /// What NICs reach of a side: at its end, because it is aligned to more than the rest.
    fn queues(&self, side: Side, to: &mut Taker) -> Side {
        let (depth, ring) = (1u64 << self.log_depth, self.ring());
        let channels = u64::from(self.pes - 1) * side.indices.len() as u64;
        // One for each slot of each channel to another PE.
        let sets = channels * u64::from(self.slots);
        Side {
            scratch: to.take(self.rows() * (depth + u64::from(SCRATCH_EXTRA)) * 8, PAGE),
            doorbells: to.take(sets * 2 * RECORD_LINES, PAGE),
            rings: to.take(sets * 3 * ring, QUEUE_ALIGN),
            spares: to.take(channels * ring, QUEUE_ALIGN),
            ..side
        }
    }

    /// Offsets of everything.
    pub fn plan(&self) -> Plan {
        let (mut to, mut device) = (Taker::default(), Taker::default());
        let host = self.root_tables(Region::Host, &mut to);
        let paths = self.rows() * u64::from(self.slots);
        let hints = u64::from(1 + self.pes) * u64::from(self.rails);
        let shared = Shared {
            paths: to.rows(paths, size_of::<PathRow>()),
            mailboxes: to.rows(self.rows(), size_of::<Mailbox>()),
            mirrors: to.rows(self.rows(), size_of::<Mirror>()),
            homes: to.rows(self.rows(), size_of::<HomeWord>()),
            hints: to.rows(hints, size_of::<HintWord>()),
            wake: to.rows(2, COUNTER_LINE as usize),
            records: to.rows(2 * RECORDS as u64, size_of::<SwitchRecord>()),
            records_head: to.rows(2, COUNTER_LINE as usize),
            tallies: to.rows(self.rows(), size_of::<Tally>()),
            steps: to.rows(2 * STEP_RECORDS as u64, size_of::<StepRecord>()),
            steps_head: to.rows(2, COUNTER_LINE as usize),
        };
        let kernels = self.kernels_from.map(|_| {
            let side = self.root_tables(Region::Device, &mut device);
            self.queues(side, &mut device)
        });
        Plan {
            shape: *self,
            ring: self.ring(),
            shared,
            host: self.queues(host, &mut to),
            kernels,
            bytes: to.end.next_multiple_of(PAGE),
            device_bytes: device.end.next_multiple_of(PAGE),
        }
    }
}

/// Offsets of what one root has for itself: its channels, and all that a put, a poll or a NIC touches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as the tables of `DeviceState`
pub struct Side {
    /// Where it lies.
    pub region: Region,
    /// Indices, at each peer, of the channels that are its own: they alone have rings here.
    pub indices: Range<u32>,
    pub state: Range<u64>,
    pub peer_heap: Range<u64>,
    pub lkeys: Range<u64>,
    pub rkeys: Range<u64>,
    pub scratch_lkeys: Range<u64>,
    /// A row of every channel, so that all tables count alike. Those of the other side are dead.
    pub channels: Range<u64>,
    pub hot: Range<u64>,
    pub scratch: Range<u64>,
    /// Doorbell records of all rings.
    pub doorbells: Range<u64>,
    /// Send queue and two CQs of each path.
    pub rings: Range<u64>,
    /// One more send queue a channel: a path may be recreated while its old ring is still the journal.
    pub spares: Range<u64>,
}

/// Offsets of what the agent reads or writes while kernels run. Always in the host's memory, and the same for both
/// roots but for what is counted by adds. The wake word, records, steps and their heads come twice, first for the root
/// in the host's memory, then for that in the device's. Over PCIe adds of a GPU and of a processor on one word are not
/// atomic with each other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as the tables of `DeviceState`
pub struct Shared {
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
}

/// Offsets in the control memory, which is one region or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it follows from.
    pub shape: Shape,
    /// Bytes of one ring.
    pub ring: u64,
    /// What the agent reads or writes.
    pub shared: Shared,
    /// What the root in the host's memory has: that of host calls, and of kernels where there is no other.
    pub host: Side,
    /// What the root in the device's memory has: that of kernels.
    pub kernels: Option<Side>,
    /// Bytes in the host's memory.
    pub bytes: u64,
    /// Bytes in the device's memory.
    pub device_bytes: u64,
}

impl Plan {
    /// What kernels are given.
    pub fn of_kernels(&self) -> &Side {
        self.kernels.as_ref().unwrap_or(&self.host)
    }

    /// Both sides, or the only one.
    pub fn sides(&self) -> impl Iterator<Item = &Side> {
        std::iter::once(&self.host).chain(&self.kernels)
    }

    /// The side that a channel is of.
    pub fn side_of(&self, channel: u32) -> &Side {
        match self.shape.region_of(channel) {
            Region::Host => &self.host,
            Region::Device => self.of_kernels(),
        }
    }

    /// Number of a channel among those of a side that lead to other PEs.
    fn number(&self, side: &Side, peer: u32, channel: u32) -> u64 {
        assert_ne!(peer, self.shape.me, "a PE has no path to itself");
        // Peers behind this PE move up by one.
        let peer = u64::from(peer - (peer > self.shape.me) as u32);
        peer * side.indices.len() as u64 + u64::from(channel - side.indices.start)
    }

    /// The rings of a path, in control memory that starts at `bases`.
    ///
    /// # Panics
    /// If the path leads to this PE itself.
    pub fn ring_span(&self, bases: Bases, id: SlotId) -> RingSpan {
        let side = self.side_of(id.channel);
        let set = self.number(side, id.peer, id.channel) * u64::from(self.shape.slots) + u64::from(id.slot);
        let at = |offset| At { address: bases.of(side.region) + offset, offset };
        let first = side.rings.start + set * 3 * self.ring;
        let variant = |which: u64| {
            let record = side.doorbells.start + (set * 2 + which) * RECORD_LINES;
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
            region: side.region,
        }
    }

    /// The spare send queue of a channel, in the region of its rings.
    ///
    /// # Panics
    /// If the channel leads to this PE itself.
    pub fn spare_queue(&self, bases: Bases, peer: u32, channel: u32) -> At {
        let side = self.side_of(channel);
        let offset = side.spares.start + self.number(side, peer, channel) * self.ring;
        At { address: bases.of(side.region) + offset, offset }
    }

    /// Every table, for checks: its region, name and offsets.
    pub fn tables(&self) -> Vec<(Region, &'static str, &Range<u64>)> {
        let shared = &self.shared;
        let mut tables = vec![
            (Region::Host, "paths", &shared.paths),
            (Region::Host, "mailboxes", &shared.mailboxes),
            (Region::Host, "mirrors", &shared.mirrors),
            (Region::Host, "homes", &shared.homes),
            (Region::Host, "hints", &shared.hints),
            (Region::Host, "wake", &shared.wake),
            (Region::Host, "records", &shared.records),
            (Region::Host, "records_head", &shared.records_head),
            (Region::Host, "tallies", &shared.tallies),
            (Region::Host, "steps", &shared.steps),
            (Region::Host, "steps_head", &shared.steps_head),
        ];
        for side in self.sides() {
            let of_side = [
                ("state", &side.state),
                ("peer_heap", &side.peer_heap),
                ("lkeys", &side.lkeys),
                ("rkeys", &side.rkeys),
                ("scratch_lkeys", &side.scratch_lkeys),
                ("channels", &side.channels),
                ("hot", &side.hot),
                ("scratch", &side.scratch),
                ("doorbells", &side.doorbells),
                ("rings", &side.rings),
                ("spares", &side.spares),
            ];
            tables.extend(of_side.map(|(name, range)| (side.region, name, range)));
        }
        tables
    }
}

const _: () = assert!(CQE_BYTES == WQEBB_BYTES, "send queue and CQ of one depth are equally long");

#[cfg(test)]
mod tests {
    use super::*;

    const BASES: Bases = Bases { host: 0x10_0000, device: 0x7000_0000 };

    fn shape(me: u32, kernels_from: Option<u32>) -> Shape {
        Shape { pes: 3, me, channels_per_pe: 2, kernels_from, slots: 2, rails: 2, chunks: 5, log_depth: 4 }
    }

    #[test]
    fn tables_do_not_touch_and_lines_are_kept() {
        for kernels_from in [None, Some(0), Some(1)] {
            let plan = shape(1, kernels_from).plan();
            for (region, bytes) in [(Region::Host, plan.bytes), (Region::Device, plan.device_bytes)] {
                let mut end = 0;
                let mut tables = plan.tables();
                tables.retain(|(lies, ..)| *lies == region);
                tables.sort_by_key(|(.., range)| (range.start, range.end));
                for (_, name, range) in tables {
                    let rings = matches!(name, "doorbells" | "rings" | "spares");
                    assert!(range.start >= end && range.start % 128 == 0, "{name}");
                    assert!(range.end > range.start || rings && region == Region::Host, "{name}");
                    end = range.end;
                }
                assert!(bytes >= end && bytes.is_multiple_of(4096));
            }
            let kernels = plan.of_kernels();
            assert_eq!(kernels.rkeys.end - kernels.rkeys.start, 2 * 3 * 2 * 5 * 4);
            assert_eq!(plan.shared.paths.end - plan.shared.paths.start, 3 * 2 * 2 * 256);
            assert_eq!(kernels.scratch.end - kernels.scratch.start, 3 * 2 * (16 + 8) * 8);
        }
        assert_eq!(shape(1, None).plan().device_bytes, 0);
    }

    #[test]
    fn no_two_rings_overlap() {
        for (me, kernels_from) in [(0, None), (1, None), (2, None), (1, Some(0)), (0, Some(1)), (2, Some(1))]
        {
            let plan = shape(me, kernels_from).plan();
            let mut spans = Vec::new();
            for peer in (0..3).filter(|peer| *peer != me) {
                for channel in 0..2 {
                    let region = plan.shape.region_of(channel);
                    spans.push((region, plan.spare_queue(BASES, peer, channel).offset, 16 * 64, QUEUE_ALIGN));
                }
                for (channel, slot) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let rings = plan.ring_span(BASES, SlotId { peer, channel, slot });
                    let (region, depth_bytes) = (rings.region, 16 * 64);
                    assert_eq!(region == Region::Device, kernels_from.is_some_and(|first| channel >= first));
                    spans.push((region, rings.send_queue.offset, depth_bytes, QUEUE_ALIGN));
                    for variant in rings.variants {
                        spans.push((region, variant.completion_queue.offset, depth_bytes, QUEUE_ALIGN));
                        spans.push((region, variant.queue_record.offset, 8, 64));
                        spans.push((region, variant.completion_record.offset, 8, 64));
                    }
                    assert_eq!(rings.send_queue.address, BASES.of(region) + rings.send_queue.offset);
                    assert_ne!(rings.variant(1), rings.variant(2));
                    assert_eq!(rings.variant(1), rings.variant(3));
                }
            }
            spans.sort();
            for pair in spans.windows(2) {
                let (one, next) = (pair[0], pair[1]);
                assert!(one.0 != next.0 || one.1 + one.2 <= next.1, "{pair:x?}");
            }
            for (region, offset, bytes, align) in spans {
                assert_eq!(offset % align, 0);
                let side = plan.sides().find(|side| side.region == region).unwrap();
                assert!(side.doorbells.start <= offset && offset + bytes <= side.spares.end);
            }
        }
    }
}
