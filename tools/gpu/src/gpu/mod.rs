//! The kernels built for NVIDIA GPUs without CUDA, and what came out held against rules and tables.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`parts`] | what is built, and for which GPUs |
//! | [`build`] | a whole build, with all that is checked |
//! | [`library`] | the device library for those who link it |
//! | [`findings`] | what is wrong with PTX |
//! | [`sass`] | machine code, counted |
//! | [`wheels`] | NVIDIA's programs, fetched |

mod assemble;
mod audit;
mod bounds;
pub mod build;
mod cplusplus;
mod divergence;
mod example;
pub mod findings;
mod flow;
mod header;
pub mod library;
pub mod parts;
mod preserve;
pub mod sass;
mod table;
mod toolchain;
pub mod wheels;
