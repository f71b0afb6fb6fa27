//! A machine that executes the PTX we ship, without a GPU: warps that split and join, blocks with barriers, a memory
//! that may delay what no fence holds, registers of devices that ring the soft NIC. What it finds that the same Rust on
//! a processor cannot: barriers that only some threads reach, operands of inline assembly, scopes of fences, what the
//! compiler made of it.

pub mod block;
pub mod code;
pub mod counts;
pub mod memory;
pub mod text;
pub mod value;

pub mod costs;
pub mod coverage;
pub mod kernels;
pub mod library;
pub mod moe;
pub mod moe_costs;
pub mod mutants;
pub mod outcome;
pub mod raw;
pub mod rig;

#[cfg(test)]
#[path = "litmus_tests.rs"]
mod tests;
