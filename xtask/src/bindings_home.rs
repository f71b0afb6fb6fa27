//! Where the committed FFI lies, and what it says of itself.

/// Folder of the committed files, from the root.
pub const HOME: &str = "mlx5-sys/src/generated";

/// The line of the committed files that says what they were made from.
pub fn rdma_core_line(version: &str) -> String {
    format!("pub const RDMA_CORE: &str = \"{version}\";")
}
