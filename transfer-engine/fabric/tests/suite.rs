//! Tests over providers that need no NIC.

mod endpoints;
mod engines;
mod leaving;
mod rig;
mod two;
