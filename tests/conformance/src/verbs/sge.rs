//! Local buffers of a request.

use shunt_mlx5_sys as sys;

/// A local buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// Where it starts.
    pub address: u64,
    /// Its length.
    pub bytes: u32,
    /// Its key.
    pub lkey: u32,
}

/// Scatter/gather entries of the library.
pub(super) fn list_of(local: &[Sge]) -> Vec<sys::ibv_sge> {
    local.iter().map(|sge| sys::ibv_sge { addr: sge.address, length: sge.bytes, lkey: sge.lkey }).collect()
}
