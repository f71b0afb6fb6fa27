//! What needs a GPU: the programs, run in one table here, or packed for a machine that has one.

mod families;
mod fatbin;
pub mod pack;
mod programs;
pub mod rows;
