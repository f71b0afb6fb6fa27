//! The shared library's name: the loader knows it by that and not by its file. What it calls of its own is bound inside
//! it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshunt_transfer.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
