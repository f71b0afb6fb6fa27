//! All tests of the crate as a program that uses it.

mod calls;
mod leaving;
mod messages;
mod several;
mod shared;
mod swarm;
