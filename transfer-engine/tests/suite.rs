//! All tests of the crate as a program that uses it.

mod calls;
mod several;
mod swarm;
