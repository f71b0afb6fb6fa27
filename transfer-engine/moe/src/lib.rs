//! MoE dispatch and combine by a proxy on the host, over the transfer engine.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`routes`] | which rows a rank sends, and how many go to each expert; pure |
//! | [`buffers`] | where everything lies in a rank's memory; pure |
//! | [`plan`] | what each rank sends to each other one, and where rows lie; pure |
//! | [`sum`] | what experts make of a row, and the weighted sum; pure |
//! | [`machine`] | what the proxy does, whatever the order of arrivals; pure |
//! | [`words`] | the words between kernels and proxy |
//! | [`ground`] | a rank's memory |
//! | [`kernel`] | the kernels, on a processor |
//! | [`proxy`] | the thread that carries out what the machine says |
//! | [`failure`] | why a rank does not go on |
//! | [`model`], [`check`] | what must come of layers, and whether it did |
//! | [`rank`] | one rank, layer by layer |

pub mod buffers;
pub mod check;
pub mod failure;
pub mod ground;
pub mod kernel;
pub mod machine;
pub mod model;
pub mod plan;
pub mod proxy;
pub mod rank;
pub mod routes;
pub mod sum;
pub mod words;
