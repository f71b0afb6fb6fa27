//! Numbers of the mlx5 provider's objects, methods and attributes.
#![allow(missing_docs)] // the names are those of the kernel's headers

use crate::abi::ids::DRIVER;

/// Object types.
pub mod object {
    use super::DRIVER;
    pub const DEVX: u16 = DRIVER;
    pub const OBJ: u16 = DRIVER + 1;
    pub const UMEM: u16 = DRIVER + 2;
    pub const ASYNC_CMD_FD: u16 = DRIVER + 4;
    pub const ASYNC_EVENT_FD: u16 = DRIVER + 5;
    pub const UAR: u16 = DRIVER + 8;
}

/// Methods of DEVX, and their attributes.
pub mod devx {
    use super::DRIVER;
    pub const OTHER: u16 = DRIVER;
    pub const QUERY_UAR: u16 = DRIVER + 1;
    pub const QUERY_EQN: u16 = DRIVER + 2;
    pub const SUBSCRIBE_EVENT: u16 = DRIVER + 3;

    pub const OTHER_IN: u16 = DRIVER;
    pub const OTHER_OUT: u16 = DRIVER + 1;
    pub const UAR_USER: u16 = DRIVER;
    pub const UAR_DEVICE: u16 = DRIVER + 1;
    pub const EQN_VECTOR: u16 = DRIVER;
    pub const EQN_NUMBER: u16 = DRIVER + 1;
    pub const SUBSCRIBE_CHANNEL: u16 = DRIVER;
    pub const SUBSCRIBE_OBJECT: u16 = DRIVER + 1;
    pub const SUBSCRIBE_TYPES: u16 = DRIVER + 2;
    pub const SUBSCRIBE_EVENTFD: u16 = DRIVER + 3;
    pub const SUBSCRIBE_COOKIE: u16 = DRIVER + 4;
}

/// Methods of OBJ, and their attributes: those of create, modify and query are the same but for their order.
pub mod obj {
    use super::DRIVER;
    pub const CREATE: u16 = DRIVER;
    pub const DESTROY: u16 = DRIVER + 1;
    pub const MODIFY: u16 = DRIVER + 2;
    pub const QUERY: u16 = DRIVER + 3;
    pub const ASYNC_QUERY: u16 = DRIVER + 4;

    pub const HANDLE: u16 = DRIVER;
    pub const IN: u16 = DRIVER + 1;
    pub const OUT: u16 = DRIVER + 2;
    pub const ASYNC_CHANNEL: u16 = DRIVER + 2;
    pub const ASYNC_COOKIE: u16 = DRIVER + 3;
    pub const ASYNC_OUT_BYTES: u16 = DRIVER + 4;
}

/// Methods of UMEM, and their attributes.
pub mod umem {
    use super::DRIVER;
    pub const REG: u16 = DRIVER;
    pub const DEREG: u16 = DRIVER + 1;

    pub const HANDLE: u16 = DRIVER;
    pub const ADDRESS: u16 = DRIVER + 1;
    pub const BYTES: u16 = DRIVER + 2;
    pub const ACCESS: u16 = DRIVER + 3;
    pub const ID: u16 = DRIVER + 4;
    pub const PAGE_SIZES: u16 = DRIVER + 5;
    pub const DMABUF_FD: u16 = DRIVER + 6;
}

/// The method of both kinds of channels, and its attributes.
pub mod channel {
    use super::DRIVER;
    pub const ALLOC: u16 = DRIVER;

    pub const FD: u16 = DRIVER;
    pub const FLAGS: u16 = DRIVER + 1;
    /// Flag: records are the cookie alone.
    pub const OMIT_DATA: u32 = 1;
}

/// Methods of UAR, and their attributes.
pub mod uar {
    use super::DRIVER;
    pub const ALLOC: u16 = DRIVER;
    pub const DESTROY: u16 = DRIVER + 1;

    pub const HANDLE: u16 = DRIVER;
    pub const TYPE: u16 = DRIVER + 1;
    pub const MMAP_OFFSET: u16 = DRIVER + 2;
    pub const MMAP_BYTES: u16 = DRIVER + 3;
    pub const ID: u16 = DRIVER + 4;
    /// Types: with BlueFlame, and without.
    pub const BLUEFLAME: u32 = 0;
    pub const UNCACHED: u32 = 1;
}
