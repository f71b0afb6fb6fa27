//! Tests over providers that need no NIC.

mod endpoints;
mod engines;
mod leaving;
mod processes;
mod rig;
mod two;
