//! What a method is.

use super::{Call, Context};
use rustix::io::Errno;

/// A method of an object type.
pub struct Method {
    /// Object type.
    pub object: u16,
    /// Number of the method.
    pub method: u16,
    /// Attributes it knows: another one that is mandatory is refused.
    pub attributes: &'static [u16],
    /// What it does.
    pub run: fn(&Context, &mut Call) -> Result<(), Errno>,
}
