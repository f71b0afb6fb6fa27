//! The pure parts against naive ones; ranks of one process, also broken on purpose; and the program, run as its users
//! run it.

mod broken;
mod orders;
mod program;
mod pure;
