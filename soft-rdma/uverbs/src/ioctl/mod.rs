//! The ioctl that every verb goes through: calls, the files they are made on, and what a method is.

mod call;
mod channel;
mod context;
mod method;
mod pages;

pub use call::Call;
pub use channel::{Channel, FileId, descriptors_of};
pub use context::{Context, Resource};
pub use method::Method;
pub use pages::Page;

/// The only request number: `_IOWR(0x1b, 1, 24)`.
pub const REQUEST: u64 = 0xc018_1b01;
