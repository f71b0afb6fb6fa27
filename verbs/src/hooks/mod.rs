//! What the program calls in the library's place.

pub mod batch;
pub mod data;
pub mod device;
pub mod events;
pub mod memory;
pub mod poll;
pub mod qp;
pub mod queue;
pub mod shared;
