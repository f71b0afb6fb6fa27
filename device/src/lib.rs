//! Shunt's device code: puts, signals, timed completion checks and the switch.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]

pub mod platform;
