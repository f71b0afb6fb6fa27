//! ALLOC_PD, DEALLOC_PD and QUERY_SPECIAL_CONTEXTS: only the common header, and one output table.

use crate::fields;

/// QUERY_SPECIAL_CONTEXTS output, 32 bytes.
pub mod special {
    use super::*;
    fields! { 32;
        /// Key DUMP fills with.
        DUMP_FILL_MKEY: 0x08 [31:0];
        /// Reserved lkey.
        RESD_LKEY: 0x0c [31:0];
        /// Key that swallows writes.
        NULL_MKEY: 0x10 [31:0];
        /// Key that ends the scatter list of a receive WQE.
        TERMINATE_SCATTER_LIST_MKEY: 0x14 [31:0];
    }
}
