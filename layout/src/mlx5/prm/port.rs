//! Port and address queries.

use crate::fields;

/// QUERY_VPORT_STATE output, 16 bytes.
pub mod vport_state {
    use super::*;
    fields! { 16;
        /// 0 down, 1 up, 2 follow the wire.
        ADMIN_STATE: 0x0c [7:4];
        /// 0 down, 1 up.
        STATE: 0x0c [3:0];
    }
}

/// QUERY_ROCE_ADDRESS input.
pub mod roce_address_in {
    use super::*;
    fields! { 16;
        /// Index in the GID table.
        INDEX: 0x08 [31:16];
        /// Port.
        PORT: 0x08 [7:0];
    }
}
/// Output bytes of QUERY_ROCE_ADDRESS.
pub const ROCE_ADDRESS_OUT_BYTES: usize = 48;
/// QUERY_ROCE_ADDRESS output; the layout starts at 0x10.
pub mod roce_address_out {
    use super::*;
    fields! { 48;
        /// GID bytes 0-3.
        GID_0: 0x10 [31:0];
        /// GID bytes 4-7.
        GID_1: 0x14 [31:0];
        /// GID bytes 8-11.
        GID_2: 0x18 [31:0];
        /// GID bytes 12-15.
        GID_3: 0x1c [31:0];
        /// Source MAC, high 16 bits.
        MAC_47_32: 0x20 [15:0];
        /// Source MAC, low 32 bits.
        MAC_31_0: 0x24 [31:0];
        /// 0 IPv4, 1 IPv6.
        L3_TYPE: 0x28 [11:8];
        /// 0 v1, 2 v2.
        ROCE_VERSION: 0x28 [7:0];
    }

    /// The GID, 16 bytes.
    pub fn gid(bytes: &[u8]) -> [u8; 16] {
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[GID_0.offset..GID_0.offset + 16]);
        gid
    }
}

/// Output bytes of QUERY_HCA_VPORT_CONTEXT.
pub const HCA_VPORT_OUT_BYTES: usize = 0x210;
/// Offset of the context in that output.
pub const HCA_VPORT_CONTEXT_OFFSET: usize = 0x10;
/// QUERY_HCA_VPORT_CONTEXT context (InfiniBand ports).
pub mod hca_vport {
    use super::*;
    fields! { 512;
        /// Port state.
        PORT_STATE: 0x20 [7:4];
        /// LID.
        LID: 0x60 [31:16];
        /// LID mask.
        LMC: 0x60 [7:5];
    }
}

/// Output bytes of QUERY_NIC_VPORT_CONTEXT.
pub const NIC_VPORT_OUT_BYTES: usize = 0x110;
/// Offset of the context in that output.
pub const NIC_VPORT_CONTEXT_OFFSET: usize = 0x10;
/// QUERY_NIC_VPORT_CONTEXT context (Ethernet ports).
pub mod nic_vport {
    use super::*;
    fields! { 256;
        /// RoCE is on.
        ROCE_EN: 0x00 [0:0];
        /// Ethernet MTU.
        MTU: 0x24 [15:0];
        @wide
        /// System image GUID.
        SYSTEM_IMAGE_GUID: 0x28;
        /// Port GUID.
        PORT_GUID: 0x30;
        /// Node GUID.
        NODE_GUID: 0x38;
    }
}

/// QUERY_HCA_VPORT_GID and QUERY_HCA_VPORT_PKEY input (InfiniBand ports).
pub mod hca_vport_table_in {
    use super::*;
    fields! { 16;
        /// Port.
        PORT_NUM: 0x08 [19:16];
        /// Index in the table; [`ALL_ENTRIES`] asks for the whole.
        INDEX: 0x0c [15:0];
    }
}
/// Index that asks for a whole table. Linux: `mlx5_query_hca_vport_pkey`.
pub const ALL_ENTRIES: u32 = 0xffff;
/// Offset of the entries in both outputs.
pub const HCA_VPORT_TABLE_OFFSET: usize = 0x10;
/// Output bytes of QUERY_HCA_VPORT_GID for one entry: 16 bytes each.
pub const HCA_VPORT_GID_OUT_BYTES: usize = HCA_VPORT_TABLE_OFFSET + 16;
/// Output bytes of QUERY_HCA_VPORT_PKEY for one entry: 4 bytes each.
pub const HCA_VPORT_PKEY_OUT_BYTES: usize = HCA_VPORT_TABLE_OFFSET + 4;
/// QUERY_HCA_VPORT_GID output.
pub mod hca_vport_gid_out {
    use super::*;
    fields! { 32;
        /// Entries that follow.
        GIDS_NUM: 0x0c [31:16];
    }

    /// The first GID, 16 bytes.
    pub fn gid(bytes: &[u8]) -> [u8; 16] {
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[HCA_VPORT_TABLE_OFFSET..HCA_VPORT_TABLE_OFFSET + 16]);
        gid
    }
}
/// QUERY_HCA_VPORT_PKEY output.
pub mod hca_vport_pkey_out {
    use super::*;
    fields! { 20;
        /// First entry: bit 15 full membership, the rest the partition. The default one is 0xffff or 0x7fff.
        PKEY: 0x10 [15:0];
    }
}
