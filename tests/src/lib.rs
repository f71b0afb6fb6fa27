//! A whole cluster in one OS thread on virtual time: kernels, agents, NICs and links, from one seed.
//!
//! | module | holds |
//! | --- | --- |
//! | [`sim`] | the scheduler, the virtual clock, actors, interference |
//! | [`warp`] | a warp of coroutine lanes |
//! | [`oracle`] | the memory model of every put and signal |
//! | [`workload`] | the kernels of a run |
//! | [`spec`] | a run in words |
//! | [`rng`] | the one source of chance |

pub mod oracle;
pub mod rng;
pub mod sim;
pub mod spec;
pub mod warp;
pub mod workload;
