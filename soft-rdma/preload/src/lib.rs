//! Symbols of the C library that lead to soft RDMA devices. What they do is in `shunt-soft-rdma`.
