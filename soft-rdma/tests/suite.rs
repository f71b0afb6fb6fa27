//! Tests of what gives other programs soft NICs, as one program: what they share is compiled and linked once.

mod connections;
mod control;
mod devx;
mod efa;
mod machine;
mod netlink;
mod support;
mod uverbs;
