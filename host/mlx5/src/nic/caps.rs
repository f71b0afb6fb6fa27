//! What a NIC can do and how its port is addressed. PRM: "QUERY_HCA_CAP", "QUERY_ROCE_ADDRESS".

use super::atomics::Atomics;
use super::order::OrderCaps;
use super::subnet;
use super::{execute, query_group_in};
use crate::devx::{Devx, PortGid};
use crate::error::{DevxError, NicError};
use shunt_layout::bits::Field64;
use shunt_layout::mlx5::prm::caps::{
    CAPABILITY_OFFSET, GENERAL, GENERAL_2, OUT_BYTES, ROCE, TimestampCap, general, general_2, roce,
};
use shunt_layout::mlx5::prm::cmd::{self, Opcode};
use shunt_layout::mlx5::prm::port::{
    HCA_VPORT_CONTEXT_OFFSET, HCA_VPORT_OUT_BYTES, NIC_VPORT_CONTEXT_OFFSET, NIC_VPORT_OUT_BYTES,
    ROCE_ADDRESS_OUT_BYTES, hca_vport, nic_vport, roce_address_in, roce_address_out, vport_state,
};
use shunt_layout::mlx5::prm::qp::Timestamp;

/// The link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// InfiniBand: LIDs, and GIDs in a GRH.
    InfiniBand,
    /// Ethernet: RoCE v2.
    Ethernet,
}

/// Capabilities that Shunt reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Link layer of the port.
    pub link: Link,
    /// Largest send queue, log2 of blocks.
    pub log_max_qp_sz: u32,
    /// Largest CQ, log2 of entries.
    pub log_max_cq_sz: u32,
    /// Outstanding READs as requester, log2.
    pub log_max_ra_req: u32,
    /// Outstanding READs as responder, log2.
    pub log_max_ra_res: u32,
    /// Keys may let writes become visible in any order.
    pub relaxed_ordering: bool,
    /// Entries of the GID table.
    pub gids: u32,
    /// What its atomics are good for.
    pub atomics: Atomics,
    /// What it says of the order of placement.
    pub order: OrderCaps,
    /// A queue pair may be told to turn its packets round inside the NIC (`ads.fl`).
    pub force_loopback: bool,
    /// `qpc.ts_format` of its queue pairs.
    pub ts_format: u32,
    /// Enhanced connection establishment.
    pub ece: bool,
}

/// How a port is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAddress {
    /// GID.
    pub gid: [u8; 16],
    /// Index of the GID in the port's table.
    pub gid_index: u32,
    /// LID; 0 on RoCE.
    pub lid: u16,
    /// MAC; zero on InfiniBand.
    pub mac: [u8; 6],
    /// Path MTU code: 256 << (code - 1).
    pub mtu: u32,
    /// Index of the partition key; 0 on RoCE.
    pub pkey_index: u16,
}

/// QUERY_HCA_CAP, general capabilities, current values.
pub fn query_caps_in() -> [u8; 16] {
    query_group_in(GENERAL)
}

/// QUERY_ROCE_ADDRESS of one table entry.
pub fn query_roce_address_in(index: u32) -> [u8; 16] {
    let mut mailbox = [0; 16];
    cmd::input::OPCODE.set(&mut mailbox, Opcode::QueryRoceAddress as u32);
    roce_address_in::INDEX.set(&mut mailbox, index);
    mailbox
}

/// The largest path MTU code whose packets fit an Ethernet MTU with the RoCE v2 headers (at most 80 bytes).
pub fn roce_mtu_code(ethernet_mtu: u32) -> u32 {
    (1..=5).rev().find(|code| (256 << (code - 1)) + 80 <= ethernet_mtu).unwrap_or(1)
}

/// Whether `ads.fl` may be set: there is a capability each for ports with RoCE on and off, as on InfiniBand. Others ask
/// the same (rdma-core, `dr_send.c`); a NIC without it loops back what is sent to its own address. Pure.
fn may_force_loopback(link: Link, with_roce: bool, without: bool) -> bool {
    match link {
        Link::Ethernet => with_roce,
        Link::InfiniBand => without,
    }
}

/// `qpc.ts_format` for a capability `qp_ts_format`: 0 is free running alone, which NICs without the field have, too;
/// one in real-time mode (1, 2) is given its default. Pure.
fn ts_format(capability: u32) -> u32 {
    let free = TimestampCap::from_raw(capability) == Some(TimestampCap::FreeRunning);
    if free { Timestamp::FreeRunning as u32 } else { Timestamp::Default as u32 }
}

