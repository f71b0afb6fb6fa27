//! Software that none of us wrote drives the soft NIC: libmlx5, perftest, the PRM descriptions of rdma-core.
