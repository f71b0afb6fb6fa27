//! Targets of dynamically connected transport. PRM: "CREATE_DCT", "DCT Context".

use crate::fields;

/// Input bytes of CREATE_DCT, output bytes of QUERY_DCT.
pub const CONTEXT_COMMAND_BYTES: usize = 128;
/// Offset of the context in either.
pub const DCTC_OFFSET: usize = 0x10;
/// `dctc.state`: it takes connections.
pub const STATE_ACTIVE: u32 = 0;

/// The DCT context, 64 bytes.
pub mod dctc {
    use super::*;
    fields! { 64;
        /// 0 active.
        STATE: 0x00 [27:24];
        /// Number a version 1 CQE carries.
        USER_INDEX: 0x04 [23:0];
        /// CQ of what it receives.
        CQN: 0x08 [23:0];
        /// Atomic operations it allows.
        ATOMIC_MODE: 0x0c [23:20];
        /// Remote READ allowed.
        RRE: 0x0c [19:19];
        /// Remote WRITE allowed.
        RWE: 0x0c [18:18];
        /// Remote atomics allowed.
        RAE: 0x0c [17:17];
        /// RNR NAK timer.
        MIN_RNR_NAK: 0x10 [12:8];
        /// The receive memory pool that it receives from.
        SRQN_XRQN: 0x14 [23:0];
        /// Protection domain.
        PD: 0x18 [23:0];
        /// Largest path MTU: 256 << (value - 1).
        MTU: 0x28 [26:24];
        /// Port.
        PORT: 0x28 [23:16];
        @wide
        /// Key that an initiator must name.
        DC_ACCESS_KEY: 0x20;
    }
}