/// Whether a queue pair may override the administrator's setting of order. Firmware without the group cannot.
fn dp_ordering_force(devx: &dyn Devx) -> Result<bool, DevxError> {
    let output = match execute::<OUT_BYTES>(devx, &query_group_in(GENERAL_2)) {
        Err(DevxError::Refused { .. }) => return Ok(false),
        answer => answer?,
    };
    Ok(general_2::DP_ORDERING_FORCE.get(&output[CAPABILITY_OFFSET..]) == 1)
}

impl Caps {
    /// Queries the NIC, and refuses one that lacks what Shunt stands on.
    pub fn query(devx: &dyn Devx) -> Result<Self, NicError> {
        let output = execute::<OUT_BYTES>(devx, &query_caps_in())?;
        let caps = &output[CAPABILITY_OFFSET..];
        let unfit = |what, met: u32, want| {
            let (nic, met) = (devx.name(), met.to_string());
            Err(NicError::Unfit {
                nic,
                what,
                met,
                want,
                cure: "take a ConnectX-5 or later with current firmware",
            })
        };
        let required = [
            ("CQE version", general::CQE_VERSION, "1"),
            ("reliable connection support", general::RC, "1"),
            ("CQ overrun ignore", general::CQ_OI, "1"),
            ("4 KiB UAR pages", general::UAR_4K, "1"),
        ];
        for (what, field, want) in required {
            if field.get(caps) != 1 {
                return unfit(what, field.get(caps), want);
            }
        }
        let link = match general::PORT_TYPE.get(caps) {
            0 => Link::InfiniBand,
            1 => Link::Ethernet,
            met => return unfit("port type", met, "0 (InfiniBand) or 1 (Ethernet)"),
        };
        if link == Link::Ethernet && general::ROCE.get(caps) != 1 {
            return unfit("RoCE support on an Ethernet port", 0, "1");
        }
        let output = execute::<OUT_BYTES>(devx, &query_group_in(ROCE))?;
        let of_roce = &output[CAPABILITY_OFFSET..];
        Ok(Self {
            link,
            log_max_qp_sz: general::LOG_MAX_QP_SZ.get(caps),
            log_max_cq_sz: general::LOG_MAX_CQ_SZ.get(caps),
            log_max_ra_req: general::LOG_MAX_RA_REQ_QP.get(caps),
            log_max_ra_res: general::LOG_MAX_RA_RES_QP.get(caps),
            relaxed_ordering: general::RELAXED_ORDERING_WRITE.get(caps) == 1,
            gids: 8 << general::GID_TABLE_SIZE.get(caps).min(4),
            atomics: Atomics::query(devx)?,
            order: OrderCaps {
                reported: general::QP_DATA_IN_ORDER.get(caps) == 1,
                forced: dp_ordering_force(devx)?,
                out_of_order: general::DP_ORDERING_OOO_RW_RC.get(caps) == 1
                    || general::DP_ORDERING_OOO_ALL_RC.get(caps) == 1,
            },
            force_loopback: may_force_loopback(
                link,
                roce::FL_RC_QP_WHEN_ROCE_ENABLED.get(of_roce) == 1,
                roce::FL_RC_QP_WHEN_ROCE_DISABLED.get(of_roce) == 1,
            ),
            ts_format: ts_format(roce::QP_TS_FORMAT.get(of_roce)),
            ece: general::ECE_SUPPORT.get(caps) == 1,
        })
    }

    /// Queries the port's address. `gid_index`: the table entry to use, or the first one of RoCE v2.
    pub fn address(&self, devx: &dyn Devx, gid_index: Option<u32>) -> Result<PortAddress, NicError> {
        match self.link {
            Link::Ethernet => self.roce_address(devx, gid_index),
            Link::InfiniBand => infiniband_address(devx),
        }
    }

    /// Queries an address that was known before: by its value, wherever it stands in the table now, and only where it
    /// is gone as if for the first time. GIDs move when a port flaps.
    pub fn address_again(
        &self,
        devx: &dyn Devx,
        known: &PortAddress,
        gid_index: Option<u32>,
    ) -> Result<PortAddress, NicError> {
        if self.link == Link::InfiniBand {
            return infiniband_address(devx);
        }
        let known_here =
            |entry: Option<PortGid>| entry.is_some_and(|entry| entry.roce_v2 && entry.gid == known.gid);
        if known_here(devx.gid(known.gid_index)?) {
            return self.roce_address(devx, Some(known.gid_index));
        }
        // An entry that cannot be read is behind the end of the table.
        let mut table = (0..self.gids).map_while(|index| Some((index, devx.gid(index).ok()?)));
        match table.find(|(_, entry)| known_here(*entry)) {
            Some((index, _)) => self.roce_address(devx, Some(index)),
            None => self.roce_address(devx, gid_index),
        }
    }

