//! Version, statuses in words, the last failure.

use crate::failure::{Status, last};
use std::ffi::{c_char, c_int};

/// A number of the version, as the manifest has it.
const fn number(text: &str) -> u32 {
    let (bytes, mut value, mut at) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        value = value * 10 + (bytes[at] - b'0') as u32;
        at += 1;
    }
    value
}

const VERSION: u32 = number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
    | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
    | number(env!("CARGO_PKG_VERSION_PATCH"));

#[unsafe(no_mangle)]
extern "C" fn ste_version() -> u32 {
    VERSION
}

#[unsafe(no_mangle)]
extern "C" fn ste_strerror(status: c_int) -> *const c_char {
    let known = Status::ALL.iter().find(|known| **known as c_int == status);
    known.map_or(c"no status of this library", |status| status.text()).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ste_last_error() -> *const c_char {
    last()
}
