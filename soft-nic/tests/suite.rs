//! The soft NIC's tests, as one program: what they share is compiled and linked once.

mod arming;
mod atomicity;
mod capture;
mod carrier;
mod commands;
mod datagram;
mod doorbell_pages;
mod engine;
mod errors;
mod fault_grammar;
mod faults;
mod garbage;
mod hostile;
mod messages;
mod model;
mod placement;
mod quirks;
mod read_atomic;
mod rig;
mod roce;
mod send;
mod shared_receive;
mod two_processes;
mod uplink;
mod wire;
mod write;
