//! Commands that read the port and its addresses.

use crate::config::{LinkLayer, NicConfig};
use crate::port::Port;
use crate::status::Refusal;
use shunt_layout::mlx5::prm::port::{
    ALL_ENTRIES, HCA_VPORT_CONTEXT_OFFSET, HCA_VPORT_TABLE_OFFSET, NIC_VPORT_CONTEXT_OFFSET, hca_vport,
    hca_vport_gid_out, hca_vport_table_in, nic_vport, roce_address_in, roce_address_out, vport_state,
};

pub(super) fn vport_state(port: &Port, out: &mut [u8]) -> Result<(), Refusal> {
    vport_state::ADMIN_STATE.set(out, 2);
    vport_state::STATE.set(out, port.has_link() as u32);
    Ok(())
}

pub(super) fn nic_vport(config: &NicConfig, out: &mut [u8]) -> Result<(), Refusal> {
    let context = &mut out[NIC_VPORT_CONTEXT_OFFSET..];
    let mac = config.mac;
    let guid = u64::from_be_bytes([mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]]);
    nic_vport::ROCE_EN.set(context, (config.link_layer == LinkLayer::Ethernet) as u32);
    nic_vport::MTU.set(context, config.mtu + 104);
    nic_vport::SYSTEM_IMAGE_GUID.set(context, guid);
    nic_vport::PORT_GUID.set(context, guid);
    nic_vport::NODE_GUID.set(context, guid);
    context[0xf6..0xfc].copy_from_slice(&mac);
    Ok(())
}

pub(super) fn roce_address(config: &NicConfig, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    if roce_address_in::INDEX.get(mailbox) != 0 {
        return Err(Refusal::BadGidIndex);
    }
    let (gid, mac) = (config.gid, config.mac);
    let at = roce_address_out::GID_0.offset;
    out[at..at + 16].copy_from_slice(&gid);
    roce_address_out::MAC_47_32.set(out, u16::from_be_bytes([mac[0], mac[1]]) as u32);
    roce_address_out::MAC_31_0.set(out, u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
    let mapped = gid[..10] == [0; 10] && gid[10..12] == [0xff; 2];
    roce_address_out::L3_TYPE.set(out, !mapped as u32);
    roce_address_out::ROCE_VERSION.set(out, 2);
    Ok(())
}

pub(super) fn hca_vport(config: &NicConfig, port: &Port, out: &mut [u8]) -> Result<(), Refusal> {
    let context = &mut out[HCA_VPORT_CONTEXT_OFFSET..];
    // 4 is active, 1 down, as in PortInfo.
    hca_vport::PORT_STATE.set(context, if port.has_link() { 4 } else { 1 });
    hca_vport::LID.set(context, config.lid as u32);
    Ok(())
}

/// The GID table of an InfiniBand port: one entry.
pub(super) fn hca_vport_gid(config: &NicConfig, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    if !matches!(hca_vport_table_in::INDEX.get(mailbox), 0 | ALL_ENTRIES) {
        return Err(Refusal::BadGidIndex);
    }
    hca_vport_gid_out::GIDS_NUM.set(out, 1);
    out[HCA_VPORT_TABLE_OFFSET..HCA_VPORT_TABLE_OFFSET + 16].copy_from_slice(&config.gid);
    Ok(())
}

/// The P_Key table of an InfiniBand port, or one entry of it.
pub(super) fn hca_vport_pkey(config: &NicConfig, mailbox: &[u8], out: &mut [u8]) -> Result<(), Refusal> {
    let pkeys = &config.pkeys;
    let asked = match hca_vport_table_in::INDEX.get(mailbox) {
        ALL_ENTRIES => &pkeys[..],
        index => std::slice::from_ref(pkeys.get(index as usize).ok_or(Refusal::BadPkeyIndex)?),
    };
    // Entries of four bytes, the key in the lower two.
    for (entry, pkey) in out[HCA_VPORT_TABLE_OFFSET..].chunks_exact_mut(4).zip(asked) {
        entry[2..].copy_from_slice(&pkey.to_be_bytes());
    }
    Ok(())
}
