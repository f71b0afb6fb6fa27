//! RDMA devices for unmodified programs: uverbs, sysfs and the mlx5 user ABI on soft NICs.
//!
//! The library that is preloaded (`soft-rdma/preload`) holds only the exported symbols; everything they do is here.
