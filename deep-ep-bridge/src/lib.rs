//! DeepEP's `Buffer`, low latency and normal mode, on channels that survive: host side of the MoE kernels.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`agreement`] | the mask that the ranks agree on, as a buffer takes it |
//! | [`buffer`] | [`Buffer`]: dispatch, combine, hooks, cleaning, the mask of ranks |
//! | [`settings`] | formats, patience, kinds of signals |
//! | [`runner`] | what runs the kernels: this machine's threads on a host's PE, or whatever a test has |
//! | [`fault`] | what went wrong, with the path it happened on |
//! | [`reference`] | what a MoE layer must compute, said again without messages; pure |
//! | [`scenarios`] | what every machine that launches these kernels must get right |
//! | [`staged`] | kernels with memory of their own, as a GPU's, and in graphs |
//! | [`layer`] | one layer on all ranks, held against the reference |
//! | [`normal`] | normal mode: the buffer, its reference, its layer |

pub mod agreement;
pub mod buffer;
pub mod fault;
pub mod layer;
pub mod normal;
pub mod reference;
pub mod runner;
pub mod scenarios;
pub mod settings;
pub mod staged;

pub use agreement::Agreement;
pub use buffer::{Buffer, Combine, Dispatch, Handle, Received, size_hint};
pub use fault::{MoeError, MoeFault, PathName};
pub use runner::{Native, Runner};
pub use settings::{Format, Patience, Signals};
