//! Main program.
fn main() {}
