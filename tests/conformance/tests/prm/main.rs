//! Our mailboxes against descriptions that are not ours: the scapy packets of rdma-core's own tests.
//!
//! `prm_oracle.py` loads them from where Debian's python3-pyverbs keeps them and answers questions. Without the
//! packages there is nothing to compare with: the tests say that they are skipped, and fail where `CI` is set,
//! because there the packages are installed.

mod encoders;
mod fields;
mod firmware;
mod oracle;
