//! Numbers of `<rdma/rdma_netlink.h>`.

/// The family's number: the protocol of its sockets.
pub const FAMILY: i32 = 20;
/// Among the clients of the family, the one that tells of devices.
pub const NLDEV: u16 = 5;

/// Commands of devices.
pub mod command {
    /// A device, or all.
    pub const GET: u16 = 1;
    /// A port, or all of a device.
    pub const PORT_GET: u16 = 5;
    /// What holds for all devices.
    pub const SYS_GET: u16 = 6;
    /// The device node that a device is used by.
    pub const GET_CHARDEV: u16 = 15;
    /// One past the last that there is.
    pub const END: u16 = 25;
}

/// Attributes.
#[allow(missing_docs)] // the names are the header's
pub mod attribute {
    pub const DEV_INDEX: u16 = 1;
    pub const DEV_NAME: u16 = 2;
    pub const PORT_INDEX: u16 = 3;
    pub const CAP_FLAGS: u16 = 4;
    pub const FW_VERSION: u16 = 5;
    pub const NODE_GUID: u16 = 6;
    pub const SYS_IMAGE_GUID: u16 = 7;
    pub const PORT_STATE: u16 = 12;
    pub const PORT_PHYS_STATE: u16 = 13;
    pub const DEV_NODE_TYPE: u16 = 14;
    pub const NDEV_INDEX: u16 = 50;
    pub const NDEV_NAME: u16 = 51;
    pub const DEV_PROTOCOL: u16 = 67;
    pub const CHARDEV_TYPE: u16 = 69;
    pub const CHARDEV_NAME: u16 = 70;
    pub const CHARDEV_ABI: u16 = 71;
    pub const CHARDEV: u16 = 72;
    pub const UVERBS_DRIVER_ID: u16 = 73;
    pub const DEV_DIM: u16 = 84;
    pub const SYS_NETNS_MODE: u16 = 66;
    pub const SYS_COPY_ON_FORK: u16 = 93;
}
