//! One NIC's identity, latencies and quirks.

pub use crate::profile::LinkLayer;
use crate::profile::Profile;
pub use shunt_soft_wire::frame::mac_of;
use shunt_soft_wire::frame::mapped;
use shunt_soft_wire::uplink::Uplink;
use std::net::Ipv4Addr;

/// What a NIC's count says of atomics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtomicCount {
    /// Each that was executed once, and none other.
    #[default]
    Honest,
    /// None of them.
    Left,
    /// One whose answer was lost once more for each time that it is sent again.
    Again,
    /// Each that was accepted: 2ERR drops those that were not executed yet, and they stay counted.
    Accepted,
}

/// Behaviour that real firmware may or may not have; start-up proofs must find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// 2ERR clears `rmsn`, so it says nothing about what was executed.
    pub rmsn_cleared_by_2err: bool,
    /// READs, and completions with them, do not wait for the writes posted before them. No PCIe device may do so: it
    /// takes the ground from under every flush, so that a test can show that its flushes matter.
    pub reads_pass_posted_writes: bool,
    /// The fabric routes adaptively whatever was asked for, and QUERY_QP says so: packets of writes land in any order,
    /// within a message and across messages, and small ones at once; behind a lost packet, too. READs and atomics wait
    /// for all before them.
    pub out_of_order: bool,
    /// The same for packets that turn round inside the NIC.
    pub out_of_order_inside: bool,
    /// QUERY_QP says that everything lands in order, whatever holds.
    pub order_denied: bool,
    /// A destroyed queue pair's number is handed out again at once, so that what still names it meets a stranger.
    pub qpn_reused: bool,
    /// The first indices of memory keys are left out, so that no two NICs agree on a key by chance.
    pub keys_skipped: u16,
    /// Between the instant at which an atomic reads its word and the one at which it writes it. Atomics of one NIC
    /// stand in line, and all behind them with them; two NICs know nothing of each other. 0: one instant.
    pub atomic_gap_ns: u32,
    /// Retries come after growing waits, the first much sooner than the timeout asks for, the last much later
    /// (adaptive retransmission).
    pub adaptive_retransmission: bool,
    /// How atomics are counted in `rmsn`.
    pub atomic_count: AtomicCount,
    /// Messages a fresh responder claims to have executed; hardware starts at zero. Near 2^24 it puts a wrap of
    /// `rmsn` within reach of a test.
    pub first_msn: u32,
}

/// Everything a NIC is made from.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// Device name, like `mlx5_0`.
    pub name: String,
    /// The only entry of the GID table.
    pub gid: [u8; 16],
    /// MAC address (Ethernet).
    pub mac: [u8; 6],
    /// Local identifier (InfiniBand).
    pub lid: u16,
    /// Partition keys of the port, full membership in bit 15; 0xffff is the default partition.
    pub pkeys: Vec<u16>,
    /// Link layer of the port.
    pub link_layer: LinkLayer,
    /// Largest path MTU in bytes: 256 to 4096.
    pub mtu: u32,
    /// Latency of one firmware command; one runs at a time.
    pub firmware_ns: u64,
    /// Latency from a cause to its event queue entry.
    pub event_ns: u64,
    /// From a queue pair's error to the CQEs that flush it.
    pub flush_ns: u64,
    /// Egress rate of the port in Gb/s; unlimited if absent.
    pub rail_gbps: Option<f64>,
    /// What kind of device it is.
    pub profile: Profile,
    /// Odd behaviour.
    pub quirks: Quirks,
}

impl NicConfig {
    /// RoCE v2 defaults at an IPv4 address: the GID is the mapped address, the MAC [`mac_of`] it.
    pub fn at_address(name: impl Into<String>, address: Ipv4Addr) -> Self {
        let gid = address.to_ipv6_mapped().octets();
        Self { gid, mac: mac_of(address), ..Self::new(name, 0, 0) }
    }

    /// A NIC at an address that an uplink owns: GID and MAC from it, the path MTU from the uplink's interface.
    pub fn behind(uplink: &impl Uplink, name: impl Into<String>, address: Ipv4Addr) -> Self {
        Self { mtu: uplink.mtu(mapped(address)), ..Self::at_address(name, address) }
    }

    /// RoCE v2 defaults. The GID is the IPv4-mapped `10.<rail>.<pe / 254>.<pe % 254 + 1>`.
    pub fn new(name: impl Into<String>, pe: u32, rail: u32) -> Self {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 10, rail as u8, (pe / 254) as u8, (pe % 254 + 1) as u8]);
        Self {
            name: name.into(),
            gid,
            mac: [0x02, 0x53, 0x48, rail as u8, (pe >> 8) as u8, pe as u8],
            lid: (pe * 16 + rail + 1) as u16,
            pkeys: vec![0xffff],
            link_layer: LinkLayer::Ethernet,
            mtu: 4096,
            firmware_ns: 100_000,
            event_ns: 50_000,
            flush_ns: 1_000,
            rail_gbps: None,
            profile: Profile::default(),
            quirks: Quirks::default(),
        }
    }

    /// The same as a device of that kind; its port stays what it is.
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self.mtu = self.mtu.min(profile.mtu);
        self.quirks.rmsn_cleared_by_2err |= profile.rmsn_cleared_by_2err;
        self
    }

    /// The same with the port of its profile: link layer, partitions, subnet. Each rail is in a subnet of its own.
    pub fn with_port_of_profile(mut self, rail: u32) -> Self {
        let profile = self.profile;
        self.pkeys = profile.pkeys.to_vec();
        self.link_layer = profile.link_layer.unwrap_or(self.link_layer);
        if let Some(subnet) = profile.subnet {
            // The lower half is the port's GUID, which the MAC makes unique.
            self.gid[..8].copy_from_slice(&(subnet + u64::from(rail)).to_be_bytes());
            self.gid[8..10].fill(0);
            self.gid[10..].copy_from_slice(&self.mac);
        }
        self
    }

    /// The MAC as a number.
    pub fn mac_number(&self) -> u64 {
        self.mac.iter().fold(0, |mac, byte| mac << 8 | *byte as u64)
    }

    /// The port's own address, as packets to `remote` carry it.
    #[inline]
    pub(crate) fn source_address(&self, remote: u128) -> u128 {
        // An address below 2^16 is a LID: the other end then knows us by ours.
        if remote >> 16 == 0 { self.lid as u128 } else { u128::from_be_bytes(self.gid) }
    }

    /// True if writes of some queue pair may land in any order.
    #[inline]
    pub(crate) fn may_scatter(&self) -> bool {
        self.quirks.out_of_order || self.quirks.out_of_order_inside || self.profile.order.may_scatter()
    }
}
