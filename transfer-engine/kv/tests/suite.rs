//! Decoders and prefillers of one process, on soft NICs; and the program, run as its users run it.

mod parts;
mod program;
