//! What variables may hold, in words. The parsers that refuse a value say the same.

/// `SHUNT_ROOT`.
pub const ROOT: &str = "HOST:PORT, such as 10.0.0.1:7000 or [fd00::1]:7000";
/// `SHUNT_SECRET`.
pub const SECRET: &str = "at least 16 random characters, such as `openssl rand -hex 32` prints";
/// `NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME`.
pub const INTERFACE: &str = "interface prefixes, such as eth,ib; ^eth: all but these; =eth0: exactly this";
/// `SHUNT_LOG_FILE`.
pub const LOG_FILE: &str = "a file; %h stands for the host, %p for the number of the process";
/// `SHUNT_EVENTS`.
pub const EVENTS_FILE: &str = "a file; % stands for the number of the PE";
/// `SHUNT_METRICS`.
pub const METRICS_ADDRESS: &str =
    "an address and a port of a machine's first process, such as 127.0.0.1:9400";
/// `NVSHMEM_HCA_LIST`.
pub const HCA_LIST: &str = "a list such as mlx5_0:1,mlx5_1:1, or ^mlx5_2:1 to leave out";
/// `NVSHMEM_HCA_PE_MAPPING`.
pub const HCA_PE_MAPPING: &str = "a list of NAME:PORT:COUNT such as mlx5_0:1:2,mlx5_1:1:2";
/// `NVSHMEM_HCA_PREFIX`.
pub const HCA_PREFIX: &str = "a part of device names, or one behind ^ to leave out";
/// `NVSHMEM_IB_GID_INDEX`.
pub const GID_INDEX: &str = "an index of the GID table from 0 to 255, or -1 to search";
/// `NVSHMEM_IB_ADDR_FAMILY`.
pub const ADDR_FAMILY: &str = "AF_INET or AF_INET6";
/// `NVSHMEM_IB_ADDR_RANGE`.
pub const ADDR_RANGE: &str = "a network such as 10.0.0.0/8 or fd00::/16";
/// `NVSHMEM_IB_ROCE_VERSION_NUM`.
pub const ROCE_VERSION: &str = "1 or 2";