    fn roce_address(&self, devx: &dyn Devx, gid_index: Option<u32>) -> Result<PortAddress, NicError> {
        let range = gid_index.map_or(0..self.gids, |index| index..index + 1);
        for index in range.clone() {
            let Some(PortGid { gid, mac, .. }) = devx.gid(index)?.filter(|entry| entry.roce_v2) else {
                continue;
            };
            let input = super::short_in(Opcode::QueryNicVportContext, 0);
            let vport = execute::<NIC_VPORT_OUT_BYTES>(devx, &input)?;
            let mtu = roce_mtu_code(nic_vport::MTU.get(&vport[NIC_VPORT_CONTEXT_OFFSET..]));
            // The driver counts headers and tags its own way: a QP must not have more than it allows.
            let mtu = devx.port()?.map_or(mtu, |port| mtu.min(port.mtu));
            return Ok(PortAddress { gid, gid_index: index, lid: 0, mac, mtu, pkey_index: 0 });
        }
        Err(NicError::Unfit {
            nic: devx.name(),
            what: "GID table",
            met: format!("without a RoCE v2 address at entries {range:?}"),
            want: "a RoCE v2 GID",
            cure: "give the port an IP address, or name another GID index (NVSHMEM_IB_GID_INDEX)",
        })
    }
}

/// LID from the vport context; MTU, GID and partition from the port's tables. Where nobody tells the GID, it is the
/// link-local one of the port's GUID.
fn infiniband_address(devx: &dyn Devx) -> Result<PortAddress, NicError> {
    const PORT_GUID: Field64 = Field64::new(0x30);
    const LINK_LOCAL: u64 = 0xfe80_0000_0000_0000;
    let output = execute::<HCA_VPORT_OUT_BYTES>(devx, &super::short_in(Opcode::QueryHcaVportContext, 0))?;
    let context = &output[HCA_VPORT_CONTEXT_OFFSET..];
    let lid = hca_vport::LID.get(context) as u16;
    let cure = "look at the subnet manager and at the port's state";
    let unfit = |what, met: String, want| NicError::Unfit { nic: devx.name(), what, met, want, cure };
    if lid == 0 {
        return Err(unfit("LID", "0".into(), "a LID given by the subnet manager"));
    }
    let port = devx.subnet()?;
    let gid = port.gid.unwrap_or_else(|| {
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&LINK_LOCAL.to_be_bytes());
        gid[8..].copy_from_slice(&PORT_GUID.get(context).to_be_bytes());
        gid
    });
    let mtu =
        subnet::mtu(&port).ok_or_else(|| unfit("active MTU", port.mtu.to_string(), "a code from 1 to 5"))?;
    let pkey_index = subnet::pkey_index(&port.pkeys)
        .ok_or_else(|| unfit("P_Key table", format!("{:x?}", port.pkeys), "an entry of a partition"))?;
    Ok(PortAddress { gid, gid_index: 0, lid, mac: [0; 6], mtu, pkey_index })
}

/// An entry of the GID table as the firmware has it.
pub fn firmware_gid(devx: &dyn Devx, index: u32) -> Result<Option<PortGid>, DevxError> {
    const ROCE_V2: u32 = 2;
    let output = execute::<ROCE_ADDRESS_OUT_BYTES>(devx, &query_roce_address_in(index))?;
    let gid = roce_address_out::gid(&output);
    let mac = roce_mac(&output);
    let roce_v2 = roce_address_out::ROCE_VERSION.get(&output) == ROCE_V2;
    Ok((gid != [0; 16]).then_some(PortGid { gid, roce_v2, mac }))
}

/// The MAC of an answer to QUERY_ROCE_ADDRESS.
pub(crate) fn roce_mac(output: &[u8; ROCE_ADDRESS_OUT_BYTES]) -> [u8; 6] {
    let mut mac = [0; 6];
    mac[..2].copy_from_slice(&(roce_address_out::MAC_47_32.get(output) as u16).to_be_bytes());
    mac[2..].copy_from_slice(&roce_address_out::MAC_31_0.get(output).to_be_bytes());
    mac
}

/// True if the port is up.
pub fn port_up(devx: &dyn Devx) -> Result<bool, NicError> {
    if let Some(port) = devx.port()? {
        return Ok(port.active);
    }
    let output = execute::<16>(devx, &super::short_in(Opcode::QueryVportState, 0))?;
    Ok(vport_state::STATE.get(&output) == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_forced_only_with_its_capability() {
        for (link, with_roce, without, may) in [
            (Link::Ethernet, true, false, true),
            (Link::Ethernet, false, true, false),
            (Link::InfiniBand, false, true, true),
            (Link::InfiniBand, true, false, false),
        ] {
            assert_eq!(may_force_loopback(link, with_roce, without), may, "{link:?}");
        }
    }

    #[test]
    fn time_stamps_are_free_running_or_the_nics_default() {
        assert_eq!([0, 1, 2].map(ts_format), [0, 1, 1]);
    }
}
