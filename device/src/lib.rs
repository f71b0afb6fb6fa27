//! Shunt's device code: puts, signals, timed completion checks and the switch.
#![no_std]

pub mod platform;
