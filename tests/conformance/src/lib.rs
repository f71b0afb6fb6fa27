//! Software that none of us wrote drives the soft NIC: libmlx5, perftest, the PRM descriptions of rdma-core.
//!
//! | part | what it is |
//! | --- | --- |
//! | `tests/prm` | our mailboxes and the soft NIC's firmware against the PRM descriptions of rdma-core |
//! | [`verbs`] | rdma-core's verbs as the programs here use them, old and new post-send |
//! | [`peer`] | the far side: a process or thread that does as it is told, and knows what its memory must hold |
//! | [`checks`] | `shunt-verbs-check data`: every kind of transfer, every byte looked at; and errors that must come |
//! | [`options`] | the last row of it: what two queue pairs agree on |
//! | [`wqes`] | `shunt-verbs-check wqes`: what libmlx5 writes into send queues, against our encoders |
//! | [`cqe`] | completions as libmlx5 reports them against the entries it read, as our layout reads them |
//!
//! The verbs programs run on whatever mlx5 device the process has: a soft one under `shunt soft-rdma run`, or a real
//! one.

pub mod checks;
pub mod cqe;
pub mod draw;
pub mod options;
pub mod peer;
pub mod verbs;
pub mod wqes;
