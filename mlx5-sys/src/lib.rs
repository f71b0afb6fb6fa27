//! Bindings of libibverbs and libmlx5, loaded when asked for: everything builds where rdma-core is not.
