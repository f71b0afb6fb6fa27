//! The tree of files that programs find devices by, in a directory of this process.
//!
//! A program asks for `/sys/class/infiniband/mlx5_0/node_guid`; what it opens is a file below [`Tree::root`]. The
//! tree holds what is the same all the time as well as the state of ports, which is written again when it changes.

mod path;
mod private;

pub use path::is_ours;
pub use private::{Tree, TreeError};
