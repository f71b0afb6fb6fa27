//! The tests of `moe_pressure`, as one program: what they share is compiled and linked once.

#[allow(dead_code)] // the main program's tests use the rest
#[path = "../../tests/common/mod.rs"]
mod common;
mod placement;
mod pressure;
mod schemas;
