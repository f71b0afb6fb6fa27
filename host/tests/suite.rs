//! Tests of the host side through its public API, as one program: what they share is compiled and linked once.

mod docs;
mod soft;
