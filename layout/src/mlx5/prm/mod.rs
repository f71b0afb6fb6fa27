//! Firmware mailboxes: the commands the IBGDA path sends through DEVX, as tables of fields.
//!
//! Offsets are those of the PRM ("Command Reference") and of the open `mlx5_ifc` headers. A command's `input`
//! and `output` tables are relative to the mailbox, a context's to the context; `Field::within` joins them.

pub mod caps;
pub mod cmd;
pub mod cq;
pub mod dct;
pub mod mkey;
pub mod pd;
pub mod port;
pub mod qp;
pub mod rmp;
