//! The profiles that have a name.
//!
//! What stands on public sources: ConnectX-7 has no `dp_ordering_ooo_all_rc`; real-time clocks and `dp_ordering_force`
//! are of ConnectX-6 Dx and later. Enhanced connection establishment is taken to be, too: Linux has had it since 2020,
//! and asks the capability alone. The rest, which device has which lack, is chosen so that each lack is in some
//! profile.

use super::{Atomics, CommandTime, Ece, ForceLoopback, LinkLayer, Order, Profile, Share, UncachedPages};
use shunt_layout::mlx5::prm::caps::{
    ATOMIC_COMPARE_SWAP, ATOMIC_FETCH_ADD, ATOMIC_MASKED_COMPARE_SWAP, ATOMIC_MASKED_FETCH_ADD, TimestampCap,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

const PLAIN: u32 = ATOMIC_COMPARE_SWAP | ATOMIC_FETCH_ADD;
const MASKED: u32 = ATOMIC_MASKED_COMPARE_SWAP | ATOMIC_MASKED_FETCH_ADD;

/// Invented: a newer device of its own.
const QUICK: CommandTime = &[
    Share { per_mille: 850, from_ns: 60 * US, to_ns: 130 * US },
    Share { per_mille: 140, from_ns: 130 * US, to_ns: 400 * US },
    Share { per_mille: 10, from_ns: MS, to_ns: 3 * MS },
];
/// Invented: an older device, or one whose firmware serves many functions.
const SLOW: CommandTime = &[
    Share { per_mille: 700, from_ns: 150 * US, to_ns: 350 * US },
    Share { per_mille: 280, from_ns: 350 * US, to_ns: 900 * US },
    Share { per_mille: 20, from_ns: 2 * MS, to_ns: 6 * MS },
];

/// It takes everything, and keeps every order: what the software NIC was before it had profiles.
const PLAIN_SOFT: Profile = Profile {
    name: "soft",
    about: "takes everything, keeps every order, each command takes the same",
    link_layer: None,
    mtu: 4096,
    pkeys: &[0xffff],
    subnet: None,
    order: Order { told: true, force: true, out_of_order: false, routed: false },
    force_loopback: ForceLoopback { with_roce: true, without_roce: true },
    atomics: Atomics { operations: PLAIN | MASKED, big_endian: false },
    clock: TimestampCap::Both,
    umem_align: 1,
    uncached_pages: UncachedPages::Any,
    command_time: None,
    rmsn_cleared_by_2err: false,
    ece: Ece::with_control(0xff),
};

/// All that have a name; the first takes everything.
pub const PROFILES: &[Profile] = &[
    PLAIN_SOFT,
    Profile {
        name: "cx5",
        about: "an old device: no word of order, no force loopback, one uncached page a context, 2ERR clears rmsn",
        order: Order { told: false, force: false, out_of_order: true, routed: false },
        force_loopback: ForceLoopback { with_roce: false, without_roce: false },
        clock: TimestampCap::FreeRunning,
        uncached_pages: UncachedPages::OneEach,
        command_time: Some(SLOW),
        rmsn_cleared_by_2err: true,
        ece: Ece::NONE,
        ..PLAIN_SOFT
    },
    Profile {
        name: "cx6dx",
        about: "a device in real-time clock mode: it has no other",
        order: Order { told: true, force: true, out_of_order: true, routed: false },
        clock: TimestampCap::RealTime,
        command_time: Some(SLOW),
        ece: Ece::REPEAT,
        ..PLAIN_SOFT
    },
    Profile {
        name: "cx7",
        about: "a new device behind a network that routes adaptively, unless a queue pair forces its order",
        order: Order { told: true, force: true, out_of_order: true, routed: true },
        command_time: Some(QUICK),
        ece: Ece::with_control(0b011),
        ..PLAIN_SOFT
    },
    Profile {
        name: "bf3",
        about: "BlueFlame pages only, force loopback only where RoCE is off; the network routes as for cx7",
        order: Order { told: true, force: true, out_of_order: true, routed: true },
        force_loopback: ForceLoopback { with_roce: false, without_roce: true },
        uncached_pages: UncachedPages::Refused,
        command_time: Some(QUICK),
        ece: Ece::with_control(0b110),
        ..PLAIN_SOFT
    },
    Profile {
        name: "vf",
        about: "a virtual function: no masked atomics, no force loopback, packets of 1 KiB",
        mtu: 1024,
        order: Order { told: true, force: false, out_of_order: false, routed: false },
        force_loopback: ForceLoopback { with_roce: false, without_roce: false },
        atomics: Atomics { operations: PLAIN, big_endian: false },
        uncached_pages: UncachedPages::OneEach,
        command_time: Some(SLOW),
        ece: Ece::NONE,
        ..PLAIN_SOFT
    },
    Profile {
        name: "ib-ar",
        about: "InfiniBand, adaptive routing that nothing overrides, packets of 2 KiB, a partition, a subnet a rail",
        link_layer: Some(LinkLayer::InfiniBand),
        mtu: 2048,
        // The first entry is of limited membership: two such cannot talk.
        pkeys: &[0x7fff, 0x8005],
        subnet: Some(0xfec0_0000_0000_0100),
        order: Order { told: true, force: false, out_of_order: true, routed: true },
        force_loopback: ForceLoopback { with_roce: false, without_roce: true },
        command_time: Some(QUICK),
        ece: Ece::NONE,
        ..PLAIN_SOFT
    },
    Profile {
        name: "strict",
        about: "queues start at multiples of 64 KiB in their umem, or are refused",
        umem_align: 1 << 16,
        command_time: Some(QUICK),
        ..PLAIN_SOFT
    },
];
