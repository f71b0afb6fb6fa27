//! All tests of the crate as a program that uses it.

mod calls;
mod swarm;
