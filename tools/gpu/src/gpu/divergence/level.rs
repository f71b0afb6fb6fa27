//! Among whom a value is the same.

/// Among whom a value is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Block,
    Warp,
    Lane,
}
