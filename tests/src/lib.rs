//! A whole cluster in one OS thread on virtual time: kernels, agents, NICs and links, from one seed.
//!
//! | module | holds |
//! | --- | --- |
//! | [`sim`] | the scheduler, the virtual clock, actors, interference |
//! | [`warp`] | a warp of coroutine lanes |
//! | [`rng`] | the one source of chance |

pub mod rng;
pub mod sim;
pub mod warp;
