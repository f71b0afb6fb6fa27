//! Tests over providers that need no NIC.

mod endpoints;
mod engines;
mod rig;
