//! What a machine has, and which rails each GPU uses. It reads files below a root and nothing else.

pub mod discover;
pub mod topology;
